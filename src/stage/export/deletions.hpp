#pragma once
// What removed_inputs() gives, taken away at the PFS.

#include <vector>

#include "config/job_config.hpp"
#include "stage/buffer.hpp"
#include "stage/copy/progress.hpp"
#include "stage/copy/worker_pool.hpp"
#include "stage/export/receipt.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/pfs/patience.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::stage {

/// Removes from results-dir what removed_inputs() gives: in place, else only the copies that were
/// brought there earlier. A file or link goes if it is what was staged in or brought out; where it
/// is something else, on-conflict decides: fail: a conflict; keep-both: it stays; overwrite: it
/// goes all the same, unless another node of the job may have put it there. A directory goes when
/// it is empty.
class Deletions {
 public:
  /// `placed`: what it takes away is noted there; null: nowhere. `partial_tag`: as of the results.
  Deletions(const config::JobConfig& config, PfsIo& pfs, ResultsTree& tree, WorkerPool& pool,
            const Progress& progress, PlacedNames* placed, std::string partial_tag);

  /// Entries for all of them, and durable. Call it when all results are back: a renamed file is a
  /// result, and an input that is gone. The tree is open. What another is about to give or to take
  /// is tried again, for so long.
  std::vector<ReceiptEntry> carry_out(const std::vector<fs::WalkItem>& inputs, Patience& patience);

  /// The same where it must not begin: not_saved, for this reason.
  std::vector<ReceiptEntry> refuse(const std::vector<fs::WalkItem>& inputs,
                                   const std::string& reason, int code = 0) const;

  /// Entries for what take_dropped() gave.
  std::vector<ReceiptEntry> leave(const std::vector<fs::WalkItem>& inputs) const;

  /// What there is to do at results-dir.
  std::vector<fs::WalkItem> due(std::vector<fs::WalkItem> inputs) const;

 private:
  ReceiptEntry remove_file(const fs::WalkItem& item);
  ReceiptEntry give_up_held(const fs::WalkItem& item, const ReceiptEntry& held) const;
  bool is_of_another_node(const struct stat& there) const;
  ReceiptEntry remove_directory(const fs::WalkItem& item);
  ReceiptEntry not_there(const fs::WalkItem& item);
  void note_removed(const fs::WalkItem& item);
  void make_durable(std::vector<ReceiptEntry>& entries);

  const config::JobConfig& config_;
  PfsIo& pfs_;
  ResultsTree& tree_;
  WorkerPool& pool_;
  const Progress& progress_;
  PlacedNames* const placed_;
  const std::string partial_tag_;
  const bool in_place_;
};

}  // namespace efs::stage
