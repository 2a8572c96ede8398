#pragma once
// A result on its way: written under a partial name, checked, and renamed when it is durable.

#include <atomic>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "fs/staging.hpp"
#include "stage/buffer.hpp"
#include "stage/pfs_io.hpp"
#include "stage/progress.hpp"
#include "stage/transfer.hpp"

namespace efs::stage {

inline constexpr const char* partial_suffix = ".efs-partial";

/// Of the partials of a store: what has it was left by a stage-out or salvage of that store and by nobody else, and may be replaced.
/// `store`: the text of its store::InstanceId.
std::string partial_tag_of(const std::string& store);

/// NAME, `tag` and ".efs-partial", or a hashed name of the same suffix where that would be too long or is `taken` by a result.
std::string partial_name(const std::string& name, const std::string& tag = {}, bool taken = false);

/// What is told of a partial that could not be removed.
std::string left_behind(const std::string& partial, const Error& error);

/// The name of the job's version where both are kept: "NAME.efs-JOB", the n-th with ".N" behind it.
std::string kept_name(const std::string& name, const std::string& job, unsigned n);

/// What write_partial() made: to be recognised before it gets its real name.
struct PartialFile {
  std::uint64_t inode = 0;
  std::uint64_t size = 0;
  std::optional<std::uint64_t> checksum;  // of files, as read from the buffer
  std::string lost{};                     // what the PFS does not take: "user.x: Operation not supported"; "": nothing
};

/// One result and where it goes. `directory` is an open directory of the PFS.
struct PartialJob {
  const fs::WalkItem& item;
  int directory = -1;
  std::string partial;
  bool fsync = false;  // now, by itself; else the caller's syncfs of `synced` covers it, and what lies elsewhere is synced all the same
  dev_t synced = 0;
  std::string name{};  // that it is to get; "": the item's
  bool inherits_acl = false;  // from its directory, and must not: it has the item's ACL or none
  bool is_new = false;        // the name must be nobody's: EEXIST, and the partial stays
  const struct stat* over = nullptr;  // or this file's: the same where another one has it by now
};

/// Creates with `make` what must not exist. What has the name of a partial was left by one that was killed, or is in the way
/// (a pipe, a link): it is removed, never opened.
template <typename Make>
auto make_afresh(PfsIo& pfs, int directory, const std::string& partial, Make make) {
  auto made = make();
  if (made || made.error().code != EEXIST) return made;
  if (auto removed = pfs.unlink(directory, partial); !removed) return decltype(made)(told(removed.error(), "removing the partial of an earlier stage-out"));
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

/// Writes data, owner and extended attributes (both where permitted), mode and times of a file, or a symbolic link. A partial left by a stage-out
/// that was killed is replaced. After an error no partial is left, unless removing it failed too, which the error tells. Not durable
/// without `fsync`. Thread-safe for different items.
Result<PartialFile> write_partial(const PartialJob& job, Buffer& buffer, PfsIo& pfs, Scratch& scratch, Progress& progress);

/// Checks that the partial is the one that was written, of its full size, and gives it the item's name, replacing
/// what has it. Requires: the partial is durable. After an error the partial is gone, as above, but for EEXIST as `job` says and is_held(): it is to be
/// tried again then. `about_to` is called with the partial's attributes as PfsIo::rename() calls its own.
using AboutToPublish = std::function<void(const struct stat& partial, bool is_shared)>;
Status publish_partial(const PartialJob& job, const PartialFile& written, PfsIo& pfs, const AboutToPublish& about_to = {});

/// Compares what the PFS holds with the checksum of what was written, after the cached pages of this client were dropped.
/// Requires: a checksum; durable, for dirty pages cannot be dropped. How strong that is depends on the PFS: it is asked again where it keeps
/// no other cache on this node. EIO where the two differ.
Status read_back(const PartialJob& job, const PartialFile& written, PfsIo& pfs, Scratch& scratch, const std::atomic<bool>& cancel);

/// What the PFS does not take or permit is told ("user.x: Operation not supported; ..."), not an error: the data are worth
/// more. Other errors are.
Result<std::string> set_xattrs(int fd, const fs::WalkItem& item, PfsIo& pfs);

/// Gives the file `from` (in the open directory `from_at`) the item's name too, replacing what has it: by a link of the
/// partial name, renamed. Errors: EPERM, EOPNOTSUPP, EMLINK, EXDEV where the PFS cannot; EEXIST as `job` says; is_held(); no partial is left.
Status link_partial(int from_at, const std::string& from, const PartialJob& job, PfsIo& pfs, const AboutToName& about_to = {});

/// Is `now` the version that the item was staged in from, or that was brought out later, or that of the input whose name it
/// took? Of a file with several names, and of a result, ctime does not count: it moves when we replace one of the others.
bool is_origin(const struct stat& now, const fs::WalkItem& item);

/// Is `theirs` what a PFS makes of the time `ours`? It may keep whole seconds only.
bool same_or_coarser(const struct timespec& theirs, const struct timespec& ours);

/// Of a file that nobody changed, whatever its name is now: is its container, by size and mtime, not the one that was filled?
/// Nobody has written to it, so somebody has put another one in its place, or cut it short. Of what is dirty nothing can be told.
bool is_foreign(const fs::WalkItem& item);

/// Is what is there what was brought out as `copy`? Its ctime has moved with each name that it got since.
bool is_copy(const struct stat& now, const fs::Origin& copy);
/// Of an item that is out: the copy, which had one name when it was seen last, has neither changed nor got or lost a name since; where it has or
/// had several its ctime tells nothing, and is not asked.
bool is_untouched_copy(const struct stat& now, const fs::WalkItem& item);

class PlacedNames;
enum class WhoseCopy : std::uint8_t;

/// How the PFS stands towards an item that is to replace its origin.
enum class PfsVersion : std::uint8_t { origin_or_none, same_content, same_data, other, of_another_path };
struct PfsCheck {
  PfsVersion version = PfsVersion::origin_or_none;
  std::optional<std::uint64_t> checksum;  // with same_content
  WhoseCopy whose{};                      // as `placed` says
  bool exists = false;                    // something answers to the name
  struct stat seen {};                    // what
};
/// What is compared with an item: what has this name in its directory. `to_origin`: it is the item's own name, in place, where what was staged
/// in under it, or brought out, is the job's to replace: as `placed` says where it knows the name, else as is_origin() does.
struct Comparand {
  std::string name;
  bool to_origin = true;
  const PlacedNames* placed = nullptr;
};
/// origin_or_none: nothing of this name, or, with `to_origin`, the version that was staged in or brought out. of_another_path: what was
/// brought out of another path of the buffer, which calls it so in results-dir. same_content: an earlier
/// stage-out, killed before its receipt, has brought the item out: size, mtime, mode, owner, extended attributes and checksum
/// are the item's. same_data: the same, but for owner or extended attributes, or it may be another node's: to be replaced by ours.
Result<PfsCheck> check_version(const fs::WalkItem& item, const Comparand& with, int directory, Buffer& buffer, PfsIo& pfs, Scratch& scratch, const std::atomic<bool>& cancel);

}  // namespace efs::stage
