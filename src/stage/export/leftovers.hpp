#pragma once
// Partials that a killed stage-out, unload or salvage has left, and that no later one would
// replace: what they were of has been removed or renamed since.

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "fs/staging.hpp"
#include "stage/copy/worker_pool.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Removes from these directories (paths below results_dir) what has the `tag` of a store's
/// partials (partial_tag_of()), and claims that were made for one (name_claim.hpp), unless it is a
/// name of `items`, or one that the tree has hidden. Of a directory that was hidden, which has the
/// tag, go what `items` know below its name, and partials; with what else somebody has put there it
/// stays. A directory that is not there, or cannot be read, and what may not be removed are passed
/// over: nothing hangs on it. Partials with a hashed name (partial_name()) do not say whose they
/// are, and stay. Requires: nothing of that store is on its way.
struct Leftovers {
  std::size_t removed = 0;
  std::vector<std::string> left{};  // hidden directories: paths below results_dir
};

Leftovers remove_leftovers(const std::set<std::string, std::less<>>& directories,
                           const std::vector<fs::WalkItem>& items, const std::string& tag,
                           ResultsTree& tree, WorkerPool& pool, PfsIo& pfs);

}  // namespace efs::stage
