// SPDX-License-Identifier: BSD-3-Clause
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
#include "stage/copy/worker_pool.hpp"

using namespace efs;
using namespace efs::stage;

namespace {

/// Ends when `together` items are under way at once; none of them ends before, so a run cannot grow
/// to that.
bool meet(WorkerPool& pool, std::size_t together, std::chrono::milliseconds patience) {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t present = 0;
  bool met = false;
  pool.run(together, 1, [&](std::size_t, std::size_t) {
    std::unique_lock lock(mutex);
    met = met || ++present == together;
    changed.notify_all();
    changed.wait_for(lock, patience, [&] { return met; });
    --present;
  });
  return met;
}

}  // namespace

TEST_CASE("pool: every item once, in pieces of neighbours, whatever the numbers", "[stage][pool]") {
  for (const unsigned most : {0U, 1U, 3U, 256U}) {
    for (const std::size_t count : {0UL, 1UL, 2UL, 63UL, 1000UL, 12345UL}) {
      for (const std::size_t grain : {0UL, 1UL, 16UL, 100'000UL}) {
        std::vector<std::atomic<int>> seen(count);
        std::atomic<bool> too_large{false};
        WorkerPool pool(most);
        pool.run(count, grain, [&](std::size_t begin, std::size_t end) {
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
        CHECK(pool.widest() <= (most == 0 ? WorkerPool::automatic_most : most));
      }
    }
  }
}

TEST_CASE("pool: threads that wait get company, up to the limit", "[stage][pool]") {
  // Items that end only when as many are under way at once as are allowed: a pool that does not
  // grow never ends.
  for (const unsigned most : {8U, 32U}) {
    std::mutex mutex;
    std::condition_variable changed;
    std::size_t waiting = 0;
    bool open = false;
    WorkerPool pool(most);
    pool.run(4000, 1, [&](std::size_t, std::size_t) {
      std::unique_lock lock(mutex);
      if (open) {
        return;
      }
      open = ++waiting == most;
      changed.notify_all();
      // what a slow PFS takes
      changed.wait_for(lock, std::chrono::milliseconds(50), [&] { return open; });
      --waiting;
    });
    CHECK(open);
    CHECK(pool.widest() == most);
  }
}

TEST_CASE("pool: threads that wait for a lock of ours get no company", "[stage][pool]") {
  constexpr std::size_t items = 60;  // the thread sanitizer knows of 64 locks that one thread holds
  std::vector<Mutex> mutexes(items);
  std::latch locked(1);
  // One of them after the other is let go: each item has to wait for its own.
  std::thread holder([&]() EFS_ANNOTATE(no_thread_safety_analysis) {
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
  WorkerPool pool(0);
  pool.run(items, 1, [&](std::size_t begin, std::size_t) { const MutexLock lock(mutexes[begin]); });
  holder.join();
  CHECK(pool.widest() < items / 4);  // where others take the CPUs a few come all the same
}

TEST_CASE("pool: threads that wait for one another where nobody counts it get little company",
          "[stage][pool]") {
  std::mutex one;  // as the kernel's, of a directory
  std::atomic<unsigned> under_way{0}, crowded{0};
  WorkerPool pool(0);
  pool.run(1000, 1, [&](std::size_t, std::size_t) {
    if (++under_way > WorkerPool::automatic_most / 2) {
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
    "pool: what the work throws, on whichever thread, is thrown by the run when all have ended",
    "[stage][pool]") {
  for (const unsigned most : {1U, 8U}) {
    for (const std::size_t bad : {0UL, 7UL, 399UL}) {
      std::atomic<int> inside{0};
      std::atomic<std::size_t> done{0};
      WorkerPool pool(most);
      INFO("most " << most << " bad " << bad);
      CHECK_THROWS_AS(pool.run(400, 1,
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
      pool.run(400, 1, [&](std::size_t begin, std::size_t end) { after += end - begin; });
      CHECK(after == 400);
    }
  }
}

TEST_CASE("pool: one thread where one is allowed", "[stage][pool]") {
  const auto me = std::this_thread::get_id();
  std::size_t last = 0;
  bool in_order = true;
  WorkerPool pool(1);
  pool.run(1000, 1, [&](std::size_t begin, std::size_t) {
    in_order = in_order && std::this_thread::get_id() == me && begin == last;
    last = begin + 1;
  });
  CHECK(in_order);
  CHECK(pool.widest() == 1);
}

TEST_CASE("pool: a single item needs no further thread", "[stage][pool]") {
  WorkerPool pool(0, 4);
  std::thread::id worked;
  pool.run(1, 64, [&](std::size_t, std::size_t) { worked = std::this_thread::get_id(); });
  CHECK(worked == std::this_thread::get_id());
  CHECK(pool.widest() == 1);
}

TEST_CASE("pool: a run begins with as many threads as it has processors", "[stage][pool]") {
  for (const unsigned processors : {1U, 2U, 5U}) {
    WorkerPool pool(0, processors);
    INFO("processors " << processors);
    CHECK(meet(pool, processors, std::chrono::seconds(60)));
    WorkerPool another(0, processors);
    CHECK_FALSE(meet(another, processors + 1, std::chrono::milliseconds(20)));
  }
}

TEST_CASE("pool: a run after one that waited begins with as many threads", "[stage][pool]") {
  constexpr unsigned most = 16;
  WorkerPool pool(most);
  const auto sleep_once = [&] {
    // a slow PFS
    pool.run(1000, 1, [](std::size_t, std::size_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    });
  };
  for (int run = 0; run < 100 && pool.widest() < most; ++run) {
    sleep_once();
  }
  REQUIRE(pool.widest() == most);
  // Several times: where other programs take the CPUs the last that a run saw may have been no
  // wait.
  bool met = false;
  for (int attempt = 0; attempt < 10 && !met; ++attempt) {
    sleep_once();
    met = meet(pool, most, std::chrono::seconds(2));
  }
  CHECK(met);
}
