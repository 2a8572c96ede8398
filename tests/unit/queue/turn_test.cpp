// SPDX-License-Identifier: BSD-3-Clause
// Turns in a real directory: one process, and many processes that are killed.
#include "queue/turn.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <limits>
#include <nlohmann/json.hpp>
#include <random>
#include <thread>

#include "daemon/slot_keeper.hpp"
#include "queue/overview.hpp"
#include "support/temp.hpp"

namespace efs::queue {
namespace {

struct Scene {
  test::TempDirectory scratch;

  explicit Scene(const std::string& settings = "") { set(settings); }

  void set(const std::string& settings) const {
    std::ofstream(scratch.path() + "/settings") << "poll: 0.002\n" << settings;
  }

  const std::string& path() const { return scratch.path(); }

  std::size_t tickets() const {
    const auto directory = Directory::open(path(), true);
    return directory->list(Direction::in).size() + directory->list(Direction::out).size();
  }

  Turn draw(const std::string& job, Direction direction = Direction::in,
            std::uint64_t bytes = 1) const {
    auto turn =
        Turn::draw(path(), {.job = job, .node = "n1", .direction = direction, .bytes = bytes});
    REQUIRE(turn);
    return std::move(*turn);
  }
};

Standing standing(Turn& turn) {
  return turn.poll().standing;
}

TEST_CASE("turns go by number, one at a time, and each direction by itself", "[queue]") {
  const Scene scene;
  auto a = scene.draw("a"), b = scene.draw("b"), c = scene.draw("c"),
       out = scene.draw("a", Direction::out);
  CHECK(standing(b) == Standing::waiting);
  CHECK(b.poll().ahead == 1);
  CHECK(standing(c) == Standing::waiting);
  CHECK(standing(a) == Standing::granted);
  CHECK(standing(c) == Standing::waiting);
  CHECK(standing(out) == Standing::granted);
  a.release();
  CHECK(standing(c) == Standing::waiting);
  CHECK(standing(b) == Standing::granted);
  b.release();
  CHECK(standing(c) == Standing::granted);
  c.release();
  out.release();
  CHECK(scene.tickets() == 0);
}

TEST_CASE("as many turns at a time as there are slots", "[queue]") {
  const Scene scene("slots-in: 2");
  auto a = scene.draw("a"), b = scene.draw("b"), c = scene.draw("c");
  CHECK(standing(b) == Standing::granted);  // two slots, one ahead
  CHECK(standing(c) == Standing::waiting);
  CHECK(standing(a) == Standing::granted);
  CHECK(standing(c) == Standing::waiting);
  b.release();
  CHECK(standing(c) == Standing::granted);
}

TEST_CASE("a smaller one goes first where the policy says so", "[queue]") {
  const Scene scene("policy: smallest-first\nageing: 3600");
  auto large = scene.draw("large", Direction::in, 100ULL << 30),
       small = scene.draw("small", Direction::in, 1);
  CHECK(standing(large) == Standing::waiting);
  CHECK(standing(small) == Standing::granted);
  small.release();
  CHECK(standing(large) == Standing::granted);
}

TEST_CASE("the nearest end goes first where the policy says so", "[queue]") {
  const Scene scene("policy: deadline\nlongest-wait: 3600");
  const auto drawn_by = [&](const std::string& job, double seconds_left) {
    auto turn = Turn::draw(scene.path(),
                           {.job = job, .node = "n1", .bytes = 1, .seconds_left = seconds_left});
    REQUIRE(turn);
    return std::move(*turn);
  };
  auto endless = drawn_by("endless", 0), late = drawn_by("late", 1000), soon = drawn_by("soon", 10);
  CHECK(standing(endless) == Standing::waiting);
  CHECK(standing(late) == Standing::waiting);
  CHECK(standing(soon) == Standing::granted);
  soon.release();
  CHECK(standing(endless) == Standing::waiting);
  CHECK(standing(late) == Standing::granted);
}

TEST_CASE("who waits too long goes ahead without a turn and leaves the queue", "[queue]") {
  const Scene scene("longest-wait: 0.001");
  scene.set("");
  auto holder = scene.draw("holder");
  REQUIRE(standing(holder) == Standing::granted);
  scene.set("longest-wait: 0.001");
  auto waiter = scene.draw("waiter");
  Turn* const turn = &waiter;
  View view;
  while ((view = turn->poll()).standing == Standing::waiting) {
    std::this_thread::yield();
  }
  CHECK(view.standing == Standing::unserialised);
  CHECK(view.reason.contains("longest-wait"));
  CHECK(scene.tickets() == 1);
}

TEST_CASE("who holds too long loses the slot to the next", "[queue]") {
  const Scene scene("longest-hold: 0.001");
  auto a = scene.draw("a"), b = scene.draw("b");
  REQUIRE(standing(a) == Standing::granted);
  while (standing(a) == Standing::granted) {
    std::this_thread::yield();
  }
  CHECK(a.poll().reason.contains("longest-hold"));
  CHECK(standing(b) == Standing::granted);
}

TEST_CASE("who holds a turn and moves nothing loses the slot to the next", "[queue]") {
  const Scene scene("least-rate: 1 MiB/s");
  auto now = std::chrono::steady_clock::now();
  const System system{.now = [&now] {
    return now;
  }};
  auto drawn = Turn::draw(scene.path(), {.job = "a", .node = "n1", .bytes = 1}, system);
  REQUIRE(drawn);
  auto& a = *drawn;
  auto b = scene.draw("b");
  const auto after = [&](int seconds, std::uint64_t mebibytes) {
    now += std::chrono::seconds(seconds);
    a.progress(mebibytes << 20);
    return standing(a);
  };
  REQUIRE(standing(a) == Standing::granted);
  CHECK(after(50, 0) == Standing::granted);
  CHECK(after(5, 60) == Standing::granted);    // more than required in total
  CHECK(after(59, 118) == Standing::granted);  // less since then, but only for less than a minute
  CHECK(after(1, 121) == Standing::granted);   // a burst
  CHECK(after(40, 1) == Standing::granted);    // another pass over the same files
  CHECK(after(59, 59) == Standing::granted);
  CHECK(standing(b) == Standing::waiting);
  CHECK(after(1, 59) == Standing::unserialised);
  CHECK(a.poll().reason.contains("least-rate"));
  CHECK(standing(b) == Standing::granted);
}

TEST_CASE("without a least rate an idle holder keeps its turn", "[queue]") {
  const Scene scene;
  auto now = std::chrono::steady_clock::now();
  auto a = Turn::draw(scene.path(), {.job = "a", .node = "n1", .bytes = 1}, {.now = [&now] {
                        return now;
                      }});
  REQUIRE(a);
  REQUIRE(standing(*a) == Standing::granted);
  now += std::chrono::hours(3);
  CHECK(standing(*a) == Standing::granted);
}

TEST_CASE("a waiter that gives no sign of life is passed over and keeps its place", "[queue]") {
  const Scene scene("stale-after: 100");
  auto silent = scene.draw("silent"), next = scene.draw("next");
  const timespec long_ago[2] = {{.tv_sec = 1000, .tv_nsec = 0}, {.tv_sec = 1000, .tv_nsec = 0}};
  REQUIRE(::utimensat(AT_FDCWD, (scene.path() + "/" + ticket_name(silent.ticket())).c_str(),
                      long_ago, 0) == 0);
  CHECK(standing(next) == Standing::granted);
  next.release();
  CHECK(standing(silent) == Standing::granted);
}

TEST_CASE("a ticket that a server lost is drawn again at its place", "[queue]") {
  const Scene scene;
  auto a = scene.draw("a"), b = scene.draw("b");
  REQUIRE(::unlink((scene.path() + "/" + ticket_name(a.ticket())).c_str()) == 0);
  CHECK(standing(a) == Standing::granted);
  CHECK(standing(b) == Standing::waiting);
  CHECK(scene.tickets() == 2);
}

TEST_CASE("foreign and torn files in the queue harm nobody", "[queue]") {
  const Scene scene;
  auto a = scene.draw("a");
  for (const char* name : {"/in/w00000000000000000000", "/in/h00000000000000000077",
                           "/in/w99999999999999999999999", "/in/README", "/in/w12x"}) {
    std::ofstream(scene.path() + name) << "{\"number\":";
  }
  std::ofstream(scene.path() + "/state") << "next ";
  auto b = scene.draw("b");
  CHECK(b.ticket().number > a.ticket().number);
  CHECK(standing(a) == Standing::granted);
  a.release();
  CHECK(standing(b) == Standing::granted);
}

TEST_CASE("a queue that others can write is refused", "[queue]") {
  const Scene scene;
  REQUIRE(::chmod(scene.path().c_str(), 0777) == 0);
  const auto refused = Turn::draw(scene.path(), {.job = "a", .node = "n"});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().code == EPERM);
  CHECK(refused.error().what.contains("chmod"));
  REQUIRE(::chmod(scene.path().c_str(), 0755) == 0);
  CHECK(Turn::draw(scene.path(), {.job = "a", .node = "n"}));
  CHECK(Turn::draw(scene.path() + "/none", {.job = "a", .node = "n"}).error().code == ENOENT);
  scene.set("slot-in: 1");
  CHECK(Turn::draw(scene.path(), {.job = "a", .node = "n"})
            .error()
            .what.contains("settings: line 2"));
}

TEST_CASE("waiting can be given up", "[queue]") {
  const Scene scene;
  auto a = scene.draw("a");
  REQUIRE(standing(a) == Standing::granted);
  int looks = 0;
  const auto given_up =
      acquire(scene.path(), {.job = "b", .node = "n"}, [&](const View&) { return ++looks < 3; });
  REQUIRE_FALSE(given_up);
  CHECK(given_up.error().code == ECANCELED);
  CHECK(scene.tickets() == 1);
}

TEST_CASE("the overview shows holders, waiters and the time to their turns", "[queue]") {
  const Scene scene;
  auto a = scene.draw("first", Direction::in, 1000);
  REQUIRE(standing(a) == Standing::granted);
  a.progress(1u << 20);
  a.release();  // a rate is known now
  auto b = scene.draw("second", Direction::in, 1u << 20), c = scene.draw("third", Direction::in, 5);
  REQUIRE(standing(b) == Standing::granted);
  const auto seen = look_at(scene.path());
  REQUIRE(seen);
  REQUIRE(seen->in.holders.size() == 1);
  CHECK(seen->in.holders[0].ticket.job == "second");
  REQUIRE(seen->in.waiters.size() == 1);
  CHECK(seen->in.waiters[0].ticket.job == "third");
  CHECK(seen->in.waiters[0].wait > 0);
  CHECK(seen->out.holders.empty());
  CHECK(describe(*seen).contains("third on n1, user root, 5 B"));
  CHECK(to_json(*seen)["in"]["waiters"][0]["uid"] == 0);
}

TEST_CASE("the overview calls users by their names, and one that has none by number", "[queue]") {
  const Scene scene;
  std::vector<Turn> turns;
  for (const std::uint32_t uid : {0U, 2U, 4000000000U}) {
    auto turn = Turn::draw(scene.path(), {.job = "job-" + std::to_string(uid),
                                          .node = "n1",
                                          .direction = Direction::in,
                                          .uid = uid});
    REQUIRE(turn);
    turns.push_back(std::move(*turn));
  }
  const auto seen = look_at(scene.path());
  REQUIRE(seen);
  const std::string text = describe(*seen);
  CHECK(text.contains("job-0 on n1, user root, "));
  CHECK(text.contains("job-2 on n1, user bin, "));
  CHECK(text.contains("job-4000000000 on n1, user 4000000000, "));
}

TEST_CASE("a ticket keeps names that are not UTF-8, and its length", "[queue]") {
  Ticket ticket;
  ticket.job = "caf\xe9 \\351";
  ticket.node = std::string(255, '\xff');
  const auto read = decode(encode(ticket));
  REQUIRE(read);
  CHECK(read->job == ticket.job);
  CHECK(read->node == ticket.node);
  const auto length = encode(ticket).size();
  ticket.done = ticket.bytes = std::numeric_limits<std::uint64_t>::max();
  CHECK(encode(ticket).size() == length);
}

// The memory that the processes of a test share.
struct Shared {
  std::atomic<int> inside{0};  // processes that were not killed inside
  std::atomic<int> most{0};
  std::atomic<std::uint64_t> turns{0};
};

// Takes turns forever. Counts itself while it holds one.
[[noreturn]] void take_turns(const std::string& path, Shared& shared, unsigned index,
                             std::uint64_t seed) {
  std::mt19937_64 random(seed + index);
  while (true) {
    const auto direction = random() % 2 == 0 ? Direction::in : Direction::out;
    auto turn = acquire(path,
                        {.job = std::to_string(index),
                         .node = "n",
                         .direction = direction,
                         .bytes = random() % 1000},
                        [](const View&) { return true; });
    if (!turn || turn->poll().standing != Standing::granted) {
      ::_exit(3);
    }
    if (direction == Direction::in) {
      const int now = ++shared.inside;
      int most = shared.most;
      while (now > most && !shared.most.compare_exchange_weak(most, now)) {
      }
      ::usleep(static_cast<useconds_t>(random() % 2000));
      --shared.inside;
    }
    ++shared.turns;
  }
}

Shared* shared_memory() {
  return new (::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                     -1, 0)) Shared;
}

