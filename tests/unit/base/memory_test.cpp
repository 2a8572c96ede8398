// SPDX-License-Identifier: BSD-3-Clause
#include "base/memory.hpp"

#include <catch2/catch_test_macros.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <latch>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

using namespace efs;

namespace {

std::uint64_t bytes_of(std::string_view what) {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key; status.ignore(256, '\n')) {
    if (std::uint64_t kilobytes = 0; key == what && status >> kilobytes) {
      return kilobytes * 1024;
    }
  }
  return 0;
}

std::uint64_t data_bytes() {
  return bytes_of("VmData:");
}

// Runs the test in a child process; true means success.
template <typename Test>
bool in_a_process(Test test) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::_exit(test() ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// Runs the test in a child that cannot get more memory than it has.
template <typename Test>
bool in_a_full_process(Test test) {
  return in_a_process([&] {
    SpareMemory spare;
    if (!spare.fill()) {
      return false;
    }
    rlimit limit{};
    ::getrlimit(RLIMIT_DATA, &limit);
    limit.rlim_cur = data_bytes();
    ::setrlimit(RLIMIT_DATA, &limit);
    return test(spare, limit);
  });
}

// Runs a named test case in a process with a fresh allocator.
bool in_a_fresh_process(const char* test) {
  return in_a_process([&] {
    (void)!::freopen("/dev/null", "w", stdout);
    ::execl("/proc/self/exe", "efs-tests", test, nullptr);
    return false;
  });
}

constexpr std::uint64_t little = 2U << 20U;

// Behaves like the survey of a plan: other threads free the memory of a thread that still has small
// pieces behind it; then the thread ends. Returns the growth of the process in bytes.
std::uint64_t kept_of_what_threads_freed() {
  constexpr std::size_t piece = 17U << 10U, pieces = 1000, small = 40;
  std::free(std::malloc(16U << 20U));  // after a large block glibc keeps twice as much
  const auto before = bytes_of("RssAnon:");
  std::vector<std::unique_ptr<char[]>> made;
  // a growing vector would leave room for the small pieces in front of the others
  made.reserve(pieces);
  std::latch all_made(1), all_freed(1);
  std::unique_ptr<char[]> stays;
  std::thread maker([&] {
    stays = std::make_unique<char[]>(piece);
    // zeroed memory: all its pages exist
    for (std::size_t i = 0; i < pieces; ++i) {
      made.push_back(std::make_unique<char[]>(piece));
    }
    const auto last = std::make_unique<char[]>(small);
    all_made.count_down();
    all_freed.wait();
  });
  all_made.wait();
  made.clear();
  all_freed.count_down();
  maker.join();
  give_back_freed();
  const auto after = bytes_of("RssAnon:");
  return after - std::min(before, after);
}

// A sanitizer's malloc has its own memory, which no limit of this test exhausts.
void need_the_usual_malloc() {
#ifdef EFS_SANITIZED
  SKIP("malloc is a sanitizer's");
#endif
}

constexpr std::size_t half_a_piece = SpareMemory::piece_bytes / 2;

}  // namespace

TEST_CASE("memory that is kept back is given piece by piece, and can be filled again") {
  SpareMemory spare;
  CHECK_FALSE(spare.give());
  for (int round = 0; round < 2; ++round) {
    REQUIRE(spare.fill());
    CHECK(spare.fill());
    for (std::size_t i = 0; i < SpareMemory::pieces; ++i) {
      CHECK(spare.give());
    }
    CHECK_FALSE(spare.give());
  }
}

TEST_CASE("what is given back can be allocated where nothing else can") {
  need_the_usual_malloc();
  CHECK(in_a_full_process([](SpareMemory& spare, rlimit&) {
    const auto exhaust = [] {
      while (std::malloc(half_a_piece) != nullptr) {
      }
      return !can_allocate(half_a_piece);
    };
    for (std::size_t i = 0; i < SpareMemory::pieces; ++i) {
      if (!exhaust() || !spare.give() || !can_allocate(half_a_piece)) {
        return false;
      }
    }
    return true;
  }));
}

TEST_CASE("what threads had and was freed goes back to the system") {
  need_the_usual_malloc();
  CHECK(in_a_fresh_process("little of what was freed is kept"));
  CHECK(in_a_fresh_process("much of what was freed is kept by itself"));
}

TEST_CASE("little of what was freed is kept", "[.fresh]") {
  keep_little_of_freed();
  CHECK(kept_of_what_threads_freed() < little);
}

TEST_CASE("much of what was freed is kept by itself", "[.fresh]") {
  CHECK(kept_of_what_threads_freed() > little);
}

TEST_CASE("memory that is present has all its pages from the beginning") {
  const PresentMemory memory((1U << 20U) + 4096);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((memory.size() + page - 1) / page);
  REQUIRE(::mincore(memory.data(), memory.size(), resident.data()) == 0);
  CHECK(std::ranges::all_of(resident, [](unsigned char state) { return (state & 1U) != 0; }));
  CHECK(std::ranges::all_of(std::span(memory.data(), memory.size()),
                            [](std::byte byte) { return byte == std::byte{}; }));
}

TEST_CASE("what cannot be filled keeps nothing back, until the limit is gone") {
  CHECK(in_a_full_process([](SpareMemory& spare, rlimit& limit) {
    spare.give();
    limit.rlim_cur = data_bytes();
    ::setrlimit(RLIMIT_DATA, &limit);
    if (spare.fill() || spare.give()) {
      return false;
    }
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_DATA, &limit);
    return spare.fill() && spare.give();
  }));
}
