// SPDX-License-Identifier: BSD-3-Clause
#include "queue/policy.hpp"

#include <algorithm>
#include <functional>
#include <queue>
#include <tuple>

namespace efs::queue {
namespace {

constexpr double gibibyte = 1024.0 * 1024.0 * 1024.0;
constexpr double second = 1e9;

double rank(const Settings& settings, const Ticket& ticket) {
  const auto drawn = static_cast<double>(ticket.drawn);
  switch (settings.policy) {
    case Policy::fifo: break;
    case Policy::smallest_first:
      return drawn + static_cast<double>(ticket.bytes) / gibibyte * settings.ageing * second;
    case Policy::deadline: {
      const double latest = drawn + settings.longest_wait * second;
      return ticket.deadline == 0 ? latest : std::min(latest, static_cast<double>(ticket.deadline));
    }
  }
  return 0;
}

double rest_of(const Ticket& holder) {
  return static_cast<double>(holder.bytes - std::min(holder.done, holder.bytes));
}

using Ends = std::priority_queue<double, std::vector<double>, std::greater<>>;

// Returns the times, from now, when the slots become free. If there are more holders than slots,
// the slots of the first ones are not used again.
Ends ends_of(const std::vector<Holder>& holders, unsigned slots, double rate) {
  Ends ends;
  for (const auto& holder : holders) {
    ends.push(holder.left >= 0 ? holder.left : rest_of(holder.ticket) / rate);
  }
  while (ends.size() < slots) {
    ends.push(0);
  }
  while (ends.size() > slots) {
    ends.pop();
  }
  return ends;
}

}  // namespace

const char* name_of(Direction direction) {
  return direction == Direction::in ? "in" : "out";
}

bool goes_before(const Settings& settings, const Ticket& a, const Ticket& b) {
  return std::tuple(rank(settings, a), a.number) < std::tuple(rank(settings, b), b.number);
}

double estimate_left(const Ticket& holder, Nanoseconds now, double silence) {
  const double seconds = static_cast<double>(now - holder.granted) / second - silence;
  if (holder.granted == 0 || holder.done == 0 || seconds <= 0) {
    return -1;
  }
  return std::max(0.0, rest_of(holder) * seconds / static_cast<double>(holder.done) - silence);
}

double estimate_wait(const std::vector<Holder>& holders, const std::vector<Ticket>& waiters,
                     unsigned slots, double rate) {
  const bool knows_holders =
      std::ranges::all_of(holders, [](const Holder& holder) { return holder.left >= 0; });
  if (rate <= 0 && (waiters.size() > 1 || !knows_holders || holders.empty())) {
    return -1;
  }
  Ends ends = ends_of(holders, slots, rate);
  double start = 0;
  for (const auto& waiter : waiters) {
    start = ends.top();
    ends.pop();
    if (rate > 0) {
      ends.push(start + static_cast<double>(waiter.bytes) / rate);
    }
  }
  return start;
}

}  // namespace efs::queue
