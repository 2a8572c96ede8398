// SPDX-License-Identifier: BSD-3-Clause
#include "backends/devdax/extent_allocator.hpp"

#include <algorithm>
#include <bit>
#include <new>
#include <string>
#include <utility>

namespace efs::devdax {
namespace {

std::size_t logarithm_of(std::uint32_t units) {
  return 31U - static_cast<unsigned>(std::countl_zero(units | 1U));
}

}  // namespace

std::uint64_t BlockLayout::unit() const {
  constexpr std::uint64_t most_units = 8192, smallest = 64, largest = 4096;
  return std::clamp(block / most_units, smallest, largest);
}

bool BlockLayout::is_sound() const {
  return std::has_single_bit(block) && block >= smallest_block && block <= largest_block &&
         offset % block == 0 && blocks != 0 && blocks <= UINT64_MAX / 2 / block &&
         offset <= UINT64_MAX / 2;
}

/// A block that is divided into units. A set bit is a unit in use, and so are the bits behind the
/// last unit.
struct ExtentAllocator::Shared {
  Shared(std::uint64_t number, Place units, bool used)
      : block(number),
        bits((units + 63) / 64, used ? ~std::uint64_t{0} : 0),
        free(used ? 0 : units),
        run(free) {
    if (!used && units % 64 != 0) {
      bits.back() = ~std::uint64_t{0} << (units % 64);
    }
  }

  bool is_used(Place unit) const { return (bits[unit / 64] >> (unit % 64) & 1) != 0; }

  Place end() const { return static_cast<Place>(bits.size() * 64); }

  // The first unit that is used, or that is not, from `at` on; end() if there is none.
  Place next(Place at, bool used) const {
    const std::uint64_t flip = used ? 0 : ~std::uint64_t{0};
    for (std::size_t word = at / 64; word < bits.size(); ++word) {
      std::uint64_t found = bits[word] ^ flip;
      if (word == at / 64) {
        found &= ~std::uint64_t{0} << (at % 64);
      }
      if (found != 0) {
        return static_cast<Place>(word * 64 + static_cast<unsigned>(std::countr_zero(found)));
      }
    }
    return end();
  }

  // The first unit of the run of free units that ends before `at`.
  Place run_before(Place at) const {
    while (at > 0 && !is_used(at - 1)) {
      at -= at % 64 == 0 && bits[at / 64 - 1] == 0 ? 64 : 1;
    }
    return at;
  }

  void set(Place first, Place count, bool used) {
    while (count > 0) {
      const Place within = first % 64, part = std::min(count, 64 - within);
      const std::uint64_t mask = (part == 64 ? ~std::uint64_t{0} : (std::uint64_t{1} << part) - 1)
                                 << within;
      used ? bits[first / 64] |= mask : bits[first / 64] &= ~mask;
      first += part;
      count -= part;
    }
  }

