// SPDX-License-Identifier: BSD-3-Clause
#include "takeover/trial.hpp"

#include <poll.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <thread>
#include <utility>

namespace takeover {
namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

// between kills: 200 in 10 s are too many for the supervisor (daemon/restart_policy.hpp)
constexpr auto pace = 60ms;

// Functions at which the state of a request changes without a system call.
constexpr const char* stages[] = {"efs2fs10Filesystem6commitE",
                                  "efs2fs10Filesystem14apply_appendedE",
                                  "efs2fs10Filesystem14compact_if_dueE",
                                  "efs5store7Journal6appendE",
                                  "efs5store7Journal3putE",
                                  "efs2fs9Namespace5applyE",
                                  "efs2fs10Filesystem4reapE",
                                  "efs2fs10Filesystem16remove_containerE",
                                  "efs4fuse12BackingTable7acquireE",
                                  "efs4fuse12BackingTable7releaseE"};

// Functions of a takeover that separate the restored parts of the state.
constexpr const char* takeover_stages[] = {"efs6daemon8Instance9take_overE",
                                           "efs6daemon8JobStore4openE",
                                           "efs6daemon8JobStore10open_filesE",
                                           "efs6daemon5Tasks7inheritE",
                                           "efs2fs10Filesystem7recoverE",
                                           "efs2fs10Filesystem6replayE",
                                           "efs2fs10Filesystem14secure_journalE",
                                           "efs2fs10Filesystem15rebuild_reserveE",
                                           "efs2fs10Filesystem15settle_namelessE",
                                           "efs2fs10Filesystem16match_containersE",
                                           "efs2fs10Filesystem17compact_inheritedE",
                                           "efs5store7Journal17clear_behind_tailE",
                                           "efs5store7Journal13take_the_nameE",
                                           "efs4fuse7Session7inheritE",
                                           "efs4fuse7Session9take_overE",
                                           "efs4fuse12BackingTable7inheritE",
                                           "efs2fs10Filesystem6commitE"};

}  // namespace

/// A process that performs an operation on command.
class Actor {
 public:
  Actor(const Operation& operation, const Place& place) {
    int go[2], told[2];
    if (::pipe(go) != 0 || ::pipe(told) != 0) {
      give_up("pipe");
    }
    pid = ::fork();
    if (pid == 0) {
      const int held = operation.open(place);
      (void)!::write(told[1], "!", 1);
      char word = 0;
      (void)!::read(go[0], &word, 1);
      ::alarm(60);  // a hang is a failure, and must not block the test
      const std::string said = operation.act(place, held);
      (void)!::write(told[1], said.data(), said.size());
      ::_exit(0);
    }
    ::close(go[0]), ::close(told[1]);
    go_ = go[1], told_ = told[0];
    char word = 0;
    if (::read(told_, &word, 1) != 1) {
      give_up("an actor");
    }
  }

  ~Actor() { ::close(go_), ::close(told_); }

  void act() { (void)!::write(go_, "!", 1); }

  /// Returns its output; "hangs" if it does not end.
  std::string said() {
    std::string all;
    char part[4096];
    for (const auto end = Clock::now() + patience; Clock::now() < end;) {
      pollfd input{.fd = told_, .events = POLLIN, .revents = 0};
      if (::poll(&input, 1, 1000) <= 0) {
        continue;
      }
      const auto n = ::read(told_, part, sizeof part);
      if (n <= 0) {
        return all;
      }
      all.append(part, static_cast<std::size_t>(n));
    }
    return all + " hangs";
  }

  pid_t pid = 0;

 private:
  int go_ = -1, told_ = -1;
};

Trial::Trial(pid_t supervisor, const std::string& efsd, Place place, std::string mount,
             std::string native)
    : supervisor_(supervisor),
      stages_(function_offsets(efsd, stages)),
      takeover_stages_(function_offsets(efsd, takeover_stages)),
      place_(std::move(place)),
      mount_(std::move(mount)),
      native_(std::move(native)) {
  std::printf("%zu functions are watched besides the system calls, %zu of a takeover\n",
              stages_.size(), takeover_stages_.size());
}

long Trial::kill_at(const Operation& operation, long n, bool steps) {
  const Outcome& expected = reference(operation);
  Began began = begin(operation, steps);
  const long stops = began.worker.run(n, steps, is_over(began.worker));
  kill(began.worker);
  late += !steps && stops < n;
  judge(operation, *began.actor, began.worker.bystanders, expected,
        "killed at " + std::to_string(n) + (steps ? " (instructions)" : " (stops)"));
  return stops;
}

long Trial::kill_successor_at(const Operation& operation, long first, long n) {
  const Outcome& expected = reference(operation);
  Began began = begin(operation, false);
  (void)began.worker.run(first, false, is_over(began.worker));
  Birth birth(supervisor_);
  kill(began.worker, &birth);
  std::set<pid_t> bystanders = std::move(began.worker.bystanders);
  const pid_t born = birth.child(bystanders);
  if (born == 0) {
    give_up("the supervisor has ended");
  }
  Victim successor(Victim::Newborn{born}, takeover_stages_);
  successor.bystanders = std::move(bystanders);
  successor.bystanders.insert(ask_mount());
  const long stops = successor.run(n, false, is_over(successor));
  kill(successor);
  late += stops < n;
  judge(operation, *began.actor, successor.bystanders, expected,
        "killed at " + std::to_string(first) + ", its successor at " + std::to_string(n));
  return stops;
}

