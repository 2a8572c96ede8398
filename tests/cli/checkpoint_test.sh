#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Checkpoints of a program's memory with libefs-objects: the example of the man page continues where it was killed, in a
# directory and on real mounts; every strategy restores what was in the memory.
#   checkpoint_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

cc=${CC:-cc}
library=$(realpath "$BIN/../lib")
export LD_LIBRARY_PATH=$library
# The second example, slowed down: its store takes 10 ms for a checkpoint.
awk 'code && /^\.EE/ { exit } code; /^\.EX/ { if (++examples == 2) code = 1 }' "$SOURCE/man/efs-objects.3" |
  sed 's/\\en/\\n/g; s/\\-/-/g; s/eo_configure(store, "strategy", "stage")/(eo_configure(store, "strategy", "stage") | eo_configure(store, "pace", "800"))/' >"$S/example.c"
check 'the example of the man page is slowed down' grep -q pace "$S/example.c"
check 'it compiles' $cc -std=c99 -Wall -Wextra -Werror "$S/example.c" -o "$S/example" -I"$SOURCE/objects" -L"$library" -lefs-objects
versions() { (cd "$1/run" 2>/dev/null && ls -d [0-9]*[0-9]) | tr '\n' ' '; }

mkdir "$S/plain"
EFS_MOUNT=$S/plain "$S/example" 2>"$S/said" & pid=$!
until [ -e "$S/plain/objects/run/00000005" ] || ! kill -0 "$pid" 2>/dev/null; do :; done
kill -9 "$pid"; wait "$pid" 2>/dev/null
check 'a program that is killed leaves versions' test -n "$(versions "$S/plain/objects")"
check 'but not all' test ! -e "$S/plain/objects/run/00000100"
check_exit 'it continues from the newest one' 0 '^$' env EFS_MOUNT="$S/plain" "$S/example"
check 'up to the end' test "$(versions "$S/plain/objects")" = '00000097 00000098 00000099 00000100 '
check 'and leaves no draft' test -z "$(find "$S/plain" -name '*.part')"
# u[step][0] is 1 for each step: no step is lost and none is done twice.
check 'with each step once' test "$(od -An -v -t f8 -w8000 -j "$((128 + 8000))" -N 800000 "$S/plain/objects/run/00000100/u.npy" | awk '$1 == 1' | wc -l)" = 100

bench=$BIN/efs-bench-checkpoint
for options in '' daemon-io; do
  fresh "checkpoint$options" 'outputs: [ [ path: "**/*.part", flags: temporary ], [ path: objects, flags: temporary ] ]'
  if [ ! -x "$bench" ]; then skip "the strategies on a mount ($options)" "$bench is not built"; continue; fi
  check_exit "every strategy that the system permits, on a mount ($options)" 0 '^(snapshot|stage)' "$EFS" run ${options:+-o $options} "$JOB" -- \
    sh -c "$bench \"\$EFS_MOUNT/objects\" 3 1500 1 1"
done
finish
