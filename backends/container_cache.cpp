// SPDX-License-Identifier: BSD-3-Clause
#include "backends/container_cache.hpp"

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/open_files.hpp"

namespace efs {

std::shared_ptr<Container> ContainerCache::find(std::uint64_t id) {
  MutexLock lock(mutex_);
  const auto found = places_.find(id);
  if (found == places_.end()) {
    return nullptr;
  }
  recent_.splice(recent_.begin(), recent_, found->second);
  return found->second->second;
}

std::shared_ptr<Container> ContainerCache::remember(std::uint64_t id,
                                                    std::shared_ptr<Container> container) {
  std::shared_ptr<Container> evicted;  // closed after the lock is released
  MutexLock lock(mutex_);
  if (const auto found = places_.find(id); found != places_.end()) {
    return found->second->second;
  }
  if (places_.size() < most_) {
    std::list<Cached> place;
    place.emplace_front(id, container);
    places_[id] = place.begin();
    recent_.splice(recent_.begin(), place);
    return container;
  }
  // Reuse the evicted entry's memory.
  auto place = places_.extract(recent_.back().first);
  evicted = std::exchange(recent_.back().second, container);
  place.key() = recent_.back().first = id;
  recent_.splice(recent_.begin(), recent_, std::prev(recent_.end()));
  places_.insert(std::move(place));
  return container;
}

void ContainerCache::forget(std::uint64_t id) {
  std::shared_ptr<Container> closed;
  MutexLock lock(mutex_);
  const auto found = places_.find(id);
  if (found == places_.end()) {
    return;
  }
  closed = std::move(found->second->second);
  recent_.erase(found->second);
  places_.erase(found);
}

bool ContainerCache::clear() {
  std::list<Cached> closed;
  MutexLock lock(mutex_);
  closed.swap(recent_);
  places_.clear();
  return !closed.empty();
}

std::size_t containers_to_keep_open() {
  constexpr std::uint64_t part = 8, fewest = 16, most = 512;
  return std::clamp(most_open_files() / part, fewest, most);
}

}  // namespace efs
