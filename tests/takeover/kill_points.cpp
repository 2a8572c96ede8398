// Does each operation with a quiet worker and kills it at every stage: at each of its system calls, before it and after it,
// and at the functions between which a request goes from one state to the next. What the operation gives, and what is
// there afterwards, must be what a native file system gives.
//   efs-kill-points [--random N] [--steps N] [--seed N] [--only NAME] SUPERVISOR EFSD EFS INSTANCE MOUNT NATIVE PFS RESULTS
// --random: N of the points, drawn. --steps: N more kills for each operation, each after a number of instructions that is
// drawn: within the copy of a record, too. Exit code 0: nobody noticed; 1: somebody did; 2: usage.
#include <dirent.h>
#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <sstream>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "takeover/operations.hpp"

namespace {

using takeover::Operation;
using takeover::Place;
using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

constexpr auto quiet_time = 4ms;  // without a stop: it waits for requests
constexpr auto patience = 30s;
constexpr auto pace = 60ms;        // from kill to kill: 200 in 10 s are too many for the supervisor (daemon/restart_policy.hpp)
constexpr long never = -1;

[[noreturn]] void give_up(const std::string& why) {
  std::fprintf(stderr, "%s: %s\n", why.c_str(), std::strerror(errno));
  std::_Exit(2);
}

// Where one state of a request ends and the next begins without a system call.
constexpr const char* stages[] = {"efs2fs10Filesystem6commitE", "efs2fs10Filesystem14apply_appendedE", "efs2fs10Filesystem14compact_if_dueE", "efs5store7Journal6appendE", "efs5store7Journal3putE",
                                  "efs2fs9Namespace5applyE", "efs2fs10Filesystem4reapE", "efs2fs10Filesystem16remove_containerE", "efs4fuse12BackingTable7acquireE", "efs4fuse12BackingTable7releaseE"};

std::vector<std::uint64_t> stage_offsets(const std::string& program) {
  FILE* names = ::popen(("nm --defined-only " + program + " 2>/dev/null").c_str(), "r");
  std::vector<std::uint64_t> found;
  char line[4096];
  while (names != nullptr && std::fgets(line, sizeof line, names) != nullptr) {
    const std::string_view text(line);
    if (text.size() < 20 || (text[17] != 'T' && text[17] != 't' && text[17] != 'W') || text.find(".cold") != text.npos) continue;
    for (const char* stage : stages)
      if (text.find(stage) != text.npos) found.push_back(std::strtoull(line, nullptr, 16));
  }
  if (names != nullptr) ::pclose(names);
  if (found.empty()) std::fprintf(stderr, "%s: none of the functions between record and answer has a name (is it stripped?)\n", program.c_str()), std::exit(2);
  return found;
}

pid_t child_of(pid_t supervisor) {
  std::ifstream children("/proc/" + std::to_string(supervisor) + "/task/" + std::to_string(supervisor) + "/children");
  pid_t pid = 0;
  children >> pid;
  return pid;
}

/// A process that is traced from attach() until it is killed.
class Victim {
 public:
  Victim(pid_t pid, const std::vector<std::uint64_t>& stages_of) : pid_(pid) {
    attach();
    std::ifstream maps("/proc/" + std::to_string(pid) + "/maps");
    std::uint64_t base = 0;
    maps >> std::hex >> base;
    for (const auto offset : stages_of) set(base + offset);
    for (const auto thread : threads_) go_on(thread, 0);
  }

