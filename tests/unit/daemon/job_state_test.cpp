// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/job_state.hpp"

#include <catch2/catch_test_macros.hpp>
#include <map>
#include <set>
#include <string>

namespace efs::daemon {
namespace {

// A letter for each state, in the order of State.
constexpr std::string_view letters = "prsRuoUef";

// For each event, by state (prsRuoUef): the letter of the next state; "=": ignored, "-":
// impossible.
const std::map<Event, std::string_view> expected{
    {Event::planned, "s------=="},          //
    {Event::mounted, "--R----=="},          //
    {Event::resumed, "-R-----=="},          //
    {Event::found_unmounted, "-U-----=="},  //
    {Event::found_ended, "-e-----=="},      //
    {Event::start_failed, "ffff--f=="},     //
    {Event::stop_begun, "---u---=="},       //
    {Event::stop_refused, "----R--=="},     //
    {Event::export_begun, "----o-o=="},     //
    {Event::results_left, "-----U-=="},     //
    {Event::stop_gave_up, "---RR--=="},     //
    {Event::export_gave_up, "---UUUU=="},   //
    {Event::over, "---eeee=="},             //
    {Event::destroyed, "fffffff=="},        //
};

State state_at(std::size_t index) {
  return static_cast<State>(index);
}

TEST_CASE("every event in every state has the listed effect", "[daemon]") {
  REQUIRE(letters.size() == state_count);
  REQUIRE(expected.size() == event_count);
  for (const auto& [event, row] : expected) {
    REQUIRE(row.size() == state_count);
    for (std::size_t i = 0; i < state_count; ++i) {
      INFO("state " << name_of(state_at(i)) << ", event " << name_of(event));
      const Step step = step_for(state_at(i), event);
      if (row[i] == '=' || row[i] == '-') {
        CHECK(step.kind == (row[i] == '=' ? Step::Kind::ignored : Step::Kind::impossible));
        CHECK(step.state == state_at(i));
        CHECK_FALSE((step.logs || step.shows));
      } else {
        CHECK(step.kind == Step::Kind::taken);
        CHECK(step.state == state_at(letters.find(row[i])));
        CHECK(step.logs == (step.state != State::failed));
        CHECK(step.shows == (event != Event::destroyed));
      }
    }
  }
}

TEST_CASE("no pair of a state and an event has two rules", "[daemon]") {
  std::set<std::pair<State, Event>> pairs;
  for (const Rule& rule : state_rules) {
    CHECK(pairs.emplace(rule.from, rule.event).second);
  }
}

TEST_CASE("a job goes through its states, and an impossible event changes none", "[daemon]") {
  JobStateMachine job(false);
  CHECK((job.state() == State::planning && job.starts() && job.may_give_up()));
  CHECK(job.handle(Event::over).kind == Step::Kind::impossible);
  CHECK(job.state() == State::planning);
  for (const auto& [event, next] :
       {std::pair{Event::planned, State::staging_in}, std::pair{Event::mounted, State::running},
        std::pair{Event::stop_begun, State::unmounting},
        std::pair{Event::stop_refused, State::running},
        std::pair{Event::stop_begun, State::unmounting},
        std::pair{Event::export_begun, State::staging_out},
        std::pair{Event::results_left, State::unsaved},
        std::pair{Event::export_begun, State::staging_out}, std::pair{Event::over, State::ended},
        std::pair{Event::destroyed, State::ended}}) {
    CHECK(job.handle(event).state == next);
    CHECK(job.state() == next);
    CHECK(job.is_over() == (next == State::ended));
  }
  JobStateMachine successor(true);
  CHECK((successor.state() == State::recovering && !successor.may_give_up()));
  CHECK(successor.handle(Event::resumed).state == State::running);
}

TEST_CASE("a stop request has the effect of the state", "[daemon]") {
  using enum StopEffect;
  constexpr std::array<StopEffect, state_count> whole{
      cancel_start, cancel_start, cancel_start, begin, join, shorten, begin, answer, answer};
  constexpr std::array<StopEffect, state_count> start_only{
      cancel_start, cancel_start, cancel_start, ignore, ignore, ignore, ignore, ignore, ignore};
  for (std::size_t i = 0; i < state_count; ++i) {
    INFO("state " << name_of(state_at(i)));
    CHECK(effect_of_stop(state_at(i), false) == whole[i]);
    CHECK(effect_of_stop(state_at(i), true) == start_only[i]);
    CHECK((refusal_of_stop(state_at(i), false) == nullptr) == (state_at(i) != State::failed));
  }
  CHECK(refusal_of_stop(State::failed, false) ==
        std::string("stopped before the inputs were there; nothing is mounted"));
  CHECK(refusal_of_stop(State::failed, true) ==
        std::string("the daemon died, and its successor failed: "));
}

TEST_CASE("status shows a name and a transfer where there is one", "[daemon]") {
  const std::array<std::string, state_count> names{"planning", "recovering", "staging-in",
                                                   "running",  "unmounting", "staging-out",
                                                   "unsaved",  "ended",      "failed"};
  for (std::size_t i = 0; i < state_count; ++i) {
    CHECK(name_of(state_at(i)) == names[i]);
    CHECK(traits_of(state_at(i)).transfers ==
          (state_at(i) == State::staging_in || state_at(i) == State::staging_out));
    CHECK(traits_of(state_at(i)).starts == (i < 3));
    CHECK(traits_of(state_at(i)).is_over == (i > 6));
  }
  std::set<std::string> events;
  for (std::size_t i = 0; i < event_count; ++i) {
    events.insert(name_of(static_cast<Event>(i)));
  }
  CHECK((events.size() == event_count && !events.contains("?")));
}

TEST_CASE("a process may end without the PFS where no program has the mount", "[daemon]") {
  // planned, mounted, stop_begun, export_begun, over
  JobStateMachine job(false);
  const auto may = [&] {
    return std::array{job.may_give_up(), job.may_leave(false), job.may_leave(true)};
  };
  CHECK(may() == std::array{true, false, false});
  (void)job.handle(Event::planned);
  CHECK(may() == std::array{true, false, false});
  (void)job.handle(Event::mounted);
  CHECK(may() == std::array{false, false, false});
  (void)job.handle(Event::stop_begun);
  CHECK(may() == std::array{false, false, true});
  (void)job.handle(Event::export_begun);
  CHECK(may() == std::array{false, true, true});
  (void)job.handle(Event::over);
  CHECK(may() == std::array{false, false, false});
}

}  // namespace
}  // namespace efs::daemon
