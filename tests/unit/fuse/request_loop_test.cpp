// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/request_loop.hpp"

#include <sched.h>
#include <unistd.h>

#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <new>
#include <optional>
#include <thread>

#include "base/cpu_binding.hpp"
#include "base/slow_work.hpp"
#include "support/no_threads.hpp"

using namespace efs;
using namespace efs::fuse;

namespace {

// A queue of requests like the kernel's. One thread handles each request, once.
class Queue {
 public:
  std::uint32_t caller = 0;  // of all requests

  void put(std::function<void()> request) {
    std::lock_guard lock(mutex_);
    requests_.push_back(std::move(request));
    changed_.notify_all();
  }

  void end() {
    std::lock_guard lock(mutex_);
    ended_ = true;
    changed_.notify_all();
  }

  std::unique_ptr<RequestReader> reader() { return std::make_unique<Reader>(*this); }

 private:
  class Reader final : public RequestReader {
   public:
    explicit Reader(Queue& queue) : queue_(queue) {}

    Got receive() override {
      std::lock_guard lock(queue_.mutex_);
      if (queue_.requests_.empty()) {
        return queue_.ended_ ? Got::end : Got::nothing;
      }
      request_ = std::move(queue_.requests_.front());
      queue_.requests_.pop_front();
      return Got::request;
    }

    std::uint32_t caller() const override { return queue_.caller; }

    void handle() override { request_(); }

    bool wait(int milliseconds) override {
      std::unique_lock lock(queue_.mutex_);
      const auto there = [this] {
        return queue_.ended_ || !queue_.requests_.empty();
      };
      if (milliseconds >= 0) {
        return queue_.changed_.wait_for(lock, std::chrono::milliseconds(milliseconds), there);
      }
      queue_.changed_.wait(lock, there);
      return true;
    }

   private:
    Queue& queue_;
    std::function<void()> request_;
  };

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> requests_;
  bool ended_ = false;
};

// Opens once. A wait ends after a minute, so that a stuck loop fails its test and not the whole
// run.
class Gate {
 public:
  void open() {
    std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }

