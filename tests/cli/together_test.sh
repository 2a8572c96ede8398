#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Concurrent verbs: a verb locks an instance or a store until its end, and never affects a later
# instance of the same name.
#   together_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# on_disk NAME: a job with a store outside the instance's directory.
on_disk() {
  fresh "$1"
  mkdir -p "$S/$1/disk"
  job "$JOB" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/$1/disk ] ]"
}
mkdir "$S/elsewhere"
# elsewhere VERB ...: with a runtime directory without our instances. `late` is a job file for
# $JOB's store there.
elsewhere() { EFS_RUNTIME_DIR=$S/elsewhere "$EFS" "$@"; }
late() { sed "s|mount-dir: .*|mount-dir: $S/$NAME/late|" "$JOB" >"$S/$NAME/late.yaml"; }

# --- while a worker is replaced, no other process has its store ---
on_disk replaced; late
started "$JOB"; echo precious >"$MNT/r"
status=$(status_of replaced); supervisor=$(field "$status" 'd["supervisor_pid"]'); worker=$(field "$status" 'd["worker_pid"]')
store=$(ls -d "$S"/replaced/disk/efs-*)
check 'a supervisor that does not come to it' stall "$supervisor"
kill -KILL "$worker"; check 'a worker that is dead' await 20 gone "$worker"
check_exit 'another start' 1 "$store is in use" elsewhere start --name replaced "$S/replaced/late.yaml"
check_exit 'a salvage' 1 'in use' elsewhere salvage "$store"
check_exit 'a clean' 1 'in use' elsewhere clean --force "$store"
check_exit 'status' 1 '^replaced: silent' "$EFS" status replaced
kill -CONT "$supervisor"
check 'the successor goes on' await 20 grep -qx precious "$MNT/r"
check 'stop' "$EFS" stop replaced
check 'brings out' grep -qx precious "$OUT/r"
check 'and leaves nothing' test ! -e "$store"

# --- a stop applies only to the instance that it asked ---
fresh twice
"$EFS" run "$JOB" -- bash -c "echo 1 >\$EFS_MOUNT/r1; touch $S/twice/up; until [ -e $S/twice/go ]; do sleep 0.05; done" >"$S/twice/said" 2>&1 & runner=$!; pids+=($runner)
check 'a run' await 20 test -e "$S/twice/up"
check 'whose instance somebody else stops' "$EFS" stop twice
started "$JOB"; echo 2 >"$MNT/r2"
touch "$S/twice/go"; wait $runner; code=$?; pids=()
check 'at its end knows that everything is back' test $code = 0
check 'says so' grep -q 'twice: stage-out complete: 1 staged out' "$S/twice/said"
check 'and leaves the next one of the name alone' grep -qx 2 "$MNT/r2"
check 'stop' "$EFS" stop twice
check 'of which everything is back' grep -qx 2 "$OUT/r2"

# --- a start during a clean: the clean removes the same instance that it checked ---
# pausing CALL VERB ...: runs efs in the background until $S/pause is removed; returns when it has
# reached CALL.
pausing() {
  local at=$1; shift
  touch "$S/pause"; rm -f "$S/pause.reached"
  LD_PRELOAD=$BIN/../lib/libefs-pausing.so EFS_PAUSE_AT=$at EFS_PAUSE_WHILE=$S/pause ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" "$EFS" "$@" >"$S/paused" 2>&1 & paused=$!
  await 20 test -e "$S/pause.reached"
}
# go_on: continues the paused efs to its end; returns its exit code.
go_on() { rm "$S/pause"; wait "$paused"; code=$?; }

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

# A clean found the store dead, and since then a start continued it and a stop kept it.
fresh kept 'outputs: [ [ path: "scratch*", flags: temporary ] ]'
started "$JOB"
kill_both kept
EFS_PAUSE_ON=$EFS_RUNTIME_DIR/kept pausing flock clean
check 'a clean of all that are dead is about to' test -e "$S/pause.reached"
started "$JOB"; echo precious >"$MNT/scratch"
check 'what is kept meanwhile' "$EFS" stop --keep kept
go_on; check 'is not removed' test $code -eq 1
check 'as the clean says' grep -q 'has been used meanwhile' "$S/paused"
started "$JOB"
check 'it is there' grep -qx precious "$MNT/scratch"
check 'stop' "$EFS" stop kept

# A clean finds the directory that a start has just created and not locked yet.
fresh new
EFS_PAUSE_ON=$EFS_RUNTIME_DIR/new pausing flock start "$JOB"
check 'a start has made its directory' test -d "$EFS_RUNTIME_DIR/new"
check 'which a clean removes' "$EFS" clean new
go_on; check 'it makes another' test $code -eq 0
check 'and serves' test -e "$MNT/input/a"
check 'as who is asked' json "$(status_of new)" "d['state'] == 'running'"
check 'stop' "$EFS" stop new
check 'and leaves nothing' ended new

# Two instances of one name, with separate runtime directories, share one store: the state of the
# last one counts.
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

# Two starts on one store, with separate runtime directories: the later one removes nothing.
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

