// SPDX-License-Identifier: BSD-3-Clause
#include "stage/copy/worker_pool.hpp"

#include <fcntl.h>
#include <pthread.h>
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
#include "base/log.hpp"
#include "base/mutex.hpp"
#include "base/thread.hpp"
#include "base/unique_fd.hpp"

namespace efs::stage {
namespace {

// time per thread before a decision; longer than a scheduler's time slice
constexpr Nanoseconds window = 5'000'000;

Nanoseconds read_clock(clockid_t id) {
  timespec now{};
  ::clock_gettime(id, &now);
  return to_ns(now);
}

/// Measures this thread's time.
class Meter {
 public:
  struct Lap {
    Nanoseconds begin = 0;
    Nanoseconds wall = 0;
    // neither running nor ready to run, nor waiting for another thread of this pool: more threads
    // would not shorten those
    Nanoseconds waited = 0;
  };

  Meter() : schedstat_(::open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)), last_(now()) {}

  /// Call it after each piece of work. Short pieces are measured together.
  bool is_due() const { return read_clock(CLOCK_MONOTONIC) - last_.wall >= window / 8; }

  /// Since the last call, or since construction.
  Lap lap() {
    const Reading reading = now();
    const Nanoseconds wall = reading.wall - last_.wall;
    const Lap lap{.begin = last_.wall,
                  .wall = wall,
                  .waited = std::max<Nanoseconds>(0, wall - (reading.busy - last_.busy))};
    last_ = reading;
    return lap;
  }

 private:
  struct Reading {
    Nanoseconds wall = 0;
    Nanoseconds busy = 0;
  };

  Reading now() const {
    return {.wall = read_clock(CLOCK_MONOTONIC),
            .busy = read_clock(CLOCK_THREAD_CPUTIME_ID) + queued() + waited_for_locks.count()};
  }

  /// Time ready to run without a CPU: the second number of /proc/thread-self/schedstat (0 on
  /// kernels that have none).
  Nanoseconds queued() const {
    std::array<char, 80> text{};
    if (!schedstat_ || ::pread(schedstat_.get(), text.data(), text.size() - 1, 0) <= 0) {
      return 0;
    }
    char* second = nullptr;
    std::strtoll(text.data(), &second, 10);
    return std::strtoll(second, nullptr, 10);
  }

  UniqueFd schedstat_;
  Reading last_;
};

/// Computes the number of threads from the times of the running ones. It adds threads while the
/// running ones wait and more threads pay. If each thread waits for a PFS, more threads finish more
/// work and use more of the processors. If they wait for each other (in the kernel, for a directory
/// in which all make files), more threads do not pay, and the added ones rest again. A later try
/// follows, because the reason for the wait may have changed.
class Size {
 public:
  Size(unsigned first, unsigned most, unsigned cpus)
      : most_(most), cpus_(cpus), wanted_(std::min(first, most)) {}

  unsigned most() const { return most_; }

  unsigned wanted() const { return wanted_; }

  /// True if the threads mostly waited at the last decision. nullopt before the first.
  std::optional<bool> slow() const { return slow_; }

  /// Begins a measurement. `used`: CPU time of all threads so far.
  void begin(Nanoseconds now, Nanoseconds used) {
    since_ = now;
    used_ = used;
    wall_ = waited_ = 0;
  }

  /// Adds the lap of one thread, a part of which may be from before begin(). True if the data
  /// suffice for decide().
  bool note(const Meter::Lap& lap) {
    const Nanoseconds wall = std::min(lap.wall, lap.begin + lap.wall - since_);
    if (wall <= 0) {
      return false;
    }
    wall_ += wall;
    waited_ += static_cast<Nanoseconds>(static_cast<double>(lap.waited) *
                                        static_cast<double>(wall) / static_cast<double>(lap.wall));
    return wall_ >= window * wanted_;
  }

