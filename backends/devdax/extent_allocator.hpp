// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Allocates the data range of a device. A pure data structure: it performs no I/O and stores
// nothing. A start rebuilds it from the extents of the journal (rule R4 of src/store/README.md).

#include <array>
#include <cstdint>
#include <list>
#include <memory>
#include <span>
#include <vector>

#include "backends/devdax/bit_tree.hpp"
#include "backends/devdax/device_range.hpp"
#include "base/result.hpp"

namespace efs::devdax {

/// The data range of a device and its division. A block is the piece of a large file. Blocks are
/// divided into units, of which small files and the ends of large files get some.
struct BlockLayout {
  static constexpr std::uint64_t default_block = 2U << 20U;
  static constexpr std::uint64_t smallest_block = 32U << 10U, largest_block = 1U << 30U;

  std::uint64_t offset = 0;             // of the range, a multiple of block
  std::uint64_t blocks = 0;             // number
  std::uint64_t block = default_block;  // bytes, a power of two

  /// Bytes of a unit: 64 to 4096.
  std::uint64_t unit() const;

  bool is_sound() const;

  std::uint64_t bytes() const { return blocks * block; }

  bool operator==(const BlockLayout&) const = default;
};

/// Bytes, all multiples of a unit.
struct AllocatorSpace {
  std::uint64_t capacity = 0;
  std::uint64_t available = 0;
  std::uint64_t quarantined = 0;  // freed, and not yet released; not in `available`
};

/// Not thread-safe. Takes a pointer and two bits for each block, and one bit for each unit of a
/// block that is not free as a whole or in use as a whole. A range has whole units: all lengths are
/// rounded up, and all offsets are multiples of a unit.
class ExtentAllocator {
 public:
  /// All of the range is free. `layout` is sound.
  explicit ExtentAllocator(const BlockLayout& layout);
  ~ExtentAllocator();
  ExtentAllocator(ExtentAllocator&&) noexcept;
  ExtentAllocator& operator=(ExtentAllocator&&) noexcept;

  /// Marks a free range as in use: for the rebuild. EUCLEAN with a text if the range is empty,
  /// outside of the data range, not of whole units, or in use. Then nothing has changed.
  Status claim(const DeviceRange& range);

  /// Returns ranges that have `bytes` together, in the order of the file. Fewer bytes if the space
  /// ends; none if it is full. Continues at `hint`, the end of the file's last extent, if the space
  /// there is free (0: no hint). The common case takes constant time; a nearly full store is
  /// searched. If it throws std::bad_alloc, nothing is allocated.
  std::vector<DeviceRange> allocate(std::uint64_t bytes, std::uint64_t hint);

  /// Frees a part or all of allocated ranges. Returns false, and changes nothing, if a part of the
  /// range is not in use. Without memory for the map of a block that is freed in part, the space
  /// stays in use until the next rebuild.
  bool free(const DeviceRange& range) noexcept;

  /// Freed ranges, and the position of the record that releases them.
  struct Quarantined {
    std::uint64_t position = 0;
    std::vector<DeviceRange> ranges;
  };

  /// Keeps the ranges of the list in use until they are released. Moves the elements of the list,
  /// and so allocates nothing.
  void quarantine(std::list<Quarantined>&& freed) noexcept;
  /// Frees the ranges in quarantine, in their order, up to the first with a later position: the
  /// records up to `position` are durable (rule R3).
  void release(std::uint64_t position) noexcept;

  /// Never allocates these bytes from now on, because the device cannot read them. Those in use are
  /// withheld when they are freed.
  void withhold(const DeviceRange& range);

  AllocatorSpace space() const;

  const BlockLayout& layout() const { return layout_; }

 private:
  struct Shared;
  using Place = std::uint32_t;  // index of a unit in its block

  bool is_in_use(const DeviceRange& range) const;
  bool is_free(const DeviceRange& range) const;
  bool is_within(const DeviceRange& range) const;

  bool is_free_block(std::uint64_t block) const { return free_.contains(block); }

  void claim_withheld(const DeviceRange& freed) noexcept;
  template <typename Work>
  bool for_each_part(const DeviceRange& range, Work work) const;

  Shared& divide(std::uint64_t block, bool used);
  void take_units(std::uint64_t block, Place first, Place count);
  void free_units(std::uint64_t block, Place first, Place count);
  void take_block(std::uint64_t block);
  void look_for_longest(Shared& shared) const;
  void list_in(Shared& shared);
  void unlist(Shared& shared);
  Shared* fitting(Place units) const;

  DeviceRange range_of(std::uint64_t block, Place first, std::uint64_t units) const {
    return {.offset = layout_.offset + block * layout_.block + first * unit_,
            .length = units * unit_};
  }

  // The steps of allocate(); each takes up to `units` and returns what it took.
  std::uint64_t continue_at(std::uint64_t hint, std::uint64_t units, std::vector<DeviceRange>& to);
  std::uint64_t take_blocks(std::uint64_t units, std::vector<DeviceRange>& to);
  std::uint64_t take_part(std::uint64_t units, std::uint64_t hint, std::vector<DeviceRange>& to);
  static void append(std::vector<DeviceRange>& to, const DeviceRange& range);

  BlockLayout layout_;
  std::uint64_t unit_ = 0;
  Place units_per_block_ = 0;
  BitTree free_;                                 // blocks that are free as a whole
  std::vector<std::unique_ptr<Shared>> shared_;  // by block; null: free or in use as a whole
  std::uint64_t cursor_ = 0;                     // the search for free blocks starts here
  // divided blocks with free units, by the logarithm of their known run of free units
  static constexpr std::size_t buckets = 20;
  std::array<Shared*, buckets> first_{};
  std::uint64_t available_ = 0;  // units
  std::list<Quarantined> quarantine_;
  std::uint64_t quarantined_ = 0;      // bytes
  std::vector<DeviceRange> withheld_;  // of whole units
};

}  // namespace efs::devdax
