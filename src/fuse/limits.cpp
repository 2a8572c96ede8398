// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/limits.hpp"

#include <linux/fuse.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <limits>

namespace efs::fuse {
namespace {

constexpr Nanoseconds second = 1'000'000'000;

Nanoseconds steady_now() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return to_ns(now);
}

// The time in which a rate provides the amount.
Nanoseconds time_for(std::uint64_t amount, std::uint64_t per_second) {
  return static_cast<Nanoseconds>(static_cast<double>(amount) * second /
                                  static_cast<double>(per_second));
}

bool is_free(std::uint32_t opcode) {
  switch (opcode) {
    case FUSE_FORGET:
    case FUSE_BATCH_FORGET:
    case FUSE_RELEASE:
    case FUSE_RELEASEDIR:
    case FUSE_FLUSH:
    case FUSE_INTERRUPT:
    case FUSE_NOTIFY_REPLY:
    case FUSE_INIT:
    case FUSE_DESTROY: return true;
    default: return false;
  }
}

template <typename Body>
Body body_of(std::span<const std::byte> request) {
  Body body{};
  if (request.size() > sizeof(fuse_in_header)) {
    std::memcpy(&body, request.data() + sizeof(fuse_in_header),
                std::min(sizeof body, request.size() - sizeof(fuse_in_header)));
  }
  return body;
}

}  // namespace

Cost cost_of(std::span<const std::byte> request) {
  fuse_in_header header{};
  std::memcpy(&header, request.data(), std::min(sizeof header, request.size()));
  if (is_free(header.opcode)) {
    return {};
  }
  const std::uint64_t read = header.opcode == FUSE_READ ? body_of<fuse_read_in>(request).size : 0;
  const std::uint64_t written =
      header.opcode == FUSE_WRITE ? body_of<fuse_write_in>(request).size : 0;
  return {read, written, 1};
}

void TokenBucket::take(std::uint64_t amount, std::uint64_t per_second, Nanoseconds now) {
  if (per_second > 0) {
    full_ = std::max(full_, now) + time_for(amount, per_second);
  } else {
    full_ = 0;
  }
}

void TokenBucket::give_back(std::uint64_t amount, std::uint64_t per_second) {
  if (per_second > 0) {
    full_ -= time_for(amount, per_second);
  }
}

Result<std::unique_ptr<PacedRequests>> PacedRequests::make(Limits& limits) {
  UniqueFd timer(::timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer) {
    return fail(errno);
  }
  return std::unique_ptr<PacedRequests>(new PacedRequests(limits, std::move(timer)));
}

bool PacedRequests::put_off(std::span<const std::byte> request) {
  const Cost cost = cost_of(request);
  if (cost == Cost{}) {
    return false;
  }
  const Nanoseconds now = steady_now();
  MutexLock lock(mutex_);
  if (!waits_like(cost) && opens(cost) <= now) {
    charge(cost, now);
    return false;
  }
  waiting_.push_back({cost, {request.begin(), request.end()}});
  ++waiting_count_;
  ++limits_.delayed;
  set_timer(now);
  return true;
}

std::size_t PacedRequests::take(std::span<std::byte> into) {
  if (waiting_count_ == 0) {
    return 0;
  }
  const Nanoseconds now = steady_now();
  MutexLock lock(mutex_);
  const auto next = std::ranges::find_if(
      waiting_, [&](const Waiting& one) EFS_REQUIRES(mutex_) { return opens(one.cost) <= now; });
  if (next == waiting_.end()) {
    set_timer(now);
    return 0;
  }
  const std::size_t size = next->request.size();
  std::memcpy(into.data(), next->request.data(), size);
  charge(next->cost, now);
  waiting_.erase(next);
  --waiting_count_;
  set_timer(now);
  return size;
}

void PacedRequests::give_back(std::uint64_t bytes) {
  constexpr auto read = static_cast<std::size_t>(Limited::read);
  MutexLock lock(mutex_);
  buckets_[read].give_back(bytes, limits_.per_second[read]);
}

// A debt at the old rate would outlast a new one.
void PacedRequests::limits_changed() {
  const Nanoseconds now = steady_now();
  MutexLock lock(mutex_);
  buckets_ = {};
  set_timer(now);
}

Nanoseconds PacedRequests::opens(const Cost& cost) const {
  Nanoseconds latest = 0;
  for (std::size_t i = 0; i < limited_count; ++i) {
    if (cost[i] > 0 && limits_.per_second[i] > 0) {
      latest = std::max(latest, buckets_[i].opens());
    }
  }
  return latest;
}

void PacedRequests::charge(const Cost& cost, Nanoseconds now) {
  for (std::size_t i = 0; i < limited_count; ++i) {
    buckets_[i].take(cost[i], limits_.per_second[i], now);
  }
}

// A request must not overtake one that waits for the same limits.
bool PacedRequests::waits_like(const Cost& cost) const {
  return std::ranges::any_of(waiting_, [&](const Waiting& one) {
    return (one.cost[0] > 0) == (cost[0] > 0) && (one.cost[1] > 0) == (cost[1] > 0);
  });
}

// Of the first request that may pass. A timer in the past fires at once.
void PacedRequests::set_timer(Nanoseconds now) {
  itimerspec when{};
  if (!waiting_.empty()) {
    Nanoseconds first = std::numeric_limits<Nanoseconds>::max();
    for (const Waiting& one : waiting_) {
      first = std::min(first, opens(one.cost));
    }
    when.it_value = to_timespec(std::max(first, now + 1));
  }
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
}

}  // namespace efs::fuse
