// SPDX-License-Identifier: BSD-3-Clause
#include "objects/manifest.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>

#include "objects/name.hpp"
#include "objects/scanner.hpp"

namespace efs::objects {

namespace {

constexpr std::string_view format = "efs-objects-1";
constexpr std::string_view checksum_prefix = "xxh3:";
constexpr std::size_t checksum_digits = 16;
// The longest name is 3840 bytes.
constexpr std::size_t max_string = 4096;

/// Returns a valid name as a JSON string: such a name is UTF-8 without control characters.
std::string json_string(std::string_view name) {
  std::string text = "\"";
  for (const char byte : name) {
    if (byte == '"' || byte == '\\') {
      text += '\\';
    }
    text += byte;
  }
  return text + '"';
}

std::string hexadecimal(std::uint64_t value) {
  char text[32];
  std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(value));
  return text;
}

std::optional<std::uint64_t> from_hexadecimal(std::string_view text) {
  std::uint64_t value = 0;
  for (const char byte : text) {
    const bool digit = byte >= '0' && byte <= '9';
    if (!digit && (byte < 'a' || byte > 'f')) {
      return std::nullopt;
    }
    value = value << 4U | static_cast<std::uint64_t>(digit ? byte - '0' : byte - 'a' + 10);
  }
  return text.size() == checksum_digits ? std::optional(value) : std::nullopt;
}

void append(std::string& text, const Recorded& object) {
  text += "    {\"name\": " + json_string(object.name) + ", ";
  if (object.small) {
    text += "\"file\": \"" + std::string(small_name) + "\", ";
  }
  text += "\"dtype\": \"" + object.shape.dtype + "\", \"fortran_order\": ";
  text += object.shape.fortran ? "true, \"shape\": [" : "false, \"shape\": [";
  for (int i = 0; i < object.shape.ndim; ++i) {
    text += (i > 0 ? ", " : "") + std::to_string(object.shape.dims[i]);
  }
  text += "], \"size\": " + std::to_string(object.size) + ", \"checksum\": \"";
  text += std::string(checksum_prefix) + hexadecimal(object.checksum) + "\"}";
}

std::unexpected<Failure> bad_manifest(const std::string& reason) {
  return fail(EBADMSG, "the manifest is damaged: " + reason,
              "Use another version; this one is not to be trusted");
}

/// Reads the JSON of a manifest: an object of scalars with one array of objects.
class Reader : Scanner {
 public:
  explicit Reader(std::string_view text) : Scanner(text) {}

  Result<std::vector<Recorded>> parse() {
    EO_TRY(members([this](std::string_view key) { return top(key); }));
    blank();
    if (!rest().empty()) {
      return bad_manifest("bytes follow its end");
    }
    if (!has_format_ || !has_objects_) {
      return bad_manifest("format or objects is missing");
    }
    return std::move(objects_);
  }

 private:
  /// Reads an object, and its values by value(key).
  template <typename Value>
  Status members(Value value) {
    if (!take('{')) {
      return bad_manifest("an object is missing");
    }
    for (bool more = !take('}'); more;) {
      const auto key = string();
      if (!key || !take(':')) {
        return bad_manifest("a key is not a string with a value");
      }
      EO_TRY(value(*key));
      more = take(',');
      if (!more && !take('}')) {
        return bad_manifest("an object does not end");
      }
    }
    return {};
  }

  /// Reads an array, and its values by value().
  template <typename Value>
  Status elements(Value value) {
    if (!take('[')) {
      return bad_manifest("an array is missing");
    }
    for (bool more = !take(']'); more;) {
      EO_TRY(value());
      more = take(',');
      if (!more && !take(']')) {
        return bad_manifest("an array does not end");
      }
    }
    return {};
  }

  std::optional<std::string> string() {
    std::string text;
    if (!take('"')) {
      return std::nullopt;
    }
    while (!rest().empty() && rest()[0] != '"' && text.size() < max_string) {
      if (rest()[0] == '\\') {
        skip(1);
        if (rest().empty() || (rest()[0] != '"' && rest()[0] != '\\' && rest()[0] != '/')) {
          return std::nullopt;
        }
      }
      text += rest()[0];
      skip(1);
    }
    return !rest().empty() && rest()[0] == '"' ? (skip(1), std::optional(text)) : std::nullopt;
  }

  /// A scalar of a later format.
  Status ignored() {
    const bool known = take("true") || take("false") || take("null") || number() || string();
    return known ? Status() : bad_manifest("a value is not a scalar");
  }

  Status top(std::string_view key) {
    if (key == "format" && !has_format_) {
      has_format_ = true;
      return format_value();
    }
    if (key == "objects" && !has_objects_) {
      has_objects_ = true;
      return elements([this] { return object(); });
    }
    return key == "format" || key == "objects" ? bad_manifest("a key occurs twice") : ignored();
  }

