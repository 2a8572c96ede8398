#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A checkpoint of a whole process by CRIU: the image is written to the mount and staged out; another
# instance has it as an input, and the process goes on there. docs/checkpoint-images.md
#   checkpoint_images_test.sh BIN_DIR
# EFS_CRIU names the program criu.
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

criu= why='criu is not installed'
for candidate in ${EFS_CRIU:-} criu "${EFS_PREFIX:-/opt/efs-deps}/sbin/criu"; do
  command -v "$candidate" >/dev/null || continue
  if said=$("$candidate" check 2>&1); then criu=$candidate; break; fi
  why="$candidate check: $(grep Error <<<"$said" | grep -m 1 -v exited)"
done
[ "$(id -u)" = 0 ] || { skip 'checkpoints of processes' 'needs root'; finish; }
[ -n "$criu" ] || { skip 'checkpoints of processes' "$why: make criu-deps"; finish; }

program=$S/counter
check 'the program compiles' "${CC:-cc}" -std=c99 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -O1 "$SOURCE/tests/cli/checkpoint_images_check.c" -o "$program"
number() { cat "$S/progress"; }
reached() { [ "$(number)" -ge "$1" ]; }
# run_program ARGUMENT...: its own session, no terminal. Its pid is $counter.
run_program() {
  rm -f "$S/progress"
  setsid "$program" "$@" </dev/null >/dev/null 2>&1 & counter=$!; pids+=("$counter")
  check 'the program counts' await 20 reached 5
}
# The pids of the image are free in a namespace of their own.
go_on() {  # go_on DIRECTORY: its log is $S/restore.log
  "$SOURCE/tests/own_mounts.py" --keep "$MNT" unshare --pid --fork --kill-child sh -c 'mount -t proc proc /proc && exec "$@"' sh "$criu" restore -D "$1" -o "$S/restore.log" -v2 </dev/null >/dev/null 2>&1 & restored=$!; pids+=("$restored")
}
# ends PID: kills what this shell started. Its namespace ends with it.
ends() { kill -KILL "$1" 2>/dev/null; wait "$1" 2>/dev/null; pids=(); }

# --- the image of one job is an input of the next ---
for options in passthrough daemon-io; do
  fresh "first-$options" 'outputs: [ [ path: image, flags: persistent ], [ path: log, flags: persistent ], [ path: "**", flags: temporary ] ]'
  start=(); [ $options = passthrough ] || start=(-o daemon-io)
  started "$JOB" ${start[@]+"${start[@]}"}
  # The next instance has the same mount point: the path of an open file is in the image.
  run_program "$S/progress" "$MNT/log"
  mkdir "$MNT/image"
  check "$options: the checkpoint is written to the mount" "$criu" dump -t "$counter" -D "$MNT/image" -o dump.log -v2
  wait "$counter" 2>/dev/null; pids=()
  count=$(number) images=$OUT mount=$MNT
  check "$options: the log on the mount has each step" test "$(head -n "$count" "$MNT/log")" = "$(seq "$count")"
  check "$options: stop" "$EFS" stop "$NAME"
  check "$options: the image is staged out" test -s "$images/image/pages-1.img"

  fresh "second-$options" 'resources: [ [ path: image ], [ path: log, flags: persistent ] ]' 'outputs: [ [ path: "**", flags: temporary ] ]'
  sed -i "s|root-dir: .*|root-dir: $images|; s|mount-dir: .*|mount-dir: $mount|" "$JOB"
  MNT=$mount
  started "$JOB" ${start[@]+"${start[@]}"}
  check "$options: nothing counts" test "$(number)" = "$count"
  go_on "$MNT/image"
  check "$options: the process goes on" await 20 reached $((count + 5))
  ends "$restored"
  last=$(number)
  check "$options: its log on the mount, too, without a gap" test "$(head -n "$last" "$MNT/log")" = "$(seq "$last")"
  check "$options: stop" "$EFS" stop "$NAME"
  check "$options: the log of both jobs is staged out" test "$(head -n "$last" "$OUT/log")" = "$(seq "$last")"
done

# --- what does not work ---
fresh other 'resources: [ [ path: image ] ]' 'outputs: [ [ path: "**", flags: temporary ] ]'
sed -i "s|root-dir: .*|root-dir: $images|" "$JOB"
started "$JOB"
go_on "$MNT/image"
if wait "$restored"; then fail 'another mount point: an open file is not found' 'the process goes on'; else ok; fi
pids=()
check 'the log of CRIU says so' grep -q "Can't open file.*log.*No such file" "$S/restore.log"
check 'stop' "$EFS" stop other
finish
