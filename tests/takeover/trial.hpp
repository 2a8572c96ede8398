#pragma once
// One operation under a worker that is killed at one of its stops, and the judgement of what came
// of it: what the operation gives, and what is there afterwards, must be what a native file system
// gives.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "takeover/operations.hpp"
#include "takeover/tracer.hpp"

namespace takeover {

struct Outcome {
  std::string gave;
  std::string left;
  bool operator==(const Outcome&) const = default;
};

class Actor;

class Trial {
 public:
  /// Says which functions are stops besides the system calls.
  Trial(pid_t supervisor, const std::string& efsd, Place place, std::string mount,
        std::string native);

  /// The operation, with the worker killed at its stop `n` or, if there are not so many, at its
  /// end; how many there were. `steps`: the stops are instructions.
  long kill_at(const Operation& operation, long n, bool steps);
  /// The same, with the worker killed at `first` and its successor at its own stop `n`, from its
  /// first instruction on.
  long kill_successor_at(const Operation& operation, long first, long n);
  /// The same, and every further successor at its stop `n`, too, until there is none any more.
  /// Whoever waits must be told.
  void kill_all_at(const Operation& operation, long first, long n);
  /// How many stops the operation has.
  long stops_of(const Operation& operation);

  /// `late`: of the kills, those before whose stop the operation, or the takeover, was over.
  long kills = 0, late = 0, failures = 0;

 private:
  // The operation up to where it begins, under a worker that is stopped at nothing else.
  struct Began {
    std::unique_ptr<Actor> actor;
    Victim worker;
  };

  const Outcome& reference(const Operation& operation);
  Began begin(const Operation& operation, bool steps);
  pid_t await_worker();
  static std::function<bool()> is_over(const Victim& victim);
  void kill(Victim& victim, Birth* next = nullptr);
  pid_t ask_mount();
  static void reap(const std::set<pid_t>& bystanders);
  void judge(const Operation& operation, Actor& actor, const std::set<pid_t>& bystanders,
             const Outcome& expected, const std::string& how);
  void enter(const std::string& where, bool native);
  void leave();

  const pid_t supervisor_;
  const std::vector<std::uint64_t> stages_, takeover_stages_;
  std::map<const Operation*, Outcome> expected_;  // what the operation gives where nothing dies
  std::map<const Operation*, long> stops_;
  Place place_;
  const std::string mount_, native_;
  pid_t last_ = 0;
  std::chrono::steady_clock::time_point last_kill_{};
  unsigned places_ = 0, probes_ = 0;
};

}  // namespace takeover
