#!/bin/bash
# Verbs that meet: who has an instance or a store has it alone, until he is through; and who means one does nothing to the next of its name.
#   together_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# on_disk NAME: a job whose store is a directory outside of the instance's.
on_disk() {
  fresh "$1"
  mkdir -p "$S/$1/disk"
  job "$JOB" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/$1/disk ] ]"
}
mkdir "$S/elsewhere"
# elsewhere VERB ...: with a runtime directory that knows nothing of ours. `late` is its job file for $JOB's store.
elsewhere() { EFS_RUNTIME_DIR=$S/elsewhere "$EFS" "$@"; }
late() { sed "s|mount-dir: .*|mount-dir: $S/$NAME/late|" "$JOB" >"$S/$NAME/late.yaml"; }

# --- while a worker is replaced, nobody else has its store ---
on_disk replaced; late
started "$JOB"; echo precious >"$MNT/r"
status=$(status_of replaced); supervisor=$(field "$status" 'd["supervisor_pid"]'); worker=$(field "$status" 'd["worker_pid"]')
store=$(ls -d "$S"/replaced/disk/efs-*)
check 'a supervisor that does not come to it' stall "$supervisor"
kill -KILL "$worker"; check 'a worker that is dead' await 20 gone "$worker"
check_exit 'another start' 1 "$store is in use" elsewhere start --name replaced "$S/replaced/late.yaml"
check_exit 'a salvage' 1 'in use' elsewhere salvage "$store"
check_exit 'a clean' 1 'in use' elsewhere clean --force "$store"
kill -CONT "$supervisor"
check 'the successor goes on' await 20 grep -qx precious "$MNT/r"
check 'stop' "$EFS" stop replaced
check 'brings out' grep -qx precious "$OUT/r"
check 'and leaves nothing' test ! -e "$store"

# --- a stop is for the instance that it was asked for ---
fresh twice
"$EFS" run "$JOB" -- bash -c "echo 1 >\$EFS_MOUNT/r1; touch $S/twice/up; until [ -e $S/twice/go ]; do sleep 0.05; done" >"$S/twice/said" 2>&1 & runner=$!; pids+=($runner)
check 'a run' await 20 test -e "$S/twice/up"
check 'whose instance somebody else stops' "$EFS" stop twice
started "$JOB"; echo 2 >"$MNT/r2"
touch "$S/twice/go"; wait $runner; code=$?; pids=()
check 'at its end cannot stop it' test $code = 125
check 'says why' grep -q 'another one of the name twice is running' "$S/twice/said"
check 'and leaves the next one of the name alone' grep -qx 2 "$MNT/r2"
check 'stop' "$EFS" stop twice
check 'of which everything is back' grep -qx 2 "$OUT/r2"

# --- a start while a clean is under way: what is judged is what is removed ---
# pausing CALL VERB ...: efs, in the background, until $S/pause is removed; returns when it is at CALL.
pausing() {
  local at=$1; shift
  touch "$S/pause"; rm -f "$S/pause.reached"
  LD_PRELOAD=$BIN/../lib/libefs-pausing.so EFS_PAUSE_AT=$at EFS_PAUSE_WHILE=$S/pause ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" "$EFS" "$@" >"$S/paused" 2>&1 & paused=$!
  await 20 test -e "$S/pause.reached"
}
# go_on: the one that paused, to its end; its exit code.
go_on() { rm "$S/pause"; wait "$paused"; code=$?; }

