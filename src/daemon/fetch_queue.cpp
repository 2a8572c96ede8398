// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/fetch_queue.hpp"

#include <utility>

namespace efs::daemon {

void FetchQueue::want(std::uint64_t ino) {
  if (is_running(ino) || is_wanted(ino)) {
    return;
  }
  wanted_.push_back(ino);
  wanted_at_.emplace(ino, std::prev(wanted_.end()));
  if (const auto known = background_at_.find(ino); known != background_at_.end()) {
    background_.erase(known->second);
    background_at_.erase(known);
  }
}

void FetchQueue::add_background(std::uint64_t ino, std::int32_t priority) {
  if (is_running(ino) || is_wanted(ino) || background_at_.contains(ino)) {
    return;
  }
  const Rank rank{-std::int64_t{priority}, arrivals_++};
  background_.emplace(rank, ino);
  background_at_.emplace(ino, rank);
}

std::optional<std::uint64_t> FetchQueue::take(bool background) {
  if (!wanted_.empty()) {
    const std::uint64_t ino = wanted_.front();
    running_.insert(ino);
    wanted_at_.erase(ino);
    wanted_.pop_front();
    return ino;
  }
  if (!background || background_.empty()) {
    return std::nullopt;
  }
  const auto first = background_.begin();
  const std::uint64_t ino = first->second;
  running_.insert(ino);
  background_at_.erase(ino);
  background_.erase(first);
  return ino;
}

void FetchQueue::done(std::uint64_t ino) {
  running_.erase(ino);
}

std::list<std::uint64_t> FetchQueue::drop() {
  wanted_at_.clear();
  background_.clear();
  background_at_.clear();
  return std::exchange(wanted_, {});
}

}  // namespace efs::daemon
