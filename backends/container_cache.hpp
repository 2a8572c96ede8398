// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A cache of open containers, so that reopening a file costs no system call.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <list>
#include <memory>
#include <unordered_map>
#include <utility>

#include "backends/backend.hpp"
#include "base/mutex.hpp"

namespace efs {

/// Each cached container holds a descriptor. A caller's container stays open while the caller holds
/// it, even after its eviction from the cache. Thread-safe.
class ContainerCache {
 public:
  /// Caches up to `most` containers, at least one. Evicts the least recently used one.
  explicit ContainerCache(std::size_t most) : most_(std::max<std::size_t>(1, most)) {}

  /// Returns null if the container is not cached.
  std::shared_ptr<Container> find(std::uint64_t id);
  /// Returns the cached container if another thread has added one.
  std::shared_ptr<Container> remember(std::uint64_t id, std::shared_ptr<Container> container);
  void forget(std::uint64_t id);
  /// Removes all; false if the cache was empty.
  bool clear();

 private:
  using Cached = std::pair<std::uint64_t, std::shared_ptr<Container>>;

  const std::size_t most_;
  Mutex mutex_;  // rank 50
  std::list<Cached> recent_ EFS_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, std::list<Cached>::iterator> places_ EFS_GUARDED_BY(mutex_);
};

/// Returns how many containers to keep open: a part of the process's limit (RLIMIT_NOFILE). Other
/// backends, staged files and connections need descriptors too.
std::size_t containers_to_keep_open();

}  // namespace efs
