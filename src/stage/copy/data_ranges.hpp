// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The data ranges and the holes of a file.

#include <cstdint>

#include "base/result.hpp"
#include "stage/copy/content.hpp"

namespace efs::stage {

struct DataRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The ranges of a file's first `size` bytes that hold data, in order. Borrows the source. Not
/// thread-safe.
class DataRanges {
 public:
  /// `seeking`: finds holes. Otherwise the whole file counts as data, as on a file system without
  /// SEEK_HOLE.
  DataRanges(const ContentSource& source, std::uint64_t size, bool seeking)
      : source_(source), size_(size), seeking_(seeking) {}

  /// The first range at or after `from`; bytes before `from` are cut off. An empty range at the end
  /// of the file means that no data is left.
  Result<DataRange> next(std::uint64_t from);

 private:
  const ContentSource& source_;
  const std::uint64_t size_;
  bool seeking_;
};

}  // namespace efs::stage
