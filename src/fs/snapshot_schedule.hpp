// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// When a snapshot replaces the journal.

#include <algorithm>
#include <cstddef>
#include <cstdint>

namespace efs::fs {

/// `size`: bytes of the present journal. If a snapshot fails for missing room, memory or
/// descriptors, the old journal stays in use. Not thread-safe.
class SnapshotSchedule {
 public:
  /// `smallest`: the bytes of a journal below which no snapshot is made.
  explicit SnapshotSchedule(std::uint64_t smallest) : smallest_(smallest) {}

  /// Before this call no snapshot is due. `later`: bytes by which the first one is put off.
  void begin(std::uint64_t later = 0) { due_at_ = smallest_ + later; }

  bool has_begun() const { return due_at_ != 0; }

  bool is_due(std::uint64_t size) const { return has_begun() && size >= due_at_; }

  /// Makes one due now, or when the journal is large enough.
  void hasten(std::uint64_t size) { due_at_ = std::min(due_at_, std::max(size, smallest_)); }

  /// The next is due when the journal has grown by a quarter: one would save little now.
  void put_off(std::uint64_t size) { due_at_ = size + size / 4; }

  /// The journal is a new snapshot.
  void made(std::uint64_t size) { due_at_ = std::max(smallest_, 2 * size); }

  /// One that was due was made, or not. Returns true if the last one had the other outcome, so that
  /// a series of failures is logged once.
  bool tried(bool is_made, std::uint64_t size) {
    if (is_made) {
      made(size);
    } else {
      due_at_ = std::max(smallest_, size * 5 / 4);
    }
    const bool is_new = has_failed_ == is_made;
    has_failed_ = !is_made;
    return is_new;
  }

  /// True if the journal may be shortened to make room.
  bool may_shorten(std::uint64_t size) const { return has_begun() && size >= smallest_; }

  /// A record was refused for missing room. Returns true if a snapshot is to be tried for that:
  /// attempts cost a call at most 64 of `inodes`.
  bool refuse(std::size_t inodes) { return refused_++ % (1 + inodes / 64) == 0; }

  /// True if records were refused since the last snapshot that was made for missing room.
  bool is_refusing() const { return refused_ != 0; }

  /// A snapshot was made for missing room.
  void end_refusals() { refused_ = 0; }

 private:
  const std::uint64_t smallest_;
  std::uint64_t due_at_ = 0;  // bytes of the journal; 0: not begun
  bool has_failed_ = false;
  std::uint64_t refused_ = 0;  // records
};

}  // namespace efs::fs