  Status format_value() {
    const auto value = string();
    if (!value) {
      return bad_manifest("format is not a string");
    }
    return *value == format ? Status()
                            : fail(ENOTSUP, "the manifest has another format",
                                   "Read the version with a newer library");
  }

  Status object() {
    Recorded object;
    array_ = eo_array{};
    seen_ = 0;
    EO_TRY(members([&](std::string_view key) { return property(key, object); }));
    constexpr unsigned all = name | dtype | order | shape | size | sum;
    if ((seen_ & all) != all) {
      return bad_manifest("an object has not all properties");
    }
    auto checked_shape = checked(array_);
    if (!checked_shape || checked_shape->dtype != array_.dtype) {
      return bad_manifest("a type or a shape is not valid");
    }
    object.shape = std::move(*checked_shape);
    if (!check_name(object.name)) {
      return bad_manifest("a name is not valid");
    }
    if (!objects_.empty() && objects_.back().name >= object.name) {
      return bad_manifest("the names are not in order");
    }
    objects_.push_back(std::move(object));
    return {};
  }

  Status property(std::string_view key, Recorded& object) {
    if (key == "name") {
      return text(name, object.name);
    }
    if (key == "dtype") {
      return dtype_property();
    }
    if (key == "checksum") {
      return checksum_property(object);
    }
    return key == "file" ? file_property(object) : plain_property(key, object);
  }

  /// A property that is not a string.
  Status plain_property(std::string_view key, Recorded& object) {
    if (key == "fortran_order" && once(order)) {
      array_.order = take("true") ? EO_FORTRAN_ORDER : EO_C_ORDER;
      const bool valid = array_.order == EO_FORTRAN_ORDER || take("false");
      return valid ? Status() : bad_manifest("fortran_order is not a boolean");
    }
    if (key == "shape" && once(shape)) {
      return elements([this] { return dimension(); });
    }
    if (key == "size" && once(size)) {
      const auto value = number();
      object.size = value.value_or(0);
      return value ? Status() : bad_manifest("a size is not a number");
    }
    return seen_before(key) ? bad_manifest("a key occurs twice") : ignored();
  }

  Status file_property(Recorded& object) {
    std::string value;
    EO_TRY(text(file, value));
    object.small = value == small_name;
    return object.small ? Status() : bad_manifest("a file is not small.npz");
  }

  Status dtype_property() {
    std::string value;
    EO_TRY(text(dtype, value));
    if (value.size() >= sizeof array_.dtype) {
      return bad_manifest("a type is not valid");
    }
    value.copy(array_.dtype, sizeof array_.dtype - 1);
    return {};
  }

  Status checksum_property(Recorded& object) {
    std::string value;
    EO_TRY(text(sum, value));
    const auto number = value.starts_with(checksum_prefix)
                            ? from_hexadecimal(value.substr(checksum_prefix.size()))
                            : std::nullopt;
    object.checksum = number.value_or(0);
    return number ? Status() : bad_manifest("a checksum is not XXH3-64");
  }

  Status dimension() {
    const auto value = array_.ndim < EO_MAX_NDIM ? number() : std::nullopt;
    if (!value) {
      return bad_manifest("a shape is not a list of at most 32 sizes");
    }
    array_.shape[array_.ndim++] = *value;
    return {};
  }

  Status text(unsigned property, std::string& value) {
    auto read = once(property) ? string() : std::nullopt;
    if (!read) {
      return bad_manifest("a property is not a string, or occurs twice");
    }
    value = std::move(*read);
    return {};
  }

  bool once(unsigned property) {
    const bool first = (seen_ & property) == 0;
    seen_ |= property;
    return first;
  }

  static bool seen_before(std::string_view key) {
    return key == "fortran_order" || key == "shape" || key == "size";
  }

  enum Property : unsigned {
    name = 1,
    dtype = 2,
    order = 4,
    shape = 8,
    size = 16,
    sum = 32,
    file = 64
  };

  std::vector<Recorded> objects_;
  eo_array array_{};   // of the object that is read
  unsigned seen_ = 0;  // its properties
  bool has_format_ = false;
  bool has_objects_ = false;
};

}  // namespace

std::string manifest_of(const std::vector<Recorded>& objects) {
  std::string text = "{\n  \"format\": \"" + std::string(format) + "\",\n  \"objects\": [";
  for (std::size_t i = 0; i < objects.size(); ++i) {
    text += i > 0 ? ",\n" : "\n";
    append(text, objects[i]);
  }
  text += objects.empty() ? "]\n}\n" : "\n  ]\n}\n";
  return text;
}

Result<std::vector<Recorded>> parse_manifest(std::string_view text) {
  return Reader(text).parse();
}

}  // namespace efs::objects
