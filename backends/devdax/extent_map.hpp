// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The places of one file's bytes on the device.

#include <cstdint>
#include <map>
#include <optional>
#include <vector>

#include "backends/devdax/device_range.hpp"

namespace efs::devdax {

/// The extents of a file: they do not overlap in the file. Those that touch in the file and on the
/// device are one. Bytes in no extent are a hole. Not thread-safe.
class ExtentMap {
 public:
  /// The extent of the byte at `offset`, or the next one behind it; nullopt: a hole to the end.
  std::optional<FileExtent> find(std::uint64_t offset) const;

  /// The parts of [begin, end) that are in no extent, in order; device is 0.
  std::vector<FileExtent> gaps(std::uint64_t begin, std::uint64_t end) const;

  /// The extents of [begin, end), cut at these ends, in order.
  std::vector<FileExtent> within(std::uint64_t begin, std::uint64_t end) const;

  /// Returns whether each byte of [begin, end) is in an extent.
  bool covers(std::uint64_t begin, std::uint64_t end) const;

  /// Adds an extent; a part of it may not be in the map.
  void insert(const FileExtent& added);

  /// Lets no extent cross `at`, so that erase() need not allocate. The mapping stays the same.
  void split(std::uint64_t at);

  /// Replaces the extents of [begin, end), at which the map is split, by those of `with`.
  void replace(std::uint64_t begin, std::uint64_t end, ExtentMap&& with) noexcept;

  /// Bytes on the device.
  std::uint64_t physical() const { return physical_; }

  /// The end of the last extent, in the file; 0 if there is none.
  std::uint64_t end() const {
    return runs_.empty() ? 0 : runs_.rbegin()->first + runs_.rbegin()->second.length;
  }

  std::size_t size() const { return runs_.size(); }

 private:
  struct Run {
    std::uint64_t device = 0, length = 0;
  };

  using Runs = std::map<std::uint64_t, Run>;  // by the offset in the file

  void join(std::uint64_t at) noexcept;

  Runs runs_;
  std::uint64_t physical_ = 0;
};

}  // namespace efs::devdax
