// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Maps file offsets to segments in O(log n). Segments do not overlap; offsets without a segment are
// gaps. A pure data structure without access to memory or files. For containers with a descriptor
// it only caches mappings (docs/dev/requests.md).

#include <algorithm>
#include <cstdint>
#include <map>
#include <optional>
#include <utility>
#include <vector>

namespace efs::fs {

/// Half-open range of file offsets, bytes.
struct Range {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;

  std::uint64_t length() const { return end - begin; }

  bool operator==(const Range&) const = default;
};

/// Not thread-safe. `Value` represents the memory of a segment.
template <typename Value>
class SegmentTree {
 public:
  struct Segment {
    Range range;
    Value value;
  };

  /// Inserts a segment. Returns false without a change if the range is empty or overlaps a segment.
  bool insert(Range range, Value value) {
    if (range.begin >= range.end || overlaps(range)) {
      return false;
    }
    segments_.emplace(range.begin, Segment{range, std::move(value)});
    return true;
  }

  /// The segment that contains `offset`, or null. Valid until the next change.
  const Segment* find(std::uint64_t offset) const {
    auto after = segments_.upper_bound(offset);
    if (after == segments_.begin()) {
      return nullptr;
    }
    const Segment& candidate = std::prev(after)->second;
    return offset < candidate.range.end ? &candidate : nullptr;
  }

  /// Removes every segment that overlaps `range`; returns their number.
  std::size_t erase(Range range) {
    std::size_t count = 0;
    for (auto it = first_touching(range); it != segments_.end() && it->first < range.end; ++count) {
      it = segments_.erase(it);
    }
    return count;
  }

  /// The parts of `range` that no segment covers, ascending.
  std::vector<Range> gaps(Range range) const {
    std::vector<Range> result;
    std::uint64_t at = range.begin;
    for (auto it = first_touching(range); it != segments_.end() && it->first < range.end; ++it) {
      if (it->first > at) {
        result.push_back({at, it->first});
      }
      at = std::max(at, it->second.range.end);
    }
    if (at < range.end) {
      result.push_back({at, range.end});
    }
    return result;
  }

  bool overlaps(Range range) const {
    const auto it = first_touching(range);
    return it != segments_.end() && it->first < range.end;
  }

  std::size_t size() const { return segments_.size(); }

  void clear() { segments_.clear(); }

 private:
  using Map = std::map<std::uint64_t, Segment>;

  // The first segment that ends after range.begin.
  template <typename Self>
  static auto first_touching_in(Self& segments, Range range) {
    auto it = segments.upper_bound(range.begin);
    if (it != segments.begin() && std::prev(it)->second.range.end > range.begin) {
      --it;
    }
    return it;
  }

  typename Map::const_iterator first_touching(Range range) const {
    return first_touching_in(segments_, range);
  }

  typename Map::iterator first_touching(Range range) { return first_touching_in(segments_, range); }

  Map segments_;
};

}  // namespace efs::fs
