// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Writes and reads the fields of a record, in the order of its fields(). src/store/README.md
// describes the bytes. A record that grows calls f.since(level, field...) behind its other fields:
// these are its fields since that level of the format.

#include <cstdint>
#include <cstring>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/clock.hpp"
#include "base/extents.hpp"

namespace efs::fs {

/// Appends fields to `out`.
class FieldWriter {
 public:
  explicit FieldWriter(std::vector<std::byte>& out) : out_(out) {}

  template <typename... Field>
  void operator()(const Field&... field) {
    (put(field), ...);
  }

  template <typename... Field>
  void since(std::uint8_t /*level*/, const Field&... field) {
    (*this)(field...);
  }

 private:
  template <typename T>
    requires std::is_integral_v<T>
  void put(T value) {
    raw(&value, sizeof value);
  }

  /// A structure with fields of its own.
  template <typename T>
    requires requires(T& one, FieldWriter& writer) { one.fields(writer); }
  void put(const T& one) {
    const_cast<T&>(one).fields(*this);  // the writer changes nothing
  }

  template <typename T>
  void put(const std::optional<T>& field) {
    put(field.has_value());
    if (field) {
      put(*field);
    }
  }

  void put(const FileTime& time) { (*this)(time.seconds, time.nanoseconds); }

  void put(const std::map<std::string, std::string>& pairs) {
    put(static_cast<std::uint32_t>(pairs.size()));
    for (const auto& [key, value] : pairs) {
      (*this)(key, value);
    }
  }

  void put(const std::vector<Extent>& extents) {
    put(static_cast<std::uint32_t>(extents.size()));
    for (const auto& one : extents) {
      (*this)(one.offset, one.device, one.length);
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

/// Reads fields that a writer of `level`, or of a later one, has written.
class FieldReader {
 public:
  FieldReader(std::span<const std::byte> in, std::uint8_t level) : in_(in), level_(level) {}

  template <typename... Field>
  void operator()(Field&... field) {
    (get(field), ...);
  }

  /// The fields keep their defaults if the record ends before them, and its level allows that.
  template <typename... Field>
  void since(std::uint8_t level, Field&... field) {
    if (level <= level_ || !in_.empty()) {
      (*this)(field...);
    }
  }

  /// False if the record ended within a field, or before a field of its level.
  bool ok() const { return ok_; }

  /// True if no bytes follow the fields.
  bool at_end() const { return in_.empty(); }

 private:
  template <typename T>
    requires std::is_integral_v<T>
  void get(T& value) {
    raw(&value, sizeof value);
  }

  void get(bool& value) {
    std::uint8_t byte = 0;
    get(byte);
    value = byte == 1;
    ok_ = ok_ && byte <= 1;
  }

  template <typename T>
    requires requires(T& one, FieldReader& reader) { one.fields(reader); }
  void get(T& one) {
    one.fields(*this);
  }

  template <typename T>
  void get(std::optional<T>& field) {
    bool is_there = false;
    get(is_there);
    if (is_there) {
      get(field.emplace());
    }
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

  void get(std::vector<Extent>& extents) {
    std::uint32_t count = 0;
    get(count);
    for (Extent one; ok_ && count > 0; --count) {
      (*this)(one.offset, one.device, one.length);
      if (ok_) {
        extents.push_back(one);
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
  const std::uint8_t level_;
  bool ok_ = true;
};

}  // namespace efs::fs