TEST_CASE("many processes never hold more turns than there are slots", "[queue]") {
  const auto seed = test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  const Scene scene("slots-in: 2\nslots-out: 1\npolicy: smallest-first");
  Shared& shared = *shared_memory();
  std::vector<pid_t> children;
  for (unsigned i = 0; i < 8; ++i) {
    const pid_t child = ::fork();
    if (child == 0) {
      take_turns(scene.path(), shared, i, seed);
    }
    children.push_back(child);
  }
  while (shared.turns < 100) {
    std::this_thread::yield();
  }
  // read this before the first kill: a process that dies inside stays counted
  const int most = shared.most;
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    int status = 0;
    ::waitpid(child, &status, 0);
    CHECK(WIFSIGNALED(status));
  }
  CHECK(most >= 1);
  CHECK(most <= 2);
  ::munmap(&shared, sizeof shared);
}

TEST_CASE("kill -9 at any moment frees the turn, and the queue cleans itself", "[queue][killed]") {
  const auto seed = test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const Scene scene;
  Shared& shared = *shared_memory();
  std::vector<pid_t> children(6, 0);
  const auto spawn = [&](unsigned i) {
    children.at(i) = ::fork();
    if (children.at(i) == 0) {
      take_turns(scene.path(), shared, i, random());
    }
  };
  for (unsigned i = 0; i < children.size(); ++i) {
    spawn(i);
  }
  for (int round = 0; round < 60; ++round) {
    const auto victim = static_cast<unsigned>(random() % children.size());
    ::usleep(static_cast<useconds_t>(random() % 5000));
    ::kill(children.at(victim), SIGKILL);
    ::waitpid(children.at(victim), nullptr, 0);
    const auto before = shared.turns.load();
    spawn(victim);
    // The other processes continue: the killed ones blocked no turn.
    while (shared.turns < before + 3) {
      std::this_thread::yield();
    }
  }
  for (const pid_t child : children) {
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
  }
  // A new waiter gets its turn at once and finds no remains of the dead processes.
  auto turn = scene.draw("last");
  CHECK(standing(turn) == Standing::granted);
  auto out = scene.draw("last", Direction::out);
  CHECK(standing(out) == Standing::granted);
  CHECK(scene.tickets() == 2);
  ::munmap(&shared, sizeof shared);
}