# --- a directory that is as good as missing ---
mkdir -p "$EFS_RUNTIME_DIR/bare/store"   # its maker was killed
fresh bare
started "$JOB"
check 'a start takes it' test -e "$MNT/input/a"
check 'stop' "$EFS" stop bare
mkdir "$EFS_RUNTIME_DIR/strange"; touch "$EFS_RUNTIME_DIR/strange/mine"
fresh strange
check_exit 'and no other' 1 'was not made by efs' "$EFS" start "$JOB"
rm -r "$EFS_RUNTIME_DIR/strange"
if [ "$(id -u)" = 0 ] && id games >/dev/null 2>&1; then
  on_disk theirs
  chown -R games "$S/theirs"
  started --user games "$JOB"; runuser -u games -- sh -c "echo r >$MNT/r"
  kill_both theirs
  umount "$MNT"
  check_exit "a user's own clean of what root started for him" 1 'what it left is removed, and .* is not' runuser -u games -- env EFS_RUNTIME_DIR="$EFS_RUNTIME_DIR" "$EFS" clean --force theirs
  check 'leaves nothing elsewhere' test -z "$(ls "$S/theirs/disk")"
  started --user games "$JOB"
  check "and is no hindrance: root's next start begins empty" test ! -e "$MNT/r"
  check 'stop' "$EFS" stop theirs
else
  skip "a user's own clean of what root started for him" 'not root, or no user games'
fi

# --- one mount point, several instances ---
fresh former
sed -i "s|mount-dir: .*|mount-dir: $S/former/made|" "$JOB"
started "$JOB"; echo r >"$S/former/made/r"
mkdir "$OUT/r"   # in the way
check_exit 'a stop that leaves results' 1 'still in the buffer' "$EFS" stop former
fresh latter
sed -i "s|mount-dir: .*|mount-dir: $S/former/made|; /^global-settings:/a\\  max-rate: 1 MiB/s" "$JOB"
head -c 3000000 /dev/zero >"$PFS/input/large"
"$EFS" start "$JOB" >"$S/latter/said" 2>&1 & starting=$!; pids+=($starting)
staging_in() { json "$("$EFS" status --json latter 2>/dev/null)" "d['state'] == 'staging-in'"; }
check 'another one is to be mounted there' await 20 staging_in
check 'the end of the first' "$EFS" stop --no-stage-out former
check 'takes the directory that it had made' test ! -e "$S/former/made"
wait $starting; code=$?; pids=()
check 'and the other makes it again' test $code = 0
check 'and is mounted' test -e "$S/former/made/input/a"
check 'stop' "$EFS" stop latter
check 'nothing is left of it' test ! -e "$S/former/made"

fresh locked
mkdir "$MNT"
flock -s "$MNT" sleep 60 & locker=$!; pids+=($locker)
check 'somebody else locks the mount point' await 20 bash -c "! flock -n '$MNT' true"
started "$JOB"
check 'a start goes on' test -e "$MNT/input/a"
check 'and says so in its log' grep -q event=mount_point_locked "$EFS_RUNTIME_DIR/locked/efsd.log"
kill $locker; wait $locker 2>/dev/null; pids=()
check 'stop' "$EFS" stop locked

# --- a worker that dies in a stage-out without a client ---
fresh alone
sed -i '/^global-settings:/a\  max-rate: 2 MiB/s' "$JOB"
started "$JOB"; head -c 6000000 /dev/zero >"$MNT/r"
worker=$(field "$(status_of alone)" 'd["worker_pid"]')
kill -TERM "$worker"   # as an unmount from outside: no client waits for an answer
staging_out() { json "$("$EFS" status --json alone 2>/dev/null)" "d['state'] == 'staging-out'"; }
check 'it stages out' await 20 staging_out
kill -KILL "$worker"
check 'the successor brings all out' await 40 ended alone
check 'whole' cmp "$OUT/r" <(head -c 6000000 /dev/zero)

# --- a worker, or a clean, dies while it removes the second of two backends ---
if [ "$(id -u)" = 0 ]; then
  fresh members
  for one in a b; do mkdir "$S/members/$one"; mount -t tmpfs -o size=64m none "$S/members/$one"; done
  job "$JOB" "backends: [ [ id: a, type: NVRAM-NVML, daxfs: $S/members/a, capacity: all ], [ id: b, type: NVRAM-NVML, daxfs: $S/members/b, capacity: all ] ]" 'resources: [ [ path: input, backend: b ] ]' 'outputs: [ [ path: "*", flags: persistent, backend: b ] ]'
  started "$JOB"; for i in 1 2 3; do echo $i >"$MNT/r$i"; done
  kill_both members
  check 'salvage' "$EFS" salvage members
  file=$(cd "$(ls -d "$S"/members/b/efs-*)/data" && find . -type f -name '0*' | head -n 1)
  EFS_PAUSE_ON=${file##*/} pausing unlinkat clean members
  check 'a clean removes the containers of the second backend' test -e "$S/pause.reached"
  kill -KILL $paused; wait $paused 2>/dev/null; rm "$S/pause"
  started "$JOB"
  check 'a start after its death begins empty' test ! -e "$MNT/r1" -a -e "$MNT/input/a"
  check 'stop' "$EFS" stop members
  check 'leaves nothing' test -z "$(ls "$S/members/a" "$S/members/b" | grep efs)"
  umount "$S/members/a" "$S/members/b"
else
  skip 'a clean that dies while it removes the second backend' 'not root'
fi

# A stop that removes the store holds its lock to the end: otherwise a start in between would lose
# its files.
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

finish
