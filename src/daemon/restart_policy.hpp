// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Decides whether and when a dead worker gets a successor. Pure; the caller passes the times.

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>

namespace efs::daemon {

class RestartPolicy {
 public:
  using Clock = std::chrono::steady_clock;
  /// A request that kills its worker also kills every successor. So many deaths in a row, without a
  /// single answered request between them, end the restarts.
  static constexpr unsigned most_fruitless = 10;
  /// So many deaths in `window` end the restarts, even if requests were answered.
  static constexpr std::size_t most_in_window = 200;
  static constexpr std::chrono::seconds window{10};

  /// The cause of repeated deaths may pass, for example a shortage of memory. The first successors
  /// start at once. Each later one starts after a pause of twice the previous length. All pauses
  /// together take some seconds.
  static constexpr unsigned at_once = 3;
  static constexpr std::chrono::milliseconds first_pause{50}, longest_pause{1600};

  /// Call this when a worker has died. `fruitful`: the worker had answered a request that its
  /// predecessor did not leave behind. Returns the pause before the next start; nullopt: do not
  /// start a successor.
  std::optional<std::chrono::milliseconds> died(bool fruitful, Clock::time_point now) {
    fruitless_ = fruitful ? 0 : fruitless_ + 1;
    deaths_.push_back(now);
    while (deaths_.front() + window < now) {
      deaths_.pop_front();
    }
    if (fruitless_ >= most_fruitless || deaths_.size() > most_in_window) {
      return std::nullopt;
    }
    if (fruitless_ <= at_once) {
      return std::chrono::milliseconds(0);
    }
    return std::min(longest_pause, first_pause * (1U << (fruitless_ - at_once - 1)));
  }

 private:
  unsigned fruitless_ = 0;
  std::deque<Clock::time_point> deaths_;
};

}  // namespace efs::daemon
