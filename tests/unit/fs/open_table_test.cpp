// SPDX-License-Identifier: BSD-3-Clause
#include "fs/open_table.hpp"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <fstream>
#include <map>
#include <random>
#include <thread>
#include <vector>

using namespace efs;
using fs::OpenFile;
using fs::OpenTable;
using fs::Owner;

namespace {

constexpr Owner first_session{.kind = Owner::Kind::session, .number = 1};

std::unique_ptr<OpenTable> table_of(std::size_t slots) {
  auto made = OpenTable::make(slots);
  REQUIRE(made);
  return std::move(*made);
}

std::size_t size_of(const OpenTable& table) {
  return table.count([](const OpenFile&) { return true; });
}

bool same(const OpenFile& a, const OpenFile& b) {
  return a.owner == b.owner && a.ino == b.ino && a.flags == b.flags && a.request == b.request;
}

/// A process that is forked works with the table, and is killed after `work` has returned.
template <typename Work>
void in_process_that_is_killed(Work work) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    work();
    ::kill(::getpid(), SIGKILL);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFSIGNALED(status));
}

}  // namespace

TEST_CASE("open table: an entry is what was opened, until it is closed", "[fs][opens]") {
  const auto table = table_of(10);
  const OpenFile file{.owner = first_session, .ino = 1ULL << 40U, .flags = O_RDWR, .request = 7};
  const auto handle = table->open(file);
  REQUIRE(handle);
  REQUIRE(table->open({.ino = 3}));
  CHECK(table->count([](const OpenFile& one) { return one.owner == first_session; }) == 1);
  CHECK(table->count([](const OpenFile& one) { return one.ino == 3; }) == 1);
  CHECK(table->find(first_session, 7) == *handle);
  CHECK_FALSE(table->find({}, 7));
  CHECK_FALSE(table->find({}, 0));  // the other one has no request
  const auto was = table->close(*handle);
  REQUIRE(was);
  CHECK(same(*was, file));
  CHECK_FALSE(table->find(first_session, 7));
  CHECK(size_of(*table) == 1);
}

TEST_CASE("open table: a handle that is closed, or never was one, closes nothing", "[fs][opens]") {
  const auto table = table_of(4);
  const auto stale = *table->open({.ino = 1});
  REQUIRE(table->close(stale));
  CHECK_FALSE(table->close(stale));
  const auto next = *table->open({.ino = 2});  // in the same slot
  CHECK(next != stale);
  CHECK((next & 0xFFFF'FFFF) == (stale & 0xFFFF'FFFF));
  CHECK_FALSE(table->close(stale));
  CHECK_FALSE(table->close(0));
  CHECK_FALSE(table->close(next + 1));
  CHECK_FALSE(table->close(next + 4));
  CHECK_FALSE(table->close(~std::uint64_t{0}));
  CHECK(table->close(next)->ino == 2);
}

TEST_CASE("open table: who does the I/O of an open is noted until it is closed", "[fs][opens]") {
  const auto table = table_of(2);
  const auto handle = *table->open({.ino = 1, .flags = O_RDWR, .request = 3});
  const auto is_by_daemon = [](const OpenFile& file) {
    return file.by_daemon;
  };
  CHECK(table->count(is_by_daemon) == 0);
  in_process_that_is_killed([&] { table->note_daemon_path(handle); });
  table->restore();
  REQUIRE(table->count(is_by_daemon) == 1);
  const auto was = table->close(handle);
  CHECK((was->by_daemon && was->flags == O_RDWR));
  REQUIRE(table->open({.ino = 2}));
  CHECK(table->count(is_by_daemon) == 0);
}

TEST_CASE("open table: a full one says so, and has room again after a close", "[fs][opens]") {
  const auto table = table_of(3);
  std::vector<std::uint64_t> handles;
  for (std::uint64_t ino = 1; ino <= 3; ++ino) {
    handles.push_back(*table->open({.ino = ino}));
  }
  CHECK(table->open({.ino = 4}).error().code == ENFILE);
  REQUIRE(table->close(handles[1]));
  CHECK(table->open({.ino = 5}));
  CHECK(table->open({.ino = 6}).error().code == ENFILE);
  CHECK(size_of(*table) == 3);
}

TEST_CASE("open table: with less memory it has fewer slots", "[fs][opens]") {
#ifdef EFS_SANITIZED
  SKIP("a sanitizer needs the address space");
#endif
  CHECK(table_of(1000)->slots() == 1000);
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::size_t pages = 0;
    std::ifstream("/proc/self/statm") >> pages;
    const auto room = pages * 4096 + (40U << 20U);  // a third of a usual table
    const rlimit limit{.rlim_cur = room, .rlim_max = RLIM_INFINITY};
    (void)::setrlimit(RLIMIT_AS, &limit);
    const auto made = OpenTable::make();
    ::_exit(made && (*made)->slots() == OpenTable::usual_slots / 4 && (*made)->open({}) ? 0 : 1);
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  CHECK(status == 0);
}

TEST_CASE("open table: the entries of one owner are closed, each once", "[fs][opens]") {
  const auto table = table_of(100);
  for (std::uint64_t ino = 1; ino <= 60; ++ino) {
    REQUIRE(table->open({.owner = ino % 3 == 0 ? first_session : Owner{}, .ino = ino}));
  }
  std::map<std::uint64_t, int> closed;
  const auto is_of_session = [](const OpenFile& file) {
    return file.owner == first_session;
  };
  for (int i = 0; i < 2; ++i) {
    table->close_if(is_of_session, [&](const OpenFile& file) { ++closed[file.ino]; });
  }
  CHECK(closed.size() == 20);
  for (const auto& [ino, times] : closed) {
    CHECK((ino % 3 == 0 && times == 1));
  }
  CHECK(size_of(*table) == 40);
}

