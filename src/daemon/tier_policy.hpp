// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which contents move between the tiers of a job (key `tiers`). Pure: the callers look and move.

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "backends/backend.hpp"
#include "config/job_config.hpp"
#include "fs/staging.hpp"

namespace efs::daemon {

using MoveCandidate = fs::Staging::MoveCandidate;

/// A tier and the files in it that may move. The first tier is the fastest.
struct Tier {
  Space space;
  std::vector<MoveCandidate> files{};
};

/// A file that goes from one tier to another; both are positions in the order of tiers.
struct TierMove {
  std::size_t from = 0, to = 0;
  std::uint64_t ino = 0;
  std::string path;
  std::uint64_t bytes = 0;

  bool operator==(const TierMove&) const = default;
};

/// The bytes of the tier that no content can take: also those of other users of its device.
std::uint64_t used_of(const Space& space);
/// `percent` of the tier's capacity.
std::uint64_t level_of(const Space& space, unsigned percent);
/// The bytes that are to go down from each tier: of one above `high`, or that would be above it
/// with what comes from the tier before, what is above `low`. The last tier gives none. Needs no
/// files.
std::vector<std::uint64_t> bytes_down(const config::Tiers& rules, std::span<const Tier> tiers);

/// The files that go down, in the order of their moves, until bytes_down() have gone: first those
/// that no program has opened lately, and of these the ones that were used longest ago. A file goes
/// to the next lower tier that it does not fill above `high`; in the last tier, to what is
/// available. Lower tiers give first, and so make room.
std::vector<TierMove> moves_down(const config::Tiers& rules, std::span<const Tier> tiers);

/// The files that go up to the first tier while no more than `low` of it is in use: those that were
/// used, the last used first.
std::vector<TierMove> moves_up(const config::Tiers& rules, std::span<const Tier> tiers);

}  // namespace efs::daemon