TEST_CASE("what is shown of a ticket is text", "[queue]") {
  const Scene scene;
  auto turn = scene.draw("a\x1b[2J\nb");
  const auto seen = look_at(scene.path());
  REQUIRE(seen);
  CHECK(describe(*seen).find("a?[2J?b on n1") != std::string::npos);
}

}  // namespace
}  // namespace efs::queue

// The worker's side with a silent keeper, and both sides with a working one.
namespace efs::daemon {
namespace {

using queue::Direction;

struct Silent {
  KeeperLines theirs;
  SlotClient client;

  explicit Silent(double seconds)
      : client(pairs(theirs), "", std::chrono::duration<double>(seconds)) {}

  static KeeperLines pairs(KeeperLines& theirs) {
    KeeperLines ours;
    for (std::size_t i = 0; i < ours.size(); ++i) {
      std::array<int, 2> pair{};
      REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) == 0);
      ours[i].reset(pair[0]);
      theirs[i].reset(pair[1]);
    }
    return ours;
  }
};

KeeperLines keeper_at(const std::string& directory) {
  const auto user = find_user(std::to_string(::geteuid()));
  REQUIRE(user);
  auto keeper = start_keeper({.directory = directory, .job = "a", .node = "n"}, *user);
  REQUIRE(keeper);
  return std::move(*keeper);
}

