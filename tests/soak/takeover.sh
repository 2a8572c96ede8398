#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills workers at random moments: 2000 with each kind of mount, as many under databases, a compiler
# and a program that holds files open, and 2000 at a random system call. Also starts and stage-outs
# whose workers are killed.
#   takeover.sh BIN_DIR
# EFS_KILLS and EFS_KILL_POINTS: how many.
set -uo pipefail
export EFS_KILLS=${EFS_KILLS:-2000} EFS_KILL_POINTS=${EFS_KILL_POINTS:-2000}
failed=0
# Each in a separate process: after some thousands of deaths, bash may wait for ever for a child
# whose pid was reused.
for part in passthrough daemon user young kill_points real_programs real_programs_daemon under_way starts staging_out gives_up again_and_again half_saved; do
  EFS_PART=$part "$(dirname "$0")/../mount/takeover_test.sh" "${1:-build/bin}" || failed=1
done
exit $failed
