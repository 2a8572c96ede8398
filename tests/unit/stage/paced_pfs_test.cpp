// Patience and modesty towards the PFS, on a PFS that fails by plan.

#include <catch2/catch_test_macros.hpp>

#include <array>

#include "fault_pfs.hpp"
#include "scene.hpp"
#include "stage/paced_pfs.hpp"

using namespace efs;
using namespace efs::stage;
using namespace efs::stage::test;

namespace {

constexpr Pace patient{.retries = 5, .first_pause = 1};

/// Fails the first `times` calls named `call` with `code`.
FaultPfs::Hook failing(std::string call, int code, int times) {
  return [=, left = std::make_shared<std::atomic<int>>(times)](auto, const std::string& name, const auto&) { return name == call && (*left)-- > 0 ? code : 0; };
}

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

TEST_CASE("paced PFS: nothing is repeated that may have been carried out, or that reports lost data", "[stage][paced]") {
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
  CHECK(!paced.open(AT_FDCWD, scene.root + "/f", O_RDONLY));
  CHECK(calls == 3);
}

TEST_CASE("rate limit: every unit has its moment", "[stage][paced]") {
  constexpr Nanoseconds second = 1'000'000'000;
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
