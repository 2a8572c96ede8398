// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The open files of an instance. Each open is an entry with its owner, its inode and its mode. The
// entries are in memory that the supervisor shares with every worker, so a successor knows what its
// predecessor's clients have open.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "base/result.hpp"

namespace efs::fs {

/// The client that an open belongs to. The owner's death closes what it has open.
struct Owner {
  enum class Kind : std::uint8_t {
    kernel = 1,   // the connection of the mount
    session = 2,  // a client that has a session of its own
  };

  Kind kind = Kind::kernel;
  std::uint32_t number = 0;  // of several owners of one kind

  bool operator==(const Owner&) const = default;
};

struct OpenFile {
  Owner owner;
  std::uint64_t ino = 0;
  int flags = 0;              // those of open(2)
  std::uint64_t request = 0;  // the kernel's request that opened the file; 0: none
  bool by_daemon = false;     // the daemon does its I/O: see OpenTable::note_daemon_path()
};

/// A fixed number of slots and a free list. open() and close() allocate nothing and take no lock.
/// Thread-safe, except restore() and clear().
///
/// A handle is the index of a slot, and its generation: the number of entries that the slot has
/// had. So the handle of an entry that was closed is not that of a later one.
///
/// A process may die at any instruction. A slot's `state` makes its entry valid, and open() stores
/// it last. So a successor finds an entry whole or not at all.
class OpenTable {
 public:
  static constexpr std::size_t usual_slots = std::size_t{4} << 20U;  // 128 MiB, touched when used
  static constexpr std::size_t fewest_slots = std::size_t{16} << 10U;

  /// Makes an empty table. Processes that are forked afterwards share its entries. Each process
  /// has a free list of its own, so only one of them may use the table at a time, and a later one
  /// calls restore() first. Makes fewer slots, down to `fewest_slots`, if memory is short; the file
  /// system that uses the table logs that. Fails with ENOMEM if the memory cannot be mapped.
  static Result<std::unique_ptr<OpenTable>> make(std::size_t slots = usual_slots);

  /// The number of entries that the table can have.
  std::size_t slots() const { return most_; }

  /// Adds an entry and returns its handle. On return a successor knows the entry. ENFILE: the table
  /// is full.
  Result<std::uint64_t> open(const OpenFile& file);
  /// Removes an entry and returns it. Returns nothing if the handle is not that of an entry: it was
  /// closed before.
  std::optional<OpenFile> close(std::uint64_t handle);
  /// Notes in an entry that the daemon does the I/O. Call it before the kernel learns of the open:
  /// a successor offers passthrough for an inode without such an entry.
  void note_daemon_path(std::uint64_t handle);
  /// The entry that a request of this owner has made.
  std::optional<std::uint64_t> find(const Owner& owner, std::uint64_t request) const;

  /// Calls `visit(handle, file)` for each entry. `visit` may close entries. An entry that another
  /// thread opens or closes meanwhile may be left out.
  template <typename Visit>
  void for_each(Visit visit) const {
    const std::uint64_t used = used_.load();
    for (std::uint64_t i = 0; i < used; ++i) {
      const std::uint64_t state = slots_[i].state.load(std::memory_order_acquire);
      if (const auto file = entry(i, state)) {
        visit(handle_of(i, state), *file);
      }
    }
  }

  /// The number of entries for which `wanted(file)` is true.
  template <typename Predicate>
  std::size_t count(Predicate wanted) const {
    std::size_t found = 0;
    for_each([&](std::uint64_t, const OpenFile& file) { found += wanted(file) ? 1 : 0; });
    return found;
  }

  /// Closes all entries for which `wanted(file)` is true, and calls `closed(file)` for each.
  template <typename Predicate, typename Closed>
  void close_if(Predicate wanted, Closed closed) {
    for_each([&](std::uint64_t handle, const OpenFile& file) {
      if (wanted(file) && close(handle)) {
        closed(file);
      }
    });
  }

  /// Makes the free list of a process that inherits the entries of a dead one. Call it before any
  /// other function.
  void restore();
  /// Closes all entries. Call it before any other function of this process.
  void clear();

 private:
  // Atomic stores, because a successor and visits read what other threads write.
  struct Slot {
    std::atomic<std::uint64_t> state;  // generation << 32 | kind of the owner; kind 0: free
    std::atomic<std::uint64_t> ino;    // of a free slot: the link of the free list
    std::atomic<std::uint64_t> request;
    std::atomic<std::uint32_t> flags;   // and daemon_bit
    std::atomic<std::uint32_t> number;  // of the owner
  };

  struct Unmap {
    std::size_t bytes = 0;
    void operator()(std::byte* memory) const;
  };

  using Memory = std::unique_ptr<std::byte, Unmap>;

  OpenTable(Memory memory, std::size_t slots);

  static std::uint64_t handle_of(std::uint64_t index, std::uint64_t state) {
    return state >> 32U << 32U | index;
  }

  /// The entry of a slot that has this state; nothing if the slot is free or has another entry.
  std::optional<OpenFile> entry(std::uint64_t index, std::uint64_t state) const;
  std::optional<std::uint64_t> take_slot();
  void give_back(std::uint64_t index);

  const Memory memory_;
  // In the memory: the number of slots, from the first one on, that ever had an entry
  std::atomic<std::uint64_t>& used_;
  Slot* const slots_;  // in the memory
  const std::size_t most_;
  // The first free slot: tag << 32 | index + 1; 0: none. The tag differs after each change.
  std::atomic<std::uint64_t> free_{0};
};

}  // namespace efs::fs
