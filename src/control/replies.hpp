// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Result lines of the control protocol as structs, for the verbs whose answer is complete here;
// status_reply.hpp has that of status. The daemon, efs and libefs use these structs; replies.cpp
// alone spells the fields. src/control/README.md describes their meaning. protocol_version
// (requests.hpp) covers them. A member that is an empty optional or a null document is absent from
// the line.

#include <cerrno>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

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

Failure failure_of(const Error& error, int exit = 1);

/// load, unload, fetch, move: wait-task waits for the task.
struct TaskStarted {
  std::uint64_t task = 0;  // 0: the daemon named none

  bool operator==(const TaskStarted&) const = default;
};

/// ls: the items of the progress lines; set: the names that were changed; pin: the files.
struct Counted {
  std::uint64_t count = 0;

  bool operator==(const Counted&) const = default;
};

/// wait-inputs: the inputs of the background.
struct BackgroundInputs {
  std::uint64_t left = 0;    // not tried yet
  std::uint64_t failed = 0;  // not here after a try
  std::optional<std::string> last_error;

  bool operator==(const BackgroundInputs&) const = default;
};

/// The wait for the PFS of an import, an export or a task.
struct Turn {
  std::string direction, standing;
  std::uint64_t ahead = 0;
  double since = 0;  // seconds since 1970
  std::optional<double> wait_seconds;
  std::optional<std::string> reason;

  bool operator==(const Turn&) const = default;
};

/// The result of a load.
struct Loaded {
  std::uint64_t files = 0, already = 0, bytes = 0;
  double seconds = 0;

  bool operator==(const Loaded&) const = default;
};

/// The result of an unload, complete or not.
struct Unloaded {
  std::string summary;
  Json receipt;  // as in its file; from_json() leaves it in the line, because it may be long

  bool operator==(const Unloaded&) const = default;
};

/// A file that a move has left in its backend.
struct UnmovedFile {
  std::string path, reason;

  bool operator==(const UnmovedFile&) const = default;
};

/// The result of a move, complete or not.
struct Moved {
  std::uint64_t moved = 0, moved_bytes = 0;
  std::uint64_t unchanged = 0;            // files that were in that backend already
  std::uint64_t stayed = 0;               // files that could not move
  std::vector<UnmovedFile> stayed_first;  // the first of them

  bool operator==(const Moved&) const = default;
};

/// The end of a task. The default is a failure: a client that finds no outcome reports one.
struct TaskOutcome {
  bool ok = false;
  Failure failure;  // if not `ok`
  std::optional<Loaded> loaded;
  std::optional<Unloaded> unloaded;
  std::optional<Moved> moved{};

  bool operator==(const TaskOutcome&) const = default;
};

TaskOutcome failed_task(const Error& error, int exit = 1);

/// A task as status lists it. With result_line(), the answer of wait-task.
struct Task {
  std::uint64_t task = 0;
  std::string kind, what, task_state;
  std::uint64_t bytes_done = 0, bytes_total = 0, files_done = 0, files_total = 0;
  double started = 0;  // seconds since 1970
  std::optional<Turn> turn;
  std::optional<std::string> state;    // for people; in progress lines only
  std::optional<TaskOutcome> outcome;  // not in status

  bool operator==(const Task&) const = default;
};

/// stop, wait-end: the instance has ended, or its export is incomplete. add_receipt() adds the
/// receipt to the line.
struct Stopped {
  std::optional<bool> staged_out;
  std::optional<int> exit;
  std::optional<bool> time_was_up;
  std::optional<std::uint64_t> conflicts, replaced, unreadable;
  std::optional<std::string> summary, error;
  std::optional<std::string> receipt_file, report_file;
  Json unmatched;  // output rules that named no file; `text` is for people
  std::optional<std::string> image;
  std::optional<bool> all_back;  // about `image`: it has no result that is not exported
  bool kept = false;             // the instance goes on
  bool lingers = false;          // the PFS blocks its processes

  bool operator==(const Stopped&) const = default;
};

/// stop, wait-end: the stop failed.
struct StopFailed {
  Failure failure;
  std::optional<std::string> summary;  // of files that were exported all the same
  bool ended = false;                  // by another stop

  bool operator==(const StopFailed&) const = default;
};

/// Adds a receipt, as in its file, to the line of a Stopped or a StopFailed.
void add_receipt(Json& line, Json receipt);

/// False for a Failure.
bool is_success(const Json& line);

/// Returns the result line. Every struct above can be converted; the line of one that is part of
/// another has its fields alone.
template <typename Reply>
Json to_json(const Reply& reply);

/// Reads a line. Ignores unknown fields: a later daemon may send more. A field that is absent has
/// its default value. A field of a wrong type has it in Failure, TaskStarted, Counted and
/// BackgroundInputs; for the others, throws std::invalid_argument with its name.
template <typename Reply>
Reply from_json(const Json& line);

}  // namespace efs::control::replies
