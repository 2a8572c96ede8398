#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Every operation, with a kill at every stage of the worker: before and after each system call, at
# each step from the record to the answer, and EFS_STEPS times at a random instruction. With
# passthrough and on the daemon's path. Then kills of the successor at every stage of its takeover;
# and of all successors at one stage, until there are no more.
#   kill_points.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$1"
. "$SOURCE/tests/takeover/stages.sh"
kernel_has_it || { skip 'kill points' 'no takeover before Linux 6.9'; finish; }
seed=${EFS_SEED:-$RANDOM}
echo "seed $seed (EFS_SEED=$seed repeats it)"
EFS_SHOWN_LINES=100
every_stage passthrough spin=0 --steps "${EFS_STEPS:-3}" --seed "$seed"
every_stage daemon spin=0,daemon-io --steps "${EFS_STEPS:-3}" --seed "$seed"
every_stage takeovers spin=0 --kill successor --seed "$seed"
every_stage takeovers-daemon spin=0,daemon-io --kill successor --seed "$seed"
for ((i = 0; i < 20; i++)); do given_up "given-up$i" spin=0 $((seed + i)); done
finish
