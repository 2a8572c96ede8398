// Does each operation with a quiet worker and kills it at every stage: at each of its system calls, before it and after it,
// and at the functions between which a request goes from one state to the next. What the operation gives, and what is
// there afterwards, must be what a native file system gives.
//   efs-kill-points [--kill WHOM] [--random N] [--steps N] [--seed N] [--only NAME] SUPERVISOR EFSD EFS INSTANCE MOUNT NATIVE PFS RESULTS
// --kill worker: as above. --kill successor: the worker at a stage that is drawn, and then the one that takes over at each
// of its own, from its first instruction on. --kill all: each successor at the same stage, until the supervisor gives up:
// who waits for the mount must get an error then.
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
#include <memory>
#include <random>
#include <set>
#include <span>
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

// Of a takeover: where one part of the state is restored and the next is not.
constexpr const char* takeover_stages[] = {"efs6daemon8Instance9take_overE", "efs6daemon8Instance10open_storeE", "efs6daemon8Instance15open_filesystemE", "efs6daemon5Tasks7inheritE", "efs2fs10Filesystem7recoverE", "efs2fs10Filesystem6replayE",
                                           "efs2fs10Filesystem14secure_journalE", "efs2fs10Filesystem15rebuild_reserveE", "efs2fs10Filesystem15settle_namelessE", "efs2fs10Filesystem16match_containersE", "efs2fs10Filesystem18compact_inheritedE",
                                           "efs5store7Journal17clear_behind_tailE", "efs5store7Journal13take_the_nameE", "efs4fuse7Session7inheritE", "efs4fuse7Session9take_overE", "efs4fuse12BackingTable7inheritE", "efs2fs10Filesystem6commitE"};

std::vector<std::uint64_t> stage_offsets(const std::string& program, std::span<const char* const> wanted) {
  FILE* names = ::popen(("nm --defined-only " + program + " 2>/dev/null").c_str(), "r");
  std::vector<std::uint64_t> found;
  char line[4096];
  while (names != nullptr && std::fgets(line, sizeof line, names) != nullptr) {
    const std::string_view text(line);
    if (text.size() < 20 || (text[17] != 'T' && text[17] != 't' && text[17] != 'W') || text.find(".cold") != text.npos) continue;
    for (const char* stage : wanted)
      if (text.find(stage) != text.npos) found.push_back(std::strtoull(line, nullptr, 16));
  }
  if (names != nullptr) ::pclose(names);
  if (found.empty()) std::fprintf(stderr, "%s: none of the functions at which a stage begins has a name (is it stripped?)\n", program.c_str()), std::exit(2);
  return found;
}

pid_t child_of(pid_t supervisor) {
  std::ifstream children("/proc/" + std::to_string(supervisor) + "/task/" + std::to_string(supervisor) + "/children");
  pid_t pid = 0;
  children >> pid;
  return pid;
}

/// From here on the supervisor's next child is stopped before its first instruction, and traced. The supervisor itself is left
/// alone as soon as there is one.
class Birth {
 public:
  explicit Birth(pid_t supervisor) : supervisor_(supervisor) {
    if (::ptrace(PTRACE_SEIZE, supervisor, nullptr, reinterpret_cast<void*>(PTRACE_O_TRACEFORK)) != 0) give_up("ptrace of the supervisor");
  }
  /// Whether this news, of waitpid(2), was of it.
  bool takes(pid_t pid, int status) {
    if (pid == supervisor_ && !WIFSTOPPED(status)) return supervisor_gone_ = true;
    if (pid == supervisor_ && status >> 8 == (SIGTRAP | PTRACE_EVENT_FORK << 8)) {
      unsigned long child = 0;
      ::ptrace(PTRACE_GETEVENTMSG, pid, nullptr, &child);
      child_ = static_cast<pid_t>(child);
      ::ptrace(PTRACE_DETACH, pid, nullptr, nullptr);
      return true;
    }
    if (pid == supervisor_) return ::ptrace(PTRACE_CONT, pid, nullptr, reinterpret_cast<void*>(static_cast<long>(status >> 16 != 0 ? 0 : WSTOPSIG(status)))), true;
    if (!WIFSTOPPED(status) || status >> 16 != PTRACE_EVENT_STOP) return false;
    stopped_.insert(pid);  // the child, of which the supervisor has told or will tell; or a thread of one that is being killed
    return true;
  }
  /// The child; 0 where the supervisor ends instead. `bystanders`: our own children, less those that end meanwhile.
  pid_t child(std::set<pid_t>& bystanders) {
    int status = 0;
    while (!supervisor_gone_ && (child_ == 0 || !stopped_.contains(child_))) {
      const pid_t pid = ::waitpid(-1, &status, __WALL);
      if (pid < 0) give_up("no successor");
      if (!takes(pid, status)) bystanders.erase(pid);
    }
    return supervisor_gone_ ? 0 : child_;
  }

