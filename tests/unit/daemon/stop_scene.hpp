// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The stops of a job whose deadline does nothing, for tests of the parts that ask about them.

#include "daemon/deadline.hpp"
#include "daemon/stop_coordinator.hpp"
#include "support/fake_timers.hpp"

namespace efs::daemon::scene {

struct StopScene {
  efs::test::FakeTimers timers;
  stage::Progress progress;
  Deadline deadline{timers,
                    {.cut_export = [] {},
                     .leave = [] {},
                     .give_up =
                         [] {
                         }}};
  StopCoordinator stops{{}, deadline, progress};
};

}  // namespace efs::daemon::scene
