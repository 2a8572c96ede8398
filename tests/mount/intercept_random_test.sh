#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Random calls with libefs-intercept on a mount, against a model and against a process without it
# (tests/mount/intercept_random). EFS_SEED repeats a run.
#   intercept_random_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
LIBRARY=$BIN/../lib/libefs-intercept.so RANDOM_CALLS=$BIN/efs-intercept-random
[ -e "$LIBRARY" ] || { skip 'random calls' 'the library is built for x86-64 only'; finish; }
seed=${EFS_SEED:-$RANDOM}
echo "seed $seed"

after=   # calls before a file is mapped; "": the default
# random STEPS MODE [SEED...]: in a new directory of the mount
random() {
  local steps=$1 mode=$2 directory; shift 2
  directory=$(mktemp -d -p "$MNT") || return
  env ${after:+EFS_INTERCEPT_AFTER=$after} LD_PRELOAD="$LIBRARY" EFS_INTERCEPT="$mode" EFS_INTERCEPT_STATS="$S/stats" timeout 100 "$RANDOM_CALLS" "$directory" --steps "$steps" "$@" && rmdir "$directory"
}
# served FIELD: what the processes of the last runs served, in all: reads or writes
served() { sed -nE "s/^efs-intercept: .* $1 ([0-9]+) .*/\1/p" "$S/stats" | awk '{ sum += $1 } END { print sum + 0 }'; }

fresh random 'resources: []'
started "$JOB"
check 'without the library' random 300 off "$seed"
check 'with it' random 1000 stats "$seed" 1
after=1
check 'with it from the first call on' random 1000 stats "$seed" 1
check 'reads were served' test "$(served reads)" -gt 500
if kernel_has_it && [ "$(id -u)" = 0 ]; then check 'and writes' test "$(served writes)" -gt 300
else skip 'writes by memory' 'no passthrough here'; fi
check 'each served read is the kernel'"'"'s' random 500 verify "$seed"
check 'none differs' test "$(served different)" = 0
check 'stop' "$EFS" stop --no-stage-out random
fresh daemon 'resources: []'
started "$JOB" -o daemon-io
check "on the daemon's path" random 500 stats "$seed"
check 'stop' "$EFS" stop --no-stage-out daemon
finish
