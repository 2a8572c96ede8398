// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Result lines of the control protocol as structs, for the verbs whose answer is complete here. The
// daemon, efs and libefs use these structs; replies.cpp alone spells the fields.
// src/control/README.md describes their meaning. protocol_version (requests.hpp) covers them.

#include <cerrno>
#include <cstdint>
#include <string>

#include "control/protocol.hpp"

namespace efs::control::replies {

/// The answer to a request that failed, or the outcome of a task that failed.
struct Failure {
  int code = EIO;  // an errno
  std::string error = "failed";
  bool lines = false;  // `error` has several lines
  int exit = 1;        // an exit code as in efs(1)

  Error as_error() const { return {code, error, lines}; }

  bool operator==(const Failure&) const = default;
};

/// load, unload: wait-task waits for the task.
struct TaskStarted {
  std::uint64_t task = 0;  // 0: the daemon named none

  bool operator==(const TaskStarted&) const = default;
};

/// ls: the items of the progress lines; set: the names that were changed.
struct Counted {
  std::uint64_t count = 0;

  bool operator==(const Counted&) const = default;
};

/// False for a Failure.
bool is_success(const Json& line);

/// Returns the result line. Every struct above can be converted.
template <typename Reply>
Json to_json(const Reply& reply);

/// Reads a line. Ignores unknown fields: a later daemon may send more. A field that is absent or
/// has a wrong type has its default value.
template <typename Reply>
Reply from_json(const Json& line);

}  // namespace efs::control::replies
