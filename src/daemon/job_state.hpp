// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The states of a job in the worker, as tables: which event leads to which state, what a stop
// request does in each state, and what status shows. Pure: no lock, no clock, no input or output.

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>

namespace efs::daemon {

/// The states before `running` follow one another in this order. `recovering`: a successor replays
/// the journal. `unsaved`: unmounted, but some results are only in the buffer; a stop tries again.
enum class State : std::uint8_t {
  planning,
  recovering,
  staging_in,
  running,
  unmounting,
  staging_out,
  unsaved,
  ended,
  failed
};
inline constexpr std::size_t state_count = 9;

enum class Event : std::uint8_t {
  planned,          // the inputs are known; the import begins
  mounted,          // programs may use the mount
  resumed,          // a successor serves the mount
  found_unmounted,  // a successor found a store without a mount
  found_ended,      // a successor found that the instance had ended
  start_failed,     // the start or the takeover failed
  stop_begun,       // the unmount begins
  stop_refused,     // programs use the mount
  export_begun,     // the mount is gone
  results_left,     // the export ended, and some results are only in the buffer
  stop_gave_up,     // memory was short during a stop; the mount exists
  export_gave_up,   // likewise; the mount is gone
  over,             // the results are exported, dropped or left to a later start
  destroyed         // the object ends
};
inline constexpr std::size_t event_count = 14;

struct Rule {
  State from;
  Event event;
  State to;
};

/// All changes of the state, in the order of a life. No event changes `ended` or `failed`. Every
/// other pair of a state and an event is impossible.
inline constexpr auto state_rules = std::to_array<Rule>({
    {State::planning, Event::planned, State::staging_in},
    {State::planning, Event::start_failed, State::failed},
    {State::planning, Event::destroyed, State::failed},

    {State::recovering, Event::resumed, State::running},
    {State::recovering, Event::found_unmounted, State::unsaved},
    {State::recovering, Event::found_ended, State::ended},
    {State::recovering, Event::start_failed, State::failed},
    {State::recovering, Event::destroyed, State::failed},

    {State::staging_in, Event::mounted, State::running},
    {State::staging_in, Event::start_failed, State::failed},
    {State::staging_in, Event::destroyed, State::failed},

    // the start fails after its last step if memory is short when it reports this step
    {State::running, Event::start_failed, State::failed},
    {State::running, Event::stop_begun, State::unmounting},
    {State::running, Event::stop_gave_up, State::running},
    {State::running, Event::export_gave_up, State::unsaved},  // unmounted from outside
    {State::running, Event::over, State::ended},  // the last resort, while the unmount gave up
    {State::running, Event::destroyed, State::failed},

    {State::unmounting, Event::stop_refused, State::running},
    {State::unmounting, Event::export_begun, State::staging_out},
    {State::unmounting, Event::stop_gave_up, State::running},
    {State::unmounting, Event::export_gave_up, State::unsaved},
    {State::unmounting, Event::over, State::ended},  // without an export
    {State::unmounting, Event::destroyed, State::failed},

    {State::staging_out, Event::results_left, State::unsaved},
    {State::staging_out, Event::export_gave_up, State::unsaved},
    {State::staging_out, Event::over, State::ended},
    {State::staging_out, Event::destroyed, State::failed},

    {State::unsaved, Event::start_failed, State::failed},  // as for `running`
    {State::unsaved, Event::export_begun, State::staging_out},
    {State::unsaved, Event::export_gave_up, State::unsaved},
    {State::unsaved, Event::over, State::ended},
    {State::unsaved, Event::destroyed, State::failed},
});

/// The effect of a stop request.
enum class StopEffect : std::uint8_t {
  cancel_start,  // cancels the import; the stop follows, or the start fails
  begin,         // begins a stop
  join,          // becomes the latest request of the stop in progress
  shorten,       // likewise, and the export gets its deadline or drops the rest
  answer,        // gets the outcome of the life
  ignore         // has no effect
};

struct StateTraits {
  StopEffect stop;  // of a request for the whole instance
  bool starts;      // the mount is not served yet: clients of `wait` wait
  bool transfers;   // status shows the turn and the remaining time of the import or export
  bool is_over;     // no request has an effect
};

/// In the order of State.
inline constexpr std::array<StateTraits, state_count> state_traits{{
    {StopEffect::cancel_start, true, false, false},  // planning
    {StopEffect::cancel_start, true, false, false},  // recovering
    {StopEffect::cancel_start, true, true, false},   // staging_in
    {StopEffect::begin, false, false, false},        // running
    {StopEffect::join, false, false, false},         // unmounting
    {StopEffect::shorten, false, true, false},       // staging_out
    {StopEffect::begin, false, false, false},        // unsaved
    {StopEffect::answer, false, false, true},        // ended
    {StopEffect::answer, false, false, true},        // failed
}};

constexpr const StateTraits& traits_of(State state) {
  return state_traits.at(static_cast<std::size_t>(state));
}

/// In the log, in status and in the status file.
const char* name_of(State state);
const char* name_of(Event event);

/// `start_only`: the request cancels a start and leaves a mount alone.
constexpr StopEffect effect_of_stop(State state, bool start_only) {
  return start_only && !traits_of(state).starts ? StopEffect::ignore : traits_of(state).stop;
}

/// Returns the reason for the refusal of a stop whose instance is over and has no outcome; null if
/// the stop succeeds. `successor`: the worker replaces a dead one.
const char* refusal_of_stop(State state, bool successor);

/// The step that the caller of JobStateMachine::handle() takes next.
struct Step {
  enum class Kind : std::uint8_t { taken, ignored, impossible };
  Kind kind;
  State state;         // from now on
  bool logs = false;   // write the state to the log
  bool shows = false;  // write the status file anew

  bool operator==(const Step&) const = default;
};

constexpr Step step_for(State state, Event event) {
  const auto* rule = std::ranges::find_if(
      state_rules, [&](const Rule& one) { return one.from == state && one.event == event; });
  if (rule == state_rules.end()) {
    return {traits_of(state).is_over ? Step::Kind::ignored : Step::Kind::impossible, state};
  }
  // the log and the starter have the reason of a failure
  const bool fails = event == Event::start_failed || event == Event::destroyed;
  return {.kind = Step::Kind::taken,
          .state = rule->to,
          .logs = !fails,
          .shows = event != Event::destroyed};
}

/// Not thread-safe.
class JobStateMachine {
 public:
  explicit JobStateMachine(bool successor)
      : state_(successor ? State::recovering : State::planning) {}

  State state() const { return state_; }

  /// Changes the state unless the event is ignored or impossible.
  Step handle(Event event);

  bool starts() const { return traits_of(state_).starts; }

  bool is_over() const { return traits_of(state_).is_over; }

  /// May the process end while a call of the stop to the PFS hangs? Never takes the mount away from
  /// programs that use it. `unmounted`: the kernel has ended the session.
  bool may_leave(bool unmounted) const {
    return state_ == State::staging_out || (state_ == State::unmounting && unmounted);
  }

  /// May the process end while a call of the start to the PFS hangs? A takeover makes no such call.
  bool may_give_up() const { return starts() && state_ != State::recovering; }

 private:
  State state_;
};

}  // namespace efs::daemon
