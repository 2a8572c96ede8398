// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A file on an efs mount that this process has mapped: one for all its descriptors of the file.
// The numbers of rules are those of README.md.
//
// Lifetime: a File lies in a fixed pool and is never freed, so that a thread that comes late reads
// no foreign memory. Each descriptor in the table holds a reference and each call in progress
// another; the last one that is dropped unmaps the file. So nothing stays mapped after the last
// close (rule 1), and no lock is needed to close.

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "intercept/counts.hpp"
#include "intercept/known_range.hpp"
#include "intercept/mount.hpp"

namespace efs::intercept {

/// The processor's counter, shifted: a tick is some 100 us.
inline std::uint64_t cycles() {
  return __builtin_ia32_rdtsc();
}

inline std::uint64_t tick_of(std::uint64_t cycles) {
  return cycles >> 18;
}

class File {
 public:
  /// Requests of so many bytes are as fast by the kernel, until their pages are touched.
  static constexpr std::uint64_t large = 64 << 10;

  struct Identity {
    std::uint64_t device;
    std::uint64_t inode;
    bool operator==(const Identity&) const = default;
  };

  /// The file of `fd`, with a reference: a mapped one, or a new one, which is mapped now. `writes`:
  /// the descriptor may write. Null: it cannot be served. Returns null too if another thread is in
  /// here; the caller tries again at a later call.
  static File* adopt(int fd, const Identity& identity, bool writes);

  /// True if the daemon lets writes of this open file be stores into a mapping.
  static bool is_written_by_memory(int fd);

  /// Takes a reference if the file has one; false: the object is free, or becomes free.
  bool hold() {
    std::uint32_t references = references_.load(std::memory_order_relaxed);
    while (references != 0) {
      if (references_.compare_exchange_weak(references, references + 1,
                                            std::memory_order_acquire)) {
        return true;
      }
    }
    return false;
  }

  void release() {
    if (references_.fetch_sub(1, std::memory_order_acq_rel) == 1) {
      end();
    }
  }

  const Identity& identity() const { return identity_; }

  /// True if the descriptor is of this file. Asks the kernel alone.
  bool is_of(int fd) const;

  /// `fd` is a descriptor by which the file can be mapped. Where the byte at `offset` is mapped, if
  /// `bytes` from there are known to be there and mapped as the call needs; else null: the call is
  /// the kernel's. May ask the daemon once by `fd`.
  char* at(int fd, std::uint64_t offset, std::uint64_t bytes, bool for_write);

  /// The calls of a descriptor before its file is mapped: more if mappings have not paid.
  static std::uint32_t calls_before_mapping();
  /// mlockall(2) would fill every mapping: there are none any more.
  static void map_no_more();

  /// True if a call of so many bytes at the kernel's offset, as far as it is known, is served.
  bool expects(std::uint64_t bytes) const {
    return range().holds(next_offset_.load(std::memory_order_relaxed), bytes);
  }

  /// The kernel's offset is here now.
  void offset_is(std::uint64_t offset) { next_offset_.store(offset, std::memory_order_relaxed); }

  /// The kernel has written these bytes by `fd`. `epoch` is of before the call. After a row of
  /// appends asks the daemon for room (rule 11).
  void extend(int fd, std::uint64_t epoch, std::uint64_t offset, std::uint64_t bytes);

  std::uint64_t epoch() const { return mount_->epoch(identity_.inode); }

  /// Rule 6. True if this write is the kernel's, because it is the first of its tick.
  bool is_first_of_tick(std::uint64_t tick) {
    return written_tick_.load(std::memory_order_relaxed) != tick;
  }

  /// Call before the kernel's write. `epoch` is of before it.
  void kernel_writes(std::uint64_t tick, std::uint64_t epoch) {
    stored_.store(false, std::memory_order_relaxed);
    written_epoch_.store(epoch, std::memory_order_relaxed);
    written_tick_.store(tick, std::memory_order_relaxed);
  }

  void stored() {
    if (!stored_.load(std::memory_order_relaxed)) {
      stored_.store(true, std::memory_order_relaxed);
    }
  }

  /// Moves mtime if a store came after the last write by the kernel, and the times were not set
  /// since.
  void stamp(int fd);