  /// Lets it run for a moment; the number of stops in it, at most `most`: then it is stopped at the last of them.
  /// `steps`: instructions are counted, of the thread that has received a request.
  long run(long most, bool steps, const std::function<bool()>& ended) {
    long stops = 0;
    for (auto last = Clock::now(); !ended() || Clock::now() - last < quiet_time;) {
      int status = 0;
      const pid_t thread = ::waitpid(-1, &status, __WALL | WNOHANG);
      if (thread == 0 || (thread < 0 && errno == ECHILD)) {
        ::usleep(100);
        continue;
      }
      if (thread == bystander) {
        bystander_status = status;
        bystander = 0;
        last = Clock::now();
        continue;
      }
      if (!WIFSTOPPED(status)) {
        if (thread == pid_) give_up("the worker ended by itself, status " + std::to_string(status));
        continue;
      }
      last = Clock::now();
      const int signal = WSTOPSIG(status);
      if (signal == (SIGTRAP | 0x80)) {
        if (!steps && ++stops == most) return stops;
        if (steps && received(thread)) stepped_.insert(thread);
        go_on(thread, 0);
      } else if (status >> 16 != 0) {
        go_on(thread, 0);  // a new thread, or ours to stop
      } else if (signal == SIGTRAP) {
        if (stepped_.contains(thread)) {
          if (++stops == most) return stops;
        } else if (at_stage(thread)) {
          if (++stops == most) return stops;
          step_over(thread);
        }
        go_on(thread, 0);
      } else {
        go_on(thread, signal);
      }
    }
    return stops;
  }

  void kill() {
    ::kill(pid_, SIGKILL);
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &status, __WALL)) > 0;) {
      if (ended == bystander) bystander_status = status, bystander = 0;
      else if (ended == pid_ && (WIFSIGNALED(status) || WIFEXITED(status))) return;
    }
  }

  pid_t bystander = 0;  // our own child
  int bystander_status = 0;

 private:
  void attach() {
    // Again until no thread is new: they may start threads meanwhile.
    for (bool fresh = true; fresh;) {
      fresh = false;
      DIR* tasks = ::opendir(("/proc/" + std::to_string(pid_) + "/task").c_str());
      if (tasks == nullptr) give_up("the worker is gone");
      while (const dirent* entry = ::readdir(tasks)) {
        const auto thread = static_cast<pid_t>(std::atoi(entry->d_name));
        if (thread == 0 || threads_.contains(thread)) continue;
        if (::ptrace(PTRACE_SEIZE, thread, nullptr, reinterpret_cast<void*>(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE)) != 0) {
          if (errno == ESRCH) continue;
          give_up("ptrace");
        }
        int status = 0;
        ::ptrace(PTRACE_INTERRUPT, thread, nullptr, nullptr);
        ::waitpid(thread, &status, __WALL);
        threads_.insert(thread);
        fresh = true;
      }
      ::closedir(tasks);
    }
  }
  void set(std::uint64_t address) {
    const long word = ::ptrace(PTRACE_PEEKTEXT, pid_, address, nullptr);
    original_[address] = word;
    ::ptrace(PTRACE_POKETEXT, pid_, address, (word & ~0xffL) | 0xcc);
  }
  bool at_stage(pid_t thread) {
    user_regs_struct registers{};
    ::ptrace(PTRACE_GETREGS, thread, nullptr, &registers);
    return original_.contains(registers.rip - 1);
  }
  // Other threads may slip through meanwhile: one at a time serves requests on a quiet mount.
  void step_over(pid_t thread) {
    user_regs_struct registers{};
    ::ptrace(PTRACE_GETREGS, thread, nullptr, &registers);
    const std::uint64_t address = --registers.rip;
    ::ptrace(PTRACE_SETREGS, thread, nullptr, &registers);
    ::ptrace(PTRACE_POKETEXT, thread, address, original_[address]);
    int status = 0;
    ::ptrace(PTRACE_SINGLESTEP, thread, nullptr, nullptr);
    ::waitpid(thread, &status, __WALL);
    ::ptrace(PTRACE_POKETEXT, thread, address, (original_[address] & ~0xffL) | 0xcc);
  }
  // A read(2) of a request: the only ones that are as long as the header of one and come from a descriptor of messages.
  static bool received(pid_t thread) {
    user_regs_struct registers{};
    ::ptrace(PTRACE_GETREGS, thread, nullptr, &registers);
    return registers.orig_rax == 0 && static_cast<long>(registers.rax) >= 40 && registers.rdx > 65536;
  }
  void go_on(pid_t thread, int signal) {
    ::ptrace(stepped_.contains(thread) ? PTRACE_SINGLESTEP : PTRACE_SYSCALL, thread, nullptr, reinterpret_cast<void*>(static_cast<long>(signal)));
  }

  const pid_t pid_;
  std::set<pid_t> threads_, stepped_;
  std::map<std::uint64_t, long> original_;
};

