#pragma once
// Whether a worker that died gets a successor. Pure; times are the caller's.

#include <chrono>
#include <deque>

namespace efs::daemon {

class RestartPolicy {
 public:
  using Clock = std::chrono::steady_clock;
  /// A request that kills whoever takes it kills every successor too: so many deaths in a row without one request
  /// answered in between end it,
  static constexpr unsigned most_fruitless = 10;
  /// and so many deaths, whatever was answered, in `window`.
  static constexpr std::size_t most_in_window = 200;
  static constexpr std::chrono::seconds window{10};

  /// A worker has died; `fruitful`: it had answered a request that its predecessor had not left to it.
  /// True: start another one.
  bool died(bool fruitful, Clock::time_point now) {
    fruitless_ = fruitful ? 0 : fruitless_ + 1;
    deaths_.push_back(now);
    while (deaths_.front() + window < now) deaths_.pop_front();
    return fruitless_ < most_fruitless && deaths_.size() <= most_in_window;
  }

 private:
  unsigned fruitless_ = 0;
  std::deque<Clock::time_point> deaths_;
};

}  // namespace efs::daemon
