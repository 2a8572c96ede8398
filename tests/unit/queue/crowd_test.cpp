// SPDX-License-Identifier: BSD-3-Clause
// Several hundred waiters: counts their requests to the lock server and checks that each gets a
// turn. Counts locks instead of time.
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <functional>
#include <memory>
#include <queue>
#include <sstream>
#include <thread>
#include <vector>

#include "queue/turn.hpp"
#include "support/temp.hpp"

namespace efs::queue {
namespace {

using Time = std::chrono::steady_clock::time_point;

#ifdef EFS_SANITIZED
constexpr std::size_t many = 70;
#else
constexpr std::size_t many = 200;
#endif

// Simulates all waiters in one process. Time passes from look to look: a waiter looks when its time
// has come, and holds its turn for a second.
class Crowd {
 public:
  explicit Crowd(const std::string& settings) {
    std::ofstream(scratch_.path() + "/settings") << settings;
  }

  void draw(std::uint64_t bytes = 1) {
    auto turn = Turn::draw(scratch_.path(), {.job = "j", .node = "n", .bytes = bytes}, system());
    REQUIRE(turn);
    due_.push({now_, turns_.size()});
    turns_.push_back(std::make_unique<Turn>(std::move(*turn)));
  }

  // Adds a waiter whose process died while it waited: its ticket exists, its lock does not.
  void draw_and_die() {
    auto turn = Turn::draw(scratch_.path(), {.job = "dead", .node = "n", .bytes = 1}, system());
    REQUIRE(turn);
    const std::string file = scratch_.path() + "/" + ticket_name(turn->ticket());
    std::ostringstream text;
    text << std::ifstream(file).rdbuf();
    turn->release();
    std::ofstream(file) << text.str();
  }

  /// Runs until every waiter has had a turn.
  void run() {
    locks = mutexes = 0;
    while (!due_.empty()) {
      const auto [when, index] = due_.top();
      due_.pop();
      now_ = when;
      step(*turns_[index], index);
    }
  }

  std::size_t tickets() const {
    return Directory::open(scratch_.path(), true)->list(Direction::in).size();
  }

  std::size_t granted = 0, most = 0;
  std::size_t locks = 0, mutexes = 0;  // calls; calls that took the mutex
  std::vector<std::uint64_t> order;    // numbers of the tickets in the order of their turns
  // seconds without a turn while all others waited
  double idle = 0;

 private:
  struct Due {
    Time when;
    std::size_t index;

    bool operator>(const Due& other) const { return when > other.when; }
  };

  System system() {
    return {.lock =
                [this](int fd, int command, struct flock& lock) {
                  ++locks;
                  if (command == F_OFD_SETLK && lock.l_start == 0 && lock.l_type == F_WRLCK) {
                    ++mutexes;
                  }
                  return ::fcntl(fd, command, &lock);
                },
            .now =
                [this] {
                  return now_;
                }};
  }

  void step(Turn& turn, std::size_t index) {
    if (turn.ticket().slot >= 0) {
      turn.release();
      if (--inside_ == 0) {
        idle_since_ = now_;
      }
      return;
    }
    const View view = turn.poll();
    REQUIRE(view.standing != Standing::unserialised);
    if (view.standing == Standing::granted) {
      if (inside_++ == 0 && granted > 0) {
        idle += std::chrono::duration<double>(now_ - idle_since_).count();
      }
      ++granted;
      most = std::max(most, inside_);
      order.push_back(turn.ticket().number);
    }
    const double pause = view.standing == Standing::granted ? 1 : view.next_look;
    due_.push(
        {now_ + std::chrono::duration_cast<Time::duration>(std::chrono::duration<double>(pause)),
         index});
  }

  test::TempDirectory scratch_;
  Time now_{};
  Time idle_since_{};
  std::size_t inside_ = 0;
  std::vector<std::unique_ptr<Turn>> turns_;
  std::priority_queue<Due, std::vector<Due>, std::greater<>> due_;
};

TEST_CASE("many who wait ask for few locks", "[queue][crowd][alone]") {
  for (const std::size_t slots : {1U, 3U}) {
    Crowd crowd("slots-in: " + std::to_string(slots));
    for (std::size_t i = 0; i < many; ++i) {
      crowd.draw();
    }
    crowd.run();
    INFO(slots << " slots, " << crowd.locks << " lock calls, idle for " << crowd.idle << " s");
    CHECK(crowd.granted == many);
    CHECK(crowd.most == slots);
    CHECK(crowd.mutexes == many);  // each once, for its grant
    CHECK(crowd.locks <= many * 150);
    // in simulated time: a waiter looks soon after its turn has come
    CHECK(crowd.idle <= 0.5 * many);
    if (slots == 1) {
      CHECK(std::ranges::is_sorted(crowd.order));
    }
    CHECK(crowd.tickets() == 0);
  }
}

TEST_CASE("the dead in a crowd hold up nobody, wherever they stand, and disappear",
          "[queue][crowd][alone]") {
  Crowd crowd("policy: smallest-first");
  for (std::size_t i = 0; i < 20; ++i) {
    crowd.draw_and_die();
  }
  for (std::size_t i = 0; i < 60; ++i) {
    crowd.draw(i << 20);
    if (i % 3 == 0) {
      crowd.draw_and_die();
    }
  }
  for (std::size_t i = 0; i < 5; ++i) {
    crowd.draw_and_die();
  }
  crowd.run();
  INFO(crowd.locks << " lock calls, idle for " << crowd.idle << " s");
  CHECK(crowd.granted == 60);
  CHECK(crowd.most == 1);
  CHECK(crowd.idle <= 60);
  CHECK(crowd.tickets() == 0);
}

TEST_CASE("many who draw and wait at once, where locks take long: each has its turn",
          "[queue][crowd]") {
  // with more threads a slow machine could not get the mutex in time, and the draw would fail
  constexpr std::size_t threads_at_once = 16;
  const test::TempDirectory scratch;
  std::ofstream(scratch.path() + "/settings")
      << "poll: 0.005\nslots-in: 2\npolicy: smallest-first\n";
  std::atomic<int> inside{0}, over{0}, granted{0};
  std::atomic<std::size_t> locks{0};
  const System slow{.lock = [&locks](int fd, int command, struct flock& lock) {
    ++locks;
    ::usleep(100);
    return ::fcntl(fd, command, &lock);
  }};
  std::vector<std::jthread> threads;
  for (std::size_t i = 0; i < threads_at_once; ++i) {
    threads.emplace_back([&, i] {
      auto turn = acquire(
          scratch.path(), {.job = "j", .node = "n", .bytes = i % 7},
          [](const View&) { return true; }, slow);
      if (!turn || turn->ticket().slot < 0) {
        return;
      }
      ++granted;
      if (++inside > 2) {
        ++over;
      }
      std::this_thread::yield();
      --inside;
    });
  }
  threads.clear();
  INFO(locks << " lock calls");
  CHECK(granted == threads_at_once);
  CHECK(over == 0);
  CHECK(Directory::open(scratch.path(), true)->list(Direction::in).empty());
}

}  // namespace
}  // namespace efs::queue
