// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Headers of .npy files (NumPy's format, versions 1, 2 and 3). Pure functions on memory.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "objects/efs_objects.h"
#include "objects/result.hpp"

namespace efs::objects {

/// The longest text of a header that is accepted, as NumPy's max_header_size.
constexpr std::size_t max_header_text = 10000;
/// Bytes before the text: magic, version, length (2 bytes in version 1, else 4).
constexpr std::size_t max_preamble = 12;

/// A validated description of an array: its size in bytes does not overflow.
struct Shape {
  std::string dtype;          // normalised: '|' before kinds of one byte
  std::size_t item = 0;       // bytes of an element
  std::size_t alignment = 1;  // of an element in memory
  int ndim = 0;
  bool fortran = false;
  std::uint64_t dims[EO_MAX_NDIM] = {};
  std::uint64_t bytes = 0;  // of all elements, at most INT64_MAX / 2
};

/// A header of a file: the array, and the position of its first element in the file.
struct Header {
  Shape shape;
  std::uint64_t offset = 0;
};

/// Validates dtype, ndim, order and shape of a caller's array: EINVAL or EOVERFLOW.
Result<Shape> checked(const eo_array& array);

/// Copies the description to a caller's array. Its data and mapping become NULL.
void describe(const Shape& shape, eo_array& array);

/// Returns the header that NumPy writes for the array; its length is a multiple of 64.
std::string header_of(const Shape& shape);

/// Parses the first bytes of a file: all of them, or at least max_preamble + max_header_text.
/// EBADMSG: not a valid header. ENOTSUP: a valid header of an array that the library does not read.
Result<Header> parse_header(std::string_view bytes);

/// Returns dtype and shape for a message: <f8 (3, 4).
std::string text_of(const Shape& shape);

}  // namespace efs::objects
