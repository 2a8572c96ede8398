// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The ledger of a store (ledger/ledger.hpp) by the names of results-dir: which versions the store
// has exported under which names.

#include <sys/stat.h>

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.hpp"
#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "ledger/log.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/plan/planner.hpp"
#include "stage/versions/directory_version.hpp"

namespace efs::stage {

/// True if the job needs a ledger. Without one, a stage-out replaces files in results-dir
/// regardless of their origin.
bool may_meet_others(const config::JobConfig& config);

/// A name below results-dir, and the path in the buffer of the result that has or will get it. The
/// two differ with `as` of output rules.
struct PlacedName {
  std::string_view name, own;
};

using ledger::WhoseCopy;

/// True if only the inode's record can decide.
inline bool is_unknown(WhoseCopy whose) {
  return whose == WhoseCopy::unknown || whose == WhoseCopy::unsure;
}

using PlacedDirectory = ledger::DirectoryState;

/// Thread-safe. Changes are as durable as the log says (ledger/log.hpp).
class PlacedNames {
 public:
  PlacedNames(std::unique_ptr<ledger::Log> log, std::string_view results_dir)
      : log_(std::move(log)), results_dir_(results_dir) {}

  /// The origin of `there`, the file that has the name. `by_ctime`: a changed ctime counts as a
  /// change too, except for a copy with several names: changes of these names change its ctime.
  WhoseCopy look(const PlacedName& name, const struct stat& there, bool by_ctime) const;

  bool knows(std::string_view name) const;

  /// True if this store has removed the file of that name.
  bool has_removed(std::string_view name) const;

  /// True if look() may return `unsure`.
  bool is_incomplete() const;

  /// Logs the intent. Call it before the file `copy` takes the name of the file `before`. `copy`
  /// null: the name is removed. `before` null: no file has the name. If a later process still finds
  /// `before` there, it knows that the change was not made.
  Status coming(const PlacedName& name, const struct stat* copy, const struct stat* before);
  /// Call it after the change. `copy` null: the name was removed. `is_shared`: another node may
  /// have exported the same file; no node may replace it.
  Status placed(const PlacedName& name, const struct stat* copy, bool is_shared);
  /// The file of that name was imported: its inode has the record.
  Status forget(std::string_view name);

  PlacedDirectory directory(const PlacedName& name) const;
  /// Call it before the directory is made or its attributes change. `has`: the present attributes;
  /// null: as already recorded.
  Status coming_directory(const PlacedName& name, const DirectoryAttributes* has = nullptr);
  /// The directory was made with these attributes and will get its final ones.
  Status made_directory(const PlacedName& name, const DirectoryAttributes& has);
  /// The attributes were set and are not durable yet: after a crash the directory may have the
  /// former ones.
  Status applied_directory(const PlacedName& name, std::uint64_t version);
  /// The attributes are durable; nullopt: nothing was changed.
  Status placed_directory(const PlacedName& name, std::optional<std::uint64_t> version);

  /// All versions that got their names, the oldest first.
  std::vector<fs::Origin> copies() const;

  /// Makes the log durable. Tries failed writes again.
  Status sync() { return log_->sync(); }

 private:
  ledger::NameKey key(std::string_view name) const;

  ledger::Name at(const PlacedName& name) const {
    return {.name = key(name.name), .own = key(name.own)};
  }

  template <typename Look>
  auto in_ledger(Look look) const;
  /// Appends the state of a directory, which follows from the present one.
  template <typename Next>
  Status give(const PlacedName& name, Next next);

  const std::unique_ptr<ledger::Log> log_;
  const std::string results_dir_;
};

/// Call it after a stage-in, for results in place. Forgets the names of imported files that another
/// user had replaced: these files are now inputs of this job.
void forget_staged(const Plan& plan, PfsIo& pfs, fs::Staging& staging, PlacedNames& placed);

/// Records the imported attributes of this directory, for results in place. The record is kept by
/// name, because the job may replace the directory.
void record_came_in(const PlanEntry& entry, fs::Staging& staging, PlacedNames& placed);

/// True if this job may replace the file that has the name. `placed` (may be null) decides if it
/// has a record of the name; otherwise is_origin() decides.
bool is_ours(const PlacedNames* placed, const PlacedName& name, const fs::WalkItem& item,
             const struct stat& there);

}  // namespace efs::stage
