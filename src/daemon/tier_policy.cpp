// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/tier_policy.hpp"

#include <algorithm>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>

namespace efs::daemon {
namespace {

/// The use of the tiers after the moves so far.
class Uses {
 public:
  Uses(const config::Tiers& rules, std::span<const Tier> tiers) : rules_(rules), tiers_(tiers) {
    for (const auto& tier : tiers) {
      used_.push_back(used_of(tier.space));
    }
  }

  /// The next lower tier that takes so many bytes.
  std::optional<std::size_t> below(std::size_t tier, std::uint64_t bytes) const {
    for (std::size_t to = tier + 1; to < tiers_.size(); ++to) {
      const Space& space = tiers_[to].space;
      const bool is_last = to + 1 == tiers_.size();
      const std::uint64_t most = is_last ? space.capacity : level_of(space, rules_.high);
      if (fits(to, bytes, most)) {
        return to;
      }
    }
    return std::nullopt;
  }

  bool fits(std::size_t tier, std::uint64_t bytes, std::uint64_t most) const {
    return used_[tier] <= most && bytes <= most - used_[tier];
  }

  void move(std::size_t from, std::size_t to, std::uint64_t bytes) {
    used_[from] -= std::min(used_[from], bytes);
    used_[to] += bytes;
  }

 private:
  const config::Tiers& rules_;
  const std::span<const Tier> tiers_;
  std::vector<std::uint64_t> used_;
};

}  // namespace

std::uint64_t used_of(const Space& space) {
  return space.capacity - std::min(space.capacity, space.available);
}

std::uint64_t level_of(const Space& space, unsigned percent) {
  return space.capacity / 100 * percent + space.capacity % 100 * percent / 100;
}

std::vector<std::uint64_t> bytes_down(const config::Tiers& rules, std::span<const Tier> tiers) {
  std::vector<std::uint64_t> bytes(tiers.size(), 0);
  std::uint64_t incoming = 0;
  for (std::size_t tier = 0; tier + 1 < tiers.size(); ++tier) {
    const Space& space = tiers[tier].space;
    const std::uint64_t own = used_of(space), used = own + incoming;
    if (used > level_of(space, rules.high)) {
      bytes[tier] = std::min(own, used - level_of(space, rules.low));
    }
    incoming = bytes[tier];
  }
  return bytes;
}

std::vector<TierMove> moves_down(const config::Tiers& rules, std::span<const Tier> tiers) {
  std::vector<TierMove> moves;
  Uses uses(rules, tiers);
  const auto bytes = bytes_down(rules, tiers);
  for (std::size_t from = tiers.size(); from-- > 0;) {
    auto files = tiers[from].files;
    std::ranges::sort(files, {}, [](const MoveCandidate& file) {
      return std::tuple(file.was_used, file.since, file.ino);
    });
    std::uint64_t given = 0;
    for (auto& file : files) {
      if (given >= bytes[from]) {
        break;
      }
      const auto to = uses.below(from, file.bytes);
      if (!to || file.bytes == 0) {
        continue;
      }
      given += file.bytes;
      uses.move(from, *to, file.bytes);
      moves.push_back({.from = from,
                       .to = *to,
                       .ino = file.ino,
                       .path = std::move(file.path),
                       .bytes = file.bytes});
    }
  }
  return moves;
}

std::vector<TierMove> moves_up(const config::Tiers& rules, std::span<const Tier> tiers) {
  std::vector<TierMove> all;
  std::vector<std::pair<FileTime, std::size_t>> order;
  for (std::size_t from = 1; from < tiers.size(); ++from) {
    for (const auto& file : tiers[from].files) {
      if (file.was_used && file.bytes > 0) {
        order.emplace_back(file.since, all.size());
        all.push_back(
            {.from = from, .to = 0, .ino = file.ino, .path = file.path, .bytes = file.bytes});
      }
    }
  }
  std::ranges::sort(order, std::ranges::greater());
  Uses uses(rules, tiers);
  const std::uint64_t most = tiers.empty() ? 0 : level_of(tiers[0].space, rules.low);
  std::vector<TierMove> moves;
  for (const auto& [since, index] : order) {
    if (uses.fits(0, all[index].bytes, most)) {
      uses.move(all[index].from, 0, all[index].bytes);
      moves.push_back(std::move(all[index]));
    }
  }
  return moves;
}

}  // namespace efs::daemon
