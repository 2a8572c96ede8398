// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The places of a file's bytes on a device that has no file system.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace efs {

/// A run of bytes of a file, and its place on the device. All in bytes.
struct Extent {
  std::uint64_t offset = 0;  // in the file
  std::uint64_t device = 0;  // offset on the device
  std::uint64_t length = 0;

  std::uint64_t end() const { return offset + length; }

  /// True if it is not empty and neither end exceeds 64 bits.
  bool is_sound() const { return length != 0 && length <= ~offset && length <= ~device; }

  bool operator==(const Extent&) const = default;
};

/// The extents of one file: sorted, never overlapping in the file. Extents that touch in the file
/// and on the device are one. Bytes in no extent are a hole. Not thread-safe.
class Extents {
 public:
  /// Maps a sound extent; it replaces the former places of its bytes. If it throws std::bad_alloc,
  /// the mapping has not changed.
  void map(const Extent& added);

  /// Replaces the places of the bytes [begin, end) by `with`, which has extents in this range only.
  /// If it throws std::bad_alloc, the mapping has not changed.
  void replace(std::uint64_t begin, std::uint64_t end, Extents&& with);

  /// The extent of the byte at `offset`, or the next one behind it; nullopt: a hole to the end.
  std::optional<Extent> find(std::uint64_t offset) const;

  /// The extents of [begin, end), cut at these ends, in order.
  std::vector<Extent> within(std::uint64_t begin, std::uint64_t end) const;

  /// The parts of [begin, end) that are in no extent, in order; device is 0.
  std::vector<Extent> gaps(std::uint64_t begin, std::uint64_t end) const;

  /// Returns whether each byte of [begin, end) is in an extent.
  bool covers(std::uint64_t begin, std::uint64_t end) const;

  /// All extents, in order.
  std::vector<Extent> list() const;

  /// Lets an extent begin at `at` if one crosses it. The mapping stays the same. A replace() whose
  /// ends are split allocates nothing.
  void split(std::uint64_t at);

  /// Undoes split(): makes the extents that meet at `at` one if they touch on the device.
  void join(std::uint64_t at) noexcept;

  /// Bytes on the device.
  std::uint64_t physical() const { return physical_; }

  /// The end of the last extent, in the file; 0 if there is none.
  std::uint64_t end() const {
    return runs_.empty() ? 0 : runs_.rbegin()->first + runs_.rbegin()->second.length;
  }

  std::size_t size() const { return runs_.size(); }

  bool operator==(const Extents&) const = default;

 private:
  struct Run {
    std::uint64_t device = 0, length = 0;
    bool operator==(const Run&) const = default;
  };

  using Runs = std::map<std::uint64_t, Run>;  // by the offset in the file

  Runs runs_;
  std::uint64_t physical_ = 0;  // the sum of the lengths
};

}  // namespace efs
