#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A worker is killed while one of its threads notifies the kernel of a name. The thread waits for
# the lock of a directory, and a program that holds the lock waits for the worker, so the kernel
# cannot end that thread. A successor still answers the program. If the supervisor is killed too,
# the next efs ends the connection.
#   undying_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
kernel_has_it || { skip 'a worker that cannot be gone' 'needs Linux 6.9'; finish; }

field_of() { field "$(status_of "$NAME")" "d['$1']"; }
sleeps_in_kernel() { grep -qsE '^[0-9]+ \(.*\) D ' /proc/"$1"/task/*/stat; }
# A wait for a disk looks the same and ends: the same thread must stand for a while.
stays_in_kernel() {
  local task before
  for task in /proc/"$1"/task/*; do
    before=$(grep -hs ctxt_switches "$task/status") && grep -qsE '^[0-9]+ \(.*\) D ' "$task/stat" || continue
    sleep 2
    grep -qsE '^[0-9]+ \(.*\) D ' "$task/stat" && [ "$before" = "$(grep -hs ctxt_switches "$task/status")" ] && return
  done
  return 1
}
is_undying() { [ "$(cut -d' ' -f3 "/proc/$1/stat" 2>/dev/null)" = Z ] && sleeps_in_kernel "$1"; }
is_gone() { [ ! -e "/proc/$1" ] || { ! is_undying "$1" && grep -q '^State:.*Z' "/proc/$1/status"; }; }

# caught: an instance whose worker is blocked so, with the program that waits for it; sets worker,
# supervisor, program.
caught() {
  fresh "$1" "backends: [ [ id: disk, type: NVRAM-NVML, daxfs: $S/$1/disk, capacity: 64 MiB ] ]" 'resources: [ [ path: input ] ]'
  mkdir "$S/$1/disk"
  check "$NAME: start" env LD_PRELOAD="$BIN/../lib/libefs-pausing.so" EFS_PAUSE_AT=sync EFS_PAUSE_WHILE="$S/pause" ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" "$EFS" start "$JOB"
  echo mmm >"$PFS/input/more"
  echo old >"$MNT/input/result"; echo new >"$MNT/input/result.new"
  worker=$(field_of worker_pid) supervisor=$(field_of supervisor_pid)
  rm -f "$S/pause.reached"
  # The new file of a replacement is synced first; meanwhile the kernel holds the directory's lock.
  # The pause begins right before, or else another sync could be the first that waits.
  python3 -c 'import os, sys; open(sys.argv[2], "w").close(); os.rename(sys.argv[1] + ".new", sys.argv[1])' "$MNT/input/result" "$S/pause" 2>"$S/$NAME/program" & program=$!
  check "$NAME: a program waits in the directory" await 20 test -e "$S/pause.reached"
  "$EFS" load -i "$NAME" --wait input >/dev/null 2>&1 & asking=$!
  check "$NAME: so does the worker" await 60 stays_in_kernel "$worker"
}

caught worker-killed
kill -KILL "$worker"; rm "$S/pause"
wait $program
check "$NAME: the program is answered by a successor" test $? = 0 -a ! -s "$S/$NAME/program"
wait $asking
check "$NAME: the worker is gone then" await 20 is_gone "$worker"
check "$NAME: the log says what was" grep -q "event=worker_not_gone pid=$worker" "$EFS_RUNTIME_DIR/$NAME/efsd.log"
check "$NAME: what was written is there" grep -qx new "$MNT/input/result"
check_exit "$NAME: the load is asked for again" 0 'load done' "$EFS" load -i "$NAME" --wait input
check "$NAME: and brings what there is" grep -qx mmm "$MNT/input/more"
check "$NAME: stop" "$EFS" stop "$NAME"
check "$NAME: the result is back" grep -qx new "$OUT/input/result"

# both: kills the supervisor first, because it would start a successor.
both_killed() {
  kill -STOP "$supervisor"; kill -KILL "$worker"; rm "$S/pause"
  check "$NAME: the worker cannot be gone" await 20 is_undying "$worker"
  kill -KILL "$supervisor"
  check "$NAME: it outlives its supervisor" await 20 is_gone "$supervisor"
  check "$NAME: in the kernel" is_undying "$worker"
}
ended() {
  wait $program
  check "$NAME: the program has an error" grep -qE 'connection abort|not connected' "$S/$NAME/program"
  check "$NAME: the worker is gone" await 20 is_gone "$worker"
  wait $asking
}

caught both-start
both_killed
check "$NAME: a start goes on" "$EFS" start "$JOB"
ended
result=$(cat "$MNT/input/result")   # no process got the answer of the rename: it took effect, or it did not
check "$NAME: with what was written" grep -qxE "old|new" "$MNT/input/result"
check "$NAME: stop" "$EFS" stop "$NAME"
check "$NAME: the result is back" grep -qx "$result" "$OUT/input/result"

caught both-salvage
both_killed
check "$NAME: a salvage has the store" "$EFS" salvage "$NAME"
ended
check "$NAME: the result is back" grep -qxE "old|new" "$OUT/input/result"
check "$NAME: clean" "$EFS" clean "$NAME"

caught both-clean
both_killed
check_exit "$NAME: a clean refuses, for there are results" 1 'not removed: .*no other copy' "$EFS" clean "$NAME"
check "$NAME: one that is to give them up does not" "$EFS" clean --force "$NAME"
ended
check "$NAME: nothing is mounted" test -z "$(grep -F "$MNT " /proc/self/mounts)"

finish
