#pragma once
// Runs a scenario again and again, ends the world before each event that makes something durable,
// recovers, and compares with what had been answered. The reference is a run without an end: its
// journal gives the state after every record.

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

/// What a run has promised about the content of a file, as long as the file is there.
struct Promise {
  std::string content;
  // only in states of at least so many records (a rename that has happened)
  std::size_t from_record = 0;
};

/// One life of a file system on a simulated store.
struct Life {
  SimWorld& world;
  fs::Filesystem& filesystem;
  std::map<std::uint64_t, Promise> promises;
  // of the reference, after the step that runs: for promises that come with a record
  std::size_t records_after = 0;
  std::vector<int> errors{};  // that the step which runs has been answered with
  std::string wrong = {};     // what a step itself has seen
  // behind each one, also where a step asks for several things
  std::function<void()> on_answer = {};

  /// Passes an answer on; what it says of an error is kept.
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

  /// The inode of "a/b"; 0 where there is none.
  std::uint64_t find(const std::string& path);

  std::string content(std::uint64_t ino) { return world.find(ino)->visible; }
};

struct Step {
  std::string name;
  std::function<void(Life&)> run;
  // when it has returned, every record so far is durable on every kind of store
  bool syncs = false;
};

using Scenario = std::vector<Step>;

struct Enumeration {
  Durability durability = Durability::cache_line;
  std::uint64_t seed = 1;
  unsigned rounds = 4;  // random remains for each end of the world
  // of the store; with several, names decide where new files go, and the first is soon full
  unsigned places = 1;
  bool maps = false;  // its containers: the daemon's writes are stores into mappings
  std::uint64_t smallest_compaction = 16u << 20;
  std::uint64_t first = 0, step = 1;  // of the ends, counted from 0
  // only the processes end; the power goes later, when the next ones are at work
  bool killed = false;
  bool takeover = false;  // with killed: only the worker does, and the next one takes its place
  fs::Filesystem::Rules rules;
  Lies lies;
};

/// What is wrong with the namespace that the visible journal gives, and with the containers beside
/// it: link counts, directories that cannot be reached, files without a container and the reverse.
/// "": nothing.
std::string check_journal(SimWorld& world);

/// The first violation with all that is needed to see it again; nullopt where there is none.
/// `ends`: how many ends of the world were tried.
std::optional<std::string> enumerate(const Scenario& scenario, const Enumeration& how,
                                     std::size_t* ends = nullptr);

/// One event of a run without an end.
struct Event {
  std::uint64_t number = 0;
  std::string name;
  std::string step;   // in which it is; "": the making of the file system
  unsigned time = 0;  // the first, second ... step of this name
  unsigned nth = 0;   // of its name in the step: 1 is the first
  // the events of that step that follow it, each with a space before it, and " answer" wherever a
  // call has returned
  std::string after;
};

std::vector<Event> events_of(const Scenario& scenario, const Enumeration& how);

/// The events that nobody misses: each that `chosen` wants is removed by itself, and the world
/// ended before each of those that come soon behind it, `how.rounds` times, until that is noticed.
/// What is wrong by a message that has `but_for` in it does not count. Those that only mark a place
/// (rename, remove) make nothing durable and are left out.
std::vector<Event> unnoticed(const Scenario& scenario, Enumeration how,
                             const std::function<bool(const Event&)>& chosen,
                             std::string_view but_for = {});

/// The same for the events of the recovery after each end of the world. Each is told by what the
/// recovery did before it and itself, "drain, journal sync" (an event that repeats itself is named
/// once), with the number of times that its removal was noticed.
std::map<std::string, std::size_t> noticed_in_recovery(const Scenario& scenario, Enumeration how);

}  // namespace efs::test
