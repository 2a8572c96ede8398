#pragma once
// A result on its way: written under a partial name, checked, and renamed when it is durable.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "fs/staging.hpp"
#include "stage/buffer.hpp"
#include "stage/copy/progress.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// What write_partial() made: to be recognised before it gets its real name.
struct PartialFile {
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::optional<FileSum> checksum;  // of files, as read from the buffer
  // what the PFS does not take: "user.x: Operation not supported"; "": nothing
  std::string lost{};
};

/// One result and where it goes. `directory` is an open directory of the PFS.
struct PartialJob {
  const fs::WalkItem& item;
  int directory = -1;
  std::string partial;
  bool is_hidden = false;  // `directory` is: what has the name of the partial there is none, EEXIST
  // now, by itself; else the caller's syncfs of `synced` covers it, and what lies elsewhere is
  // synced all the same
  bool fsync = false;
  dev_t synced = 0;
  std::string name{};         // that it is to get; "": the item's
  bool inherits_acl = false;  // from its directory, and must not: it has the item's ACL or none
  mode_t acl_allows = 0777;   // else: what the directory's default ACL leaves of a mode
  bool is_new = false;        // the name must be nobody's: EEXIST, and the partial stays
  const struct stat* over = nullptr;  // or this file's: the same where another one has it by now
};

/// Creates with `make` what must not exist. What has the name of a partial was left by one that was
/// killed, or is in the way (a pipe, a link): it is removed, never opened.
template <typename Make>
auto make_afresh(PfsIo& pfs, int directory, const std::string& partial, Make make) {
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

/// Does `work` while there is a partial. What it throws, for want of memory, leaves none.
template <typename Work>
auto with_partial(PfsIo& pfs, int directory, const std::string& partial, Work work) {
  try {
    return work();
  } catch (...) {
    (void)pfs.unlink(directory, partial);
    throw;
  }
}

/// Writes data, owner and extended attributes (both where permitted), mode and times of a file, or
/// a symbolic link. A partial left by a stage-out that was killed is replaced. After an error no
/// partial is left, unless removing it failed too, which the error tells. Not durable without
/// `fsync`. Thread-safe for different items.
Result<PartialFile> write_partial(const PartialJob& job, Buffer& buffer, PfsIo& pfs,
                                  Scratch& scratch, Progress& progress);

/// Checks that the partial is the one that was written, of its full size, and gives it the item's
/// name, replacing what has it. Requires: the partial is durable. After an error the partial is
/// gone, as above, but for EEXIST as `job` says and is_held(): it is to be tried again then.
/// `about_to` is called with the partial's attributes as PfsIo::rename() calls its own.
using AboutToPublish = std::function<void(const struct stat& partial, bool is_shared)>;
Status publish_partial(const PartialJob& job, const PartialFile& written, PfsIo& pfs,
                       const AboutToPublish& about_to = {});

/// Compares what the PFS holds with the checksum of what was written, after the cached pages of
/// this client were dropped. Requires: a checksum; durable, for dirty pages cannot be dropped. How
/// strong that is depends on the PFS: it is asked again where it keeps no other cache on this node.
/// EIO where the two differ.
Status read_back(const PartialJob& job, const PartialFile& written, PfsIo& pfs, Scratch& scratch,
                 const std::atomic<bool>& cancel);

/// Gives the file `from` (in the open directory `from_at`) the item's name too, replacing what has
/// it: by a link of the partial name, renamed. Errors: EPERM, EOPNOTSUPP, EMLINK, EXDEV where the
/// PFS cannot; EEXIST as `job` says; is_held(); no partial is left.
Status link_partial(int from_at, const std::string& from, const PartialJob& job, PfsIo& pfs,
                    const AboutToName& about_to = {});

}  // namespace efs::stage