  const std::uint64_t block;
  std::vector<std::uint64_t> bits;
  Place free;                    // units
  Place run = 0, run_at = 0;     // a run of free units; there may be a longer one
  std::size_t bucket = buckets;  // `buckets`: in no list
  Shared *before = nullptr, *next_one = nullptr;
};

ExtentAllocator::ExtentAllocator(const BlockLayout& layout)
    : layout_(layout),
      unit_(layout.unit()),
      units_per_block_(static_cast<Place>(layout.block / layout.unit())),
      free_(layout.blocks),
      shared_(layout.blocks),
      available_(layout.blocks * units_per_block_) {
  for (std::uint64_t block = 0; block < layout.blocks; ++block) {
    free_.insert(block);
  }
}

ExtentAllocator::~ExtentAllocator() = default;
ExtentAllocator::ExtentAllocator(ExtentAllocator&&) noexcept = default;
ExtentAllocator& ExtentAllocator::operator=(ExtentAllocator&&) noexcept = default;

bool ExtentAllocator::is_within(const DeviceRange& range) const {
  return range.length != 0 && range.offset >= layout_.offset && range.offset % unit_ == 0 &&
         range.length % unit_ == 0 && range.offset - layout_.offset < layout_.bytes() &&
         range.length <= layout_.bytes() - (range.offset - layout_.offset);
}

/// Calls work(block, first unit, units) for each block of the range until it returns false.
template <typename Work>
bool ExtentAllocator::for_each_part(const DeviceRange& range, Work work) const {
  std::uint64_t at = (range.offset - layout_.offset) / unit_, left = range.length / unit_;
  while (left > 0) {
    const auto first = static_cast<Place>(at % units_per_block_);
    const auto count = static_cast<Place>(std::min<std::uint64_t>(left, units_per_block_ - first));
    if (!work(at / units_per_block_, first, count)) {
      return false;
    }
    at += count;
    left -= count;
  }
  return true;
}

bool ExtentAllocator::is_in_use(const DeviceRange& range) const {
  return for_each_part(range, [this](std::uint64_t block, Place first, Place count) {
    const Shared* const shared = shared_[block].get();
    return shared != nullptr ? shared->next(first, false) >= first + count : !is_free_block(block);
  });
}

bool ExtentAllocator::is_free(const DeviceRange& range) const {
  return for_each_part(range, [this](std::uint64_t block, Place first, Place count) {
    const Shared* const shared = shared_[block].get();
    return shared != nullptr ? shared->next(first, true) >= first + count : is_free_block(block);
  });
}

void ExtentAllocator::unlist(Shared& shared) {
  if (shared.bucket == buckets) {
    return;
  }
  (shared.before != nullptr ? shared.before->next_one : first_[shared.bucket]) = shared.next_one;
  if (shared.next_one != nullptr) {
    shared.next_one->before = shared.before;
  }
  shared.before = shared.next_one = nullptr;
  shared.bucket = buckets;
}

void ExtentAllocator::list_in(Shared& shared) {
  const std::size_t bucket = shared.run == 0 ? buckets : logarithm_of(shared.run);
  if (bucket == shared.bucket) {
    return;
  }
  unlist(shared);
  if (bucket == buckets) {
    return;
  }
  shared.bucket = bucket;
  shared.next_one = first_[bucket];
  if (shared.next_one != nullptr) {
    shared.next_one->before = &shared;
  }
  first_[bucket] = &shared;
}

/// The block is free or in use as a whole, and stays so.
ExtentAllocator::Shared& ExtentAllocator::divide(std::uint64_t block, bool used) {
  shared_[block] = std::make_unique<Shared>(block, units_per_block_, used);
  if (!used) {
    free_.erase(block);
  }
  list_in(*shared_[block]);
  return *shared_[block];
}

void ExtentAllocator::look_for_longest(Shared& shared) const {
  shared.run = 0;
  for (Place at = shared.next(0, false); at < units_per_block_;) {
    const Place end = std::min(shared.next(at, true), units_per_block_);
    if (end - at > shared.run) {
      shared.run = end - at;
      shared.run_at = at;
    }
    at = shared.next(end, false);
  }
}

void ExtentAllocator::take_block(std::uint64_t block) {
  free_.erase(block);
  available_ -= units_per_block_;
}

/// The units are free.
void ExtentAllocator::take_units(std::uint64_t block, Place first, Place count) {
  if (!shared_[block] && count == units_per_block_) {
    take_block(block);
    return;
  }
  Shared& shared = shared_[block] ? *shared_[block] : divide(block, false);
  shared.set(first, count, true);
  shared.free -= count;
  available_ -= count;
  if (first < shared.run_at + shared.run && first + count > shared.run_at) {
    // Its longer rest remains the known run.
    const Place before = std::max(first, shared.run_at) - shared.run_at,
                end = shared.run_at + shared.run, at = std::min(first + count, end);
    const bool keeps_begin = before > end - at;
    shared.run_at = keeps_begin ? shared.run_at : at;
    shared.run = keeps_begin ? before : end - at;
  }
  if (shared.run * std::uint64_t{2} < shared.free) {
    look_for_longest(shared);
  }
  list_in(shared);
}

/// The units are in use.
void ExtentAllocator::free_units(std::uint64_t block, Place first, Place count) {
  available_ += count;
  if (!shared_[block] && count == units_per_block_) {
    free_.insert(block);
    return;
  }
  Shared& shared = shared_[block] ? *shared_[block] : divide(block, true);
  shared.set(first, count, false);
  shared.free += count;
  if (shared.free == units_per_block_) {
    unlist(shared);
    shared_[block].reset();
    free_.insert(block);
    return;
  }
  const Place begin = shared.run_before(first),
              end = std::min(shared.next(first + count, true), units_per_block_);
  if (end - begin > shared.run) {
    shared.run_at = begin;
    shared.run = end - begin;
  }
  list_in(shared);
}

Status ExtentAllocator::claim(const DeviceRange& range) {
  const auto refuse = [&](const char* why) {
    return fail(EUCLEAN, "extent of " + std::to_string(range.length) + " bytes at " +
                             std::to_string(range.offset) + " " + why);
  };
  if (!is_within(range)) {
    return refuse("is not in the data range, or not of whole units");
  }
  if (!is_free(range)) {
    return refuse("overlaps another extent");
  }
  const auto divides = [this](std::uint64_t block, Place, Place count) {
    if (!shared_[block] && count != units_per_block_) {
      divide(block, false);
    }
    return true;
  };
  for_each_part(range, divides);
  for_each_part(range, [this](std::uint64_t block, Place first, Place count) {
    take_units(block, first, count);
    return true;
  });
  return {};
}

void ExtentAllocator::append(std::vector<DeviceRange>& to, const DeviceRange& range) {
  if (!to.empty() && to.back().end() == range.offset) {
    to.back().length += range.length;
  } else {
    to.push_back(range);
  }
}

std::uint64_t ExtentAllocator::continue_at(std::uint64_t hint, std::uint64_t units,
                                           std::vector<DeviceRange>& to) {
  if (hint < layout_.offset || hint - layout_.offset >= layout_.bytes() || hint % unit_ != 0) {
    return 0;
  }
  const std::uint64_t at = (hint - layout_.offset) / unit_;
  const std::uint64_t block = at / units_per_block_;
  const auto first = static_cast<Place>(at % units_per_block_);
  if (const Shared* const shared = shared_[block].get()) {
    const Place end = std::min(shared->next(first, true), units_per_block_);
    const auto count = static_cast<Place>(std::min<std::uint64_t>(units, end - first));
    if (count != 0) {
      append(to, range_of(block, first, count));
      take_units(block, first, count);
    }
    return count;
  }
  if (first != 0 || !is_free_block(block) || units < units_per_block_) {
    return 0;
  }
  cursor_ = block;  // and the blocks behind it
  return take_blocks(units, to);
}

std::uint64_t ExtentAllocator::take_blocks(std::uint64_t units, std::vector<DeviceRange>& to) {
  std::uint64_t taken = 0;
  while (units - taken >= units_per_block_) {
    auto block = free_.next(cursor_);
    if (!block) {
      block = free_.next(0);
    }
    if (!block) {
      break;
    }
    append(to, range_of(*block, 0, units_per_block_));
    take_block(*block);
    cursor_ = *block + 1 < layout_.blocks ? *block + 1 : 0;
    taken += units_per_block_;
  }
  return taken;
}

ExtentAllocator::Shared* ExtentAllocator::fitting(Place units) const {
  const std::size_t own = logarithm_of(units);
  if (Shared* const one = first_[own]; one != nullptr && one->run >= units) {
    return one;
  }
  for (std::size_t bucket = own + 1; bucket < buckets; ++bucket) {
    if (first_[bucket] != nullptr) {
      return first_[bucket];
    }
  }
  return nullptr;
}

/// Takes less than a block, in one run if there is one, else the longest run.
std::uint64_t ExtentAllocator::take_part(std::uint64_t units, std::uint64_t hint,
                                         std::vector<DeviceRange>& to) {
  auto count = static_cast<Place>(std::min<std::uint64_t>(units, units_per_block_));
  Shared* found = fitting(count);
  if (found == nullptr) {
    const std::uint64_t wanted =
        hint < layout_.offset ? 0 : (hint - layout_.offset) / layout_.block;
    const bool continues =
        hint % layout_.block == 0 && wanted < layout_.blocks && is_free_block(wanted);
    auto block = continues ? wanted : free_.next(cursor_);
    block = block ? block : free_.next(0);
    found = block ? &divide(*block, false) : nullptr;
  }
  for (std::size_t bucket = buckets; found == nullptr && bucket-- > 0;) {
    found = first_[bucket];
  }
  if (found == nullptr) {
    return 0;
  }
  count = std::min(count, found->run);
  append(to, range_of(found->block, found->run_at, count));
  take_units(found->block, found->run_at, count);
  return count;
}

std::vector<DeviceRange> ExtentAllocator::allocate(std::uint64_t bytes, std::uint64_t hint) {
  std::vector<DeviceRange> ranges;
  std::uint64_t left = bytes / unit_ + (bytes % unit_ != 0 ? 1 : 0);
  try {
    left -= hint != 0 ? continue_at(hint, left, ranges) : 0;
    left -= take_blocks(left, ranges);
    while (left > 0) {
      const std::uint64_t taken =
          take_part(left, ranges.empty() ? hint : ranges.back().end(), ranges);
      if (taken == 0) {
        break;
      }
      left -= taken;
    }
  } catch (const std::bad_alloc&) {
    for (const auto& range : ranges) {
      free(range);
    }
    throw;
  }
  return ranges;
}

bool ExtentAllocator::free(const DeviceRange& range) noexcept {
  if (!is_within(range) || !is_in_use(range)) {
    return false;
  }
  for_each_part(range, [this](std::uint64_t block, Place first, Place count) {
    try {
      if (!shared_[block] && count != units_per_block_) {
        divide(block, true);
      }
    } catch (const std::bad_alloc&) {
      return true;  // in use until the next rebuild
    }
    free_units(block, first, count);
    return true;
  });
  claim_withheld(range);
  return true;
}

void ExtentAllocator::claim_withheld(const DeviceRange& freed) noexcept {
  for (const auto& one : withheld_) {
    const std::uint64_t end = std::min(one.end(), freed.end());
    for (std::uint64_t at = std::max(one.offset, freed.offset); at < end; at += unit_) {
      try {
        if (is_free({.offset = at, .length = unit_})) {
          (void)claim({.offset = at, .length = unit_});
        }
      } catch (const std::bad_alloc&) {
        return;  // a read of these bytes fails
      }
    }
  }
}

void ExtentAllocator::withhold(const DeviceRange& range) {
  const std::uint64_t begin = std::max(round_down(range.offset, unit_), layout_.offset),
                      end =
                          std::min(round_up(range.end(), unit_), layout_.offset + layout_.bytes());
  if (begin < end) {
    withheld_.push_back({.offset = begin, .length = end - begin});
    claim_withheld(withheld_.back());
  }
}

void ExtentAllocator::quarantine(std::list<Quarantined>&& freed) noexcept {
  for (const auto& one : freed) {
    for (const auto& range : one.ranges) {
      quarantined_ += range.length;
    }
  }
  quarantine_.splice(quarantine_.end(), std::move(freed));
}

void ExtentAllocator::release(std::uint64_t position) noexcept {
  while (!quarantine_.empty() && quarantine_.front().position <= position) {
    for (const auto& range : quarantine_.front().ranges) {
      quarantined_ -= range.length;
      free(range);
    }
    quarantine_.pop_front();
  }
}

AllocatorSpace ExtentAllocator::space() const {
  return {
      .capacity = layout_.bytes(), .available = available_ * unit_, .quarantined = quarantined_};
}

}  // namespace efs::devdax
