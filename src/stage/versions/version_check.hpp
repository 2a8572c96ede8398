#pragma once
// How what the PFS has under a name stands towards what the buffer holds.

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "fs/staging.hpp"
#include "stage/buffer.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Is `now` the version that the item was staged in from, or that was brought out later, or that of
/// the input whose name it took? Of a file with several names, and of a result, ctime does not
/// count: it moves when we replace one of the others.
bool is_origin(const struct stat& now, const fs::WalkItem& item);

/// Is `theirs` what a PFS makes of the time `ours`? It may keep whole seconds only.
bool same_or_coarser(const struct timespec& theirs, const struct timespec& ours);

/// Of a file that nobody changed, whatever its name is now: is its container, by size and mtime,
/// not the one that was filled? Nobody has written to it, so somebody has put another one in its
/// place, or cut it short. Of what is dirty nothing can be told.
bool is_foreign(const fs::WalkItem& item);

/// Is what is there what was brought out as `copy`? Its ctime has moved with each name that it got
/// since.
bool is_copy(const struct stat& now, const fs::Origin& copy);
/// Of an item that is out: the copy, which had one name when it was seen last, has neither changed
/// nor got or lost a name since; where it has or had several its ctime tells nothing, and is not
/// asked.
bool is_untouched_copy(const struct stat& now, const fs::WalkItem& item);

class PlacedNames;
enum class WhoseCopy : std::uint8_t;

/// How the PFS stands towards an item that is to replace its origin.
enum class PfsVersion : std::uint8_t {
  origin_or_none,
  same_content,
  same_data,
  other,
  of_another_path
};

struct PfsCheck {
  PfsVersion version = PfsVersion::origin_or_none;
  std::optional<FileSum> checksum;  // with same_content
  WhoseCopy whose{};                // as `placed` says
  bool exists = false;              // something answers to the name
  struct stat seen{};               // what
};

/// What is compared with an item: what has this name in its directory. `to_origin`: it is the
/// item's own name, in place, where what was staged in under it, or brought out, is the job's to
/// replace: as `placed` says where it knows the name, else as is_origin() does.
struct Comparand {
  std::string name;
  bool to_origin = true;
  const PlacedNames* placed = nullptr;
};

/// origin_or_none: nothing of this name, or, with `to_origin`, the version that was staged in or
/// brought out. of_another_path: what was brought out of another path of the buffer, which calls it
/// so in results-dir. same_content: an earlier stage-out, killed before its receipt, has brought
/// the item out: size, mtime, mode, owner, extended attributes and checksum are the item's.
/// same_data: the same, but for owner or extended attributes, or it may be another node's: to be
/// replaced by ours.
Result<PfsCheck> check_version(const fs::WalkItem& item, const Comparand& with, int directory,
                               Buffer& buffer, PfsIo& pfs, Scratch& scratch,
                               const std::atomic<bool>& cancel);

}  // namespace efs::stage
