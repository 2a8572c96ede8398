// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Selects the names to export. A pure function of the job file and the walk.

#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/export/receipt.hpp"

namespace efs::stage {

/// A directory that must exist on the PFS. `apply_attributes`: an existing directory gets the job's
/// attributes too. False in place for a directory that is only the parent of a result, for it has
/// its own attributes.
struct DirectoryToMake {
  const fs::WalkItem* item = nullptr;
  bool apply_attributes = true;
  bool reported = true;  // a result itself, not only the parent of one
};

/// Pointers into the items given to select_outgoing.
struct Selection {
  std::vector<DirectoryToMake> directories;  // parents before children
  // files and symbolic links; those of one directory are adjacent
  std::vector<const fs::WalkItem*> outgoing;
  // items that are not exported, with the reason: unchanged, dropped, skipped
  std::vector<ReceiptEntry> settled;
};

/// Maps names of the buffer to names in this job's results-dir. `config` must outlive the function.
fs::ResultName result_names(const config::JobConfig& config);

/// The class set by `efs set` for the item or a directory above it, otherwise the class by the job
/// file. `why`: the reason, for people.
config::FileClass class_of(const config::JobConfig& config, const fs::WalkItem& item,
                           std::string* why = nullptr);

/// `items`: the result of walk(). Clean files are inputs and are not exported, even to another
/// results_dir. A clean file without an origin counts as dirty, because no record shows that the
/// PFS has it. Dirty persistent items are exported; dirty temporary items are listed as dropped.
/// Each name of a hard-linked file is listed. `by_rank`: orders the results by the rules of the job
/// file.
Selection select_outgoing(const config::JobConfig& config, const std::vector<fs::WalkItem>& items,
                          bool by_rank = false);

}  // namespace efs::stage
