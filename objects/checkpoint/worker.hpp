// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A background thread of the library.

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

namespace efs::objects {

/// Runs work in its order, in a thread that receives no signals of the program. Thread-safe. The
/// destruction waits until all is done.
class Worker {
 public:
  Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;
  ~Worker();

  /// The work must not throw. Returns its number.
  std::uint64_t post(std::function<void()> work);
  /// Waits until the work with this number, and all before it, is done and destroyed.
  void wait(std::uint64_t number);
  /// Waits until all work is done and destroyed.
  void wait();

 private:
  void run();

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::deque<std::function<void()>> work_;
  std::uint64_t posted_ = 0;
  std::uint64_t done_ = 0;
  bool ending_ = false;
  std::thread thread_;  // constant after construction
};

/// Starts a thread that receives no signals.
std::thread quiet_thread(std::function<void()> body);

}  // namespace efs::objects