  /// Call begin() when the wanted number of threads runs.
  void decide(Nanoseconds now, Nanoseconds used) {
    // processors
    const double in_use = static_cast<double>(used - used_) /
                          static_cast<double>(std::max<Nanoseconds>(now - since_, 1));
    slow_ = waited_ > wall_ / 2;
    const bool very_slow = waited_ > wall_ / 10 * 9;
    const bool was_try = before_ != 0;
    if (was_try && !has_paid(in_use)) {
      wanted_ = std::exchange(before_, 0);
      return;
    }
    if (was_try) {
      pause_ = first_pause;
    }
    before_ = 0;
    if (!*slow_ || in_use > cpus_ * 3 / 4 || wanted_ == most_ || (left_ > 0 && --left_ > 0)) {
      return;
    }
    before_ = wanted_;
    in_use_before_ = in_use;
    wanted_ = std::min(wanted_ * (very_slow ? 4 : 2), most_);
  }

 private:
  /// True if the added threads achieve at least a quarter of their best possible gain.
  bool has_paid(double in_use) {
    const double more = static_cast<double>(wanted_) / before_ - 1;
    if (in_use >= in_use_before_ * (1 + more / 4)) {
      return true;
    }
    left_ = pause_;
    pause_ *= 2;
    return false;
  }

  static constexpr unsigned first_pause = 8;  // decisions

  const unsigned most_;
  const double cpus_;
  unsigned wanted_;
  Nanoseconds since_ = 0;
  Nanoseconds used_ = 0;
  Nanoseconds wall_ = 0;  // all threads together
  Nanoseconds waited_ = 0;
  std::optional<bool> slow_;  // the last decision
  // number of threads before an addition, until its benefit is known; otherwise 0
  unsigned before_ = 0;
  double in_use_before_ = 0;  // processors
  unsigned left_ = 0;         // decisions until the next try
  unsigned pause_ = first_pause;
};

/// One call of WorkerPool::run.
class Run {
 public:
  Run(std::size_t count, std::size_t grain, const Size& size, const WorkerPool::Work& work,
      bool& told)
      : count_(count), grain_(grain), most_(size.most()), work_(work), size_(size), told_(told) {}

  /// Returns the largest number of threads, the caller's included. Rethrows the first exception of
  /// the work.
  unsigned carry_out() {
    {
      const MutexLock lock(mutex_);
      make_room();
      show_clock();
      add();
      size_.begin(read_clock(CLOCK_MONOTONIC), used());
    }
    take_part(0);
    // No thread adds another when no work is left, and the caller leaves take_part() only then.
    std::vector<std::jthread> threads;
    {
      const MutexLock lock(mutex_);
      ended_ = true;
      changed_.notify_all();
      threads.swap(threads_);
    }
    for (auto& thread : threads) {
      thread.join();
    }
    const MutexLock lock(mutex_);
    if (thrown_) {
      std::rethrow_exception(thrown_);
    }
    return static_cast<unsigned>(threads.size()) + 1;
  }

  /// After carry_out().
  Size size() {
    const MutexLock lock(mutex_);
    return size_;
  }

 private:
  /// The threads are numbered in the order of their start; the caller's is 0. If fewer threads are
  /// wanted, those with the highest numbers rest.
  void take_part(unsigned number) noexcept {
    std::optional<Meter> meter(std::in_place);
    if (number > 0) {
      const MutexLock lock(mutex_);
      show_clock();
    }
    while (true) {
      const std::size_t step = step_, begin = next_.fetch_add(step);
      if (begin >= count_) {
        return;
      }
      try {
        work_(begin, std::min(begin + step, count_));
      } catch (...) {
        return end(std::current_exception());
      }
      if (meter->is_due() && consider(meter->lap(), number)) {
        meter.emplace();
      }
    }
  }

  void end(std::exception_ptr thrown) {
    const MutexLock lock(mutex_);
    if (!thrown_) {
      thrown_ = std::move(thrown);
    }
    next_ = count_;
  }

  /// True if this thread has rested, so that its time since then does not count.
  bool consider(const Meter::Lap& lap, unsigned number) {
    const MutexLock lock(mutex_);
    if (ended_ || next_ >= count_) {
      return false;
    }
    if (size_.note(lap)) {
      const unsigned before = size_.wanted();
      size_.decide(read_clock(CLOCK_MONOTONIC), used());
      if (size_.wanted() <= before) {
        step_ = grain_;
      }
      add();
      changed_.notify_all();
      size_.begin(read_clock(CLOCK_MONOTONIC), used());
    }
    if (number < size_.wanted()) {
      return false;
    }
    while (!ended_ && number >= size_.wanted()) {
      changed_.wait(mutex_);
    }
    return true;
  }

