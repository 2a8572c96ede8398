// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Partials of a killed stage-out, unload or salvage that no later one would replace, because the
// job has since removed or renamed the file.

#include <cstddef>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "fs/staging.hpp"
#include "stage/copy/worker_pool.hpp"
#include "stage/export/export_context.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// Removes leftovers of a store from these directories (paths below results_dir). A leftover is a
/// file with the tag of the store's partials (`partial_tag` of the options), or a claim made for
/// such a partial (name_claim.hpp). Names of `items` and directories that the tree has hidden stay.
/// From a directory with the tag, which a killed stage-out had hidden, it removes partials and the
/// files that `items` know below its real name. If that directory holds any other file, the file
/// and the directory stay. Missing or unreadable directories and files that cannot be removed are
/// skipped; that is no error. Partials with a hashed name (partial_name()) do not show their store,
/// and stay. Requires: no other process exports from that store.
struct Leftovers {
  std::size_t removed = 0;
  std::vector<std::string> left{};  // hidden directories: paths below results_dir
};

Leftovers remove_leftovers(const std::set<std::string, std::less<>>& directories,
                           const std::vector<fs::WalkItem>& items, const ExportContext& context);

}  // namespace efs::stage
