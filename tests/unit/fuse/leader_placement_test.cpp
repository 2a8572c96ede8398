// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/leader_placement.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>

using namespace efs::fuse;

namespace {

// Threads and the CPUs that they are bound to. A thread that is not listed may use several.
struct Machine {
  std::map<std::uint32_t, unsigned> bound;
  int asked = 0;

  LeaderPlacement placement() {
    return LeaderPlacement([this](std::uint32_t thread) -> std::optional<unsigned> {
      ++asked;
      const auto found = bound.find(thread);
      return found == bound.end() ? std::nullopt : std::optional(found->second);
    });
  }
};

using Cpu = std::optional<unsigned>;

// Sends `count` requests, and returns the CPU for the last.
Cpu send(LeaderPlacement& placement, std::uint32_t caller, unsigned count) {
  Cpu cpu;
  for (unsigned i = 0; i < count; ++i) {
    cpu = placement.next(caller);
  }
  return cpu;
}

}  // namespace

TEST_CASE("the leader joins a bound caller after enough requests in a row") {
  Machine machine{.bound = {{7, 3}}};
  LeaderPlacement placement = machine.placement();
  CHECK(send(placement, 7, LeaderPlacement::enough - 1) == Cpu());
  CHECK(placement.next(7) == Cpu(3));
  CHECK(send(placement, 7, 100) == Cpu(3));
  CHECK(machine.asked == 1);
}

TEST_CASE("the first request from elsewhere ends it") {
  Machine machine{.bound = {{7, 3}, {8, 1}}};
  LeaderPlacement placement = machine.placement();
  for (const std::uint32_t other : {8U, 9U}) {  // bound elsewhere, and not bound
    CHECK(send(placement, 7, LeaderPlacement::enough) == Cpu(3));
    CHECK(placement.next(other) == Cpu());
    CHECK(placement.next(7) == Cpu());
  }
}

TEST_CASE("several callers of one CPU are as good as one, several of different CPUs are none") {
  Machine machine{.bound = {{7, 3}, {8, 3}, {9, 1}}};
  LeaderPlacement placement = machine.placement();
  for (unsigned i = 0; i < LeaderPlacement::enough / 2; ++i) {
    CHECK(placement.next(7) == Cpu());
    CHECK((placement.next(8) == Cpu(3)) == (i + 1 == LeaderPlacement::enough / 2));
  }
  for (unsigned i = 0; i < 1000; ++i) {
    CHECK(placement.next(9) == Cpu());
    CHECK(placement.next(8) == Cpu());
  }
}

TEST_CASE("requests of the kernel itself change nothing") {
  Machine machine{.bound = {{7, 3}}};
  LeaderPlacement placement = machine.placement();
  CHECK(send(placement, 0, 1000) == Cpu());
  CHECK(machine.asked == 0);
  CHECK(send(placement, 7, LeaderPlacement::enough) == Cpu(3));
  CHECK(send(placement, 0, 1000) == Cpu(3));
  CHECK(placement.next(7) == Cpu(3));
}

TEST_CASE("a caller that may use several CPUs is never joined") {
  Machine machine;
  LeaderPlacement placement = machine.placement();
  CHECK(send(placement, 7, 10'000) == Cpu());
}

TEST_CASE("a binding that changes is noticed after a while") {
  Machine machine{.bound = {{7, 3}}};
  LeaderPlacement placement = machine.placement();
  CHECK(send(placement, 7, LeaderPlacement::enough) == Cpu(3));
  machine.bound[7] = 2;
  CHECK(send(placement, 7, LeaderPlacement::valid + LeaderPlacement::enough) == Cpu(2));
  machine.bound.clear();
  CHECK(send(placement, 7, LeaderPlacement::valid + LeaderPlacement::enough) == Cpu());
}
