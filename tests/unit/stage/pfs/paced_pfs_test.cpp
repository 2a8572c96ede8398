// SPDX-License-Identifier: BSD-3-Clause
// Retries and rate limits, on a PFS that fails as planned.

#include <sys/xattr.h>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <chrono>

#include "stage/import/stage_in.hpp"
#include "stage/pfs/paced_pfs.hpp"
#include "unit/stage/counted_pauses.hpp"
#include "unit/stage/fault_pfs.hpp"
#include "unit/stage/opened.hpp"
#include "unit/stage/scene.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

constexpr Pace patient{.retries = 5, .first_pause = 1};

/// Fails the first `times` calls named `call` with `code`.
FaultPfs::Hook failing(std::string call, int code, int times) {
  return [=, left = std::make_shared<std::atomic<int>>(times)](auto, const std::string& name,
                                                               const auto&) {
    return name == call && (*left)-- > 0 ? code : 0;
  };
}

constexpr Nanoseconds second = 1'000'000'000;

}  // namespace

TEST_CASE("paced PFS: what passes is repeated, and counted", "[stage][paced]") {
  Scene scene;
  write_file(scene.root + "/f", "content");
  scene.resource("f");
  for (const int code : {EAGAIN, ETIMEDOUT, ESTALE, EIO}) {
    FaultPfs faulty(failing("read", code, 3));
    Progress progress;
    Throttle throttle(patient);
    PacedPfs paced(faulty, patient, throttle, progress.cancel);
    FakeBuffer buffer(scene.top + "/buffer-" + std::to_string(code));
    const auto report = stage_in(scene.plan(), buffer, paced, scene.options, progress);
    INFO("code " << code);
    CHECK(report.ok());
    CHECK(paced.retried() == 3);
  }
}

TEST_CASE("paced PFS: each pause is twice as long as the one before, up to ten seconds",
          "[stage][paced]") {
  CountedPauses pauses;
  std::vector<Nanoseconds> called;
  FaultPfs faulty([&](auto, const auto&, const auto&) {
    called.push_back(pauses.now());
    return ETIMEDOUT;
  });
  const Pace pace{.retries = 10};
  Throttle throttle(pace);
  const std::atomic<bool> cancel{false};
  PacedPfs paced(faulty, pace, throttle, cancel, pauses);
  CHECK(!paced.open(no_directory, "/f", O_RDONLY));
  REQUIRE(called.size() == 11);
  for (std::size_t i = 1; i < called.size(); ++i) {
    const Nanoseconds pause = called[i] - called[i - 1],
                      middle = std::min((second / 10) << (i - 1), 10 * second);
    INFO("pause " << i << " of " << pause << " ns");
    CHECK(pause >= middle / 4 * 3);
    CHECK(pause <= middle / 4 * 5);
  }
}

