// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Compares the file that has a name on the PFS with the item in the buffer.

#include <sys/stat.h>

#include <atomic>
#include <cstdint>
#include <optional>
#include <string>

#include "fs/staging.hpp"
#include "ledger/ledger.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/export_source.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/pfs/publisher.hpp"

namespace efs::stage {

/// True if `now` is the version that the item was imported from, that was exported later, or that
/// of the input whose name the item took. ctime does not count for a file with several names or for
/// a result: it changes when efs replaces one of the other names.
bool is_origin(const struct stat& now, const fs::WalkItem& item);

/// True if a PFS may store the time `ours` as `theirs`. It may keep whole seconds only.
bool same_or_coarser(const struct timespec& theirs, const struct timespec& ours);

/// True if the container of an unmodified file (under any name) has another size or mtime than the
/// container that was filled. No program has written to the file, so the container was exchanged or
/// truncated. Always false for a dirty file, for which nothing is known.
bool is_foreign(const fs::WalkItem& item);

/// True if the file `now` was exported as `copy`. Ignores ctime, which changes with each new name.
bool is_copy(const struct stat& now, const fs::Origin& copy);
/// For an exported item: true if its copy has not changed and has gained or lost no name since.
/// ctime counts only if the copy has and had one name.
bool is_untouched_copy(const struct stat& now, const fs::WalkItem& item);

class PlacedNames;
using ledger::WhoseCopy;

/// The relation of the file on the PFS to an item that will replace it.
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
  WhoseCopy whose{};                // by `placed`
  bool exists = false;              // a file has the name
  struct stat seen{};               // what
};

/// The file to compare with an item: the file that has `name` in the open `directory`. `to_origin`:
/// `name` is the item's own name, under which the job may replace the imported or exported version.
/// `placed` decides that if it has a record of the name; otherwise is_origin() decides.
struct Comparand {
  PfsRef directory{};
  std::string name;
  bool to_origin = true;
  const PlacedNames* placed = nullptr;
};

/// The objects that a check uses. `cancel` ends the reading of both files.
struct VersionMeans {
  ExportSource& buffer;
  PfsIo& pfs;
  Publisher& publisher;
  Scratch& scratch;
  const std::atomic<bool>& cancel;
};

/// origin_or_none: the name does not exist, or, with `to_origin`, has the imported or exported
/// version. of_another_path: the file was exported from another path of the buffer, which has the
/// same name in results-dir. same_content: an earlier stage-out, killed before its receipt, has
/// exported the item: size, mtime, mode, owner, extended attributes and checksum are the item's.
/// same_data: the same except for owner or extended attributes, or another node may have exported
/// it; the item must replace it.
Result<PfsCheck> check_version(const fs::WalkItem& item, const Comparand& with,
                               const VersionMeans& means);

}  // namespace efs::stage