TEST_CASE("a keeper that says nothing is not waited for", "[queue]") {
  Silent silent(0.3);
  stage::Progress progress;
  {
    const auto held = silent.client.take(Direction::in, 5, progress);
    REQUIRE(held);
    CHECK(silent.client.view(Direction::in)->standing == queue::Standing::unserialised);
    CHECK(silent.client.view(Direction::in)->reason.find("does not answer") != std::string::npos);
    CHECK_FALSE(silent.client.view(Direction::out));
  }
  CHECK_FALSE(silent.client.view(Direction::in));
}

TEST_CASE("nor before a deadline, nor by who is cancelled", "[queue]") {
  Silent silent(1e6);
  stage::Progress progress;
  CHECK(silent.client.take(Direction::out, 5, progress,
                           {.latest = std::chrono::steady_clock::now()}));
  std::jthread other([&progress] { progress.cancel = true; });
  CHECK(silent.client.take(Direction::in, 5, progress).error().code == ECANCELED);
  stage::Progress another;
  std::jthread later([&another] { another.gives_way = true; });
  CHECK(silent.client.take(Direction::out, 5, another).error().code == ECANCELED);
}

TEST_CASE("a keeper that does not read holds up nobody", "[queue]") {
  Silent silent(1e6);
  stage::Progress progress;
  const auto at_once = std::chrono::steady_clock::now();
  // more messages than fit into the socket
  for (int i = 0; i < 600; ++i) {
    REQUIRE(silent.client.take(Direction::in, 5, progress, {.latest = at_once}));
  }
  CHECK(silent.client.take(Direction::out, 5, progress, {.latest = at_once}));
}

