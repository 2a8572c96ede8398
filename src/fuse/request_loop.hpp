// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Who waits for the kernel's requests, and how. One thread at a time leads: it alone waits, and it
// handles what it receives by itself, so that a quick request wakes no second thread. Before slow
// work (base/slow_work.hpp) it hands the lead to a thread that sleeps on a condition variable.
// Where requests queue up, helpers receive beside the leader until nothing is left. The scheme is
// known as leader/followers (Schmidt et al., Pattern-Oriented Software Architecture 2).
//
// The leader spins for a bounded time before it blocks, since waking a thread costs more than most
// requests do; a spin that catches nothing is the rarer the more often that happens in a row, so an
// idle or crowded machine sees none.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/mutex.hpp"

namespace efs::fuse {

/// One thread's access to the queue of requests. Made by another thread, used by that thread only.
class RequestReader {
 public:
  enum class Got : std::uint8_t { request, nothing, end };
  virtual ~RequestReader() = default;
  /// Takes a request from the queue; never blocks. `end`: there will be none any more.
  virtual Got receive() = 0;
  /// Handles what receive() took. What it throws is logged, and lost.
  virtual void handle() = 0;
  /// Blocks until receive() has something to say, or for `milliseconds` (-1: for ever). False when
  /// the time is over.
  virtual bool wait(int milliseconds) = 0;
};

/// Work that can wait until there is nothing else to do. Called by one thread at a time.
class Housekeeping {
 public:
  virtual ~Housekeeping() = default;
  virtual bool due() const = 0;
  virtual void run() = 0;
};

/// When it pays to spin. Not thread-safe: the leader's.
class SpinPolicy {
 public:
  explicit SpinPolicy(std::chrono::microseconds limit) : limit_(limit) {}

  /// How long to spin now; zero: not at all.
  std::chrono::microseconds next() {
    if (skip_ == 0) {
      return limit_;
    }
    --skip_;
    return {};
  }

  void caught() { missed_in_a_row_ = 0; }

  void missed() {
    if (missed_in_a_row_ < 8) {
      ++missed_in_a_row_;
    }
    skip_ = (1U << missed_in_a_row_) - 2;
  }

 private:
  const std::chrono::microseconds limit_;
  unsigned missed_in_a_row_ = 0;
  unsigned skip_ = 0;  // 0, 2, 6, ... 254 waits without a spin
};

class RequestLoop {
 public:
  struct Options {
    // at least 2; as much slow work runs side by side, less one, before requests wait for it
    unsigned most_threads = 16;
    std::chrono::microseconds spin{50};  // 0: never
  };

  /// Makes all that a reader needs, so that a thread that runs can serve; throws where there is no
  /// memory for it.
  using MakeReader = std::function<std::unique_ptr<RequestReader>()>;
  /// Housekeeping waits for this long without a request, or for this many requests.
  static constexpr int quiet = 1;  // milliseconds
  static constexpr unsigned busy = 128;

  /// `housekeeping` may be null; it must outlive the loop.
  RequestLoop(Options options, MakeReader make_reader, Housekeeping* housekeeping);
  ~RequestLoop();
  RequestLoop(const RequestLoop&) = delete;
  RequestLoop& operator=(const RequestLoop&) = delete;

  /// Serves on this thread and on others, which are started when they are needed, until a reader
  /// says `end`. Call once.
  void run();

 private:
  class Worker;
  void work(std::unique_ptr<RequestReader> reader);
  static void handle(RequestReader& reader) noexcept;
  void lead(Worker& worker);
  void help(Worker& worker);
  RequestReader::Got wait_for_request(RequestReader& reader);
  void keep_house() noexcept;
  bool hand_over();
  void call_helper();
  bool somebody_free() EFS_REQUIRES(mutex_);
  bool start_another() EFS_REQUIRES(mutex_);
  void end();

  const Options options_;
  const MakeReader make_reader_;
  Housekeeping* const housekeeping_;

  // The leader's.
  SpinPolicy spin_;
  unsigned since_housekeeping_ = 0;

  Mutex mutex_;  // rank 85 (leaf)
  Condition wake_;
  bool leading_ EFS_GUARDED_BY(mutex_) = false;      // somebody leads
  bool help_wanted_ EFS_GUARDED_BY(mutex_) = false;  // ... and wants a helper
  bool ended_ EFS_GUARDED_BY(mutex_) = false;
  // the last attempt at another thread failed, and the log has it
  bool no_thread_ EFS_GUARDED_BY(mutex_) = false;
  unsigned sleeping_ EFS_GUARDED_BY(mutex_) = 0;  // threads that could take over
  std::vector<std::jthread> threads_ EFS_GUARDED_BY(mutex_);

  // requests in a row without a wait that make the leader call for help
  std::atomic<unsigned> crowd_{8};
};

}  // namespace efs::fuse
