#!/bin/bash
# Every operation, killed at every stage of the worker: each system call, before and after, each step from the record to
# the answer, and EFS_STEPS times at an instruction that is drawn. With passthrough and on the daemon's path.
# Then the successor, at every stage of its takeover; and successors at one stage, again and again, until there are no more.
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
