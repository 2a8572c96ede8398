// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Parses requests on the control socket. src/control/README.md lists the fields with their types
// and defaults. A missing field or a wrong type throws; the server answers EINVAL.

#include <chrono>
#include <optional>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "control/protocol.hpp"
#include "fs/staging.hpp"
#include "stage/live/load.hpp"
#include "stage/live/unload.hpp"

namespace efs::daemon {

struct StopFields {
  std::uint64_t supervisor = 0;  // of the target instance; 0: the instance with this name
  bool stage_out = true, keep = false, cut_off = false, merge = false;
  bool receipt = false;  // return the receipt in the answer
  double deadline = 0;   // seconds; 0 or less: none
  double asked_ago = 0;  // seconds
};

std::string verb_of(const control::Json& request);
bool is_of_starter(const control::Json& request);
bool keeps(const control::Json& request);
StopFields stop_of(const control::Json& request);

/// Returns the paths of a request unchanged. Fails with EINVAL if there are none or too many.
Result<std::vector<std::string>> paths_of(const control::Json& request);
bool has_paths(const control::Json& request);
std::string path_of(const control::Json& request);
std::string backend_of(const control::Json& request);

/// Builds the requests for `names`. Fail with EINVAL if options contradict each other.
Result<stage::LoadRequest> load_of(const control::Json& request, std::vector<std::string> names);
Result<stage::UnloadRequest> unload_of(const control::Json& request,
                                       std::vector<std::string> names);

/// Returns the rate that a request of the verb limit names: 0 for none; nullopt: unchanged.
std::optional<std::uint64_t> rate_of(const control::Json& request, const char* limit);

/// Fails with EINVAL if there is no such class.
Result<fs::Keep> class_of(const control::Json& request);

std::uint64_t task_of(const control::Json& request);
std::chrono::milliseconds timeout_of(const control::Json& request);

}  // namespace efs::daemon
