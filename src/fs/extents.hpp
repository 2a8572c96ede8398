// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The places of a file's bytes on a device, for a backend whose containers do not know them.

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace efs::fs {

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

  /// All extents, in order.
  std::vector<Extent> list() const;

  std::size_t size() const { return runs_.size(); }

  bool operator==(const Extents&) const = default;

 private:
  struct Run {
    std::uint64_t device = 0, length = 0;
    bool operator==(const Run&) const = default;
  };

  using Runs = std::map<std::uint64_t, Run>;  // by the offset in the file

  void split(std::uint64_t at);
  void join(std::uint64_t at);

  Runs runs_;
};

}  // namespace efs::fs
