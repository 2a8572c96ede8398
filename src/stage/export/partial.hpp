// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exports one result: writes it under a partial name, checks it, and renames it when it is durable.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "fs/staging.hpp"
#include "stage/copy/progress.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/export_source.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/pfs/publisher.hpp"

namespace efs::stage {

/// Identifies the file that write_partial() made, for the check before it gets its real name.
struct PartialFile {
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::optional<FileSum> checksum;  // of files: the content as read from the buffer
  // attributes that the PFS rejected: "user.x: Operation not supported"; "": none
  std::string lost{};
};

/// One result and where it goes. `directory` is an open directory of the PFS.
struct PartialJob {
  const fs::WalkItem& item;
  PfsRef directory{};
  std::string partial;
  // `directory` is hidden: a file there that has the partial's name is not a partial, and creating
  // the partial fails with EEXIST
  bool is_hidden = false;
  // fsync the file at once. Otherwise the caller's syncfs of `synced` covers it; a file on another
  // file system is synced in any case
  bool fsync = false;
  dev_t synced = 0;
  std::string name{};  // the name to give; "": the item's
  // the file would inherit an ACL from its directory and must not: it gets the item's ACL or none
  bool inherits_acl = false;
  mode_t acl_allows = 0777;  // otherwise: the mode bits that the directory's default ACL permits
  NameRule rule{};           // which file may lose the name: if another one has it, EEXIST
};

/// Creates a new file with `make`. A file that already has the partial's name is the remainder of a
/// killed stage-out or an obstacle (a pipe, a link). It is removed and never opened.
template <typename Make>
auto make_afresh(PfsIo& pfs, PfsRef directory, const std::string& partial, Make make) {
  auto made = make();
  if (made || made.error().code != EEXIST) {
    return made;
  }
  if (auto removed = pfs.unlink(directory, partial); !removed) {
    return decltype(made)(
        with_context(removed.error(), "removing the partial of an earlier stage-out"));
  }
  return make();
}

/// Runs `work` while a partial exists. If `work` throws (out of memory), the partial is removed.
template <typename Work>
auto with_partial(PfsIo& pfs, PfsRef directory, const std::string& partial, Work work) {
  try {
    return work();
  } catch (...) {
    (void)pfs.unlink(directory, partial);
    throw;
  }
}

/// Writes the data, owner and extended attributes (both if permitted), mode and times of a file, or
/// a symbolic link. It replaces the partial of a killed stage-out. After an error no partial is
/// left, unless its removal failed too; the error then says so. Not durable without `fsync`.
/// Thread-safe for different items.
Result<PartialFile> write_partial(const PartialJob& job, ExportSource& buffer, PfsIo& pfs,
                                  Scratch& scratch, Progress& progress);

/// True if the error of publish_partial() or link_partial() says that the name belongs to another
/// file than `job` permits.
bool is_name_taken(const PartialJob& job, const Error& error);

/// Checks that the partial is the file that was written and has its full size. Then gives it the
/// item's name and replaces the file that has the name. Requires: the partial is durable. After an
/// error the partial is removed, as above. Exceptions are EEXIST by the job's rule and is_held():
/// the partial stays, and the caller may try again. `about_to` is called with the partial's
/// attributes as Publisher::publish() calls its own.
using AboutToPublish = std::function<void(const struct stat& partial, bool is_shared)>;
Status publish_partial(const PartialJob& job, const PartialFile& written, PfsIo& pfs,
                       Publisher& publisher, const AboutToPublish& about_to = {});

/// Reads the file back from the PFS and compares it with the checksum of the written data. Drops
/// this client's cached pages first. Requires: a checksum, and a durable file, because the kernel
/// cannot drop dirty pages. The read reaches the PFS servers only if the PFS client has no other
/// cache on this node. EIO if the two differ.
Status read_back(const PartialJob& job, const PartialFile& written, PfsIo& pfs, Scratch& scratch,
                 const std::atomic<bool>& cancel);

/// A file that has the name `name` in the open directory `directory`.
struct LinkSource {
  PfsRef directory{};
  const std::string& name;
};

/// Gives the file `from` the item's name too. It makes a link with the partial name and renames it,
/// which replaces the file that has the name. Errors: EPERM, EOPNOTSUPP, EMLINK, EXDEV if the PFS
/// cannot link; EEXIST by the job's rule; is_held(). No partial is left.
Status link_partial(const LinkSource& from, const PartialJob& job, PfsIo& pfs, Publisher& publisher,
                    const AboutToName& about_to);

}  // namespace efs::stage
