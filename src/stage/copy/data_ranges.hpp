#pragma once
// Where the data of a file lie, and where its holes.

#include <cstdint>

#include "stage/copy/transfer.hpp"

namespace efs::stage {

struct DataRange {
  std::uint64_t begin = 0;
  std::uint64_t end = 0;
};

/// The ranges of a file's first `size` bytes that hold data, in order. Not thread-safe.
class DataRanges {
 public:
  /// `seeking`: holes are looked for; else all is data, as it is on a file system that cannot tell.
  DataRanges(const End& source, std::uint64_t size, bool seeking)
      : source_(source), size_(size), seeking_(seeking) {}

  /// The first one at or after `from`, cut to what lies behind that; one of no length at the end
  /// says that no data is left.
  Result<DataRange> next(std::uint64_t from);

 private:
  const End source_;
  const std::uint64_t size_;
  bool seeking_;
};

}  // namespace efs::stage
