// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs a scenario repeatedly. Each run ends the world before another event that makes data durable,
// recovers, and compares the result with the answers before the end. The reference is a run without
// an end: its journal gives the state after every record.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/sim_backend.hpp"
#include "support/sim_medium.hpp"

namespace efs::test {

/// A run's promise about the content of a file, as long as the file exists.
struct Promise {
  std::string content;
  // applies only to states of at least this many records (a rename that happened)
  std::size_t from_record = 0;
};

/// One life of a file system on a simulated store.
struct Life {
  SimWorld& world;
  fs::Filesystem& filesystem;
  Backend& backend;
  std::map<std::uint64_t, Promise> promises;
  // records of the reference after the current step, for promises that begin with a record
  std::size_t records_after = 0;
  std::vector<int> errors{};  // errors of the current step's calls
  std::string wrong = {};     // a violation that the step itself found
  // called after each answer, also if a step makes several calls
  std::function<void()> on_answer = {};
  std::map<std::uint64_t, std::uint64_t> moved{};  // the numbers of containers that have moved

  /// Returns an answer and records its error.
  template <typename Answer>
  Answer note(Answer answer) {
    const SparedAllocations spared;
    if (!answer) {
      errors.push_back(answer.error().code);
    }
    if (on_answer) {
      on_answer();
    }
    return answer;
  }

  /// Returns the inode of "a/b"; 0 if there is none.
  std::uint64_t find(const std::string& path);

  /// The container of a file; null if there is none.
  SimWorld::DataPtr container(std::uint64_t ino) const {
    const auto it = moved.find(ino);
    return world.find(it == moved.end() ? ino : it->second);
  }

  std::string content(std::uint64_t ino) const { return container(ino)->visible; }
};

struct Step {
  std::string name;
  std::function<void(Life&)> run;
  // when the step returns, every record so far is durable on every kind of store
  bool syncs = false;
};

using Scenario = std::vector<Step>;

struct Enumeration {
  Durability durability = Durability::cache_line;
  std::uint64_t seed = 1;
  unsigned rounds = 4;  // random results of each end
  // places of the store; with several, names decide the place of new files, and the first fills up
  // soon
  unsigned places = 1;
  bool maps = false;  // its containers can be mapped: the daemon's writes are stores into mappings
  std::uint64_t smallest_compaction = 16u << 20;
  std::uint64_t first = 0, step = 1;  // numbers of the ends, counted from 0
  // only the processes end; the power fails later, during the next processes' work
  bool killed = false;
  bool takeover = false;  // with killed: only the worker ends, and a successor takes over
  // the journal has format 3 when the life ends: the recovery writes it anew. The first recovery
  // ends at one of its events
  bool format_3 = false;
  fs::Filesystem::Rules rules;
  Lies lies;
};

/// Checks the namespace of the visible journal, and its containers: link counts, unreachable
/// directories, files without a container, and containers without a file. Returns the violations;
/// "" if there are none.
std::string check_journal(SimWorld& world);

/// Makes the visible journal, which has one chunk, one of format 3, and all of it durable.
void make_format_3(SimWorld& world);

/// Returns the first violation, with all data to reproduce it; nullopt if there is none. `ends`:
/// number of ends tried.
std::optional<std::string> enumerate(const Scenario& scenario, const Enumeration& how,
                                     std::size_t* ends = nullptr);

/// An event of a run without an end.
struct Event {
  std::uint64_t number = 0;
  std::string name;
  std::string step;   // the step of the event; "": creation of the file system
  unsigned time = 0;  // n-th step of this name, counted from 1
  unsigned nth = 0;   // n-th event of its name in the step, counted from 1
  // the later events of that step, each preceded by a space, and " answer" wherever a call returned
  std::string after;
};

std::vector<Event> events_of(const Scenario& scenario, const Enumeration& how);

/// Returns the events that are not missed. Removes each event that `chosen` selects, one at a time,
/// and ends the world before each of the next events, `how.rounds` times, until a check fails.
/// Failures with `but_for` in their message do not count. Skips events that only mark a position
/// (rename, remove): they make nothing durable.
std::vector<Event> unnoticed(const Scenario& scenario, Enumeration how,
                             const std::function<bool(const Event&)>& chosen,
                             std::string_view but_for = {});

/// The same for the events of the recovery after each end. The key is the list of the recovery's
/// events up to this one, "drain, journal sync" (repeated events once). The value is how often its
/// removal was noticed.
std::map<std::string, std::size_t> noticed_in_recovery(const Scenario& scenario, Enumeration how);

}  // namespace efs::test
