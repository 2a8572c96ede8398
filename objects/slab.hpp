// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Hyperslabs: the runs of bytes that a part of an array is made of. Pure functions.

#include <cstdint>

#include "objects/npy.hpp"
#include "objects/result.hpp"

namespace efs::objects {

/// A validated part of an array, in runs that are contiguous in the array and in the part's own
/// memory. All runs have the same length.
class Slab {
 public:
  /// NULL for start: the first element; for count: to the end. EINVAL if the part is not inside.
  static Result<Slab> of(const Shape& shape, const std::uint64_t* start,
                         const std::uint64_t* count);

  /// Bytes of the part.
  std::uint64_t bytes() const { return bytes_; }

  /// Bytes of each run.
  std::uint64_t run() const { return run_; }

  /// The number of elements in dimension i, in the caller's order of indices.
  std::uint64_t count(int i) const { return count_[fortran_ ? ndim_ - 1 - i : i]; }

  /// Calls each(offset in the array, offset in the part) for each run, in the order of memory,
  /// until it returns a failure.
  template <typename Each>
  Status for_each(Each each) const {
    if (bytes_ == 0) {
      return {};
    }
    std::uint64_t index[EO_MAX_NDIM] = {};
    std::uint64_t array = first_;
    for (std::uint64_t part = 0; part < bytes_; part += run_) {
      EO_TRY(each(array, part));
      for (int i = outer_ - 1; i >= 0; --i) {
        array += stride_[i];
        if (++index[i] < count_[i]) {
          break;
        }
        array -= stride_[i] * count_[i];
        index[i] = 0;
      }
    }
    return {};
  }

 private:
  // The last index is contiguous here, also in Fortran order.
  std::uint64_t count_[EO_MAX_NDIM] = {};
  std::uint64_t stride_[EO_MAX_NDIM] = {};  // bytes
  int ndim_ = 0;
  int outer_ = 0;  // dimensions outside of a run
  bool fortran_ = false;
  std::uint64_t first_ = 0;
  std::uint64_t run_ = 0;
  std::uint64_t bytes_ = 0;
};

}  // namespace efs::objects