struct Outcome {
  std::string gave;
  std::string left;
  bool operator==(const Outcome&) const = default;
};

/// A process that does an operation when it is told to.
class Actor {
 public:
  Actor(const Operation& operation, const Place& place) {
    int go[2], told[2];
    if (::pipe(go) != 0 || ::pipe(told) != 0) give_up("pipe");
    pid = ::fork();
    if (pid == 0) {
      const int held = operation.open(place);
      (void)!::write(told[1], "!", 1);
      char word = 0;
      (void)!::read(go[0], &word, 1);
      ::alarm(60);  // one that hangs is a failure, not a test without end
      const std::string said = operation.act(place, held);
      (void)!::write(told[1], said.data(), said.size());
      ::_exit(0);
    }
    ::close(go[0]), ::close(told[1]);
    go_ = go[1], told_ = told[0];
    char word = 0;
    if (::read(told_, &word, 1) != 1) give_up("an actor");
  }
  ~Actor() { ::close(go_), ::close(told_); }
  void act() { (void)!::write(go_, "!", 1); }
  /// What it said; "hangs" where it does not end.
  std::string said() {
    std::string all;
    char part[4096];
    for (const auto end = Clock::now() + patience; Clock::now() < end;) {
      pollfd input{.fd = told_, .events = POLLIN, .revents = 0};
      if (::poll(&input, 1, 1000) <= 0) continue;
      const auto n = ::read(told_, part, sizeof part);
      if (n <= 0) return all;
      all.append(part, static_cast<std::size_t>(n));
    }
    return all + " hangs";
  }
  pid_t pid = 0;

 private:
  int go_ = -1, told_ = -1;
};

class Test {
 public:
  Test(pid_t supervisor, const std::string& efsd, Place place, std::string mount, std::string native) : supervisor_(supervisor), stages_(stage_offsets(efsd)), place_(std::move(place)), mount_(std::move(mount)), native_(std::move(native)) {
    std::printf("%zu functions are watched besides the system calls\n", stages_.size());
  }

  /// What the operation gives where nothing dies.
  Outcome reference(const Operation& operation) {
    enter(native_, true);
    operation.prepare(place_);
    Actor actor(operation, place_);
    actor.act();
    Outcome outcome{.gave = actor.said(), .left = takeover::listing()};
    ::waitpid(actor.pid, nullptr, 0);
    leave();
    return outcome;
  }

  /// The operation, with the worker killed at its stop `n` or, if there are not so many, at its end; how many there were.
  long kill_at(const Operation& operation, long n, bool steps, const Outcome& expected) {
    const pid_t worker = await_worker();
    enter(mount_, false);
    operation.prepare(place_);
    Actor actor(operation, place_);
    Victim victim(worker, steps ? std::vector<std::uint64_t>{} : stages_);
    victim.bystander = actor.pid;
    (void)victim.run(never, false, [] { return true; });  // what the preparation has left to do
    actor.act();
    const auto end = Clock::now() + patience;
    const long stops = victim.run(n, steps, [&] { return victim.bystander == 0 || Clock::now() > end; });
    std::this_thread::sleep_until(last_kill_ + pace);
    victim.kill();
    last_kill_ = Clock::now();
    last_ = worker;
    Outcome outcome{.gave = actor.said(), .left = ""};
    if (victim.bystander != 0) ::kill(actor.pid, SIGKILL), ::waitpid(actor.pid, nullptr, 0);
    await_worker();
    outcome.left = takeover::listing();
    leave();
    ++kills;
    if (outcome == expected) return stops;
    ++failures;
    std::printf("FAIL %s: killed at %ld (%s)\n  gave     %s\n  expected %s\n  left     %s\n  expected %s\n", operation.name, n, steps ? "instructions" : "stops", outcome.gave.c_str(), expected.gave.c_str(), outcome.left.c_str(), expected.left.c_str());
    std::fflush(stdout);
    return stops;
  }

