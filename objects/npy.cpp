// SPDX-License-Identifier: BSD-3-Clause
#include "objects/npy.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <limits>
#include <optional>

#include "objects/scanner.hpp"

namespace efs::objects {

namespace {

constexpr std::string_view magic{"\x93NUMPY", 6};
constexpr std::uint64_t max_bytes = std::numeric_limits<std::int64_t>::max() / 2;
constexpr std::size_t file_alignment = 64;
// NumPy reserves room for the digits of the dimension along which a file can grow.
constexpr std::size_t growth_digits = 21;

struct Kind {
  std::string_view name;
  std::size_t item;
  std::size_t alignment;
};

constexpr std::array kinds{
    Kind{"b1", 1, 1},    Kind{"i1", 1, 1}, Kind{"i2", 2, 2},   Kind{"i4", 4, 4},
    Kind{"i8", 8, 8},    Kind{"u1", 1, 1}, Kind{"u2", 2, 2},   Kind{"u4", 4, 4},
    Kind{"u8", 8, 8},    Kind{"f2", 2, 2}, Kind{"f4", 4, 4},   Kind{"f8", 8, 8},
    Kind{"f16", 16, 16}, Kind{"c8", 8, 4}, Kind{"c16", 16, 8}, Kind{"c32", 32, 16},
};

/// Sets the type of the shape. Returns false if the text is not a plain type.
bool set_type(Shape& shape, std::string_view text) {
  if (text.empty() || std::string_view("<>|").find(text[0]) == std::string_view::npos) {
    return false;
  }
  const auto* const kind = std::ranges::find(kinds, text.substr(1), &Kind::name);
  if (kind == kinds.end() || (kind->item > 1 && text[0] == '|')) {
    return false;
  }
  shape.dtype = text;
  if (kind->item == 1) {
    shape.dtype[0] = '|';
  }
  shape.item = kind->item;
  shape.alignment = kind->alignment;
  return true;
}

/// Sets the number of bytes. Returns false if it overflows; a dimension of 0 does not hide that.
bool set_bytes(Shape& shape) {
  std::uint64_t bytes = shape.item;
  bool empty = false;
  for (int i = 0; i < shape.ndim; ++i) {
    if (shape.dims[i] == 0) {
      empty = true;
    } else if (shape.dims[i] > max_bytes / bytes) {
      return false;
    } else {
      bytes *= shape.dims[i];
    }
  }
  shape.bytes = empty ? 0 : bytes;
  return true;
}

/// Reads the dictionary of a header: a Python literal with exactly three keys.
class Dictionary : Scanner {
 public:
  explicit Dictionary(std::string_view text) : Scanner(text) {}

  Result<Shape> parse() {
    if (!take('{')) {
      return bad("it does not begin with {");
    }
    while (!take('}')) {
      EO_TRY(entry());
      if (!take(',')) {
        if (!take('}')) {
          return bad("an entry does not end with , or }");
        }
        break;
      }
    }
    blank();
    if (!rest().empty()) {
      return bad("bytes follow the }");
    }
    if (!has_descr_ || !has_order_ || !has_shape_) {
      return bad("descr, fortran_order or shape is missing");
    }
    if (!set_bytes(shape_)) {
      return bad("the shape is too large");
    }
    return std::move(shape_);
  }

 private:
  static std::unexpected<Failure> bad(const std::string& reason) {
    return fail(EBADMSG, "bad .npy header: " + reason);
  }

  std::optional<std::string_view> string() {
    blank();
    if (rest().empty() || (rest()[0] != '\'' && rest()[0] != '"')) {
      return std::nullopt;
    }
    const std::size_t end = rest().find(rest()[0], 1);
    if (end == std::string_view::npos) {
      return std::nullopt;
    }
    const std::string_view found = rest().substr(1, end - 1);
    skip(end + 1);
    return found.find('\\') == std::string_view::npos ? std::optional(found) : std::nullopt;
  }

  Status entry() {
    const auto key = string();
    if (!key || !take(':')) {
      return bad("a key is not a string with a value");
    }
    if (*key == "descr" && !has_descr_) {
      has_descr_ = true;
      return descr();
    }
    if (*key == "fortran_order" && !has_order_) {
      has_order_ = true;
      shape_.fortran = take("True");
      return shape_.fortran || take("False") ? Status() : bad("fortran_order is not a boolean");
    }
    if (*key == "shape" && !has_shape_) {
      has_shape_ = true;
      return dims();
    }
    return bad("a key is unknown or occurs twice");
  }

  Status descr() {
    if (blank(); !rest().empty() && (rest()[0] == '[' || rest()[0] == '(')) {
      return unsupported("its elements are structures");
    }
    const auto type = string();
    if (!type) {
      return bad("descr is not a string");
    }
    if (!set_type(shape_, *type)) {
      return unsupported("its type is not a plain number or boolean");
    }
    return {};
  }

  static std::unexpected<Failure> unsupported(const std::string& reason) {
    return fail(ENOTSUP, "the array is not supported: " + reason,
                "Use types of the kinds b, i, u, f and c");
  }

