// SPDX-License-Identifier: BSD-3-Clause
// The pace of a slow device, by a clock that only a sleep moves on.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <chrono>
#include <string>

#include "support/containers.hpp"
#include "support/device_pace.hpp"
#include "support/temp.hpp"

namespace efs::paced_backend_test {

using namespace efs::test;
using namespace std::chrono_literals;

namespace {

struct SleepingClock final : PaceClock {
  Moment time{0};

  Moment now() override { return time; }

  void sleep_until(Moment moment) override { time = std::max(time, moment); }
};

struct PacedStore {
  explicit PacedStore(Pace pace)
      : backend(make_paced(open_containers(directory.path()), pace, clock)) {}

  TempDirectory directory{"/dev/shm"};
  SleepingClock clock;
  std::unique_ptr<Backend> backend;
};

}  // namespace

TEST_CASE("a paced store moves so many bytes a second", "[backends][paced]") {
  PacedStore store({.bytes_per_second = 100'000'000});
  const auto container = *store.backend->create(1);
  const std::string data(1'000'000, 'x');
  for (std::uint64_t i = 0; i < 10; ++i) {
    REQUIRE(container->write(std::as_bytes(std::span(data)), i * data.size()) == data.size());
  }
  CHECK(store.clock.time == 100ms);
  std::string back(data.size(), ' ');
  REQUIRE(container->read(std::as_writable_bytes(std::span(back)), 0) == data.size());
  CHECK((back == data));
  CHECK(store.clock.time == 110ms);
}

TEST_CASE("a paced store serves so many calls a second", "[backends][paced]") {
  PacedStore store({.calls_per_second = 1000});
  for (std::uint64_t id = 1; id <= 50; ++id) {
    REQUIRE(store.backend->create(id));
    store.backend->remove(id);
  }
  CHECK(store.clock.time == 100ms);
  // Time in which nothing is asked is not saved up.
  store.clock.time += 10s;
  for (std::uint64_t id = 1; id <= 50; ++id) {
    REQUIRE(store.backend->create(id));
  }
  CHECK(store.clock.time == 10s + 150ms);
}

TEST_CASE("each call of a paced store takes its latency, which keeps no other call waiting",
          "[backends][paced]") {
  PacedStore store({.calls_per_second = 1'000'000, .latency = 5ms});
  const auto container = *store.backend->create(1);
  CHECK(store.clock.time == 5ms + 1us);
  REQUIRE(container->truncate(4096));
  CHECK(store.clock.time == 2 * (5ms + 1us));
  // A second thread would have asked at the same moment: the device is busy for a microsecond only.
  store.clock.time -= 5ms;
  REQUIRE(container->truncate(8192));
  CHECK(store.clock.time == 2 * (5ms + 1us) + 1us);
}

TEST_CASE("a paced store gives the kernel no descriptor to pass by", "[backends][paced]") {
  PacedStore store({});
  CHECK_FALSE(store.backend->offers_descriptor());
}

}  // namespace efs::paced_backend_test
