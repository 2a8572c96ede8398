// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Converts the structs of the control protocol to JSON objects and back. For each struct, a
// function fields_of(struct, see) in the struct's namespace calls see(name, member) for every
// field: one list serves a Writer and a Reader. For requests.cpp and replies.cpp only.

#include <concepts>
#include <cstdint>
#include <optional>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "control/protocol.hpp"

namespace efs::control::fields {

/// `T` is `Struct`, perhaps const. fields_of() is for both.
template <typename T, typename Struct>
concept Is = std::same_as<std::remove_const_t<T>, Struct>;

/// A type that is one JSON value. Every other class is a struct with fields.
template <typename T>
concept Value = std::is_arithmetic_v<T> || std::same_as<T, std::string> || std::same_as<T, Json>;

/// Adds the fields of a struct to an object. Does not add an optional that is empty, and no
/// document that is null.
class Writer {
 public:
  explicit Writer(Json& object) : object_(object) {}

  template <typename T>
  void operator()(const char* name, const T& value) {
    Json written = json_of(value);
    if (!written.is_null()) {
      object_[name] = std::move(written);
    }
  }

  /// The reader refuses an object without this field.
  void required(const char* name, const auto& value) { (*this)(name, value); }

  /// A field that is false is absent.
  void flag(const char* name, bool value) {
    if (value) {
      object_[name] = true;
    }
  }

  /// A document that may have megabytes. The reader leaves it in the line.
  void write_only(const char* name, const Json& value) { (*this)(name, value); }

  /// A list without elements is absent.
  void unless_empty(const char* name, const auto& values) {
    if (!values.empty()) {
      (*this)(name, values);
    }
  }

  /// A field with the same value in every object. The reader ignores it.
  void constant(const char* name, const auto& value) { object_[name] = value; }

  /// A struct whose fields are in the same object. They are absent if the struct is, and then the
  /// field `first` is absent, too.
  template <typename T>
  void part(const char* /*first*/, const std::optional<T>& value) {
    if (value) {
      fields_of(*value, *this);
    }
  }

 private:
  template <Value T>
  static Json json_of(const T& value) {
    return value;
  }

  template <typename T>
  static Json json_of(const std::optional<T>& value) {
    return value ? json_of(*value) : Json();
  }

  template <typename T>
  static Json json_of(const std::vector<T>& values) {
    Json all = Json::array();
    for (const auto& value : values) {
      all.push_back(json_of(value));
    }
    return all;
  }

  template <typename T>
  static Json json_of(const T& value) {
    Json object = Json::object();
    Writer writer(object);
    fields_of(value, writer);
    return object;
  }

  Json& object_;
};

/// Reads the fields of a struct from an object. Ignores unknown fields. The member of an absent
/// field stays as it is.
class Reader {
 public:
  /// The effect of a field of a wrong type: std::invalid_argument with the name of the field, or
  /// nothing, and its member stays as it is.
  enum class WrongType : std::uint8_t { refused, ignored };

  explicit Reader(const Json& object, WrongType wrong = WrongType::refused)
      : object_(object), wrong_(wrong) {}

  template <typename T>
  void operator()(const char* name, T& value) const {
    const auto found = object_.find(name);
    if (found == object_.end()) {
      return;
    }
    if (const char* const why = read(*found, value);
        why != nullptr && wrong_ == WrongType::refused) {
      refuse(name, why);
    }
  }

  void required(const char* name, auto& value) const {
    if (!object_.contains(name)) {
      refuse(name, " is missing");
    }
    (*this)(name, value);
  }

  void flag(const char* name, bool& value) const { (*this)(name, value); }

  void write_only(const char* /*name*/, const Json& /*value*/) const {}

  void unless_empty(const char* name, auto& values) const { (*this)(name, values); }

  void constant(const char* /*name*/, const auto& /*value*/) const {}

  template <typename T>
  void part(const char* first, std::optional<T>& value) const {
    if (object_.contains(first)) {
      fields_of(value.emplace(), *this);
    }
  }

 private:
  [[noreturn]] static void refuse(const std::string& name, const char* why) {
    throw std::invalid_argument(name + why);
  }

  // Each returns nullptr, or why the type is wrong.
  static const char* read(const Json& from, bool& value);
  static const char* read(const Json& from, double& value);
  static const char* read(const Json& from, std::string& value);
  static const char* read(const Json& from, std::vector<std::string>& value);

  static const char* read(const Json& from, Json& value) {
    value = from;
    return nullptr;
  }

  // The JSON library would convert a negative number, a fraction or a too large number without an
  // error.
  template <std::integral T>
  static const char* read(const Json& from, T& value) {
    const bool fits = from.is_number_unsigned()
                          ? std::in_range<T>(from.get<std::uint64_t>())
                          : from.is_number_integer() && std::in_range<T>(from.get<std::int64_t>());
    if (!fits) {
      return " is not a whole number";
    }
    value = from.get<T>();
    return nullptr;
  }

  template <typename T>
  static const char* read(const Json& from, std::optional<T>& value) {
    return read(from, value.emplace());
  }

  template <typename T>
  static const char* read(const Json& from, std::vector<T>& values) {
    if (!from.is_array()) {
      return " is not a list";
    }
    values.clear();
    for (const auto& one : from) {
      if (const char* const why = read(one, values.emplace_back())) {
        return why;
      }
    }
    return nullptr;
  }

  template <typename T>
  static const char* read(const Json& from, T& value) {
    if (!from.is_object()) {
      return " is not an object";
    }
    fields_of(value, Reader(from));
    return nullptr;
  }

  const Json& object_;
  const WrongType wrong_;
};

}  // namespace efs::control::fields