  Status dims() {
    if (!take('(')) {
      return bad("shape is not a tuple");
    }
    bool comma = true;
    while (!take(')')) {
      const auto value = comma ? number() : std::nullopt;
      if (!value) {
        return bad("shape is not a tuple of sizes");
      }
      if (shape_.ndim == EO_MAX_NDIM) {
        return fail(ENOTSUP, "the array is not supported: it has more than 32 dimensions",
                    "Store it with fewer dimensions");
      }
      shape_.dims[shape_.ndim++] = *value;
      comma = take(',');
    }
    return shape_.ndim == 1 && !comma ? bad("shape is not a tuple") : Status();
  }

  Shape shape_;
  bool has_descr_ = false;
  bool has_order_ = false;
  bool has_shape_ = false;
};

std::string tuple_of(const Shape& shape) {
  std::string text = "(";
  for (int i = 0; i < shape.ndim; ++i) {
    text += std::to_string(shape.dims[i]);
    text += i + 1 < shape.ndim ? ", " : shape.ndim == 1 ? "," : "";
  }
  return text + ')';
}

std::uint64_t little_endian(std::string_view bytes) {
  std::uint64_t value = 0;
  for (std::size_t i = bytes.size(); i-- > 0;) {
    value = value << 8U | static_cast<unsigned char>(bytes[i]);
  }
  return value;
}

}  // namespace

Result<Shape> checked(const eo_array& array) {
  Shape shape;
  const std::string_view type(array.dtype, ::strnlen(array.dtype, sizeof array.dtype));
  if (type.size() == sizeof array.dtype || !set_type(shape, type)) {
    return fail(EINVAL, "the dtype is not a plain type", "Use one such as <f8, <i4, |u1 or <c16");
  }
  if (array.ndim < 0 || array.ndim > EO_MAX_NDIM) {
    return fail(EINVAL, "ndim is not in the range 0 to 32");
  }
  if (array.order != EO_C_ORDER && array.order != EO_FORTRAN_ORDER) {
    return fail(EINVAL, "order is neither EO_C_ORDER nor EO_FORTRAN_ORDER");
  }
  shape.ndim = array.ndim;
  shape.fortran = array.order == EO_FORTRAN_ORDER;
  std::copy_n(array.shape, array.ndim, shape.dims);
  if (!set_bytes(shape)) {
    return fail(EOVERFLOW, "the shape is too large", "Use a smaller shape");
  }
  return shape;
}

void describe(const Shape& shape, eo_array& array) {
  array = eo_array{};
  shape.dtype.copy(array.dtype, sizeof array.dtype - 1);
  array.ndim = shape.ndim;
  array.order = shape.fortran ? EO_FORTRAN_ORDER : EO_C_ORDER;
  std::copy_n(shape.dims, shape.ndim, array.shape);
}

std::string header_of(const Shape& shape) {
  std::string text = "{'descr': '" + shape.dtype + "', 'fortran_order': ";
  text += shape.fortran ? "True" : "False";
  text += ", 'shape': " + tuple_of(shape) + ", }";
  if (shape.ndim > 0) {
    const auto growing = shape.dims[shape.fortran ? shape.ndim - 1 : 0];
    text.append(growth_digits - std::to_string(growing).size(), ' ');
  }
  constexpr std::size_t preamble = 10;
  text.append(file_alignment - (preamble + text.size() + 1) % file_alignment, ' ');
  text += '\n';
  std::string header(magic);
  header += '\x01';
  header += '\0';
  header += static_cast<char>(text.size() & 0xffU);
  header += static_cast<char>(text.size() >> 8U);
  return header + text;
}

Result<Header> parse_header(std::string_view bytes) {
  if (bytes.size() < magic.size() + 4 || !bytes.starts_with(magic)) {
    return fail(EBADMSG, "the file is not a .npy file");
  }
  const char version = bytes[6];
  if (version < 1 || version > 3 || bytes[7] != 0) {
    return fail(ENOTSUP, "the .npy file has an unknown version",
                "Write it with version 1.0, 2.0 or 3.0 of the format");
  }
  const std::size_t width = version == 1 ? 2 : 4;
  if (bytes.size() < 8 + width) {
    return fail(EBADMSG, "the file ends inside its header");
  }
  const std::uint64_t length = little_endian(bytes.substr(8, width));
  if (length > max_header_text) {
    return fail(EBADMSG, "bad .npy header: it is longer than 10000 bytes");
  }
  if (bytes.size() - 8 - width < length) {
    return fail(EBADMSG, "the file ends inside its header");
  }
  auto shape = Dictionary(bytes.substr(8 + width, length)).parse();
  if (!shape) {
    return std::unexpected(std::move(shape.error()));
  }
  return Header{std::move(*shape), 8 + width + length};
}

std::string text_of(const Shape& shape) {
  return shape.dtype + ' ' + tuple_of(shape) + (shape.fortran ? " in Fortran order" : "");
}

}  // namespace efs::objects