void Trial::kill_all_at(const Operation& operation, long first, long n) {
  // the supervisor gives up after 10 workers without a new answer (daemon/restart_policy.hpp)
  constexpr int too_many = 60;
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
  std::printf("%s, killed at %ld: %d workers died at their %ld; it gave %s\n", operation.name,
              first, died, n, gave.substr(0, 100).c_str());
  if (died == too_many || gave.empty() || gave.ends_with("hangs")) {
    ++failures,
        std::printf("FAIL %s\n", died == too_many ? "it is never given up" : "whoever waits hangs");
  }
}

long Trial::stops_of(const Operation& operation) {
  if (const auto known = stops_.find(&operation); known != stops_.end()) {
    return known->second;
  }
  return stops_[&operation] = kill_at(operation, Victim::never, false);
}

const Outcome& Trial::reference(const Operation& operation) {
  if (const auto known = expected_.find(&operation); known != expected_.end()) {
    return known->second;
  }
  enter(native_, true);
  operation.prepare(place_);
  Actor actor(operation, place_);
  actor.act();
  Outcome outcome{.gave = actor.said(), .left = listing()};
  ::waitpid(actor.pid, nullptr, 0);
  leave();
  return expected_[&operation] = outcome;
}

Trial::Began Trial::begin(const Operation& operation, bool steps) {
  const pid_t worker = await_worker();
  enter(mount_, false);
  operation.prepare(place_);
  auto actor = std::make_unique<Actor>(operation, place_);
  Began began{std::move(actor), Victim(worker, steps ? std::vector<std::uint64_t>{} : stages_)};
  began.worker.bystanders = {began.actor->pid};
  // finish the work of the preparation
  (void)began.worker.run(Victim::never, false, [] { return true; });
  began.actor->act();
  return began;
}

// Waits for a successor that answers: looks up a name that was never looked up before.
pid_t Trial::await_worker() {
  for (const auto end = Clock::now() + patience; Clock::now() < end; ::usleep(300)) {
    if (const pid_t pid = child_of(supervisor_); pid != 0 && pid != last_) {
      const std::string probe = mount_ + "/probe" + std::to_string(++probes_);
      if (::access(probe.c_str(), F_OK) != 0 && errno == ENOENT) {
        return pid;
      }
      give_up("the mount does not answer");
    }
  }
  errno = ETIMEDOUT;
  give_up("no successor");
}

std::function<bool()> Trial::is_over(const Victim& victim) {
  return [&victim, end = Clock::now() + patience] {
    return victim.bystanders.empty() || Clock::now() > end;
  };
}

void Trial::kill(Victim& victim, Birth* next) {
  std::this_thread::sleep_until(last_kill_ + pace);
  victim.kill(next);
  last_kill_ = Clock::now();
  last_ = victim.pid();
  ++kills;
}

// Starts a process that looks up an unknown name and ends with the answer.
pid_t Trial::ask_mount() {
  const std::string probe = mount_ + "/probe" + std::to_string(++probes_);
  const pid_t pid = ::fork();
  if (pid != 0) {
    return pid;
  }
  ::alarm(60);
  (void)!::access(probe.c_str(), F_OK);
  ::_exit(0);
}

void Trial::reap(const std::set<pid_t>& bystanders) {
  for (const pid_t pid : bystanders) {
    ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
  }
}

void Trial::judge(const Operation& operation, Actor& actor, const std::set<pid_t>& bystanders,
                  const Outcome& expected, const std::string& how) {
  Outcome outcome{.gave = actor.said(), .left = ""};
  reap(bystanders);
  await_worker();
  outcome.left = listing();
  leave();
  if (outcome == expected) {
    return;
  }
  ++failures;
  std::printf("FAIL %s: %s\n  gave     %s\n  expected %s\n  left     %s\n  expected %s\n",
              operation.name, how.c_str(), outcome.gave.c_str(), expected.gave.c_str(),
              outcome.left.c_str(), expected.left.c_str());
  std::fflush(stdout);
}

void Trial::enter(const std::string& where, bool native) {
  place_.native = native;
  place_.name = (native ? "n" : "k") + std::to_string(++places_);
  if (::mkdir((where + "/" + place_.name).c_str(), 0777) != 0 ||
      ::chdir((where + "/" + place_.name).c_str()) != 0) {
    give_up(where + "/" + place_.name);
  }
}

void Trial::leave() {
  (void)!::chdir("/");
  std::error_code ignored;  // of a failed trial
  for (const auto& where : {mount_, native_, place_.pfs, place_.results}) {
    std::filesystem::remove_all(where + "/" + place_.name, ignored);
  }
}

}  // namespace takeover
