// SPDX-License-Identifier: BSD-3-Clause
#include "base/json_text.hpp"

#include <utility>

#include "base/text.hpp"

namespace efs {
namespace {

using Json = nlohmann::json;

// A hostile document must not exhaust the stack: copying and writing a document recurse. No
// document of efs is this deep.
constexpr int deepest = 64;

// Returns whether `changes` holds for any string. Most documents have no such string and need no
// conversion.
template <typename Predicate>
bool any_string(const Json& json, const Predicate& changes, int depth = 0) {
  if (json.is_string()) {
    return changes(json.get_ref<const std::string&>());
  }
  if (!json.is_structured() || depth == deepest) {
    return false;
  }
  for (auto it = json.begin(); it != json.end(); ++it) {
    if ((json.is_object() && changes(it.key())) || any_string(*it, changes, depth + 1)) {
      return true;
    }
  }
  return false;
}

template <typename Change>
void change_strings(Json& json, const Change& change, int depth = 0) {
  if (json.is_string()) {
    std::string& text = json.get_ref<std::string&>();
    text = change(text);
    return;
  }
  if (!json.is_structured() || depth == deepest) {
    return;
  }
  for (auto& value : json) {
    change_strings(value, change, depth + 1);
  }
  if (!json.is_object()) {
    return;
  }
  Json::object_t changed;
  for (auto& [key, value] : json.get_ref<Json::object_t&>()) {
    changed[change(key)] = std::move(value);
  }
  json.get_ref<Json::object_t&>() = std::move(changed);
}

std::string dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

}  // namespace

std::string json_to_text(const Json& document, int indent) {
  if (!any_string(document, needs_octal)) {
    return dump(document, indent);
  }
  Json changed = document;
  change_strings(changed, in_octal);
  return dump(changed, indent);
}

Json json_from_text(std::string_view text) {
  bool is_too_deep = false;
  const auto keep = [&](int depth, Json::parse_event_t, const Json&) {
    is_too_deep = is_too_deep || depth > deepest;
    return !is_too_deep;
  };
  Json document = Json::parse(text, keep, false);
  if (is_too_deep) {
    return Json(Json::value_t::discarded);
  }
  const auto may_change = [](std::string_view string) {
    return string.contains('\\');
  };
  if (text.contains('\\') && any_string(document, may_change)) {
    change_strings(document, from_octal);
  }
  return document;
}

}  // namespace efs
