#pragma once
// Whether a worker that died gets a successor, and when. Pure; times are the caller's.

#include <algorithm>
#include <chrono>
#include <deque>
#include <optional>

namespace efs::daemon {

class RestartPolicy {
 public:
  using Clock = std::chrono::steady_clock;
  /// A request that kills whoever takes it kills every successor too: so many deaths in a row
  /// without one request answered in between end it,
  static constexpr unsigned most_fruitless = 10;
  /// and so many deaths, whatever was answered, in `window`.
  static constexpr std::size_t most_in_window = 200;
  static constexpr std::chrono::seconds window{10};

  /// What kills one worker after the other may pass, as want of memory does: the first few come at
  /// once, those behind them after pauses, each twice as long as the one before. Together they are
  /// seconds.
  static constexpr unsigned at_once = 3;
  static constexpr std::chrono::milliseconds first_pause{50}, longest_pause{1600};

  /// A worker has died; `fruitful`: it had answered a request that its predecessor had not left to
  /// it. How long to wait before another one is started; nullopt: none is.
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
