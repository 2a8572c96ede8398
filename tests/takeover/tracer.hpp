#pragma once
// A worker under ptrace(2): run from stop to stop, a system call's begin or end, the first
// instruction of a function, or single instructions, and killed at one of them; and the birth of
// the one that takes its place.

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

/// How long anything here may take, at most.
inline constexpr std::chrono::seconds patience{30};

/// Ends the program: what is to be tested cannot be set up. Says errno, too.
[[noreturn]] void give_up(const std::string& why);

/// Where in the program's file the functions begin whose mangled names contain one of `wanted`.
/// Ends the program where one of them is none's.
std::vector<std::uint64_t> function_offsets(const std::string& program,
                                            std::span<const char* const> wanted);

/// The only child of a supervisor; 0: none just now.
pid_t child_of(pid_t supervisor);

/// From here on the supervisor's next child is stopped before its first instruction, and traced.
/// The supervisor itself is left alone as soon as there is one.
class Birth {
 public:
  explicit Birth(pid_t supervisor);
  /// Whether this news, of waitpid(2), was of it.
  bool takes(pid_t pid, int status);
  /// The child; 0 where the supervisor ends instead. `bystanders`: our own children, less those
  /// that end meanwhile.
  pid_t child(std::set<pid_t>& bystanders);

 private:
  const pid_t supervisor_;
  pid_t child_ = 0;
  bool supervisor_gone_ = false;
  std::set<pid_t> stopped_;
};

/// A process that is traced from its constructor until it is killed.
class Victim {
 public:
  static constexpr long never = -1;

  Victim(pid_t pid, const std::vector<std::uint64_t>& stages_of);

  /// The child of a Birth.
  struct Newborn {
    pid_t pid;
  };

  Victim(Newborn born, const std::vector<std::uint64_t>& stages_of);

  /// Lets it run until it is quiet and `ended`; the number of stops in it, at most `most`: then it
  /// is stopped at the last of them. `steps`: instructions are counted, of the thread that has
  /// received a request.
  long run(long most, bool steps, const std::function<bool()>& ended);

  /// `next`: takes what is told of the successor meanwhile.
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
