#pragma once
// Which names go back to the PFS. A pure function of the job file and the walk.

#include <vector>

#include "config/job_config.hpp"
#include "fs/staging.hpp"
#include "stage/export/receipt.hpp"

namespace efs::stage {

/// A directory that has to be there, and whether it is given its attributes if it is there already:
/// not so in place for one that is only on the way, for it has its own.
struct DirectoryToMake {
  const fs::WalkItem* item = nullptr;
  bool apply_attributes = true;
  bool reported = true;  // itself a result, not merely on the way to one
};

/// Pointers into the items given to select_outgoing.
struct Selection {
  std::vector<DirectoryToMake> directories;  // parents before children
  // files and symbolic links, those of a directory side by side
  std::vector<const fs::WalkItem*> outgoing;
  // what does not go, and why: unchanged, dropped, skipped
  std::vector<ReceiptEntry> settled;
};

/// What this job's results-dir calls the names of the buffer. Keeps `config`.
fs::ResultName result_names(const config::JobConfig& config);

/// What `efs set` said of the item or of a directory above it, or else the class by the job file;
/// `why` for people.
config::FileClass class_of(const config::JobConfig& config, const fs::WalkItem& item,
                           std::string* why = nullptr);

/// Would it go to results-dir if it were persistent? A file is clean where the PFS is known to have
/// it: as its origin or as the copy of an unload.
bool is_dirty(const fs::WalkItem& item);

/// `items` as walk() gives them. Clean files stay (also where results_dir is another directory:
/// they are inputs); a file that is clean but has no origin counts as dirty, for nothing says that
/// the PFS has it. What is dirty goes if it is persistent and is listed as dropped if not. Each
/// name of a hard-linked file is listed. `by_rank`: what the job file names first goes first.
Selection select_outgoing(const config::JobConfig& config, const std::vector<fs::WalkItem>& items,
                          bool by_rank = false);

}  // namespace efs::stage
