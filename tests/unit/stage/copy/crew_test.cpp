// Threads that come when the PFS is slow, and only then.

#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <latch>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "stage/copy/crew.hpp"

using namespace efs;
using namespace efs::stage;

namespace {

/// Ends when `together` items are under way at once; none of them ends before, so a run cannot grow
/// to that.
bool meet(Crew& crew, std::size_t together, std::chrono::milliseconds patience) {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t present = 0;
  bool met = false;
  crew.run(together, 1, [&](std::size_t, std::size_t) {
    std::unique_lock lock(mutex);
    met = met || ++present == together;
    changed.notify_all();
    changed.wait_for(lock, patience, [&] { return met; });
    --present;
  });
  return met;
}

}  // namespace

TEST_CASE("crew: every item once, in pieces of neighbours, whatever the numbers", "[stage][crew]") {
  for (const unsigned most : {0U, 1U, 3U, 256U}) {
    for (const std::size_t count : {0UL, 1UL, 2UL, 63UL, 1000UL, 12345UL}) {
      for (const std::size_t grain : {0UL, 1UL, 16UL, 100'000UL}) {
        std::vector<std::atomic<int>> seen(count);
        std::atomic<bool> too_large{false};
        Crew crew(most);
        crew.run(count, grain, [&](std::size_t begin, std::size_t end) {
          if (end - begin > std::max<std::size_t>(1, grain)) {
            too_large = true;
          }
          for (std::size_t i = begin; i < end; ++i) {
            ++seen[i];
          }
        });
        INFO("most " << most << " count " << count << " grain " << grain);
        CHECK(!too_large);
        CHECK(std::ranges::all_of(seen, [](const auto& n) { return n == 1; }));
        CHECK(crew.widest() <= (most == 0 ? Crew::automatic_most : most));
      }
    }
  }
}

TEST_CASE("crew: threads that wait get company, up to the limit", "[stage][crew]") {
  // Items that end only when as many are under way at once as are allowed: a crew that does not
  // grow never ends.
  for (const unsigned most : {8U, 32U}) {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t waiting = 0;
    bool open = false;
    Crew crew(most);
    crew.run(4000, 1, [&](std::size_t, std::size_t) {
      std::unique_lock lock(mutex);
      if (open) {
        return;
      }
      open = ++waiting == most;
      changed.notify_all();
      // what a slow PFS takes
      changed.wait_for(lock, std::chrono::milliseconds(5), [&] { return open; });
      --waiting;
    });
    CHECK(open);
    CHECK(crew.widest() == most);
  }
}

TEST_CASE("crew: threads that wait for a lock of ours get no company", "[stage][crew]") {
  constexpr std::size_t items = 60;  // the thread sanitizer knows of 64 locks that one thread holds
  std::vector<Mutex> mutexes(items);
  std::latch locked(1);
  // One of them after the other is let go: each item has to wait for its own.
  std::thread holder([&] {
    for (auto& mutex : mutexes) {
      mutex.lock();
    }
    locked.count_down();
    for (auto& mutex : mutexes) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      mutex.unlock();
    }
  });
  locked.wait();
  Crew crew(0);
  crew.run(items, 1, [&](std::size_t begin, std::size_t) { const MutexLock lock(mutexes[begin]); });
  holder.join();
  CHECK(crew.widest() < items / 4);  // where others take the CPUs a few come all the same
}

TEST_CASE("crew: threads that wait for one another where nobody counts it get little company",
          "[stage][crew]") {
  std::mutex one;  // as the kernel's, of a directory
  std::atomic<unsigned> under_way{0}, crowded{0};
  Crew crew(0);
  crew.run(1000, 1, [&](std::size_t, std::size_t) {
    if (++under_way > Crew::automatic_most / 2) {
      ++crowded;
    }
    {
      const std::lock_guard lock(one);
      std::this_thread::sleep_for(std::chrono::microseconds(500));
    }
    --under_way;
  });
  CHECK(crowded < 500);  // where others take the CPUs a try may seem to have paid
}

TEST_CASE(
    "crew: what the work throws, on whichever thread, is thrown by the run when all have ended",
    "[stage][crew]") {
  for (const unsigned most : {1U, 8U}) {
    for (const std::size_t bad : {0UL, 7UL, 399UL}) {
      std::atomic<int> inside{0};
      std::atomic<std::size_t> done{0};
      Crew crew(most);
      INFO("most " << most << " bad " << bad);
      CHECK_THROWS_AS(crew.run(400, 1,
                               [&](std::size_t begin, std::size_t) {
                                 ++inside;
                                 // what a PFS takes: others come
                                 std::this_thread::sleep_for(std::chrono::microseconds(100));
                                 --inside;
                                 if (begin == bad) {
                                   throw std::bad_alloc();
                                 }
                                 ++done;
                               }),
                      std::bad_alloc);
      CHECK(inside == 0);
      CHECK(done <= 399);
      std::atomic<std::size_t> after{0};
      crew.run(400, 1, [&](std::size_t begin, std::size_t end) { after += end - begin; });
      CHECK(after == 400);
    }
  }
}

TEST_CASE("crew: one thread where one is allowed", "[stage][crew]") {
  const auto me = std::this_thread::get_id();
  std::size_t last = 0;
  bool in_order = true;
  Crew crew(1);
  crew.run(1000, 1, [&](std::size_t begin, std::size_t) {
    in_order = in_order && std::this_thread::get_id() == me && begin == last;
    last = begin + 1;
  });
  CHECK(in_order);
  CHECK(crew.widest() == 1);
}

TEST_CASE("crew: a run begins with as many threads as it has processors", "[stage][crew]") {
  for (const unsigned processors : {1U, 2U, 5U}) {
    Crew crew(0, processors);
    INFO("processors " << processors);
    CHECK(meet(crew, processors, std::chrono::seconds(60)));
    Crew another(0, processors);
    CHECK_FALSE(meet(another, processors + 1, std::chrono::milliseconds(20)));
  }
}

TEST_CASE("crew: a run after one that waited begins with as many threads", "[stage][crew]") {
  constexpr unsigned most = 16;
  Crew crew(most);
  const auto sleep_once = [&] {
    // a slow PFS
    crew.run(1000, 1, [](std::size_t, std::size_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  };
  for (int run = 0; run < 100 && crew.widest() < most; ++run) {
    sleep_once();
  }
  REQUIRE(crew.widest() == most);
  // Several times: where other programs take the CPUs the last that a run saw may have been no
  // wait.
  bool met = false;
  for (int attempt = 0; attempt < 10 && !met; ++attempt) {
    sleep_once();
    met = meet(crew, most, std::chrono::seconds(2));
  }
  CHECK(met);
}
