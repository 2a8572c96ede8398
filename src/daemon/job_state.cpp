// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/job_state.hpp"

namespace efs::daemon {

const char* name_of(State state) {
  switch (state) {
    case State::planning: return "planning";
    case State::recovering: return "recovering";
    case State::staging_in: return "staging-in";
    case State::running: return "running";
    case State::unmounting: return "unmounting";
    case State::staging_out: return "staging-out";
    case State::unsaved: return "unsaved";
    case State::ended: return "ended";
    case State::failed: return "failed";
  }
  return "?";
}

const char* name_of(Event event) {
  switch (event) {
    case Event::planned: return "planned";
    case Event::mounted: return "mounted";
    case Event::resumed: return "resumed";
    case Event::found_unmounted: return "found-unmounted";
    case Event::found_ended: return "found-ended";
    case Event::start_failed: return "start-failed";
    case Event::stop_begun: return "stop-begun";
    case Event::stop_refused: return "stop-refused";
    case Event::export_begun: return "export-begun";
    case Event::results_left: return "results-left";
    case Event::stop_gave_up: return "stop-gave-up";
    case Event::export_gave_up: return "export-gave-up";
    case Event::over: return "over";
    case Event::destroyed: return "destroyed";
  }
  return "?";
}

const char* refusal_of_stop(State state, bool successor) {
  if (state != State::failed) {
    return nullptr;
  }
  return successor ? "the daemon died, and its successor failed: "
                   : "stopped before the inputs were there; nothing is mounted";
}

Step JobStateMachine::handle(Event event) {
  const Step step = step_for(state_, event);
  state_ = step.state;
  return step;
}

}  // namespace efs::daemon
