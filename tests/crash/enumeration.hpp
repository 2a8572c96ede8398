#pragma once
// Runs a scenario again and again, ends the world before each event that makes something durable, recovers, and compares
// with what had been answered. The reference is a run without an end: its journal gives the state after every record.

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "support/sim_store.hpp"

namespace efs::test {

/// What a run has promised about the content of a file, as long as the file is there.
struct Promise {
  std::string content;
  std::size_t from_record = 0;  // only in states of at least so many records (a rename that has happened)
};

/// One life of a file system on a simulated store.
struct Life {
  SimWorld& world;
  fs::Filesystem& filesystem;
  std::map<std::uint64_t, Promise> promises;
  std::size_t records_after = 0;  // of the reference, after the step that runs: for promises that come with a record
  std::vector<int> errors{};      // that the step which runs has been answered with

  /// Passes an answer on; what it says of an error is kept.
  template <typename Answer>
  Answer note(Answer answer) {
    const SparedAllocations spared;
    if (!answer) errors.push_back(answer.error().code);
    return answer;
  }
  /// The inode of "a/b"; 0 where there is none.
  std::uint64_t find(const std::string& path);
  std::string content(std::uint64_t ino) { return world.find(ino)->visible; }
};

struct Step {
  std::string name;
  std::function<void(Life&)> run;
  bool syncs = false;  // when it has returned, every record so far is durable on every kind of store
};
using Scenario = std::vector<Step>;

struct Enumeration {
  Durability durability = Durability::cache_line;
  std::uint64_t seed = 1;
  unsigned rounds = 4;  // random remains for each end of the world
  unsigned places = 1;  // of the store; with several, names decide where new files go, and the first is soon full
  std::uint64_t smallest_compaction = 16u << 20;
  fs::Filesystem::Rules rules;
  Lies lies;
};

/// What is wrong with the namespace that the visible journal gives, and with the containers beside it: link counts,
/// directories that cannot be reached, files without a container and the reverse. "": nothing.
std::string check_journal(SimWorld& world);

/// The first violation with all that is needed to see it again; nullopt where there is none. `ends`: how many ends of
/// the world were tried.
std::optional<std::string> enumerate(const Scenario& scenario, const Enumeration& how, std::size_t* ends = nullptr);

/// The events of a run without an end, and the step of each; 0: the making of the file system.
struct Event {
  std::string name;
  std::size_t step = 0;
};
std::vector<Event> events_of(const Scenario& scenario, const Enumeration& how);

}  // namespace efs::test