  long kills = 0, failures = 0;

 private:
  // A successor that answers: a name that nobody has asked for is asked from it.
  pid_t await_worker() {
    for (const auto end = Clock::now() + patience; Clock::now() < end; ::usleep(300))
      if (const pid_t pid = child_of(supervisor_); pid != 0 && pid != last_) {
        const std::string probe = mount_ + "/probe" + std::to_string(++probes_);
        if (::access(probe.c_str(), F_OK) != 0 && errno == ENOENT) return pid;
        give_up("the mount does not answer");
      }
    errno = ETIMEDOUT;
    give_up("no successor");
  }
  void enter(const std::string& where, bool native) {
    place_.native = native;
    place_.name = (native ? "n" : "k") + std::to_string(++places_);
    if (::mkdir((where + "/" + place_.name).c_str(), 0777) != 0 || ::chdir((where + "/" + place_.name).c_str()) != 0) give_up(where + "/" + place_.name);
  }
  void leave() {
    (void)!::chdir("/");
    std::error_code ignored;  // of one that failed
    for (const auto& where : {mount_, native_, place_.pfs, place_.results}) std::filesystem::remove_all(where + "/" + place_.name, ignored);
  }

  const pid_t supervisor_;
  const std::vector<std::uint64_t> stages_;
  Place place_;
  const std::string mount_, native_;
  pid_t last_ = 0;
  Clock::time_point last_kill_{};
  unsigned places_ = 0, probes_ = 0;
};

struct Point {
  const Operation* operation;
  long at;
};

}  // namespace

int main(int argc, char** argv) {
  long random = 0, steps = 0;
  unsigned seed = 1;
  std::string only;
  int at = 1;
  for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
    const std::string option = argv[at];
    if (option == "--random") random = std::atol(argv[at + 1]);
    else if (option == "--steps") steps = std::atol(argv[at + 1]);
    else if (option == "--seed") seed = static_cast<unsigned>(std::atol(argv[at + 1]));
    else if (option == "--only") only = argv[at + 1];
    else return 2;
  }
  if (argc - at != 8) return 2;
  ::umask(022);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::mt19937 draw(seed);
  Test test(static_cast<pid_t>(std::atoi(argv[at])), argv[at + 1], Place{.native = false, .name = "", .efs = argv[at + 2], .instance = argv[at + 3], .pfs = argv[at + 6], .results = argv[at + 7]}, argv[at + 4], argv[at + 5]);
  std::map<const Operation*, Outcome> expected;
  std::vector<Point> points;
  long total = 0;
  for (const auto& operation : takeover::operations()) {
    if (!only.empty() && only != operation.name) continue;
    expected[&operation] = test.reference(operation);
    const long stops = test.kill_at(operation, never, false, expected[&operation]);
    for (long n = 1; n <= stops; ++n) points.push_back({&operation, n});
    total += stops + 1;
    std::printf("%s: %ld stages\n", operation.name, stops);
    if (steps == 0) continue;
    const long instructions = test.kill_at(operation, never, true, expected[&operation]);
    for (long i = 0; i < steps && instructions > 0; ++i) test.kill_at(operation, 1 + static_cast<long>(draw() % static_cast<unsigned long>(instructions)), true, expected[&operation]);
    std::printf("%s: %ld instructions\n", operation.name, instructions);
    std::fflush(stdout);
  }
  if (random > 0) {
    std::shuffle(points.begin(), points.end(), draw);
    points.resize(std::min(points.size(), static_cast<std::size_t>(random)));
  }
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i % 500 == 499) std::printf("%zu of %zu points\n", i + 1, points.size());
    test.kill_at(*points[i].operation, points[i].at, false, expected[points[i].operation]);
  }
  std::printf("%zu operations of %ld points, %ld kills, %ld failures\n", expected.size(), total, test.kills, test.failures);
  return test.failures == 0 ? 0 : 1;
}
