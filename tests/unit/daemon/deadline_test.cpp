// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/deadline.hpp"

#include <catch2/catch_test_macros.hpp>
#include <future>

#include "support/fake_timers.hpp"

namespace efs::daemon {
namespace {

using std::chrono::seconds, std::chrono::milliseconds;
using test::Exits, test::FakeTimers;

struct Watched {
  int cut = 0, left = 0, given_up = 0;
  FakeTimers timers;
  Deadline deadline{timers,
                    {.cut_export = [this] { ++cut; },
                     .leave = [this] { ++left; },
                     .give_up =
                         [this] {
                           ++given_up;
                         }}};
};

TEST_CASE("the export ends before the deadline, by a margin of at most ten seconds", "[daemon]") {
  const auto now = Timers::Time(seconds(1000));
  const auto margin = [&](double time) {
    const StopTimes times = StopTimes::within(time, now);
    return std::chrono::duration<double>(*times.gone_by - *times.until).count();
  };
  const auto is_about = [](double a, double b) {
    return a > b - 1e-6 && a < b + 1e-6;
  };
  CHECK(is_about(margin(1000), 10));
  CHECK(is_about(margin(50), 5));
  CHECK(is_about(margin(5), 1));
  CHECK(is_about(margin(1), 0.5));
  CHECK(is_about(margin(0.001), 0.0005));
  CHECK(*StopTimes::within(60, now).gone_by == now + seconds(60));
  CHECK(*StopTimes::within(1e300, now).gone_by == now + seconds(100'000'000));
}

TEST_CASE("a step before the export may use a quarter of the time", "[daemon]") {
  const auto begin = Timers::Time(seconds(1000));
  const StopTimes times{.until = begin + seconds(100), .gone_by = begin + seconds(110)};
  CHECK(times.quarter(begin) == begin + seconds(25));
  CHECK(times.quarter(begin, seconds(10)) == begin + seconds(10));
  CHECK(times.quarter(begin + seconds(60)) == begin + seconds(70));
  // a deadline that has passed leaves no time
  CHECK(times.quarter(begin + seconds(140), seconds(10)) == begin + seconds(130));
}

TEST_CASE("the export is cut at its time, once, and not after its end", "[daemon]") {
  Watched it;
  auto alarm = it.deadline.end_export_at(it.timers.now() + seconds(5));
  it.timers.advance(milliseconds(4999));
  CHECK(it.cut == 0);
  it.timers.advance(milliseconds(1));
  CHECK(it.cut == 1);
  it.timers.advance(seconds(100));
  CHECK(it.cut == 1);
  alarm = it.deadline.end_export_at(it.timers.now() + seconds(5));
  alarm.reset();
  it.timers.advance(seconds(100));
  CHECK(it.cut == 1);
}

TEST_CASE("a later stop hurries the export; the last one counts", "[daemon]") {
  Watched it;
  CHECK_FALSE(it.deadline.is_hurried());
  it.deadline.hurry(it.timers.now() + seconds(5));
  it.deadline.hurry(it.timers.now() + seconds(20));
  CHECK(it.deadline.is_hurried());
  it.timers.advance(seconds(19));
  CHECK(it.cut == 0);
  it.timers.advance(seconds(1));
  CHECK(it.cut == 1);
  CHECK(it.deadline.is_hurried());
  it.deadline.unhurry();
  CHECK_FALSE(it.deadline.is_hurried());
}

TEST_CASE("the last resort comes five seconds after the end of the instance", "[daemon]") {
  Watched it;
  CHECK(it.deadline.set_last_resort(it.timers.now() + seconds(10)) == nullptr);
  it.timers.advance(milliseconds(14999));
  CHECK(it.left == 0);
  it.timers.advance(milliseconds(1));
  CHECK(it.left == 1);
  // the alarm that was replaced belongs to the caller, and does not ring after its end
  CHECK(it.deadline.set_last_resort(it.timers.now() + seconds(10)) != nullptr);
  CHECK(it.deadline.set_last_resort(it.timers.now() + seconds(20)) != nullptr);
  it.timers.advance(seconds(24));
  CHECK(it.left == 1);
  CHECK(it.deadline.set_last_resort({}) != nullptr);
  CHECK(it.timers.waiting() == 0);
  it.timers.advance(seconds(100));
  CHECK(it.left == 1);
}

TEST_CASE("a cancelled start has ten seconds, or less with a deadline", "[daemon]") {
  Watched it;
  (void)it.deadline.limit_start({});
  it.timers.advance(milliseconds(9999));
  CHECK(it.given_up == 0);
  it.timers.advance(milliseconds(1));
  CHECK(it.given_up == 1);
  (void)it.deadline.limit_start(it.timers.now() + seconds(2));
  it.timers.advance(milliseconds(6999));
  CHECK(it.given_up == 1);
  it.timers.advance(milliseconds(1));
  CHECK(it.given_up == 2);
  (void)it.deadline.limit_start(it.timers.now() + seconds(60));
  (void)it.deadline.end_start();
  it.timers.advance(seconds(100));
  CHECK(it.given_up == 2);
}

TEST_CASE("without threads a stop waits, as without a deadline", "[daemon]") {
  Watched it;
  it.timers.no_threads = true;
  CHECK(it.deadline.end_export_at(it.timers.now()) == nullptr);
  CHECK(it.deadline.set_last_resort(it.timers.now()) == nullptr);
  CHECK(it.deadline.limit_start({}) == nullptr);
  it.deadline.hurry(it.timers.now());
  CHECK_FALSE(it.deadline.is_hurried());
  it.timers.advance(seconds(100));
  CHECK((it.cut == 0 && it.left == 0 && it.given_up == 0));
}

TEST_CASE("either the stop ends or one other thread ends the process", "[daemon]") {
  Watched it;
  it.deadline.claim_end();
  CHECK_FALSE(it.deadline.claim_exit());
  it.deadline.claim_end();  // again, by a later step of the stop
  it.deadline.begin_stop();
  CHECK(it.deadline.claim_exit());
  CHECK_FALSE(it.deadline.claim_exit());
  CHECK_THROWS_AS(it.deadline.claim_end(), Exits);
  it.deadline.begin_stop();  // nothing takes the claim back
  CHECK_THROWS_AS(it.deadline.claim_end(), Exits);
}

TEST_CASE("the timers of the worker ring on threads of their own", "[daemon]") {
  ThreadTimers timers;
  std::promise<std::thread::id> rung;
  const auto alarm = timers.at(timers.now(), [&] { rung.set_value(std::this_thread::get_id()); });
  REQUIRE(alarm);
  CHECK(rung.get_future().get() != std::this_thread::get_id());
  bool late = false;
  CHECK(timers.at(timers.now() + std::chrono::hours(1), [&] { late = true; }));
  CHECK_FALSE(late);
}

}  // namespace
}  // namespace efs::daemon
