// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/stop_coordinator.hpp"

#include <catch2/catch_test_macros.hpp>
#include <latch>
#include <thread>
#include <vector>

#include "support/fake_timers.hpp"

namespace efs::daemon {
namespace {

using control::replies::StopFailed;
using control::replies::Stopped;
using std::chrono::seconds;
using test::FakeTimers;

StopAnswer number_7() {
  Stopped outcome;
  outcome.exit = 7;
  return outcome;
}

int number_in(const StopCoordinator::Outcome& outcome) {
  return std::get<Stopped>(outcome.answer.value()).exit.value_or(0);
}

Timers::Time soon() {
  return std::chrono::steady_clock::now() + seconds(60);
}

StopRequest within(double time, const FakeTimers& timers) {
  return {.times = StopTimes::within(time, timers.now())};
}

struct Scene {
  explicit Scene(StopCoordinator::Options options = {}) : stops(options, deadline, progress) {}

  /// Goes through the events that lead to a state.
  Scene& running() {
    for (const auto event : {Event::planned, Event::mounted}) {
      (void)stops.enter(event);
    }
    return *this;
  }

  Scene& staging_out(const StopRequest& request = {}) {
    running();
    (void)stops.enter(Event::stop_begun);
    stops.note_unmounted();
    (void)stops.begin_to_end(request);
    return *this;
  }