TEST_CASE("paced PFS: the transfers of a job keep to its rates, of bytes and of calls",
          "[stage][paced]") {
  Scene scene;
  const std::string file = scene.root + "/f";
  write_file(file, std::string(1000, 'x'));
  const PfsHandle opened_file = opened(file, O_RDWR);
  std::array<std::byte, 1000> content{};
  const std::atomic<bool> cancel{false};
  for (const Pace& pace : {Pace{.max_rate = 10'000}, Pace{.max_ops = 10}}) {
    CountedPauses pauses;
    Throttle throttle(pace);
    PacedPfs one(posix_pfs(), pace, throttle, cancel, pauses),
        other(posix_pfs(), pace, throttle, cancel, pauses);
    const Nanoseconds begin = pauses.now();
    // 2 x 100 calls of 1000 bytes: 20 s at either rate, but for the tenth of a second that is
    // caught up on, and the last call's own.
    for (int i = 0; i < 100; ++i) {
      REQUIRE(one.read(opened_file, content, 0));
      REQUIRE(other.write(opened_file, content, 0));
    }
    CHECK(pauses.now() - begin == 20 * second - second / 10 - second / 10);
  }
}

TEST_CASE("paced PFS: a PFS that stays away fails the file with its own error", "[stage][paced]") {
  Scene scene;
  write_file(scene.root + "/f", "content");
  scene.resource("f");
  FaultPfs faulty(failing("read", ETIMEDOUT, 1000));
  Progress progress;
  Throttle throttle(patient);
  PacedPfs paced(faulty, patient, throttle, progress.cancel);
  const auto report = stage_in(scene.plan(), scene.buffer, paced, scene.options, progress);
  REQUIRE(!report.ok());
  CHECK(report.failure->error.code == ETIMEDOUT);
  CHECK(paced.retried() == patient.retries);
}

TEST_CASE(
    "paced PFS: nothing is repeated that may have been carried out, or that reports lost data",
    "[stage][paced]") {
  for (const int code : {ETIMEDOUT, EIO}) {
    for (const char* call : {"fsync", "rename", "mkdir"}) {
      Scene scene;
      scene.buffer.put("d", S_IFDIR, {}, 0755);
      scene.buffer.put("d/f", S_IFREG, "content");
      FaultPfs faulty(failing(call, code, 1));
      Progress progress;
      Throttle throttle(patient);
      PacedPfs paced(faulty, patient, throttle, progress.cancel);
      const auto receipt = stage_out(scene.config, scene.buffer, paced, scene.options, progress);
      INFO(call << " fails with " << code);
      CHECK(receipt.verdict != Verdict::complete);
      CHECK(paced.retried() == 0);
    }
  }
  CHECK(may_pass(EAGAIN, CallKind::once));
  CHECK(!may_pass(EIO, CallKind::idempotent));
  CHECK(!may_pass(ENOSPC, CallKind::reading));
  CHECK(!may_pass(ENOENT, CallKind::reading));
  CHECK(!may_pass(EACCES, CallKind::reading));
}

TEST_CASE("paced PFS: a cancel ends the patience", "[stage][paced]") {
  Scene scene;
  write_file(scene.root + "/f", "content");
  std::atomic<bool> cancel{false};
  std::atomic<int> calls{0};
  FaultPfs faulty([&](auto, const auto&, const auto&) {
    cancel = ++calls == 3;
    return ETIMEDOUT;
  });
  const Pace hurried{.retries = 1000, .first_pause = 1};
  Throttle throttle(hurried);
  PacedPfs paced(faulty, hurried, throttle, cancel);
  CHECK(!paced.open(no_directory, scene.root + "/f", O_RDONLY));
  CHECK(calls == 3);
}

TEST_CASE("paced PFS: calls within calls count, and so do closes", "[stage][paced]") {
  Scene scene;
  write_file(scene.root + "/f", "content");
  const std::string file = scene.root + "/f";
  for (const char* name : {"user.a", "user.b", "user.c"}) {
    REQUIRE(::setxattr(file.c_str(), name, "v", 1, 0) == 0);
  }
  const Pace slow{.max_ops = 1};
  Throttle throttle(slow);
  // After a cancel no call waits. The queue is so long that the present time does not matter.
  const std::atomic<bool> cancel{true};
  PacedPfs paced(posix_pfs(), slow, throttle, cancel);
  (void)throttle.operations.take(1'000'000,
                                 std::chrono::steady_clock::now().time_since_epoch().count());
  const auto end_of_queue = [&] {
    return throttle.operations.take(0, 0);
  };
  const auto cost_of = [&](const auto& call) {
    const Nanoseconds before = end_of_queue();
    REQUIRE(call());
    return (end_of_queue() - before) / second;
  };
  const PfsHandle directory = opened(scene.root), opened_file = opened(file, O_RDONLY);
  CHECK(cost_of([&] { return paced.fstat(opened_file); }) == 1);
  CHECK(cost_of([&] { return paced.open(no_directory, file, O_RDONLY); }) == 2);
  CHECK(cost_of([&] { return paced.open_beneath(directory, "f", O_RDONLY); }) == 2);
  CHECK(cost_of([&] { return paced.list(directory); }) == 3);
  CHECK(cost_of([&] { return paced.xattrs(opened_file); }) == 4);
}

TEST_CASE("rate limit: every unit has its moment", "[stage][paced]") {
  RateLimit limit(1000);  // a unit a millisecond
  Nanoseconds now = 50 * second;
  // The first may catch up on a tenth of a second: 100 units at once, then one a millisecond.
  CHECK(limit.take(100, now) == 0);
  CHECK(limit.take(1, now) == 0);
  CHECK(limit.take(1, now) == second / 1000);
  CHECK(limit.take(500, now) == 2 * second / 1000);
  CHECK(limit.take(1, now) == 502 * second / 1000);
  now += 10 * second;  // idle: no more than a tenth is caught up on
  CHECK(limit.take(200, now) == 0);
  CHECK(limit.take(1, now) == second / 10);
  CHECK(RateLimit(0).take(1U << 30U, now) == 0);
}
