// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Zero pages that take space: where a container has some.

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "backends/backend.hpp"

namespace efs::fs {

/// A part of a file, in bytes.
struct Run {
  std::uint64_t offset = 0, length = 0;
  bool operator==(const Run&) const = default;
};

/// Finds zero pages. For one thread; a program that writes to the container meanwhile makes the
/// result untrue. A page that cannot be read counts as one with data.
class ZeroPages {
 public:
  static constexpr std::uint64_t page = 4096;        // bytes
  static constexpr std::uint64_t extent = 2U << 20;  // bytes: a huge page
  // bytes: an extent with fewer zero bytes has no runs, so that it keeps its huge page
  static constexpr std::uint64_t worthwhile = extent / 8;

  /// Borrows the container. Throws std::bad_alloc.
  explicit ZeroPages(Container& container) : container_(container), buffer_(piece) {}

  /// The first extent at or after `offset` that has data and is within `size` bytes.
  std::optional<std::uint64_t> next_extent(std::uint64_t offset, std::uint64_t size) const {
    return next_extent(container_, offset, size);
  }

  /// The runs of the extent at `at`, or none if a punch is not worthwhile. Valid until the next
  /// call. Throws std::bad_alloc.
  std::span<const Run> find(std::uint64_t at);

  /// True if a few pages of some extent, which are read, include a zero page that takes space.
  /// Costs less than find().
  static bool has_sample(Container& container, std::uint64_t size);

 private:
  static constexpr std::size_t piece = 256U << 10;  // bytes that are read at once

  static std::optional<std::uint64_t> next_extent(Container& container, std::uint64_t offset,
                                                  std::uint64_t size);
  static bool has_sample_in(Container& container, std::uint64_t at);
  void look(Run data);
  void add(std::uint64_t offset);

  Container& container_;
  std::vector<std::byte> buffer_;
  std::vector<Run> runs_;
};

}  // namespace efs::fs