  bool wait() {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::minutes(1), [this] { return open_; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool open_ = false;
};

class Chores final : public Housekeeping {
 public:
  bool due() const override { return due_; }

  void run() override {
    due_ = false;
    ++runs_;
    done_.open();
  }

  std::atomic<bool> due_{true};
  std::atomic<int> runs_{0};
  Gate done_;
};

}  // namespace

TEST_CASE("slow requests do not hold up the quick ones behind them") {
  Queue queue;
  Gate quick_ones_done;
  std::atomic<int> slow_in_time{0}, quick{0};
  for (int i = 0; i < 4; ++i) {
    queue.put([&] {
      slow_work_begins();
      slow_work_begins();  // a second call has no effect
      if (quick_ones_done.wait()) {
        ++slow_in_time;
      }
    });
  }
  for (int i = 0; i < 1000; ++i) {
    queue.put([&] {
      if (++quick == 1000) {
        quick_ones_done.open();
      }
    });
  }
  queue.end();
  RequestLoop({.most_threads = 6}, [&] { return queue.reader(); }, nullptr).run();
  CHECK(slow_in_time == 4);
  CHECK(quick == 1000);
}

TEST_CASE("where no thread is left to lead, slow work is done all the same") {
  Queue queue;
  std::atomic<int> done{0};
  Gate second_runs;
  bool parallel_for = false;
  queue.put([&] {
    slow_work_begins();
    parallel_for = second_runs.wait();
    ++done;
  });
  for (int i = 0; i < 10; ++i) {
    queue.put([&] {
      slow_work_begins();
      second_runs.open();
      ++done;
    });
  }
  queue.end();
  RequestLoop({.most_threads = 2, .spin = {}}, [&] { return queue.reader(); }, nullptr).run();
  CHECK(parallel_for);
  CHECK(done == 11);
}

TEST_CASE("requests that queue up bring help, even where one says nothing and blocks") {
  Queue queue;
  Gate others_done;
  std::atomic<int> others{0};
  bool in_time = false;
  constexpr int count = 200;
  for (int i = 0; i < count; ++i) {
    queue.put([&, i] {
      if (i == 20) {
        in_time = others_done.wait();
      } else if (++others == count - 1) {
        others_done.open();
      }
    });
  }
  queue.end();
  RequestLoop({.most_threads = 3}, [&] { return queue.reader(); }, nullptr).run();
  CHECK(in_time);
  CHECK(others == count - 1);
}

TEST_CASE("requests that other threads have received can be awaited, except their slow work") {
  const bool slow = GENERATE(false, true);
  Queue queue;
  Gate received, returned;
  std::atomic<bool> asked{false}, handled{false};
  bool in_time = true;
  queue.put([&] {
    received.open();
    while (!asked) {
      std::this_thread::yield();
    }
    if (slow) {
      slow_work_begins();
      in_time = returned.wait();
    }
    for (int i = 0; i < 1000; ++i) {
      std::this_thread::yield();
    }
    handled = true;
  });
  RequestLoop loop({.most_threads = 3}, [&] { return queue.reader(); }, nullptr);
  std::jthread other([&] {
    CHECK(received.wait());
    asked = true;
    CHECK(loop.await_received(std::chrono::minutes(1)));
    CHECK((slow || handled));
    returned.open();
    queue.end();
  });
  loop.run();
  CHECK(in_time);
}

TEST_CASE("threads that await each other's requests do not wait for one another") {
  Queue queue;
  RequestLoop loop({.most_threads = 3}, [&] { return queue.reader(); }, nullptr);
  std::atomic<int> begun{0};
  std::atomic<int> in_time{0};
  const auto awaits = [&] {
    ++begun;
    while (begun < 2) {
      std::this_thread::yield();
    }
    in_time += loop.await_received(std::chrono::minutes(1)) ? 1 : 0;
  };
  for (int i = 0; i < 30; ++i) {  // so many in a row that the leader calls a helper
    queue.put([] {});
  }
  queue.put(awaits);
  queue.put(awaits);
  queue.end();
  loop.run();
  CHECK(in_time == 2);
}

TEST_CASE("every request is handled once, whoever leads") {
  Queue queue;
  constexpr int count = 20'000;
  std::vector<std::atomic<int>> handled(count);
  std::jthread kernel([&] {
    for (int i = 0; i < count; ++i) {
      queue.put([&handled, i] {
        if (i % 7 == 0) {
          slow_work_begins();
        }
        ++handled[static_cast<std::size_t>(i)];
      });
    }
    queue.end();
  });
  RequestLoop({.most_threads = 4}, [&] { return queue.reader(); }, nullptr).run();
  int wrong = 0;
  for (const auto& times : handled) {
    wrong += times != 1;
  }
  CHECK(wrong == 0);
}

// The caller waits for each request, so no helper takes requests beside the leader. The thread with
// slow work leaves the CPU, and the next leader takes it.
TEST_CASE("the leader serves on the CPU of a bound caller, where that is wanted") {
  const bool join = GENERATE(false, true);
  Queue queue;
  std::atomic<std::uint64_t> joined{0};
  unsigned on_its_cpu = 0;
  bool left = false;
  std::jthread caller([&] {
    unsigned cpu = 0;
    while (cpu < CPU_SETSIZE && !bind_to_cpu(cpu)) {
      ++cpu;
    }
    queue.caller = static_cast<std::uint32_t>(::gettid());
    for (unsigned i = 0; i < 4 * LeaderPlacement::enough; ++i) {
      std::atomic<bool> handled{false};
      queue.put([&] {
        on_its_cpu += bound_cpu() == cpu ? 1 : 0;
        if (i == 2 * LeaderPlacement::enough) {
          slow_work_begins();
          left = !bound_cpu();
        }
        handled = true;
        handled.notify_one();
      });
      handled.wait(false);
    }
    queue.end();
  });
  RequestLoop(
      {.most_threads = 2, .join_callers = join, .joined = &joined}, [&] { return queue.reader(); },
      nullptr)
      .run();
  caller.join();
  CHECK(left);
  CHECK((joined > 0) == join);
  CHECK((on_its_cpu > 0) == join);
}

TEST_CASE("housekeeping is done when it is quiet, and while it is not") {
  Chores quiet;
  Queue queue;
  std::jthread kernel([&] {
    CHECK(quiet.done_.wait());
    queue.end();
  });
  RequestLoop({}, [&] { return queue.reader(); }, &quiet).run();
  CHECK(quiet.runs_ == 1);

  Chores busy;
  Queue full;
  for (unsigned i = 0; i < RequestLoop::busy; ++i) {
    full.put([] {});
  }
  full.put([&] { CHECK(busy.runs_ == 1); });
  full.end();
  RequestLoop({.most_threads = 1}, [&] { return full.reader(); }, &busy).run();
  CHECK(busy.runs_ == 1);
}

TEST_CASE("a spin that catches nothing is tried again ever later") {
  SpinPolicy policy(std::chrono::microseconds(50));
  const auto waits_until_next_spin = [&policy] {
    int waits = 0;
    while (policy.next().count() == 0) {
      ++waits;
    }
    return waits;
  };
  for (const int expected : {0, 2, 6, 14, 30, 62, 126, 254, 254}) {
    policy.missed();
    CHECK(waits_until_next_spin() == expected);
  }
  policy.caught();
  CHECK(waits_until_next_spin() == 0);
  policy.missed();
  CHECK(waits_until_next_spin() == 0);
  CHECK(SpinPolicy({}).next().count() == 0);
}

TEST_CASE("where no thread can be had, or no reader, all is served by those that are there") {
  for (const bool threads : {false, true}) {
    Queue queue;
    std::atomic<int> handled = 0, readers = 0;
    for (int i = 0; i < 100; ++i) {
      queue.put([&] {
        slow_work_begins();
        ++handled;
      });
    }
    queue.end();
    std::optional<test::NoThreads> none;
    if (!threads) {
      none.emplace();
    }
    const auto make_reader = [&] {
      if (threads && readers == 1) {
        throw std::bad_alloc();
      }
      if (threads) {
        ++readers;
      }
      return queue.reader();
    };
    RequestLoop({.most_threads = 4}, make_reader, nullptr).run();
    CHECK(handled == 100);
  }
}

TEST_CASE("what a request throws when it was answered ends nothing") {
  Queue queue;
  std::atomic<int> handled = 0;
  for (int i = 0; i < 10; ++i) {
    queue.put([&] {
      ++handled;
      throw std::bad_alloc();
    });
  }
  queue.end();
  RequestLoop({.most_threads = 2}, [&] { return queue.reader(); }, nullptr).run();
  CHECK(handled == 10);
}
