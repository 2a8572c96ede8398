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
  erase(ino);
}

// A file that comes earlier by now does not return to its old rank.
void FetchQueue::add(std::uint64_t ino, const Rank& rank) {
  if (is_running(ino) || is_wanted(ino)) {
    return;
  }
  if (const auto known = others_at_.find(ino); known != others_at_.end()) {
    if (known->second.level <= rank.level) {
      return;
    }
    erase(ino);
  }
  others_.emplace(rank, ino);
  others_at_.emplace(ino, rank);
}

void FetchQueue::erase(std::uint64_t ino) {
  if (const auto known = others_at_.find(ino); known != others_at_.end()) {
    others_.erase(known->second);
    others_at_.erase(known);
  }
}

std::optional<std::uint64_t> FetchQueue::take(Least least) {
  if (!wanted_.empty()) {
    const std::uint64_t ino = wanted_.front();
    running_.insert(ino);
    wanted_at_.erase(ino);
    wanted_.pop_front();
    return ino;
  }
  if (least == Least::wanted || others_.empty() ||
      (least == Least::expected && is_background_next())) {
    return std::nullopt;
  }
  const std::uint64_t ino = others_.begin()->second;
  running_.insert(ino);
  erase(ino);
  return ino;
}

void FetchQueue::done(std::uint64_t ino) {
  running_.erase(ino);
}

void FetchQueue::forget(std::uint64_t ino, Level level) {
  const auto known = others_at_.find(ino);
  if (known != others_at_.end() && known->second.level == level) {
    erase(ino);
  }
}

void FetchQueue::forget_asked(const std::set<std::uint64_t>& inos) {
  for (const auto ino : inos) {
    forget(ino, Level::asked);
  }
}

void FetchQueue::forget_ahead(const std::vector<std::uint64_t>& inos) {
  for (const auto ino : inos) {
    forget(ino, Level::ahead);
  }
}

std::list<std::uint64_t> FetchQueue::drop() {
  wanted_at_.clear();
  others_.clear();
  others_at_.clear();
  return std::exchange(wanted_, {});
}

}  // namespace efs::daemon