TEST_CASE("open table: a successor has what a killed process had open", "[fs][opens]") {
  const auto table = table_of(1000);
  std::vector<std::uint64_t> kept;
  in_process_that_is_killed([&] {
    std::vector<std::uint64_t> handles;
    for (std::uint64_t ino = 1; ino <= 500; ++ino) {
      handles.push_back(*table->open({.ino = ino, .flags = O_WRONLY, .request = 2 * ino}));
    }
    for (std::uint64_t ino = 1; ino <= 500; ino += 2) {
      (void)table->close(handles[ino - 1]);
    }
  });
  table->restore();
  CHECK(size_of(*table) == 250);
  table->for_each([&](std::uint64_t handle, const OpenFile& file) {
    CHECK((file.ino % 2 == 0 && file.request == 2 * file.ino && file.flags == O_WRONLY));
    kept.push_back(handle);
  });
  // The free slots are used first, each once, and no handle is used again.
  for (int i = 0; i < 750; ++i) {
    const auto handle = table->open({.ino = 1000});
    REQUIRE(handle);
    CHECK(std::ranges::find(kept, *handle) == kept.end());
  }
  CHECK(table->open({.ino = 1001}).error().code == ENFILE);
  for (const auto handle : kept) {
    CHECK(table->close(handle));
  }
  in_process_that_is_killed([&] {
    table->restore();
    table->clear();
  });
  CHECK(size_of(*table) == 0);
}

// The process dies between any two stores.
TEST_CASE("open table: a process that is killed while it opens and closes leaves whole entries",
          "[fs][opens]") {
  constexpr std::size_t slots = 64;
  constexpr int rounds = 60;
  const auto table = table_of(slots);
  std::mt19937 random(std::random_device{}());
  for (int round = 0; round < rounds; ++round) {
    int begun[2];
    REQUIRE(::pipe(begun) == 0);
    const pid_t child = ::fork();
    REQUIRE(child >= 0);
    if (child == 0) {
      table->restore();
      table->clear();
      (void)!::write(begun[1], "x", 1);
      std::vector<std::uint64_t> handles(slots / 2);
      for (std::uint64_t ino = 1;; ++ino) {
        auto& handle = handles[ino % handles.size()];
        (void)table->close(handle);
        const int flags = static_cast<int>(ino % 3);
        handle = table
                     ->open({.owner = {.number = static_cast<std::uint32_t>(ino)},
                             .ino = ino,
                             .flags = flags,
                             .request = 2 * ino})
                     .value_or(0);
      }
    }
    char byte = 0;
    CHECK(::read(begun[0], &byte, 1) == 1);
    ::usleep(random() % 3000);
    ::kill(child, SIGKILL);
    ::waitpid(child, nullptr, 0);
    ::close(begun[0]);
    ::close(begun[1]);
    table->restore();
    std::size_t entries = 0;
    bool is_whole = true;
    table->for_each([&](std::uint64_t, const OpenFile& file) {
      ++entries;
      is_whole = is_whole && file.request == 2 * file.ino &&
                 file.owner.number == static_cast<std::uint32_t>(file.ino) &&
                 file.flags == static_cast<int>(file.ino % 3);
    });
    CHECK(is_whole);
    CHECK(entries <= slots / 2);
    // No slot is lost or there twice.
    for (std::size_t i = entries; i < slots; ++i) {
      REQUIRE(table->open({.ino = 1}));
    }
    CHECK_FALSE(table->open({.ino = 1}));
    table->clear();
  }
}

// Each thread keeps a model of what it has open; together they leave the table full at times.
TEST_CASE("open table: threads open, close and look at random", "[fs][opens]") {
  constexpr std::size_t slots = 48;
  constexpr std::uint32_t threads = 3;
  const auto table = table_of(slots);
  const unsigned seed = std::random_device{}();
  CAPTURE(seed);
  std::atomic<int> wrong{0}, full{0};
  std::atomic<std::size_t> left{0};
  const auto work = [&](std::uint32_t number) {
    std::mt19937_64 random(seed + number);
    std::map<std::uint64_t, OpenFile> model;
    std::uint64_t stale = 0;
    for (int i = 0; i < 30'000; ++i) {
      const auto what = random() % 8;
      if (what < 4) {
        const OpenFile file{.owner = {.kind = Owner::Kind::session, .number = number},
                            .ino = random(),
                            .flags = static_cast<int>(random() % 3),
                            .request = random()};
        const auto handle = table->open(file);
        full += handle ? 0 : 1;
        wrong += handle && !model.emplace(*handle, file).second ? 1 : 0;
      } else if (what < 7 && !model.empty()) {
        const auto one = model.begin();
        const auto was = table->close(one->first);
        wrong += was && same(*was, one->second) ? 0 : 1;
        stale = one->first;
        model.erase(one);
      } else if (what == 7 && i % 64 == 0) {
        std::size_t seen = 0;
        table->for_each([&](std::uint64_t handle, const OpenFile& file) {
          if (file.owner.number == number) {
            ++seen;
            const auto mine = model.find(handle);
            wrong += mine != model.end() && same(mine->second, file) ? 0 : 1;
          }
        });
        wrong += seen == model.size() ? 0 : 1;
      } else {
        wrong += table->close(stale) ? 1 : 0;
      }
    }
    left += model.size();
  };
  {
    std::vector<std::jthread> running;
    for (std::uint32_t i = 1; i <= threads; ++i) {
      running.emplace_back(work, i);
    }
  }
  CHECK(wrong == 0);
  CHECK(full > 0);
  CHECK(size_of(*table) == left);
}
