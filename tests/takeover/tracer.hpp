// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A worker under ptrace(2). It runs from stop to stop and is killed at one of them. A stop is the
// entry or return of a system call, the first instruction of a function, or any instruction. Also
// catches the start of its successor.

#include <sys/types.h>

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <set>
#include <span>
#include <string>
#include <vector>

namespace takeover {

/// The time limit of every wait.
inline constexpr std::chrono::seconds patience{30};

/// Ends the program: the test cannot be set up. Prints errno too.
[[noreturn]] void give_up(const std::string& why);

/// Returns the file offsets of the functions whose mangled names contain one of `wanted`. Ends the
/// program if an entry of `wanted` matches no function.
std::vector<std::uint64_t> function_offsets(const std::string& program,
                                            std::span<const char* const> wanted);

/// Returns the only child of a supervisor; 0 if it has none just now.
pid_t child_of(pid_t supervisor);

/// Stops and traces the supervisor's next child before its first instruction. Stops tracing the
/// supervisor once there is a child.
class Birth {
 public:
  explicit Birth(pid_t supervisor);
  /// Returns whether this status of waitpid(2) concerns the supervisor or its child.
  bool takes(pid_t pid, int status);
  /// Returns the child; 0 if the supervisor ends instead. `bystanders`: our own children; those
  /// that end meanwhile are removed.
  pid_t child(std::set<pid_t>& bystanders);

 private:
  const pid_t supervisor_;
  pid_t child_ = 0;
  bool supervisor_gone_ = false;
  std::set<pid_t> stopped_;
};

/// A process that is traced from the constructor until it is killed.
class Victim {
 public:
  static constexpr long never = -1;

  Victim(pid_t pid, const std::vector<std::uint64_t>& stages_of);

  /// The child of a Birth.
  struct Newborn {
    pid_t pid;
  };

  Victim(Newborn born, const std::vector<std::uint64_t>& stages_of);

  /// Runs the process until it is quiet and `ended`. Returns the number of stops, at most `most`;
  /// then the process is stopped at the last of them. `steps`: counts the instructions of the
  /// thread that received a request.
  long run(long most, bool steps, const std::function<bool()>& ended);

  /// `next`: receives the successor's events meanwhile.
  void kill(Birth* next = nullptr);

  pid_t pid() const { return pid_; }

  std::set<pid_t> bystanders;  // our own children, until they have ended

 private:
  void begin(const std::vector<std::uint64_t>& stages_of);
  void attach();
  void set(std::uint64_t address);
  bool at_stage(pid_t thread);
  void step_over(pid_t thread);
  bool counts(pid_t thread);
  void go_on(pid_t thread, int signal);

  const pid_t pid_;
  std::set<pid_t> threads_, stepped_;
  std::map<std::uint64_t, long> original_;
};

}  // namespace takeover
