// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/limits.hpp"

#include <linux/fuse.h>
#include <sys/timerfd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "fuse/wire.hpp"

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

fuse_in_header header_of(std::span<const std::byte> request) {
  fuse_in_header header{};
  if (!request.empty()) {  // memcpy accepts no null pointer
    std::memcpy(&header, request.data(), std::min(sizeof header, request.size()));
  }
  return header;
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
  const fuse_in_header header = header_of(request);
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
  const auto header = header_of(request);
  const Cost cost = cost_of(request);
  const bool interrupts = header.opcode == FUSE_INTERRUPT;
  if (cost == Cost{} && !interrupts) {
    return false;
  }
  const Nanoseconds now = steady_now();
  MutexLock lock(mutex_);
  if (interrupts) {
    return hurry(body_of<fuse_interrupt_in>(request).unique);
  }
  Queue& queue = queue_of(cost);
  // A request that was sent to a predecessor, too, has waited there.
  const bool resent = (header.unique & resent_bit) != 0;
  const bool may_pass = lifted_ || (queue.empty() && opens(cost) <= now);
  if (resent || may_pass || bytes_ + request.size() > most_waiting) {
    charge(cost, now);
    return false;
  }
  queue.push_back({turns_++, header.unique, cost, {request.begin(), request.end()}});
  bytes_ += request.size();
  ++waiting_;
  ++limits_.delayed;
  set_timer(now);
  return true;
}

// Gives the request nothing to wait for, and the first turn.
bool PacedRequests::hurry(std::uint64_t unique) {
  for (Queue& queue : queues_) {
    const auto found = std::ranges::find(queue, unique, &Waiting::unique);
    if (found != queue.end()) {
      Waiting first = std::move(*found);
      queue.erase(found);
      charge(first.cost, steady_now());
      first.cost = {};
      queue.push_front(std::move(first));
      set_timer(0);
      return true;
    }
  }
  return false;
}

std::size_t PacedRequests::take(std::span<std::byte> into) {
  if (waiting_ == 0) {
    return 0;
  }
  const Nanoseconds now = steady_now();
  MutexLock lock(mutex_);
  Queue* next = nullptr;
  for (Queue& queue : queues_) {
    const bool may_pass = !queue.empty() && opens(queue.front().cost) <= now;
    if (may_pass && (next == nullptr || queue.front().turn < next->front().turn)) {
      next = &queue;
    }
  }
  if (next == nullptr) {
    set_timer(now);
    return 0;
  }
  const Waiting taken = std::move(next->front());
  next->pop_front();
  --waiting_;
  const std::size_t size = taken.request.size();
  bytes_ -= size;
  std::memcpy(into.data(), taken.request.data(), size);
  charge(taken.cost, now);
  set_timer(now);
  return size;
}

void PacedRequests::give_back(Limited what, std::uint64_t amount) {
  const auto i = static_cast<std::size_t>(what);
  MutexLock lock(mutex_);
  buckets_[i].give_back(amount, limits_.per_second[i]);
  set_timer(steady_now());
}

void PacedRequests::rate_changed(Limited what) {
  MutexLock lock(mutex_);
  buckets_[static_cast<std::size_t>(what)] = {};
  set_timer(steady_now());
}

void PacedRequests::lift(bool lifted) {
  MutexLock lock(mutex_);
  lifted_ = lifted;
  set_timer(steady_now());
}

PacedRequests::Queue& PacedRequests::queue_of(const Cost& cost) {
  const auto is_of = [&](Limited what) {
    return cost[static_cast<std::size_t>(what)] > 0;
  };
  const Limited kind = is_of(Limited::read)    ? Limited::read
                       : is_of(Limited::write) ? Limited::write
                                               : Limited::operations;
  return queues_[static_cast<std::size_t>(kind)];
}

Nanoseconds PacedRequests::opens(const Cost& cost) const {
  Nanoseconds latest = 0;
  for (std::size_t i = 0; i < limited_count && !lifted_; ++i) {
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

// Of the first request that may pass. A timer in the past fires at once.
void PacedRequests::set_timer(Nanoseconds now) {
  Nanoseconds at = 0;
  for (const Queue& queue : queues_) {
    if (!queue.empty()) {
      const Nanoseconds opened = std::max(opens(queue.front().cost), now + 1);
      at = at == 0 ? opened : std::min(at, opened);
    }
  }
  if (at != timer_at_) {
    const itimerspec when{.it_interval = {}, .it_value = to_timespec(at)};
    ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &when, nullptr);
    timer_at_ = at;
  }
}

}  // namespace efs::fuse
