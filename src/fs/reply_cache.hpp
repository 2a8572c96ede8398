#pragma once
// Which requests of the kernel were carried out, so that one that comes again after a takeover is
// answered from here and not carried out twice. Kept in the journal (each record carries its
// request), found again by replay.

#include <array>
#include <cstdint>
#include <memory>
#include <optional>

namespace efs::fs {

/// The last `capacity` of them: far more than can be on their way at once, for each client thread
/// has one at most. Not thread-safe: guarded by the namespace lock.
class ReplyCache {
 public:
  static constexpr std::size_t capacity = 1u << 14;

  /// `ino`: the inode that the answer names, where it names one. Request 0 is none of the kernel's.
  void note(std::uint64_t request, std::uint64_t ino) {
    if (request == 0) {
      return;
    }
    (*last_)[next_] = {request, ino};
    next_ = (next_ + 1) % capacity;
  }

  /// The inode of a request that was carried out; none where it was not.
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
