// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Decides which name a result gets: looks at the file that has its name, and carries out what the
// conflict table (conflict.hpp) says about it, short of the export itself.

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/mutex.hpp"
#include "config/job_config.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/export/conflict.hpp"
#include "stage/export/export_context.hpp"
#include "stage/export/export_failures.hpp"
#include "stage/export/outgoing.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/pfs/spelling.hpp"
#include "stage/versions/input_guard.hpp"
#include "stage/versions/placed_names.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::stage {

/// Thread-safe for different results. `directory` is always the open directory of the result.
class ResultNames {
 public:
  explicit ResultNames(const ExportContext& context);

  /// Reserves the item's name, so that on-conflict: keep-both does not choose it for another
  /// result.
  void reserve(const fs::WalkItem& item);

  /// True if a file may have the name already.
  bool may_meet_another(const Outgoing& out) const;

  /// True if the file that has the name may belong to another user and the job file protects it.
  bool is_looked_at(const Outgoing& out) const;

  /// True if `there`, which has the name, is the version that the job may replace.
  bool is_own(const Outgoing& out, const struct stat& there) const;

  /// Compares the file that has the name with the result.
  Result<PfsCheck> check(const Outgoing& out, PfsRef directory, Scratch& scratch);

  Decision decide(const Outgoing& out, const PfsCheck& there) const;

  /// Carries out a decision with an obstacle. True if the result may be written, under out.name.
  bool resolve(Outgoing& out, const Decision& decision, PfsRef directory, Scratch& scratch);

  /// Settles the result if its name leads to a file with another spelling, and returns false.
  /// Otherwise the result or that other file, perhaps also a result, would be lost.
  bool is_spelled_so(Outgoing& out, PfsRef directory);

  /// Settles the result if its name leads to an input of the job, outside of root-dir. No name in
  /// results-dir should, but one may.
  bool is_over_input(Outgoing& out, PfsRef directory);

  /// An earlier stage-out has exported the result. The name may not be durable yet: as after a
  /// rename, it needs the sync of its directory.
  void found_there(Outgoing& out, std::optional<FileSum> checksum);

 private:
  bool may_conflict(const Outgoing& out) const;
  bool is_unsure() const;
  Encounter encounter(const Outgoing& out, const PfsCheck& there) const;
  VersionMeans means(Scratch& scratch) const;
  std::optional<bool> keep_beside(Outgoing& out, std::string_view why, PfsRef directory,
                                  Scratch& scratch);
  bool take_kept_name(const Outgoing& out, const std::string& name);
  bool is_elders(const Outgoing& out, PfsRef directory);
  bool is_own_copy(const Outgoing& out, PfsRef directory);

  const config::JobConfig& config_;
  ExportSource& buffer_;
  PfsIo& pfs_;
  Publisher& publisher_;
  ResultsTree& tree_;
  Progress& progress_;
  ExportFailures& failures_;
  PlacedNames* const placed_;
  const bool in_place_;
  const ConflictRules rules_;
  InputGuard inputs_;
  SpelledNames spelled_;
  Mutex mutex_;  // rank 90 (leaf)
  // names reserved or chosen for these items (on-conflict: keep-both)
  std::unordered_map<std::string, const fs::WalkItem*> kept_names_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::stage
