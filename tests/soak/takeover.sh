#!/bin/bash
# Workers killed at random moments, 2000 of each kind of mount, and as many at a system call that is drawn, while programs work.
#   takeover.sh BIN_DIR
# EFS_KILLS and EFS_KILL_POINTS: how many.
set -uo pipefail
export EFS_KILLS=${EFS_KILLS:-2000} EFS_KILL_POINTS=${EFS_KILL_POINTS:-2000}
failed=0
# Each in a process of its own: bash may wait for ever for a child whose number was used again, after some thousands of deaths.
for part in passthrough daemon user young kill_points; do
  EFS_PART=$part "$(dirname "$0")/../mount/takeover_test.sh" "${1:-build/bin}" || failed=1
done
exit $failed
