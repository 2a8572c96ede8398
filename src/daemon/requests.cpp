// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/requests.hpp"

#include <algorithm>
#include <stdexcept>

namespace efs::daemon {
namespace {

using control::Json;
constexpr std::size_t most_names = 10000;  // of a single request
// milliseconds: a larger value would overflow the clock
constexpr std::uint64_t longest_timeout = std::uint64_t{1} << 40;
constexpr double longest_ago = 1e8;  // seconds: likewise

// The JSON library would convert a negative number, a fraction or a too large number without an
// error.
std::uint64_t whole_number(const Json& value, const std::string& field) {
  if (!value.is_number_unsigned()) {
    throw std::invalid_argument(field + " is not a whole number");
  }
  return value.get<std::uint64_t>();
}

std::uint64_t whole_number_or(const Json& request, const std::string& field,
                              std::uint64_t otherwise) {
  return request.contains(field) ? whole_number(request.at(field), field) : otherwise;
}

stage::Part part_of(const Json& request) {
  return {.offset = whole_number_or(request, "offset", 0),
          .length = whole_number_or(request, "size", 0)};
}

}  // namespace

std::string verb_of(const Json& request) {
  return request.value("verb", "");
}

bool is_of_starter(const Json& request) {
  return request.value("starter", false);
}

bool keeps(const Json& request) {
  return request.value("keep", false);
}

StopFields stop_of(const Json& request) {
  return {.supervisor = whole_number_or(request, "supervisor", 0),
          .stage_out = request.value("stage_out", true),
          .keep = keeps(request),
          .cut_off = request.value("cut_off", false),
          .merge = request.value("merge", false),
          .receipt = request.value("receipt", false),
          .deadline = request.value("deadline", 0.0),
          .asked_ago = std::clamp(request.value("asked_ago", 0.0), 0.0, longest_ago)};
}

Result<std::vector<std::string>> paths_of(const Json& request) {
  auto paths = request.at("paths").get<std::vector<std::string>>();
  if (paths.empty() || paths.size() > most_names) {
    return fail(EINVAL, "one path at least, " + std::to_string(most_names) + " at most");
  }
  return paths;
}

bool has_paths(const Json& request) {
  return request.contains("paths") && !request.at("paths").empty();
}

std::string path_of(const Json& request) {
  return request.at("path").get<std::string>();
}

std::string backend_of(const Json& request) {
  return request.value("backend", "");
}

Result<stage::LoadRequest> load_of(const Json& request, std::vector<std::string> names) {
  stage::LoadRequest what{.names = std::move(names),
                          .replace = request.value("replace", false),
                          .force = request.value("force", false),
                          .backend = backend_of(request),
                          .part = part_of(request)};
  return what.force && !what.replace ? fail(EINVAL, "force requires replace")
                                     : Result<stage::LoadRequest>(std::move(what));
}

Result<stage::UnloadRequest> unload_of(const Json& request, std::vector<std::string> names) {
  stage::UnloadRequest what{.names = std::move(names),
                            .as_is = request.value("as_is", false),
                            .remove = request.value("remove", false),
                            .part = part_of(request)};
  return what.remove && !what.part.whole() ? fail(EINVAL, "remove requires whole files")
                                           : Result<stage::UnloadRequest>(std::move(what));
}

Result<fs::Keep> class_of(const Json& request) {
  const auto wanted = request.at("class").get<std::string>();
  if (wanted == "persistent") {
    return fs::Keep::persistent;
  }
  if (wanted == "temporary") {
    return fs::Keep::temporary;
  }
  if (wanted == "default") {
    return fs::Keep::by_rule;
  }
  return fail(EINVAL,
              "unknown class \"" + wanted.substr(0, 100) + "\": persistent, temporary or default");
}

std::optional<std::uint64_t> rate_of(const Json& request, const char* limit) {
  return request.contains(limit) ? std::optional(whole_number(request.at(limit), limit))
                                 : std::nullopt;
}

std::uint64_t task_of(const Json& request) {
  return whole_number(request.at("task"), "task");
}

std::chrono::milliseconds timeout_of(const Json& request) {
  return std::chrono::milliseconds(
      std::min(whole_number_or(request, "timeout_ms", longest_timeout), longest_timeout));
}

}  // namespace efs::daemon
