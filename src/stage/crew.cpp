#include "stage/crew.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdlib>
#include <exception>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "base/thread.hpp"
#include "base/unique_fd.hpp"

namespace efs::stage {
namespace {

constexpr Nanoseconds window = 2'000'000;  // per thread: what a decision is based on

Nanoseconds read_clock(clockid_t id) {
  timespec now{};
  ::clock_gettime(id, &now);
  return to_ns(now);
}

/// Where this thread's time goes.
class Meter {
 public:
  struct Lap {
    Nanoseconds wall = 0;
    Nanoseconds waited = 0;  // neither running nor ready to run, nor behind another thread of ours: more of them would not help
  };

  Meter() : schedstat_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)), last_(now()) {}

  /// Since the last call, or since construction.
  Lap lap() {
    const Reading reading = now();
    const Lap lap{.wall = reading.wall - last_.wall, .waited = std::max<Nanoseconds>(0, reading.wall - last_.wall - (reading.busy - last_.busy))};
    last_ = reading;
    return lap;
  }

 private:
  struct Reading {
    Nanoseconds wall = 0;
    Nanoseconds busy = 0;
  };
  Reading now() const { return {.wall = read_clock(CLOCK_MONOTONIC), .busy = read_clock(CLOCK_THREAD_CPUTIME_ID) + queued() + waited_for_locks.count()}; }

  /// Time ready to run without a CPU: the second number of /proc/thread-self/schedstat (0 on kernels that have none).
  Nanoseconds queued() const {
    std::array<char, 80> text{};
    if (!schedstat_ || ::pread(schedstat_.get(), text.data(), text.size() - 1, 0) <= 0) return 0;
    char* second = nullptr;
    std::strtoll(text.data(), &second, 10);
    return std::strtoll(second, nullptr, 10);
  }

  UniqueFd schedstat_;
  Reading last_;
};

/// One call of Crew::run.
class Run {
 public:
  Run(std::size_t count, std::size_t grain, unsigned most, const Crew::Work& work) : count_(count), grain_(grain), most_(most), work_(work) {}

  /// Begins with so many threads, the caller's included; how many it came to. Throws what the work threw first.
  unsigned carry_out(unsigned first) {
    {
      const MutexLock lock(mutex_);
      make_room();
      add(std::min(first, most_) - 1);
    }
    take_part();
    // No thread adds another once nothing is left, and the caller leaves take_part() only then.
    std::vector<std::jthread> threads;
    {
      const MutexLock lock(mutex_);
      ended_ = true;
      threads.swap(threads_);
    }
    for (auto& thread : threads) thread.join();
    const MutexLock lock(mutex_);
    if (thrown_) std::rethrow_exception(thrown_);
    return static_cast<unsigned>(threads.size()) + 1;
  }

  /// After carry_out(): did its threads mostly wait when that was last looked at? `before`: if it never was.
  bool waited(bool before) {
    const MutexLock lock(mutex_);
    return slow_.value_or(before);
  }

 private:
  void take_part() noexcept {
    Meter meter;
    while (true) {
      const std::size_t begin = next_.fetch_add(grain_);
      if (begin >= count_) return;
      try {
        work_(begin, std::min(begin + grain_, count_));
      } catch (...) {
        return end(std::current_exception());
      }
      consider(meter.lap());
    }
  }

  void end(std::exception_ptr thrown) {
    const MutexLock lock(mutex_);
    if (!thrown_) thrown_ = std::move(thrown);
    next_ = count_;
  }

  /// More threads, if the present ones have been waiting.
  void consider(const Meter::Lap& lap) {
    const MutexLock lock(mutex_);
    wall_ += lap.wall;
    waited_ += lap.waited;
    const auto present = static_cast<unsigned>(threads_.size()) + 1;
    if (ended_ || wall_ < window * present) return;
    const bool slow = waited_ > wall_ / 2;
    const bool very_slow = waited_ > wall_ / 10 * 9;
    slow_ = slow;
    wall_ = waited_ = 0;
    if (slow) add(std::min(present * (very_slow ? 3 : 1), most_ - present));
  }

  // At once, so that a thread that adds others needs no memory for them. Where there is none nobody is added.
  void make_room() EFS_REQUIRES(mutex_) {
    try {
      threads_.reserve(most_);
    } catch (const std::bad_alloc&) {}
  }

  void add(unsigned wanted) EFS_REQUIRES(mutex_) {
    const std::size_t begun = std::min(next_.load(), count_);
    const std::size_t left = (count_ - begun + grain_ - 1) / grain_;
    for (std::size_t i = 0; i < std::min<std::size_t>(wanted, left); ++i) {
      if (threads_.size() == threads_.capacity()) return;
      auto thread = start_thread([this] { take_part(); });
      if (!thread) return;  // a limit on threads: those that are there do the work
      threads_.push_back(std::move(*thread));
    }
  }

  const std::size_t count_;
  const std::size_t grain_;
  const unsigned most_;
  const Crew::Work& work_;
  std::atomic<std::size_t> next_{0};
  Mutex mutex_;  // rank 90 (leaf)
  bool ended_ EFS_GUARDED_BY(mutex_) = false;
  Nanoseconds wall_ EFS_GUARDED_BY(mutex_) = 0;  // since the last decision, all threads together
  Nanoseconds waited_ EFS_GUARDED_BY(mutex_) = 0;
  std::optional<bool> slow_ EFS_GUARDED_BY(mutex_);  // the last decision
  std::exception_ptr thrown_ EFS_GUARDED_BY(mutex_);  // by the work, first
  std::vector<std::jthread> threads_ EFS_GUARDED_BY(mutex_);  // last: they end before what they use
};

}  // namespace

void Crew::run(std::size_t count, std::size_t grain, const Work& work) {
  if (count == 0) return;
  const std::size_t piece = std::clamp<std::size_t>(count / (std::size_t{4} * most_), 1, std::max<std::size_t>(1, grain));
  Run run(count, piece, most_, work);
  const unsigned cpus = std::max(1U, std::thread::hardware_concurrency());
  const unsigned present = run.carry_out(waits_ ? std::max(cpus, last_) : cpus);
  waits_ = run.waited(waits_);
  last_ = waits_ ? std::max(last_, present) : cpus;
  widest_ = std::max(widest_, present);
}

}  // namespace efs::stage
