// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Removes from the PFS the inputs that removed_inputs() returns.

#include <optional>
#include <set>
#include <string>
#include <vector>

#include "config/job_config.hpp"
#include "stage/export/conflict.hpp"
#include "stage/export/export_context.hpp"
#include "stage/export/receipt.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/pfs/patience.hpp"
#include "stage/pfs/pfs_handle.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::stage {

/// Removes the result of removed_inputs() from results-dir. If results-dir is not root-dir, it
/// removes only copies that an earlier stage-out exported. A file or link is removed if it is the
/// imported or exported version. If the PFS has another version, on-conflict decides. fail: a
/// conflict. keep-both: the other version stays. overwrite: it is removed too, unless another node
/// of the job may have exported it. A directory is removed when it is empty.
class Deletions {
 public:
  /// Records the removals in `placed` of the options, unless that is null.
  explicit Deletions(const ExportContext& context);

  /// Returns an entry for each input; the removals are durable. Call it after all results are
  /// exported, because a renamed file is both a result and a removed input. The tree must be open.
  /// A name that another node or job has claimed is tried again for as long as `patience` lasts.
  std::vector<ReceiptEntry> carry_out(const std::vector<fs::WalkItem>& inputs, Patience& patience);

  /// Returns not_saved entries with this reason, if the removals must not begin.
  std::vector<ReceiptEntry> refuse(const std::vector<fs::WalkItem>& inputs,
                                   const std::string& reason, int code = 0) const;

  /// Entries for the result of take_dropped().
  std::vector<ReceiptEntry> leave(const std::vector<fs::WalkItem>& inputs) const;

  /// The inputs to remove from results-dir.
  std::vector<fs::WalkItem> due(std::vector<fs::WalkItem> inputs) const;

 private:
  ReceiptEntry remove_file(const fs::WalkItem& item);
  Result<PfsHandle> let_in_and_open(const std::string& path);
  bool is_jobs_version(const fs::WalkItem& item, PfsRef directory, const struct stat& now);
  static ReceiptEntry leave_changed(const fs::WalkItem& item, const Decision& decision);
  Status remove_version(const fs::WalkItem& item, PfsRef directory, const struct stat& now);
  ReceiptEntry fail_held(const fs::WalkItem& item, const ReceiptEntry& held) const;
  bool is_of_another_node(const struct stat& there) const;
  ReceiptEntry remove_directory(const fs::WalkItem& item);
  ReceiptEntry not_there(const fs::WalkItem& item);
  void record_removed(const fs::WalkItem& item);
  void make_durable(std::vector<ReceiptEntry>& entries);
  std::set<std::string> directories_left(const std::vector<ReceiptEntry>& entries);

  const config::JobConfig& config_;
  PfsIo& pfs_;
  Publisher& publisher_;
  ResultsTree& tree_;
  WorkerPool& pool_;
  const Progress& progress_;
  PlacedNames* const placed_;
  const std::string partial_tag_;
  const bool in_place_;
  const ConflictRules rules_;
};

}  // namespace efs::stage
