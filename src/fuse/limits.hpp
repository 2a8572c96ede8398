// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Limits of what a mount may do per second, and the requests that wait for their turn. A request
// that would exceed a limit is put off whole, before it is handled: no thread sleeps for it, and
// its client waits for the answer. Each limit is a token bucket (Turner, "New Directions in
// Communications", 1986) that holds a tenth of a second.

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::fuse {

enum class Limited : std::uint8_t { read, write, operations };
inline constexpr std::size_t limited_count = 3;

/// The rates. In memory that a successor inherits. 0: no limit. A change takes effect with
/// PacedRequests::rate_changed().
struct Limits {
  std::array<std::atomic<std::uint64_t>, limited_count> per_second{};
  std::atomic<std::uint64_t> delayed{0};  // counts requests that were put off

  std::atomic<std::uint64_t>& of(Limited what) {
    return per_second[static_cast<std::size_t>(what)];
  }
};

/// What a request takes of each limit: bytes read, bytes written, operations.
using Cost = std::array<std::uint64_t, limited_count>;

/// Returns the cost of a request as the kernel sent it, header included. Requests that give
/// something back (FORGET, RELEASE), and those of the connection itself, cost nothing.
Cost cost_of(std::span<const std::byte> request);

/// Pure. Not thread-safe.
class TokenBucket {
 public:
  static constexpr Nanoseconds burst = 100'000'000;

  /// From this moment on the bucket lets the next amount pass; it is then in debt for that amount.
  Nanoseconds opens() const { return full_ - burst; }

  void take(std::uint64_t amount, std::uint64_t per_second, Nanoseconds now);
  /// Takes back a part of what was taken.
  void give_back(std::uint64_t amount, std::uint64_t per_second);

 private:
  Nanoseconds full_ = 0;  // when the bucket will be full
};

/// Thread-safe.
class PacedRequests {
 public:
  /// Above this many bytes of waiting requests further ones pass early. They are charged, so the
  /// rate holds over a longer time.
  static constexpr std::size_t most_waiting = 64U << 20;

  /// `limits` must outlive this object. Fails with an errno.
  static Result<std::unique_ptr<PacedRequests>> make(Limits& limits);

  /// A descriptor for poll(2), readable when take() may have a request.
  int ready_fd() const { return timer_.get(); }

  /// Returns false if the request may be handled now. Otherwise keeps a copy, which take() returns
  /// when it may be. An INTERRUPT of a request that waits is kept for good, and lets that request
  /// pass: its client may have been killed. Throws std::bad_alloc, and then the request may be
  /// handled now.
  bool put_off(std::span<const std::byte> request);

  /// Returns the size of a request that may be handled now, after a copy to `into`, which must have
  /// room for the largest; 0: there is none. Those of one kind come in the order of their arrival.
  std::size_t take(std::span<std::byte> into);

  /// A request did less than it was charged for.
  void give_back(Limited what, std::uint64_t amount);
  /// Call after a change of this rate. The debt at the old rate is forgotten.
  void rate_changed(Limited what);
  /// While lifted, all requests pass, also those that wait.
  void lift(bool lifted);

  std::size_t waiting() const { return waiting_; }

 private:
  struct Waiting {
    std::uint64_t turn;  // of its arrival
    std::uint64_t unique;
    Cost cost;
    std::vector<std::byte> request;
  };

  using Queue = std::deque<Waiting>;

  PacedRequests(Limits& limits, UniqueFd timer) : limits_(limits), timer_(std::move(timer)) {}

  /// Those that read, those that write, and the others wait for different limits.
  Queue& queue_of(const Cost& cost) EFS_REQUIRES(mutex_);
  Nanoseconds opens(const Cost& cost) const EFS_REQUIRES(mutex_);
  void charge(const Cost& cost, Nanoseconds now) EFS_REQUIRES(mutex_);
  void set_timer(Nanoseconds now) EFS_REQUIRES(mutex_);
  bool hurry(std::uint64_t unique) EFS_REQUIRES(mutex_);

  Limits& limits_;
  const UniqueFd timer_;
  std::atomic<std::size_t> waiting_{0};
  Mutex mutex_;  // rank 84: no other lock is taken under it
  std::array<TokenBucket, limited_count> buckets_ EFS_GUARDED_BY(mutex_);
  std::array<Queue, limited_count> queues_ EFS_GUARDED_BY(mutex_);
  std::size_t bytes_ EFS_GUARDED_BY(mutex_) = 0;  // that wait
  std::uint64_t turns_ EFS_GUARDED_BY(mutex_) = 0;
  Nanoseconds timer_at_ EFS_GUARDED_BY(mutex_) = 0;  // 0: not set
  bool lifted_ EFS_GUARDED_BY(mutex_) = false;
};

}  // namespace efs::fuse
