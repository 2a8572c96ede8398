// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/requests.hpp"

#include <algorithm>

namespace efs::daemon {
namespace {

namespace requests = control::requests;

constexpr std::size_t most_names = 10000;  // of a single request
// milliseconds: a larger value would overflow the clock
constexpr std::uint64_t longest_timeout = std::uint64_t{1} << 40;
constexpr double longest_ago = 1e8;  // seconds: likewise

}  // namespace

Status check_paths(const std::vector<std::string>& paths) {
  if (paths.empty() || paths.size() > most_names) {
    return fail(EINVAL, "one path at least, " + std::to_string(most_names) + " at most");
  }
  return {};
}

Result<stage::LoadRequest> load_of(const requests::Load& request, std::vector<std::string> names) {
  if (request.force && !request.replace) {
    return fail(EINVAL, "force requires replace");
  }
  return stage::LoadRequest{.names = std::move(names),
                            .replace = request.replace,
                            .force = request.force,
                            .backend = request.backend,
                            .part = {.offset = request.offset, .length = request.size}};
}

Result<stage::UnloadRequest> unload_of(const requests::Unload& request,
                                       std::vector<std::string> names) {
  stage::UnloadRequest what{.names = std::move(names),
                            .as_is = request.as_is,
                            .remove = request.remove,
                            .part = {.offset = request.offset, .length = request.size}};
  return what.remove && !what.part.whole() ? fail(EINVAL, "remove requires whole files")
                                           : Result<stage::UnloadRequest>(std::move(what));
}

Result<fs::Keep> class_of(const std::string& name) {
  if (name == "persistent") {
    return fs::Keep::persistent;
  }
  if (name == "temporary") {
    return fs::Keep::temporary;
  }
  if (name == "default") {
    return fs::Keep::by_rule;
  }
  return fail(EINVAL,
              "unknown class \"" + name.substr(0, 100) + "\": persistent, temporary or default");
}

double asked_ago_of(const requests::Stop& request) {
  return std::clamp(request.asked_ago, 0.0, longest_ago);
}

std::chrono::milliseconds timeout_of(std::optional<std::uint64_t> timeout_ms) {
  return std::chrono::milliseconds(std::min(timeout_ms.value_or(longest_timeout), longest_timeout));
}

}  // namespace efs::daemon
