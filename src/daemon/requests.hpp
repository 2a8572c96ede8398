#pragma once
// What is asked on the control socket: the fields of the requests, with the types and defaults of
// src/control/README.md. A field of another type, or one that is missing, throws; the server makes
// EINVAL of it.

#include <chrono>
#include <string>
#include <vector>

#include "base/result.hpp"
#include "control/protocol.hpp"
#include "fs/staging.hpp"
#include "stage/live/load.hpp"
#include "stage/live/unload.hpp"

namespace efs::daemon {

struct StopFields {
  std::uint64_t supervisor = 0;  // of the instance that is meant; 0: whichever has the name
  bool stage_out = true, keep = false, cut_off = false, merge = false;
  bool receipt = false;  // in the answer
  double deadline = 0;   // seconds; 0 or less: none
  double asked_ago = 0;  // seconds
};

std::string verb_of(const control::Json& request);
bool is_of_starter(const control::Json& request);
bool keeps(const control::Json& request);
StopFields stop_of(const control::Json& request);

/// The paths of a request, as they were given: EINVAL for none, and for too many.
Result<std::vector<std::string>> paths_of(const control::Json& request);
bool has_paths(const control::Json& request);
std::string path_of(const control::Json& request);
std::string backend_of(const control::Json& request);

/// What is to be done with `names`. EINVAL for what does not go together.
Result<stage::LoadRequest> load_of(const control::Json& request, std::vector<std::string> names);
Result<stage::UnloadRequest> unload_of(const control::Json& request,
                                       std::vector<std::string> names);

/// EINVAL where there is no such class.
Result<fs::Keep> class_of(const control::Json& request);

std::uint64_t task_of(const control::Json& request);
std::chrono::milliseconds timeout_of(const control::Json& request);

}  // namespace efs::daemon
