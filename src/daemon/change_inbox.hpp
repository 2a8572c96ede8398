// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The changes that programs make, on their way to the thread that looks at them. A thread that
// serves programs adds a change in well under a microsecond.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>

#include "base/clock.hpp"
#include "base/mutex.hpp"
#include "fs/change_watch.hpp"

namespace efs::daemon {

struct Change {
  enum class Kind : std::uint8_t { closed, changed, named, moved };
  Kind kind{};
  std::uint64_t ino = 0;     // not of a moved directory
  std::uint64_t parent = 0;  // of a new name
  std::string name;
  Nanoseconds at = 0;  // the wall clock, but later than all earlier changes
};

/// Thread-safe. One thread calls wait() and take().
class ChangeInbox final : public fs::ChangeWatch {
 public:
  using Time = std::chrono::steady_clock::time_point;
  /// The most changes that wait; later ones are lost.
  static constexpr std::size_t most = std::size_t{256} << 10U;
  /// wait() ends so long after the first change, for the changes that follow at once.
  static constexpr auto gathering = std::chrono::milliseconds(100);

  void closed(std::uint64_t ino) noexcept override;
  void changed(std::uint64_t ino) noexcept override;
  void named(std::uint64_t ino, std::uint64_t parent, std::string_view name) noexcept override;
  void moved(std::uint64_t parent, std::string_view name) noexcept override;

  /// Ends the present or the next wait().
  void poke();
  /// Waits for changes, for poke(), or until `end`; nullopt: without an end.
  void wait(std::optional<Time> end);

  struct Content {
    std::deque<Change> changes;  // in their order
    bool lost = false;           // some changes are missing
  };

  Content take();

 private:
  void add(Change::Kind kind, std::uint64_t ino, std::uint64_t parent,
           std::string_view name) noexcept;

  Mutex mutex_;  // rank 90 (leaf)
  Condition told_;
  Content content_ EFS_GUARDED_BY(mutex_);
  Nanoseconds last_ EFS_GUARDED_BY(mutex_) = 0;
  bool is_poked_ EFS_GUARDED_BY(mutex_) = false;
};

}  // namespace efs::daemon
