#include "base/memory.hpp"

#include <catch2/catch_test_macros.hpp>

#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <span>
#include <string>
#include <vector>

using namespace efs;

namespace {

std::uint64_t data_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string key; status >> key; status.ignore(256, '\n'))
    if (std::uint64_t kilobytes = 0; key == "VmData:" && status >> kilobytes) return kilobytes * 1024;
  return 0;
}

// In a process of its own, which has no more memory than it has now; true is success.
template <typename Test>
bool in_a_full_process(Test test) {
  const pid_t child = ::fork();
  if (child == 0) {
    SpareMemory spare;
    if (!spare.fill()) ::_exit(2);
    rlimit limit{};
    ::getrlimit(RLIMIT_DATA, &limit);
    limit.rlim_cur = data_bytes();
    ::setrlimit(RLIMIT_DATA, &limit);
    ::_exit(test(spare, limit) ? 0 : 1);
  }
  int status = 0;
  return ::waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

// A sanitizer's malloc has memory of its own, which no limit of ours exhausts.
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
    for (std::size_t i = 0; i < SpareMemory::pieces; ++i) CHECK(spare.give());
    CHECK_FALSE(spare.give());
  }
}

TEST_CASE("what is given back can be allocated where nothing else can") {
  need_the_usual_malloc();
  CHECK(in_a_full_process([](SpareMemory& spare, rlimit&) {
    const auto exhaust = [] {
      while (std::malloc(half_a_piece) != nullptr) {}
      return !can_allocate(half_a_piece);
    };
    for (std::size_t i = 0; i < SpareMemory::pieces; ++i)
      if (!exhaust() || !spare.give() || !can_allocate(half_a_piece)) return false;
    return true;
  }));
}

TEST_CASE("memory that is present has all its pages from the beginning") {
  const PresentMemory memory((1U << 20U) + 4096);
  const auto page = static_cast<std::size_t>(::sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> resident((memory.size() + page - 1) / page);
  REQUIRE(::mincore(memory.data(), memory.size(), resident.data()) == 0);
  CHECK(std::ranges::all_of(resident, [](unsigned char state) { return (state & 1U) != 0; }));
  CHECK(std::ranges::all_of(std::span(memory.data(), memory.size()), [](std::byte byte) { return byte == std::byte{}; }));
}

TEST_CASE("what cannot be filled keeps nothing back, until the limit is gone") {
  CHECK(in_a_full_process([](SpareMemory& spare, rlimit& limit) {
    spare.give();
    limit.rlim_cur = data_bytes();
    ::setrlimit(RLIMIT_DATA, &limit);
    if (spare.fill() || spare.give()) return false;
    limit.rlim_cur = limit.rlim_max;
    ::setrlimit(RLIMIT_DATA, &limit);
    return spare.fill() && spare.give();
  }));
}
