// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The requests of the control protocol as structs. The daemon, efs and libefs use these structs;
// requests.cpp alone spells the fields. src/control/README.md describes their meaning.

#include <cstdint>
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "control/protocol.hpp"

namespace efs::control {

/// Status shows it. It rises when a client that knows the older protocol would misread an answer,
/// or when a daemon that knows the older one would misread a request. New fields do not raise it:
/// both sides ignore unknown fields.
inline constexpr unsigned protocol_version = 1;

namespace requests {

struct Status {
  static constexpr const char* verb = "status";
  bool changed = false;  // count the files that a stage-out would export

  bool operator==(const Status&) const = default;
};

struct Wait {
  static constexpr const char* verb = "wait";
  bool starter = false;  // the start is cancelled if this client disappears

  bool operator==(const Wait&) const = default;
};

struct WaitEnd {
  static constexpr const char* verb = "wait-end";
  bool keep = false;

  bool operator==(const WaitEnd&) const = default;
};

struct Stop {
  static constexpr const char* verb = "stop";
  std::uint64_t supervisor = 0;  // of the target instance; 0: the instance with this name
  bool stage_out = true, keep = false, cut_off = false, merge = false;
  bool receipt = false;  // return the receipt in the answer
  double deadline = 0;   // seconds; 0 or less: none
  double asked_ago = 0;  // seconds

  bool operator==(const Stop&) const = default;
};

struct Load {
  static constexpr const char* verb = "load";
  std::vector<std::string> paths;
  bool replace = false, force = false;
  std::string backend;                 // "": by the job file
  std::uint64_t offset = 0, size = 0;  // size 0: to the end

  bool operator==(const Load&) const = default;
};

struct Unload {
  static constexpr const char* verb = "unload";
  std::vector<std::string> paths;
  bool as_is = false, remove = false;
  std::string backend;  // only looked up
  std::uint64_t offset = 0, size = 0;

  bool operator==(const Unload&) const = default;
};

struct Fetch {
  static constexpr const char* verb = "fetch";
  std::vector<std::string> paths;

  bool operator==(const Fetch&) const = default;
};

/// Moves the contents of files to another backend.
struct Move {
  static constexpr const char* verb = "move";
  std::vector<std::string> paths;
  std::string to;  // the id of the backend

  bool operator==(const Move&) const = default;
};

struct WaitInputs {
  static constexpr const char* verb = "wait-inputs";
  std::optional<std::uint64_t> timeout_ms;  // nullopt: none

  bool operator==(const WaitInputs&) const = default;
};

struct WaitTask {
  static constexpr const char* verb = "wait-task";
  std::uint64_t task = 0;
  std::optional<std::uint64_t> timeout_ms;  // nullopt: none

  bool operator==(const WaitTask&) const = default;
};

struct Cancel {
  static constexpr const char* verb = "cancel";
  std::uint64_t task = 0;

  bool operator==(const Cancel&) const = default;
};

struct List {
  static constexpr const char* verb = "ls";
  std::vector<std::string> paths;  // none: all

  bool operator==(const List&) const = default;
};

struct Explain {
  static constexpr const char* verb = "explain";
  std::string path;

  bool operator==(const Explain&) const = default;
};

struct Set {
  static constexpr const char* verb = "set";
  std::string file_class;  // "persistent", "temporary", "default"
  std::vector<std::string> paths;

  bool operator==(const Set&) const = default;
};

/// Pins the regular files that the paths stand for, or unpins them.
struct Pin {
  static constexpr const char* verb = "pin";
  std::vector<std::string> paths;
  bool pinned = true;  // false: unpins them

  bool operator==(const Pin&) const = default;
};

struct Limit {
  static constexpr const char* verb = "limit";
  std::optional<std::uint64_t> read, write, ops;  // per second; 0: none; nullopt: unchanged

  bool operator==(const Limit&) const = default;
};

using All = std::tuple<Status, Wait, WaitEnd, Stop, Load, Unload, Fetch, Move, WaitInputs, WaitTask,
                       Cancel, List, Explain, Set, Pin, Limit>;

/// Calls `see` with a default request of each kind.
void for_each(auto&& see) {
  std::apply([&](const auto&... request) { (see(request), ...); }, All());
}

/// Returns the names of all fields of a request but its verb.
template <typename Request>
std::vector<std::string> field_names(const Request& request);

/// Returns the verb of a request; "" if it has none. Throws as from_json().
std::string verb_of(const Json& request);

/// Returns the line of a request. Every struct above can be converted.
template <typename Request>
Json to_json(const Request& request);

/// Reads a line. Ignores unknown fields and the verb. An absent field has its default value. Throws
/// std::invalid_argument with the name of a field that has a wrong type, or that is required and
/// absent; the server answers EINVAL.
template <typename Request>
Request from_json(const Json& line);

}  // namespace requests
}  // namespace efs::control
