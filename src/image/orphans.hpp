#pragma once
// Contents that no name leads to any more: of files whose records the journal has lost.

#include <cstdint>
#include <string>
#include <vector>

#include "fs/staging.hpp"
#include "image/image.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/receipt.hpp"

namespace efs::image {

struct Orphans {
  std::vector<fs::WalkItem> items;  // by number; paths as salvage_orphans() gives them
  std::uint64_t bytes = 0;
  // why it says nothing, so that all contents are here; "": it could be read, in part at least
  std::string journal_problem;
};

/// The containers that hold something and are nothing that the journal, as far as it can be read,
/// knows of. (What a stage-in or a load had not finished is among them.) `held` outlives what is
/// done with it.
Result<Orphans> find_orphans(const HeldStore& held);

/// Brings them out to `to`, as lost+found/JOB-INSTANCE/NUMBER (for nothing tells what they were
/// called), by the machinery of a stage-out. Each is "as-found": its label says whose it is,
/// nothing vouches for what is in it. What is labelled as another's is called failed. The image
/// stays as it is. Requires: a hold to bring out.
stage::Receipt salvage_orphans(const HeldStore& held, const Orphans& lost, const std::string& to,
                               stage::Progress& progress);

}  // namespace efs::image