TEST_CASE("the queue knows when a transfer must be over", "[queue]") {
  const test::TempDirectory scratch;
  SlotClient client(keeper_at(scratch.path()), "");
  stage::Progress progress;
  const auto endless = client.take(Direction::in, 5, progress);
  const auto held =
      client.take(Direction::out, 5, progress,
                  {.end = std::chrono::steady_clock::now() + std::chrono::seconds(500)});
  REQUIRE((endless && held));
  const auto directory = queue::Directory::open(scratch.path(), true);
  REQUIRE(directory);
  const auto deadline_of = [&](Direction direction) {
    const auto entries = directory->list(direction);
    REQUIRE(entries.size() == 1);
    const auto ticket = directory->read(entries.front());
    REQUIRE(ticket);
    return ticket->deadline == 0 ? 0 : ticket->deadline - ticket->drawn;
  };
  CHECK(deadline_of(Direction::in) == 0);
  CHECK(deadline_of(Direction::out) > 0);
  CHECK(deadline_of(Direction::out) <= 500'000'000'000);
}

TEST_CASE("a turn that is over before the transfer is told as such", "[queue]") {
  const test::TempDirectory scratch;
  std::ofstream(scratch.path() + "/settings") << "longest-hold: 0.001\nheartbeat: 0.01\n";
  SlotClient client(keeper_at(scratch.path()), "");
  stage::Progress progress;
  const auto held = client.take(Direction::in, 5, progress);
  REQUIRE(held);
  while (client.view(Direction::in)->standing == queue::Standing::granted) {
    std::this_thread::yield();
  }
  CHECK(client.view(Direction::in)->standing == queue::Standing::unserialised);
  CHECK(client.view(Direction::in)->reason.contains("longest-hold"));
}

TEST_CASE("one turn of each direction at a time", "[queue]") {
  const test::TempDirectory scratch;
  SlotClient client(keeper_at(scratch.path()), "");
  stage::Progress progress;
  for (int i = 0; i < 3; ++i) {
    const auto in = client.take(Direction::in, 5, progress);
    const auto out = client.take(Direction::out, 5, progress);
    REQUIRE((in && out));
    CHECK(client.view(Direction::in)->standing == queue::Standing::granted);
    CHECK(client.view(Direction::out)->standing == queue::Standing::granted);
  }
  CHECK_FALSE(client.view(Direction::out));
}

}  // namespace
}  // namespace efs::daemon
