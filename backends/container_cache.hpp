#pragma once
// The containers that are kept open, so that a file that is opened again costs no system call.

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

/// Each holds a descriptor. Who has a container from here keeps it open for as long as he holds it,
/// whatever goes from here. Thread-safe.
class ContainerCache {
 public:
  /// Up to `most`, and one at least; the one that was asked for least recently goes first.
  explicit ContainerCache(std::size_t most) : most_(std::max<std::size_t>(1, most)) {}

  /// null: it is not here.
  std::shared_ptr<Container> find(std::uint64_t id);
  /// The one that is here already, where somebody was faster.
  std::shared_ptr<Container> remember(std::uint64_t id, std::shared_ptr<Container> container);
  void forget(std::uint64_t id);
  /// Forgets all: false where there was none.
  bool clear();

 private:
  using Cached = std::pair<std::uint64_t, std::shared_ptr<Container>>;

  const std::size_t most_;
  Mutex mutex_;  // rank 50
  std::list<Cached> recent_ EFS_GUARDED_BY(mutex_);
  std::unordered_map<std::uint64_t, std::list<Cached>::iterator> places_ EFS_GUARDED_BY(mutex_);
};

/// How many may be kept open: a part of what this process may open (RLIMIT_NOFILE), for there are
/// other backends, files being staged and connections as well.
std::size_t containers_to_keep_open();

}  // namespace efs