  /// False: the daemon and its supervisor are dead.
  bool is_served() const { return !mount_->is_dead(); }

  void report_if_due(std::uint64_t now) { mount_->report_if_due(now); }

  Counts& counts() { return mount_->counts; }

  void count_call() { add(served_, 1); }

  /// The child of a fork has one thread. `references` are those of its table.
  static void after_fork(std::uint32_t (*references)(const File&));

 private:
  // A mapping is longer than the file, and a grown file gets a longer one beside it. Each step
  // is four times the one before.
  static constexpr std::size_t most_mappings = 10;
  static constexpr std::size_t chunk = std::size_t{2} << 20;

  struct Mapping {
    char* base = nullptr;
    std::size_t bytes = 0;
    bool writable = false;
    std::atomic<std::uint8_t>* chunks = nullptr;  // `few` or memory of its own
    std::atomic<std::uint8_t> few[64] = {};

    std::size_t count() const { return bytes / chunk; }
  };

  // A chunk: the bytes of large requests that the kernel served, in units of `large`, or
  // populated.
  static constexpr std::uint8_t populated = 255;

  struct Run {
    std::uint64_t offset;
    std::uint64_t bytes;
    bool for_write;
  };

  static File* find(const Identity& identity);
  static File* begin(int fd, const Identity& identity, bool writes);

  // A range that replaces another begins elsewhere. Empty if it is being replaced.
  KnownRange range() const {
    const std::uint64_t begin = begin_.load(), end = end_.load();
    return begin_.load() == begin ? KnownRange{begin, end} : KnownRange{};
  }

  void set_range(const KnownRange& range);

  bool is_current() const {
    const std::uint64_t now = epoch();
    return epoch_.load(std::memory_order_acquire) == now && now != Mount::no_epoch;
  }

  /// The mapping that serves the run, or null.
  const Mapping* serving(const Run& run) const;
  /// Both under busy_.
  bool ask(int fd, std::uint64_t offset);
  bool needs_room(std::uint64_t offset, std::uint64_t bytes);
  bool map(int fd, bool writable);
  const Mapping* prepare(int fd, const Run& run);

  // A question pays if so many calls are served after it.
  static constexpr std::uint64_t calls_that_pay = 64, rarest_question = 4096;

  bool has_paid() const {
    return served_.load(std::memory_order_relaxed) - asked_at_.load() >= calls_that_pay;
  }

  bool may_ask() const {
    return has_paid() ||
           beyond_.load(std::memory_order_relaxed) >= ask_beyond_.load(std::memory_order_relaxed);
  }

  bool needs_longer(const Run& run) const;
  /// Rule 10. False: a large request to pages that this process has not touched.
  bool touch(const Mapping& mapping, const Run& run);
  void populate(const Mapping& mapping, std::uint64_t from, std::uint64_t until) const;
  void end();

  std::atomic<std::uint32_t> references_{0};
  Identity identity_{};
  Mount* mount_ = nullptr;
  std::atomic<const Mapping*> mapping_{nullptr};  // the last of mappings_
  std::atomic<std::uint64_t> epoch_{0};           // of the range
  std::atomic<std::uint64_t> begin_{0}, end_{0};  // KnownRange
  std::atomic<bool> may_write_{false};            // DoorFlags, as of epoch_
  std::atomic<std::uint64_t> written_tick_{0};
  std::atomic<std::uint64_t> written_epoch_{0};
  std::atomic<bool> stored_{false};
  std::atomic<std::uint64_t> served_{0};
  std::atomic<std::uint64_t> next_offset_{0};  // where the last call ended
  std::atomic_flag busy_;  // the thread that changes the range or the mappings has it
  std::atomic<std::uint64_t> asked_at_{0};  // served_ at the last question
  // Reads outside the range since the last question, and how many lead to the next one.
  std::atomic<std::uint64_t> beyond_{0}, ask_beyond_{calls_that_pay};
  bool unmappable_ = false;     // under busy_
  std::uint64_t appended_ = 0;  // bytes in a row at the end; under busy_
  std::uint64_t room_end_ = 0;  // no more room is asked for before; under busy_
  std::size_t mapped_ = 0;      // mappings; under busy_
  std::atomic<bool> in_use_{false};
  Mapping mappings_[most_mappings];
};

}  // namespace efs::intercept