if [ "$(id -u)" = 0 ]; then
  fresh raced
  started "$JOB"; echo r >"$MNT/r"
  kill_both raced
  check 'salvage' "$EFS" salvage raced
  pausing umount2 clean raced
  check 'a clean unmounts what is dead' test -e "$S/pause.reached"
  check_exit 'a start meanwhile is refused' 1 'raced is there already' "$EFS" start "$JOB"
  check_exit 'and so is another clean' 1 'raced is running|another efs clean' "$EFS" clean raced
  go_on; check 'the clean goes on' test $code -eq 0
  check 'and removes all' ended raced
  started "$JOB"
  check 'the next start begins empty' test ! -e "$MNT/r"
  check 'stop' "$EFS" stop --no-stage-out raced

  # A clean that finds the directory which a start has just made, and not locked yet.
  fresh new
  EFS_PAUSE_ON=$EFS_RUNTIME_DIR/new pausing flock start "$JOB"
  check 'a start has made its directory' test -d "$EFS_RUNTIME_DIR/new"
  check 'which a clean removes' "$EFS" clean new
  go_on; check 'it makes another' test $code -eq 0
  check 'and serves' test -e "$MNT/input/a"
  check 'as who is asked' json "$(status_of new)" "d['state'] == 'running'"
  check 'stop' "$EFS" stop new
  check 'and leaves nothing' ended new

  # Two of one name with runtime directories of their own have one store: what died last is what counts.
  on_disk again
  started "$JOB"
  kill_both again
  store=$(ls -d "$S"/again/disk/efs-*)
  rm -rf "${EFS_RUNTIME_DIR:?}/again"; umount "$MNT"   # as after a restart of the machine
  pausing flock clean "$store"
  check 'a clean of a store has found nothing of worth in it' test -e "$S/pause.reached"
  started "$JOB"; echo precious >"$MNT/r"
  kill_both again
  go_on; check 'and goes on' test $code -eq 1
  check 'but not with what was used since' grep -q 'has been used meanwhile' "$S/paused"
  check 'which is there' "$EFS" salvage again
  check 'whole' grep -qx precious "$OUT/r"
  check 'clean' "$EFS" clean again
else
  skip 'a start while a clean is under way' 'not root'
fi

if [ "$(id -u)" = 0 ]; then
  # Two starts on one store, with runtime directories of their own: who comes too late takes nothing away.
  on_disk two
  sed "s|mount-dir: .*|mount-dir: $S/two/late|" "$JOB" >"$S/two/late.yaml"
  EFS_RUNTIME_DIR=$S/elsewhere EFS_PAUSE_ON=/meta/lock pausing flock start --name two "$S/two/late.yaml"
  check 'one start has made the store' test -e "$S/pause.reached"
  started "$JOB"; echo precious >"$MNT/r"
  go_on; check 'which another one has by now' test $code -eq 1
  check 'as it says' grep -q 'is in use by another instance' "$S/paused"
  check 'and leaves' test -e "$S"/two/disk/efs-*/meta/journal -a ! -e "$S/elsewhere/two"
  check 'stop' "$EFS" stop two
  check 'brings out' grep -qx precious "$OUT/r"
else
  skip 'two starts on one store' 'not root'
fi

if [ "$(id -u)" = 0 ]; then
  # A stop that removes the store has it to the end: a start in between would lose what it makes.
  on_disk removed; late
  touch "$S/pause"; rm -f "$S/pause.reached"
  with_pause() { LD_PRELOAD=$BIN/../lib/libefs-pausing.so EFS_PAUSE_AT=unlinkat EFS_PAUSE_ON=/lock EFS_PAUSE_WHILE=$S/pause ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" "$EFS" "$@"; }
  check 'start' with_pause start "$JOB"
  echo r >"$MNT/r"
  "$EFS" stop removed >"$S/removed/said" 2>&1 & stopper=$!; pids+=($stopper)
  check 'a stop is about to give the lock of its store away' await 20 test -e "$S/pause.reached"
  check 'when all else is gone' test -z "$(find "$S"/removed/disk -type f ! -name lock)"
  check_exit 'a start meanwhile' 1 'is in use' elsewhere start --name removed "$S/removed/late.yaml"
  rm "$S/pause"; wait $stopper; code=$?; pids=()
  check 'the stop goes on' test $code = 0
  check 'and leaves nothing' test -z "$(ls "$S/removed/disk")"
  check 'the next start' elsewhere start --name removed "$S/removed/late.yaml"
  check 'has its store' elsewhere stop removed
else
  skip 'a start while a store is removed' 'not root'
fi

finish
