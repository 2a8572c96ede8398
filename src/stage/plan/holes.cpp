// SPDX-License-Identifier: BSD-3-Clause
// Holes of sparse files take nothing of the buffer.
#include <algorithm>

#include "stage/plan/follow.hpp"
#include "stage/plan/hard_links.hpp"
#include "stage/plan/planner.hpp"

namespace efs::stage {
namespace {

/// Whole grains that the file's holes save; 0 where the PFS does not tell.
std::uint64_t hole_bytes(const PlanEntry& entry, PfsRef root, PfsIo& pfs) {
  auto file = open_source(pfs, root, source_of(entry), O_RDONLY | O_NONBLOCK);
  if (!file) {
    return 0;
  }
  std::uint64_t data = 0;
  for (std::uint64_t at = 0; at < entry.size;) {
    auto begin = pfs.seek(*file, at, SEEK_DATA);
    if (!begin && begin.error().code == ENXIO) {
      break;
    }
    auto end = begin ? pfs.seek(*file, *begin, SEEK_HOLE) : begin;
    if (!end || *end <= at) {
      return 0;
    }
    data += rounded(std::min(*end, entry.size) - *begin);
    at = *end;
  }
  return rounded(entry.size) - std::min(data, rounded(entry.size));
}

}  // namespace

// Fewer blocks than bytes can mean holes, or a PFS that compresses; only the files can tell.
void leave_out_holes(Plan& plan, PfsIo& pfs) {
  const auto is_sparse = [](const PlanEntry& entry) {
    return entry.type == EntryType::file && entry.needed > 0 && entry.allocated < entry.size;
  };
  if (std::ranges::none_of(plan.entries, is_sparse)) {
    return;
  }
  const auto root = pfs.open(no_directory, plan.root_dir, passage_flags);
  if (!root) {
    return;
  }
  for (auto& entry : plan.entries) {
    if (!is_sparse(entry)) {
      continue;
    }
    const std::uint64_t needed = rounded(entry.size) - hole_bytes(entry, *root, pfs);
    plan.needed -= entry.needed - needed;
    entry.needed = needed;
  }
}

}  // namespace efs::stage
