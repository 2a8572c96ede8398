// SPDX-License-Identifier: BSD-3-Clause
#include "control/fields.hpp"

#include <algorithm>

namespace efs::control::fields {

const char* Reader::read(const Json& from, bool& value) {
  if (!from.is_boolean()) {
    return " is neither true nor false";
  }
  value = from.get<bool>();
  return nullptr;
}

const char* Reader::read(const Json& from, double& value) {
  if (!from.is_number()) {
    return " is not a number";
  }
  value = from.get<double>();
  return nullptr;
}

const char* Reader::read(const Json& from, std::string& value) {
  if (!from.is_string()) {
    return " is not a text";
  }
  value = from.get<std::string>();
  return nullptr;
}

const char* Reader::read(const Json& from, std::vector<std::string>& value) {
  if (!from.is_array() || !std::ranges::all_of(from, &Json::is_string)) {
    return " is not a list of texts";
  }
  value = from.get<std::vector<std::string>>();
  return nullptr;
}

}  // namespace efs::control::fields
