// SPDX-License-Identifier: BSD-3-Clause
#include "fs/record.hpp"

#include <cstring>
#include <type_traits>

namespace efs::fs {
namespace {

class Encoder {
 public:
  explicit Encoder(std::vector<std::byte>& out) : out_(out) {}

  template <typename... Field>
  void operator()(const Field&... field) {
    (put(field), ...);
  }

 private:
  template <typename T>
    requires std::is_integral_v<T>
  void put(T value) {
    raw(&value, sizeof value);
  }

  void put(const FileTime& time) { (*this)(time.seconds, time.nanoseconds); }

  void put(const std::map<std::string, std::string>& pairs) {
    put(static_cast<std::uint32_t>(pairs.size()));
    for (const auto& [key, value] : pairs) {
      (*this)(key, value);
    }
  }

  void put(const std::string& text) {
    put(static_cast<std::uint32_t>(text.size()));
    raw(text.data(), text.size());
  }

  void raw(const void* data, std::size_t length) {
    const auto* bytes = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), bytes, bytes + length);
  }

  std::vector<std::byte>& out_;
};

class Decoder {
 public:
  explicit Decoder(std::span<const std::byte> in) : in_(in) {}

  template <typename... Field>
  void operator()(Field&... field) {
    (get(field), ...);
  }

  bool ok() const { return ok_ && in_.empty(); }

 private:
  template <typename T>
    requires std::is_integral_v<T>
  void get(T& value) {
    raw(&value, sizeof value);
  }

  void get(FileTime& time) { (*this)(time.seconds, time.nanoseconds); }

  void get(std::map<std::string, std::string>& pairs) {
    std::uint32_t count = 0;
    get(count);
    for (std::string key, value; ok_ && count > 0; --count) {
      (*this)(key, value);
      if (ok_) {
        pairs[key] = value;
      }
    }
  }

  void get(std::string& text) {
    std::uint32_t length = 0;
    get(length);
    if (!ok_ || length > in_.size()) {
      ok_ = false;
      return;
    }
    text.assign(reinterpret_cast<const char*>(in_.data()), length);
    in_ = in_.subspan(length);
  }

  void raw(void* data, std::size_t length) {
    if (!ok_ || length > in_.size()) {
      ok_ = false;
      return;
    }
    std::memcpy(data, in_.data(), length);
    in_ = in_.subspan(length);
  }

  std::span<const std::byte> in_;
  bool ok_ = true;
};

template <std::size_t Index = 0>
Result<Record> decode_as(std::size_t type, std::span<const std::byte> bytes) {
  if constexpr (Index == std::variant_size_v<Record>) {
    return fail(EPROTO, "unknown record type " + std::to_string(type));
  } else {
    if (type != Index) {
      return decode_as<Index + 1>(type, bytes);
    }
    std::variant_alternative_t<Index, Record> record;
    Decoder decoder(bytes);
    record.fields(decoder);
    if (!decoder.ok()) {
      return fail(EPROTO, "record of type " + std::to_string(type) + " has the wrong length");
    }
    return record;
  }
}

}  // namespace

std::uint64_t inode_of(const Record& record) {
  return std::visit(
      [](const auto& one) -> std::uint64_t {
        if constexpr (requires { one.ino; }) {
          return one.ino;
        } else {
          return 0;
        }
      },
      record);
}

void encode(const Record& record, std::vector<std::byte>& out) {
  out.push_back(static_cast<std::byte>(record.index()));
  // fields() serves reading and writing; the encoder changes nothing.
  std::visit([&]<typename T>(const T& one) { const_cast<T&>(one).fields(Encoder(out)); }, record);
}

Result<Record> decode(std::span<const std::byte> bytes) {
  if (bytes.empty()) {
    return fail(EPROTO, "empty record");
  }
  return decode_as(std::to_integer<std::size_t>(bytes[0]), bytes.subspan(1));
}

}  // namespace efs::fs
