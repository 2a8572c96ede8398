// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The threads that wait for the kernel's requests. One thread at a time leads. Only the leader
// waits, and the leader handles the request that it receives, so that a quick request wakes no
// second thread. Before slow work (base/slow_work.hpp) the leader hands the lead to a thread that
// sleeps on a condition variable. If requests queue up, helpers receive beside the leader until the
// queue is empty. The scheme is known as leader/followers (Schmidt et al., Pattern-Oriented
// Software Architecture 2).
// The leader spins for a bounded time before it blocks, because waking a thread costs more than
// most requests. Each spin that catches no request makes the following spins rarer, so the leader
// of an idle or crowded machine rarely spins.
// The leader joins callers that are bound to one CPU (leader_placement.hpp), and does not spin
// there: the caller needs that CPU.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "fuse/leader_placement.hpp"

namespace efs::fuse {

/// One thread's access to the queue of requests. Another thread may construct it; only its own
/// thread uses it.
class RequestReader {
 public:
  enum class Got : std::uint8_t { request, nothing, end };
  virtual ~RequestReader() = default;
  /// Takes a request from the queue. Does not block. `end`: there will be no further requests.
  virtual Got receive() = 0;
  /// Returns the thread that sent the request that receive() took; 0: the kernel itself, or
  /// unknown.
  virtual std::uint32_t caller() const = 0;
  /// Handles the request that receive() took. The loop logs and drops an exception.
  virtual void handle() = 0;
  /// Blocks until receive() would return a request or `end`, at most for `milliseconds` (-1:
  /// without a limit). Returns false if the time is over.
  virtual bool wait(int milliseconds) = 0;
};

/// Work that can wait until no request does. One thread at a time calls it.
class Housekeeping {
 public:
  virtual ~Housekeeping() = default;
  virtual bool due() const = 0;
  virtual void run() = 0;
};

/// Decides when to spin. Not thread-safe: only the leader uses it.
class SpinPolicy {
 public:
  explicit SpinPolicy(std::chrono::microseconds limit) : limit_(limit) {}

  /// Returns how long to spin now. Zero: do not spin.
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
    // at least 2; up to most_threads - 1 slow operations run at once before requests wait for them
    unsigned most_threads = 16;
    std::chrono::microseconds spin{50};  // 0: never
    bool join_callers = true;            // see leader_placement.hpp
    // counts how often a leader joined a caller; null: not counted. Outlives the loop
    std::atomic<std::uint64_t>* joined = nullptr;
  };

  /// Makes a reader with all its memory, so that a started thread can serve. Throws if memory is
  /// exhausted.
  using MakeReader = std::function<std::unique_ptr<RequestReader>()>;
  /// Housekeeping runs after this time without a request, or after this many requests.
  static constexpr int quiet = 1;  // milliseconds
  static constexpr unsigned busy = 128;

  /// `housekeeping` may be null; it must outlive the loop.
  RequestLoop(Options options, MakeReader make_reader, Housekeeping* housekeeping);
  ~RequestLoop();
  RequestLoop(const RequestLoop&) = delete;
  RequestLoop& operator=(const RequestLoop&) = delete;

  /// Serves on this thread, and on others that it starts when needed, until a reader returns `end`.
  /// Call once.
  void run();

  /// Returns true when each request that another thread has received by now is handled, in its slow
  /// work, or itself in this call; false after `longest`. Any thread.
  bool await_received(std::chrono::milliseconds longest);

 private:
  class Worker;
  void work(std::unique_ptr<RequestReader> reader);
  static void handle(Worker& worker) noexcept;
  void lead(Worker& worker);
  void serve_on(std::optional<unsigned> cpu);
  void leave_caller();
  void help(Worker& worker);
  RequestReader::Got wait_for_request(Worker& worker);
  void keep_house() noexcept;
  bool hand_over();
  void call_helper();
  bool has_received(const Worker& worker, std::uint64_t turn) EFS_EXCLUDES(mutex_);
  bool somebody_free() EFS_REQUIRES(mutex_);
  bool start_another() EFS_REQUIRES(mutex_);
  void end();

  const Options options_;
  const MakeReader make_reader_;
  Housekeeping* const housekeeping_;

  // Only the leader uses these.
  SpinPolicy spin_;
  LeaderPlacement placement_;
  unsigned since_housekeeping_ = 0;

  Mutex mutex_;  // rank 85 (leaf)
  Condition wake_;
  bool leading_ EFS_GUARDED_BY(mutex_) = false;      // a thread leads
  bool help_wanted_ EFS_GUARDED_BY(mutex_) = false;  // the leader wants a helper
  bool ended_ EFS_GUARDED_BY(mutex_) = false;
  // the last attempt to start a thread failed and was logged
  bool no_thread_ EFS_GUARDED_BY(mutex_) = false;
  unsigned sleeping_ EFS_GUARDED_BY(mutex_) = 0;  // threads that could take over
  std::vector<std::jthread> threads_ EFS_GUARDED_BY(mutex_);
  std::vector<Worker*> workers_ EFS_GUARDED_BY(mutex_);

  // after this many requests in a row without a wait the leader calls a helper
  std::atomic<unsigned> crowd_{8};
};

}  // namespace efs::fuse