  // Allocates in advance, so that adding threads needs no memory. Without memory no thread is
  // added.
  void make_room() EFS_REQUIRES(mutex_) {
    try {
      clocks_.reserve(most_);
      threads_.reserve(most_ - 1);
    } catch (const std::bad_alloc&) {
    }
  }

  // Registers this thread's clock for decide().
  void show_clock() EFS_REQUIRES(mutex_) {
    clockid_t clock{};
    if (clocks_.size() == clocks_.capacity() ||
        ::pthread_getcpuclockid(::pthread_self(), &clock) != 0) {
      return;
    }
    clocks_.push_back(clock);
    used_before_ += read_clock(clock);
  }

  // CPU time of all threads. (No thread ends while work is left.)
  Nanoseconds used() const EFS_REQUIRES(mutex_) {
    Nanoseconds sum = -used_before_;
    for (const clockid_t clock : clocks_) {
      sum += read_clock(clock);
    }
    return sum;
  }

  /// Adds the wanted threads, as far as there is work for them.
  void add() EFS_REQUIRES(mutex_) {
    const std::size_t begun = std::min(next_.load(), count_);
    std::size_t left = (count_ - begun + grain_ - 1) / grain_;
    while (threads_.size() + 1 < size_.wanted() && left-- > 0) {
      if (threads_.size() == threads_.capacity()) {
        return;
      }
      auto thread = start_thread(
          [this, number = static_cast<unsigned>(threads_.size()) + 1] { take_part(number); });
      if (!thread) {
        return tell();  // a limit on threads: the running ones do the work
      }
      threads_.push_back(std::move(*thread));
    }
  }

  void tell() EFS_REQUIRES(mutex_) {
    if (!std::exchange(told_, true)) {
      log::warn("event=no_thread_for_staging threads={} note=\"the existing threads do the work\"",
                threads_.size() + 1);
    }
  }

  const std::size_t count_;
  const std::size_t grain_;
  const unsigned most_;
  const WorkerPool::Work& work_;
  std::atomic<std::size_t> next_{0};
  // short until the number of threads is known
  std::atomic<std::size_t> step_{std::max<std::size_t>(1, grain_ / 8)};
  Mutex mutex_;        // rank 90 (leaf)
  Condition changed_;  // of size_ and ended_
  bool ended_ EFS_GUARDED_BY(mutex_) = false;
  Size size_ EFS_GUARDED_BY(mutex_);
  bool& told_;  // of the pool, which has one run at a time; used under mutex_
  std::exception_ptr thrown_ EFS_GUARDED_BY(mutex_);      // the first exception of the work
  std::vector<clockid_t> clocks_ EFS_GUARDED_BY(mutex_);  // the CPU clock of each thread
  // by these threads before take_part(): starting a thread takes time too
  Nanoseconds used_before_ EFS_GUARDED_BY(mutex_) = 0;
  // last, so that threads end before the members that they use
  std::vector<std::jthread> threads_ EFS_GUARDED_BY(mutex_);
};

}  // namespace

WorkerPool::WorkerPool(unsigned most, unsigned processors)
    : most_(most == 0 ? automatic_most : most),
      processors_(processors != 0 ? processors
                                  : std::max(1U, std::thread::hardware_concurrency())) {}

void WorkerPool::run(std::size_t count, std::size_t grain, const Work& work) {
  if (count <= 1) {
    if (count == 1) {
      widest_ = std::max(widest_, 1U);
      work(0, 1);
    }
    return;
  }
  const std::size_t piece =
      std::clamp<std::size_t>(count / (std::size_t{4} * most_), 1, std::max<std::size_t>(1, grain));
  Run run(count, piece,
          Size(waits_ ? std::max(processors_, last_) : processors_, most_, processors_), work,
          told_);
  widest_ = std::max(widest_, run.carry_out());
  const Size size = run.size();
  waits_ = size.slow().value_or(waits_);
  last_ = waits_ ? size.wanted() : processors_;
}

}  // namespace efs::stage