 private:
  const pid_t supervisor_;
  pid_t child_ = 0;
  bool supervisor_gone_ = false;
  std::set<pid_t> stopped_;
};

/// A process that is traced from its constructor until it is killed.
class Victim {
 public:
  Victim(pid_t pid, const std::vector<std::uint64_t>& stages_of) : pid_(pid) {
    attach();
    begin(stages_of);
  }
  /// The child of a Birth.
  struct Newborn {
    pid_t pid;
  };
  Victim(Newborn born, const std::vector<std::uint64_t>& stages_of) : pid_(born.pid), threads_{born.pid} {
    ::ptrace(PTRACE_SETOPTIONS, pid_, nullptr, reinterpret_cast<void*>(PTRACE_O_TRACESYSGOOD | PTRACE_O_TRACECLONE));
    begin(stages_of);
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
      if (bystanders.erase(thread) != 0) {
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

  /// `next`: takes what is told of the successor meanwhile.
  void kill(Birth* next = nullptr) {
    ::kill(pid_, SIGKILL);
    int status = 0;
    for (pid_t ended = 0; (ended = ::waitpid(-1, &status, __WALL)) > 0;) {
      if (ended == pid_ && (WIFSIGNALED(status) || WIFEXITED(status))) return;
      if (bystanders.erase(ended) == 0 && next != nullptr) next->takes(ended, status);
    }
  }

  pid_t pid() const { return pid_; }

  std::set<pid_t> bystanders;  // our own children, until they have ended

 private:
  void begin(const std::vector<std::uint64_t>& stages_of) {
    std::ifstream maps("/proc/" + std::to_string(pid_) + "/maps");
    std::uint64_t base = 0;
    maps >> std::hex >> base;
    for (const auto offset : stages_of) set(base + offset);
    for (const auto thread : threads_) go_on(thread, 0);
  }
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
  Test(pid_t supervisor, const std::string& efsd, Place place, std::string mount, std::string native)
      : supervisor_(supervisor), stages_(stage_offsets(efsd, stages)), takeover_stages_(stage_offsets(efsd, takeover_stages)), place_(std::move(place)), mount_(std::move(mount)), native_(std::move(native)) {
    std::printf("%zu functions are watched besides the system calls, %zu of a takeover\n", stages_.size(), takeover_stages_.size());
  }

  /// What the operation gives where nothing dies.
  const Outcome& reference(const Operation& operation) {
    if (const auto known = expected_.find(&operation); known != expected_.end()) return known->second;
    enter(native_, true);
    operation.prepare(place_);
    Actor actor(operation, place_);
    actor.act();
    Outcome outcome{.gave = actor.said(), .left = takeover::listing()};
    ::waitpid(actor.pid, nullptr, 0);
    leave();
    return expected_[&operation] = outcome;
  }

  /// The operation, with the worker killed at its stop `n` or, if there are not so many, at its end; how many there were.
  long kill_at(const Operation& operation, long n, bool steps) {
    const Outcome& expected = reference(operation);
    Began began = begin(operation, steps);
    const long stops = began.worker.run(n, steps, is_over(began.worker));
    kill(began.worker);
    judge(operation, *began.actor, began.worker.bystanders, expected, "killed at " + std::to_string(n) + (steps ? " (instructions)" : " (stops)"));
    return stops;
  }

  /// The same, with the worker killed at `first` and its successor at its own stop `n`.
  long kill_successor_at(const Operation& operation, long first, long n) {
    const Outcome& expected = reference(operation);
    Began began = begin(operation, false);
    (void)began.worker.run(first, false, is_over(began.worker));
    Birth birth(supervisor_);
    kill(began.worker, &birth);
    std::set<pid_t> bystanders = std::move(began.worker.bystanders);
    const pid_t born = birth.child(bystanders);
    if (born == 0) give_up("the supervisor has ended");
    Victim successor(Victim::Newborn{born}, takeover_stages_);
    successor.bystanders = std::move(bystanders);
    successor.bystanders.insert(ask_mount());
    const long stops = successor.run(n, false, is_over(successor));
    kill(successor);
    judge(operation, *began.actor, successor.bystanders, expected, "killed at " + std::to_string(first) + ", its successor at " + std::to_string(n));
    return stops;
  }

  /// The same, and every further successor at its stop `n`, too, until there is none any more. Whoever waits must be told.
  void kill_all_at(const Operation& operation, long first, long n) {
    constexpr int too_many = 60;  // 10 that have answered nothing new are given up (daemon/restart_policy.hpp)
    Began began = begin(operation, false);
    (void)began.worker.run(first, false, is_over(began.worker));
    auto birth = std::make_unique<Birth>(supervisor_);
    kill(began.worker, birth.get());
    std::set<pid_t> bystanders = std::move(began.worker.bystanders);
    int died = 1;
    for (pid_t born = 0; died < too_many && (born = birth->child(bystanders)) != 0; ++died) {
      Victim successor(Victim::Newborn{born}, takeover_stages_);
      successor.bystanders = std::move(bystanders);
      (void)successor.run(n, false, is_over(successor));
      birth = std::make_unique<Birth>(supervisor_);
      kill(successor, birth.get());
      bystanders = std::move(successor.bystanders);
    }
    const std::string gave = began.actor->said();
    reap(bystanders);
    leave();
    std::printf("%s, killed at %ld: %d workers died at their %ld; it gave %s\n", operation.name, first, died, n, gave.substr(0, 100).c_str());
    if (died == too_many || gave.empty() || gave.ends_with("hangs")) ++failures, std::printf("FAIL %s\n", died == too_many ? "it is never given up" : "whoever waits hangs");
  }

  /// How many stops the operation has.
  long stops_of(const Operation& operation) {
    if (const auto known = stops_.find(&operation); known != stops_.end()) return known->second;
    return stops_[&operation] = kill_at(operation, never, false);
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
  // The operation up to where it begins, under a worker that is stopped at nothing else.
  struct Began {
    std::unique_ptr<Actor> actor;
    Victim worker;
  };
  Began begin(const Operation& operation, bool steps) {
    const pid_t worker = await_worker();
    enter(mount_, false);
    operation.prepare(place_);
    auto actor = std::make_unique<Actor>(operation, place_);
    Began began{std::move(actor), Victim(worker, steps ? std::vector<std::uint64_t>{} : stages_)};
    began.worker.bystanders = {began.actor->pid};
    (void)began.worker.run(never, false, [] { return true; });  // what the preparation has left to do
    began.actor->act();
    return began;
  }
  static std::function<bool()> is_over(const Victim& victim) {
    return [&victim, end = Clock::now() + patience] { return victim.bystanders.empty() || Clock::now() > end; };
  }
  void kill(Victim& victim, Birth* next = nullptr) {
    std::this_thread::sleep_until(last_kill_ + pace);
    victim.kill(next);
    last_kill_ = Clock::now();
    last_ = victim.pid();
    ++kills;
  }
  // A process that has asked for a name that nobody knows when it ends.
  pid_t ask_mount() {
    const std::string probe = mount_ + "/probe" + std::to_string(++probes_);
    const pid_t pid = ::fork();
    if (pid != 0) return pid;
    ::alarm(60);
    (void)!::access(probe.c_str(), F_OK);
    ::_exit(0);
  }
  static void reap(const std::set<pid_t>& bystanders) {
    for (const pid_t pid : bystanders) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
  }
  void judge(const Operation& operation, Actor& actor, const std::set<pid_t>& bystanders, const Outcome& expected, const std::string& how) {
    Outcome outcome{.gave = actor.said(), .left = ""};
    reap(bystanders);
    await_worker();
    outcome.left = takeover::listing();
    leave();
    if (outcome == expected) return;
    ++failures;
    std::printf("FAIL %s: %s\n  gave     %s\n  expected %s\n  left     %s\n  expected %s\n", operation.name, how.c_str(), outcome.gave.c_str(), expected.gave.c_str(), outcome.left.c_str(), expected.left.c_str());
    std::fflush(stdout);
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
  const std::vector<std::uint64_t> stages_, takeover_stages_;
  std::map<const Operation*, Outcome> expected_;
  std::map<const Operation*, long> stops_;
  Place place_;
  const std::string mount_, native_;
  pid_t last_ = 0;
  Clock::time_point last_kill_{};
  unsigned places_ = 0, probes_ = 0;
};

struct Arguments {
  std::string whom = "worker";
  std::string only;
  long random = 0, steps = 0;
  unsigned seed = 1;
};

std::vector<const Operation*> chosen(const std::string& only) {
  std::vector<const Operation*> all;
  for (const auto& operation : takeover::operations())
    if (only.empty() || only == operation.name) all.push_back(&operation);
  return all;
}

struct Point {
  const Operation* operation;
  long at;
};

void draw_some(std::vector<Point>& points, long random, std::mt19937& draw) {
  if (random <= 0) return;
  std::shuffle(points.begin(), points.end(), draw);
  points.resize(std::min(points.size(), static_cast<std::size_t>(random)));
}

void kill_workers(Test& test, const Arguments& arguments, std::mt19937& draw) {
  std::vector<Point> points;
  long total = 0;
  const auto operations = chosen(arguments.only);
  for (const auto* operation : operations) {
    const long stops = test.stops_of(*operation);
    for (long n = 1; n <= stops; ++n) points.push_back({operation, n});
    total += stops + 1;
    std::printf("%s: %ld stages\n", operation->name, stops);
    if (arguments.steps == 0) continue;
    const long instructions = test.kill_at(*operation, never, true);
    for (long i = 0; i < arguments.steps && instructions > 0; ++i) test.kill_at(*operation, 1 + static_cast<long>(draw() % static_cast<unsigned long>(instructions)), true);
    std::printf("%s: %ld instructions\n", operation->name, instructions);
    std::fflush(stdout);
  }
  draw_some(points, arguments.random, draw);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i % 500 == 499) std::printf("%zu of %zu points\n", i + 1, points.size());
    test.kill_at(*points[i].operation, points[i].at, false);
  }
  std::printf("%zu operations of %ld points, %ld kills, %ld failures\n", operations.size(), total, test.kills, test.failures);
}

// Each of a takeover's stages once, under operations in turn.
void kill_successors(Test& test, const Arguments& arguments, std::mt19937& draw) {
  const auto operations = chosen(arguments.only);
  const auto drawn_stop = [&](const Operation& operation) { return 1 + static_cast<long>(draw() % static_cast<unsigned long>(test.stops_of(operation) + 1)); };
  const long stops = test.kill_successor_at(*operations.front(), drawn_stop(*operations.front()), never);
  std::printf("a takeover: %ld stages\n", stops);
  std::vector<Point> points;
  for (long n = 1; n <= stops; ++n) points.push_back({operations[(static_cast<std::size_t>(n) + arguments.seed) % operations.size()], n});
  draw_some(points, arguments.random, draw);
  for (std::size_t i = 0; i < points.size(); ++i) {
    if (i % 500 == 499) std::printf("%zu of %zu points\n", i + 1, points.size());
    test.kill_successor_at(*points[i].operation, drawn_stop(*points[i].operation), points[i].at);
  }
  std::printf("a takeover of %ld points, %ld kills, %ld failures\n", stops, test.kills, test.failures);
}

// The end of the instance, so one point only.
void kill_all(Test& test, const Arguments& arguments, std::mt19937& draw) {
  const auto operations = chosen(arguments.only);
  const auto& operation = *operations[draw() % operations.size()];
  const long first = 1 + static_cast<long>(draw() % static_cast<unsigned long>(test.stops_of(operation) + 1));
  const long stops = test.kill_successor_at(operation, first, never);
  test.kill_all_at(operation, first, 1 + static_cast<long>(draw() % static_cast<unsigned long>(stops)));
}

}  // namespace

int main(int argc, char** argv) {
  Arguments arguments;
  int at = 1;
  for (; at + 1 < argc && argv[at][0] == '-'; at += 2) {
    const std::string option = argv[at];
    if (option == "--random") arguments.random = std::atol(argv[at + 1]);
    else if (option == "--steps") arguments.steps = std::atol(argv[at + 1]);
    else if (option == "--seed") arguments.seed = static_cast<unsigned>(std::atol(argv[at + 1]));
    else if (option == "--only") arguments.only = argv[at + 1];
    else if (option == "--kill") arguments.whom = argv[at + 1];
    else return 2;
  }
  const std::map<std::string, void (*)(Test&, const Arguments&, std::mt19937&)> ways{{"worker", kill_workers}, {"successor", kill_successors}, {"all", kill_all}};
  if (argc - at != 8 || !ways.contains(arguments.whom) || chosen(arguments.only).empty()) return 2;
  ::umask(022);
  std::setvbuf(stdout, nullptr, _IOLBF, 0);
  std::mt19937 draw(arguments.seed);
  Test test(static_cast<pid_t>(std::atoi(argv[at])), argv[at + 1], Place{.native = false, .name = "", .efs = argv[at + 2], .instance = argv[at + 3], .pfs = argv[at + 6], .results = argv[at + 7]}, argv[at + 4], argv[at + 5]);
  ways.at(arguments.whom)(test, arguments, draw);
  return test.failures == 0 ? 0 : 1;
}
