// SPDX-License-Identifier: BSD-3-Clause
#include "objects/slab.hpp"

#include <string>

namespace efs::objects {

Result<Slab> Slab::of(const Shape& shape, const std::uint64_t* start, const std::uint64_t* count) {
  Slab slab;
  slab.ndim_ = slab.outer_ = shape.ndim;
  slab.fortran_ = shape.fortran;
  slab.run_ = slab.bytes_ = shape.item;
  std::uint64_t stride = shape.item;
  bool whole = true;  // all dimensions so far are covered
  for (int i = shape.ndim - 1; i >= 0; --i) {
    const int user = shape.fortran ? shape.ndim - 1 - i : i;
    const std::uint64_t size = shape.dims[user];
    const std::uint64_t from = start != nullptr ? start[user] : 0;
    if (from > size || (count != nullptr && count[user] > size - from)) {
      return fail(EINVAL, "the part is outside of the array " + text_of(shape) + " in dimension " +
                              std::to_string(user));
    }
    slab.count_[i] = count != nullptr ? count[user] : size - from;
    slab.stride_[i] = stride;
    slab.first_ += from * stride;
    slab.bytes_ *= slab.count_[i];
    if (whole) {
      slab.outer_ = i;
      slab.run_ *= slab.count_[i];
      whole = slab.count_[i] == size;
    }
    stride *= size;
  }
  return slab;
}

}  // namespace efs::objects
