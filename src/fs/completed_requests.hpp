// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The requests of the kernel that were carried out. After a takeover the kernel repeats requests;
// the worker replies from this cache and does not carry them out twice. Each journal record has its
// request, so a replay rebuilds the cache.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace efs::fs {

/// Keeps the last `capacity` requests. That is far more than the number of requests in flight,
/// because each client thread has at most one. Not thread-safe: guarded by the namespace lock.
class CompletedRequests {
 public:
  static constexpr std::size_t capacity = 1u << 14;

  /// `ino`: the inode in the reply, if any. Request 0 is not from the kernel and is ignored.
  void note(std::uint64_t request, std::uint64_t ino) {
    if (request == 0) {
      return;
    }
    (*last_)[next_] = {request, ino};
    next_ = (next_ + 1) % capacity;
  }

  /// The inode of a request that was carried out; nullopt if it was not.
  std::optional<std::uint64_t> find(std::uint64_t request) const {
    for (const auto& one : *last_) {
      if (one.request == request && request != 0) {
        return one.ino;
      }
    }
    return std::nullopt;
  }

  void clear() { last_->fill({}); }

  template <typename Visit>
  void for_each(Visit visit) const {
    for (std::size_t i = 0; i < capacity; ++i) {
      if (const One& one = (*last_)[(next_ + i) % capacity]; one.request != 0) {
        visit(one.request, one.ino);
      }
    }
  }

 private:
  struct One {
    std::uint64_t request = 0, ino = 0;
  };

  std::unique_ptr<std::array<One, capacity>> last_ = std::make_unique<std::array<One, capacity>>();
  std::size_t next_ = 0;
};

}  // namespace efs::fs
