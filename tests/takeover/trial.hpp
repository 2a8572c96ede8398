// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Runs one operation, kills the worker at one of its stops, and judges the outcome: the operation's
// results and the files afterwards must equal those of a native file system.

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
  /// Determines the functions that are stops, besides system calls.
  Trial(pid_t supervisor, const std::string& efsd, Place place, std::string mount,
        std::string native);

  /// Runs the operation and kills the worker at its stop `n`; if there are fewer stops, at its end.
  /// Returns the number of stops. `steps`: the stops are instructions.
  long kill_at(const Operation& operation, long n, bool steps);
  /// The same, but kills the worker at `first`, and its successor at the successor's stop `n`,
  /// counted from its first instruction.
  long kill_successor_at(const Operation& operation, long first, long n);
  /// The same, and kills every further successor at its stop `n`, until the supervisor starts no
  /// more. Waiting processes must then get an error.
  void kill_all_at(const Operation& operation, long first, long n);
  /// Returns the number of stops of the operation.
  long stops_of(const Operation& operation);

  /// `late`: kills whose operation, or takeover, was over before the stop.
  long kills = 0, late = 0, failures = 0;

 private:
  // The operation before its begin, under a worker with no other stops.
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
  std::map<const Operation*, Outcome> expected_;  // results of the operation without a death
  std::map<const Operation*, long> stops_;
  Place place_;
  const std::string mount_, native_;
  pid_t last_ = 0;
  std::chrono::steady_clock::time_point last_kill_{};
  unsigned places_ = 0, probes_ = 0;
};

}  // namespace takeover