  int left = 0, given_up = 0;
  FakeTimers timers;
  stage::Progress progress;
  Deadline deadline{timers,
                    {.cut_export = [this] { progress.time_is_up = true, progress.cancel = true; },
                     .leave = [this] { left += stops.must_leave() ? 1 : 0; },
                     .give_up =
                         [this] {
                           given_up += stops.must_give_up() ? 1 : 0;
                         }}};
  StopCoordinator stops;
};

TEST_CASE("all that wait for a stop get its one outcome", "[daemon]") {
  Scene it;
  it.running();
  constexpr int clients = 4;
  std::latch asked(clients);
  std::vector<int> answers(clients);
  std::vector<std::jthread> threads;
  for (int i = 0; i < clients; ++i) {
    threads.emplace_back([&, i] {
      const auto ticket = it.stops.ask({.keep = i == 0, .times = {}});
      asked.count_down();
      while (it.stops.is_stopping_until(ticket, soon())) {
      }
      answers[static_cast<std::size_t>(i)] = number_in(it.stops.outcome());
    });
  }
  asked.wait();
  const auto reason = it.stops.await_stop();
  CHECK(reason.request.ticket == clients);
  CHECK_FALSE((reason.was_unsaved || reason.alone));
  CHECK(it.stops.is_stopping_until(1, {}));
  it.stops.finish(reason.request, number_7());
  threads.clear();
  CHECK(answers == std::vector<int>(clients, 7));
  CHECK(it.stops.outcome().stop.ticket == clients);
  CHECK_FALSE(it.stops.latest());
}

TEST_CASE("a ticket ends with the job", "[daemon]") {
  for (const auto& [end, state] : {std::pair{Event::start_failed, State::failed},
                                   std::pair{Event::destroyed, State::failed}}) {
    Scene it;
    const auto ticket = it.stops.ask({});
    CHECK(it.stops.is_stopping_until(ticket, {}));
    std::jthread client([&] {
      while (it.stops.is_stopping_until(ticket, soon())) {
      }
    });
    CHECK(it.stops.enter(end).state == state);
    client.join();
    CHECK_FALSE(it.stops.outcome().answer);
    CHECK(it.stops.is_over_by({}));
    CHECK(it.stops.ask({}) > ticket);  // gets the answer at once
    CHECK_FALSE(it.stops.is_stopping_until(ticket + 1, soon()));
  }
}

TEST_CASE("a stop that comes while another runs is the next one", "[daemon]") {
  Scene it;
  it.running();
  const auto first = it.stops.ask({});
  const auto request = it.stops.await_stop().request;
  const auto second = it.stops.ask({});
  CHECK(it.stops.last_of(request).ticket == second);
  it.stops.finish(request, StopFailed());
  CHECK_FALSE(it.stops.is_stopping_until(first, soon()));
  CHECK(it.stops.is_stopping_until(second, {}));
  CHECK(it.stops.await_stop().request.ticket == second);
}

TEST_CASE("a later stop adopts the options of an earlier one", "[daemon]") {
  Scene it;
  it.running();
  StopRequest first = within(100, it.timers);
  first.keep = first.merge = first.cut_off = true;
  it.stops.ask(first);
  it.stops.ask({});
  const auto last = it.stops.latest();
  REQUIRE(last);
  CHECK((last->keep && last->merge && last->cut_off && last->inherits));
  CHECK(last->times == first.times);
  // a request that drops the results adopts nothing
  it.stops.ask({.stage_out = false, .times = {}});
  CHECK_FALSE((it.stops.latest()->keep || it.stops.latest()->times.until));
  // one after it neither
  it.stops.ask({});
  CHECK_FALSE((it.stops.latest()->keep || it.stops.latest()->times.until));
}

TEST_CASE("an inherited deadline ends with its stop; its own does not", "[daemon]") {
  Scene it({.usual_deadline = 1000});
  it.running();
  it.stops.ask(within(10, it.timers));
  it.stops.ask({});
  CHECK(*it.stops.latest()->times.gone_by == it.timers.now() + seconds(10));
  it.stops.drop_inherited_deadline();
  CHECK_FALSE(it.stops.latest()->inherits);
  CHECK(*it.stops.latest()->times.gone_by == it.timers.now() + seconds(1000));
  it.stops.drop_inherited_deadline();
  CHECK(*it.stops.latest()->times.gone_by == it.timers.now() + seconds(1000));
}

TEST_CASE("the job file's deadline is for stops that export and name none", "[daemon]") {
  Scene it({.usual_deadline = 100});
  it.running();
  it.stops.ask({});
  CHECK(*it.stops.latest()->times.gone_by == it.timers.now() + seconds(100));
  it.stops.ask({.stage_out = false, .times = {}});
  CHECK_FALSE(it.stops.latest()->times.until);
  // a predecessor had received the request 40 seconds ago, or so long ago that no time is left
  StopRequest again;
  again.asked_ago = 40;
  it.stops.ask(again);
  CHECK(*it.stops.latest()->times.gone_by == it.timers.now() + seconds(60));
  again.asked_ago = 4000;
  it.stops.finish(*it.stops.latest(), Stopped());
  it.stops.ask(again);
  CHECK(*it.stops.latest()->times.gone_by > it.timers.now());
  CHECK(*it.stops.latest()->times.gone_by < it.timers.now() + seconds(1));
  // without a client's request
  it.stops.finish(*it.stops.latest(), Stopped());
  StopRequest own;
  it.stops.begin_deadline(own);
  CHECK(*own.times.gone_by == it.timers.now() + seconds(100));
  it.stops.ask({});
  StopRequest other;
  it.stops.begin_deadline(other);
  CHECK_FALSE(other.times.until);
}

TEST_CASE("a stop cancels a start, which then has some time", "[daemon]") {
  Scene it;
  CHECK(it.stops.ask({.start_only = true, .times = {}}) == 1);
  CHECK(it.progress.cancel);
  it.timers.advance(seconds(10));
  CHECK(it.given_up == 1);
  // not of a successor, and not of an instance that runs
  Scene successor({.successor = true});
  successor.stops.ask({});
  successor.timers.advance(seconds(100));
  CHECK(successor.given_up == 0);
  Scene mounted;
  mounted.running();
  CHECK(mounted.stops.ask({.start_only = true, .times = {}}) == 0);
  CHECK_FALSE(mounted.progress.cancel);
  CHECK_FALSE(mounted.stops.latest());
}

TEST_CASE("a later stop shortens an export", "[daemon]") {
  Scene it;
  const StopRequest request{};
  it.staging_out(request);
  it.stops.begin_export(request);
  CHECK_FALSE(it.progress.cancel);
  it.stops.ask(within(10, it.timers));
  CHECK(it.deadline.is_hurried());
  it.timers.advance(seconds(9));
  CHECK((it.progress.cancel && it.progress.time_is_up));
  CHECK(it.stops.told_overruled().empty());
  it.stops.finish(request, Stopped());
  CHECK_FALSE(it.deadline.is_hurried());
  CHECK(it.stops.latest());  // it continues
}

TEST_CASE("a later stop drops the rest of an export", "[daemon]") {
  for (const bool keep : {false, true}) {
    Scene it;
    const StopRequest request{};
    it.staging_out(request);
    it.stops.begin_export(request);
    it.stops.ask({.stage_out = false, .keep = keep, .times = {}});
    CHECK((it.progress.cancel && !it.progress.time_is_up));
    CHECK(it.stops.told_overruled() ==
          std::string("overruled by another stop --no-stage-out: the other results are ") +
              (keep ? "kept" : "dropped"));
    CHECK(it.stops.is_to_be_kept(request) == keep);
    CHECK(*it.stops.latest()->times.gone_by == it.timers.now() + seconds(20));
    // an export that begins now is cancelled from its begin
    it.progress.cancel = false;
    it.stops.begin_export(request);
    CHECK(it.progress.cancel);
    // and if the PFS hangs, the process ends
    it.timers.advance(seconds(25));
    CHECK(it.left == 1);
  }
}

TEST_CASE("an export whose time is up is cancelled from its begin", "[daemon]") {
  Scene it;
  const StopRequest request = within(10, it.timers);
  it.staging_out(request);
  it.timers.advance(seconds(9));
  it.stops.begin_export(request);
  CHECK((it.progress.cancel && it.progress.time_is_up));
}

TEST_CASE("the process ends without the PFS only after the mount is gone", "[daemon]") {
  Scene it;
  it.running();
  it.stops.ask(within(10, it.timers));
  (void)it.stops.enter(Event::stop_begun);
  it.timers.advance(seconds(15));
  CHECK(it.left == 0);  // programs use the mount
  it.stops.note_unmounted();
  it.stops.renew_last_resort(*it.stops.latest());
  it.timers.advance(seconds(4));
  CHECK(it.left == 0);
  it.timers.advance(seconds(1));
  CHECK(it.left == 1);
  // a stop that has ended, and one with a later stop without a deadline
  Scene ended;
  ended.running();
  ended.stops.ask(within(10, ended.timers));
  ended.stops.finish(*ended.stops.latest(), Stopped());
  ended.timers.advance(seconds(100));
  CHECK((ended.left == 0 && ended.timers.waiting() == 0));
  Scene patient;
  const StopRequest first = within(10, patient.timers);
  patient.staging_out(first);
  StopRequest own = first;
  patient.stops.begin_deadline(own);
  patient.stops.ask({});
  CHECK_FALSE(patient.stops.must_leave());
}

TEST_CASE("an unmount from outside is a reason to stop", "[daemon]") {
  Scene it;
  it.running();
  std::jthread kernel([&] { it.stops.note_unmounted(); });
  const auto reason = it.stops.await_stop();
  CHECK((reason.request.ticket == 0 && !reason.was_unsaved && !reason.alone));
  CHECK((it.stops.is_unmounted() && it.stops.is_unmounted_by({})));
  CHECK_FALSE(it.stops.is_asked_by({}));
}

TEST_CASE("an unsaved instance waits for a client, or continues alone", "[daemon]") {
  Scene it({.successor = true});
  it.stops.note_unmounted();
  (void)it.stops.enter(Event::found_unmounted);
  std::jthread client([&] { it.stops.ask({.keep = true, .times = {}}); });
  auto reason = it.stops.await_stop();
  CHECK((reason.was_unsaved && reason.request.keep && !reason.alone));
  it.stops.finish(reason.request, Stopped());
  it.stops.go_on_alone_at({});
  reason = it.stops.await_stop();
  CHECK((reason.was_unsaved && reason.alone && reason.request.ticket == 0));
}

TEST_CASE("those that wait for a start see its end", "[daemon]") {
  Scene it({.successor = true});
  std::jthread file_request([&] { it.stops.await_recovery(); });
  std::jthread starter([&] {
    while (it.stops.is_starting_until(soon())) {
    }
  });
  std::jthread watcher([&] {
    while (!it.stops.is_over_by(soon())) {
    }
  });
  CHECK(it.stops.is_starting_until({}));
  CHECK_FALSE(it.stops.is_over_by({}));
  CHECK(it.stops.enter(Event::resumed).state == State::running);
  file_request.join();
  starter.join();
  CHECK(it.stops.enter(Event::start_failed).state == State::failed);
  watcher.join();
}

TEST_CASE("status shows the error of the last outcome", "[daemon]") {
  Scene it;
  CHECK((!it.stops.shown().error && !it.stops.shown().unsaved));
  it.staging_out();
  Stopped outcome;
  outcome.error = "no";
  outcome.summary = "two results";
  it.stops.finish({}, outcome);
  CHECK((it.stops.shown().error == "no" && !it.stops.shown().unsaved));
  (void)it.stops.enter(Event::results_left);
  CHECK((it.stops.shown().state == State::unsaved && it.stops.shown().unsaved == "two results"));
  it.stops.finish({}, NoMemory());  // there was no memory for the text
  CHECK((!it.stops.shown().error && !it.stops.shown().unsaved));
}

TEST_CASE("a receipt stays until the next one", "[daemon]") {
  Scene it;
  CHECK_FALSE(it.stops.receipt());
  const auto receipt = std::make_shared<const stage::Receipt>();
  it.stops.set_receipt(receipt);
  it.stops.finish({}, Stopped());
  CHECK((it.stops.receipt() == receipt && it.stops.outcome().receipt == receipt));
  it.stops.set_receipt(nullptr);
  CHECK_FALSE(it.stops.outcome().receipt);
}

TEST_CASE("a client is told when another stop did less than it wanted", "[daemon]") {
  const EndOfStore gone{.name = "job"}, kept{.name = "job", .kept = true};
  const StopRequest plain{}, drop{.stage_out = false, .times = {}}, keep{.keep = true, .times = {}};
  StopRequest merge;
  merge.merge = true;
  const auto why = [](const Status& status) {
    return status ? "" : status.error().what;
  };
  CHECK(was_done_as(plain, plain, gone));
  CHECK(was_done_as(drop, plain, gone));
  CHECK(why(was_done_as(plain, drop, gone)).ends_with("the other results are dropped"));
  CHECK(why(was_done_as(plain, drop, kept)).ends_with("Export them: efs salvage job"));
  CHECK(why(was_done_as(keep, plain, gone)).ends_with("the buffer was removed"));
  CHECK(was_done_as(keep, plain, kept));
  CHECK(why(was_done_as(merge, plain, gone)).find("without --merge") != std::string::npos);
  CHECK(was_done_as(merge, merge, gone));
  CHECK(was_done_as(merge, plain, {.name = "job", .always_merges = true}));
}

}  // namespace
}  // namespace efs::daemon
