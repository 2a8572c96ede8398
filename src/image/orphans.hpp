// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Orphans: containers without a name, of files whose records the journal has lost.

#include <cstdint>
#include <string>
#include <vector>

#include "fs/staging.hpp"
#include "image/image.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/receipt.hpp"

namespace efs::image {

struct Orphans {
  std::vector<fs::WalkItem> items;  // by number; with paths as salvage_orphans() uses them
  std::uint64_t bytes = 0;
  // the reason why the journal is unreadable, so that all containers are listed; "": readable, at
  // least in part
  std::string journal_problem;
};

/// Returns the containers with content that are unknown to the readable part of the journal. (This
/// includes those of an unfinished stage-in or load.) `held` must outlive the use of the result.
Result<Orphans> find_orphans(const HeldStore& held);

/// Exports orphans to `to`, as lost+found/JOB-INSTANCE/NUMBER (their names are unknown), with the
/// code of a stage-out. Each entry is "as-found": its label states its owner, and its content is
/// not verified. A container with another label is reported as failed. Does not change the store.
/// Requires Hold::to_bring_out.
stage::Receipt salvage_orphans(const HeldStore& held, const Orphans& lost, const std::string& to,
                               stage::Progress& progress);

}  // namespace efs::image
