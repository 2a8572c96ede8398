#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The statements of an instance, or about it, apply to one life only: not to the next life, and not
# to another instance at the same path.
#   lives_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

mkdir "$S/elsewhere"
elsewhere() { EFS_RUNTIME_DIR=$S/elsewhere "$EFS" "$@"; }
state_is() { json "$(status_of "$1" 2>/dev/null)" "d['state'] == '$2'"; }
# pausing CALL FILE VERB ...: efs, and the daemons that it starts, pause at CALL of FILE ("": any
# file) while $S/pause exists.
pausing() {
  local at=$1 on=$2; shift 2
  env LD_PRELOAD="$BIN/../lib/libefs-pausing.so" EFS_PAUSE_AT="$at" ${on:+EFS_PAUSE_ON="$on"} EFS_PAUSE_WHILE="$S/pause" ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" "$EFS" "$@"
}
sign() { rm -f "$S/pause.reached"; touch "$S/pause"; }
reached() { test -e "$S/pause.reached"; }
both_of() { field "$(status_of "$1")" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])'; }

# --- a store that was over, and that another instance has continued ---
# over NAME: an instance that exported everything and died before it could remove the journal.
# Another runtime directory continued it and died too, with data that exists nowhere else.
over() {
  fresh "$1"; mkdir "$S/$1/disk"
  job "$JOB" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/$1/disk ] ]"
  sign
  check 'start' pausing renameat /meta/journal start "$JOB"
  echo one >"$MNT/r1"; pids_of=$(both_of "$1")
  "$EFS" stop "$1" >/dev/null 2>&1 & stopping=$!
  check 'a stop is about to remove the store' await 20 reached
  kill -KILL $pids_of; wait $stopping; rm "$S/pause"
  check 'everything is back' grep -qx one "$OUT/r1"
  check_exit 'and is said to be' 1 '"left":"over"' "$EFS" status --json "$1"
  check 'elsewhere somebody goes on with the store' elsewhere start "$JOB"
  echo precious >"$MNT/r2"
  EFS_RUNTIME_DIR=$S/elsewhere kill_both "$1"
}
over cleaned
check_exit 'a clean judges what is there now' 1 'not removed' "$EFS" clean cleaned
check 'a salvage brings it out' elsewhere salvage cleaned
check 'whole' grep -qx precious "$OUT/r2"
check 'now a clean' "$EFS" clean cleaned
check 'of both' elsewhere clean --force cleaned
check 'leaves nothing' test -z "$(ls "$S/cleaned/disk")"
over started
started "$JOB"
check 'a start goes on with what is there now' grep -qx precious "$MNT/r2"
check 'stop' "$EFS" stop started
check 'brings it out' grep -qx precious "$OUT/r2"
check 'and the other one holds nothing' elsewhere clean --force started

# --- a worker that dies in a stop: the client decides how the instance ends ---
fresh unasked
sed -i '/^global-settings:/a\  max-rate: 2 MiB/s' "$JOB"
started "$JOB"; head -c 6000000 /dev/zero >"$MNT/r"; echo scratch >"$MNT/scratch"
"$EFS" stop --keep unasked >/dev/null 2>&1 & stopping=$!
check 'a stop --keep stages out' await 20 state_is unasked staging-out
worker=$(field "$(status_of unasked)" 'd["worker_pid"]')
kill -KILL $stopping; wait $stopping 2>/dev/null; kill -KILL "$worker"
check 'when it and the worker have died the successor waits' await 20 state_is unasked unsaved
check 'for longer than for one that nobody asked for' bash -c "exec 3<>/dev/zero; read -rt 12 <> <(:); :"
check 'still' state_is unasked unsaved
check 'the next stop --keep' "$EFS" stop --keep unasked
started "$JOB"
check 'has kept it' grep -qx scratch "$MNT/scratch"
check 'stop' "$EFS" stop unasked
check 'whole' cmp "$OUT/r" <(head -c 6000000 /dev/zero)

fresh usual
sed -i '/^global-settings:/a\  max-rate: 2 MiB/s' "$JOB"
started "$JOB"; head -c 6000000 /dev/zero >"$MNT/r"
"$EFS" stop usual >/dev/null 2>&1 & stopping=$!
check 'a stop stages out' await 20 state_is usual staging-out
worker=$(field "$(status_of usual)" 'd["worker_pid"]')
kill -KILL $stopping; wait $stopping 2>/dev/null; kill -KILL "$worker"
check 'when it and the worker have died the successor brings all out' await 40 ended usual
check 'whole, as well' cmp "$OUT/r" <(head -c 6000000 /dev/zero)

# --- a program that stops its own instance, with a receipt larger than a socket's buffer ---
fresh many; echo 'import os
for i in range(4000): open("%s/r%05d" % (os.environ["EFS_MOUNT"], i), "w").write("x")' >"$S/many/make.py"
said=$("$EFS" run --json "$JOB" -- sh -c 'python3 "$0" && "$1" stop many >/dev/null' "$S/many/make.py" "$EFS" 2>/dev/null); code=$?
check 'run --json' test $code = 0
check 'knows how it ended' json "$said" "d['stop_exit'] == 0 and d['stop']['staged_out'] and 'receipt_file' in d['stop']"
said=$("$EFS" run --json "$JOB" -- python3 "$S/many/make.py" 2>/dev/null); code=$?
check 'one that it ends itself has the receipt' grep -q '"path":"r03999"' <<<"$said"
check 'and is good' test $code = 0

# --- the mount point of a running instance, still empty ---
fresh first 'outputs: [ [ path: "*", flags: persistent ] ]' ; first_job=$JOB; first_mnt=$MNT
sed -i '/^resources:/d' "$JOB"; started "$JOB"
fresh second 'outputs: [ [ path: "*", flags: persistent ] ]'; sed -i "s|mount-dir: .*|mount-dir: $first_mnt|; /^resources:/d" "$JOB"
check_exit 'is not mounted over' 1 "$first_mnt.*another instance is mounted there" "$EFS" start "$JOB"
echo mine >"$first_mnt/r"
check 'stop' "$EFS" stop first
check 'the first one has what is written there' grep -qx mine "$S/first/out/r"
if [ "$(id -u)" = 0 ]; then
  started "$first_job"; echo again >"$first_mnt/r"
  mount -t tmpfs none "$first_mnt"
  check_exit 'under something else it cannot be unmounted' 1 'in use' timeout 20 "$EFS" stop first
  umount "$first_mnt"
  check 'without that it can' "$EFS" stop first
  check 'nothing is mounted' test -z "$(grep " $first_mnt " /proc/mounts)"
  started "$first_job"; echo again >"$first_mnt/r"
  mount --bind "$first_mnt" "$first_mnt"
  check 'one that is mounted over itself is unmounted' timeout 60 "$EFS" stop first
  check 'entirely' test -z "$(grep " $first_mnt " /proc/mounts)"
  check 'and everything is back' grep -qx again "$S/first/out/r"
else
  skip 'a mount that is covered' 'not root'
fi

# --- only the instance that was found dead is removed ---
fresh asked; started "$JOB"
fresh victim; started "$JOB"; kill_both victim
sign
pausing connect '' stop --no-stage-out "$MNT" >"$S/victim/said" 2>&1 & stopping=$!
check 'a stop by mount point, which asks the others' await 20 reached
started "$JOB"; echo precious >"$MNT/new"; kill_both victim
rm "$S/pause"; wait $stopping; code=$?
check 'does not remove what was used meanwhile' test $code = 1
check 'and says so' grep -q 'used meanwhile' "$S/victim/said"
check 'salvage' "$EFS" salvage victim
check 'has it' grep -qx precious "$OUT/new"
check 'clean' "$EFS" clean victim
check 'the one that was asked runs on' "$EFS" stop asked

# --- a mount point that was removed and recreated during the stage-in; one that a dead worker had
#     created ---
fresh remade; mkdir "$MNT"
sed -i '/^global-settings:/a\  max-rate: 2 MiB/s' "$JOB"; head -c 4000000 /dev/zero >"$PFS/input/large"
"$EFS" start "$JOB" >"$S/remade/said" 2>&1 & starting=$!
check 'a start stages in' await 20 state_is remade staging-in
rmdir "$MNT"; mkdir "$MNT"
wait $starting; code=$?
check 'and takes the new one of the name' test $code = 0
check 'whole' cmp "$MNT/input/large" "$PFS/input/large"
check 'stop' "$EFS" stop remade
check 'the mount point was not ours' test -d "$MNT"
rmdir "$MNT"
"$EFS" start "$JOB" >"$S/remade/said" 2>&1 & starting=$!
check 'a start that makes it itself stages in' await 20 state_is remade staging-in
rmdir "$MNT"; mkdir "$MNT"
wait $starting; code=$?
check 'and takes that of somebody else' test $code = 0
check 'stop' "$EFS" stop remade
check 'which stays' test -d "$MNT"
fresh ending
sign
check 'start' pausing rmdir "$MNT" start "$JOB"
echo r >"$MNT/r"; worker=$(field "$(status_of ending)" 'd["worker_pid"]')
"$EFS" stop ending >/dev/null 2>&1 & stopping=$!
check 'a worker is about to remove the mount point that it made' await 20 reached
check 'and is held' stall "$worker"
rm "$S/pause"; kill -KILL "$worker"
wait $stopping; code=$?
check 'the stop ends' test $code = 0
check 'and the instance' await 20 ended ending
check 'its successor has removed it' test ! -e "$MNT"
check 'the result is back' grep -qx r "$OUT/r"

# --- a successor that finds the instance over, and cannot end it either ---
fresh stuck; mkdir "$S/stuck/disk"
job "$JOB" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/stuck/disk ] ]"
sign
check 'start' pausing renameat /meta/journal start "$JOB"
echo r >"$MNT/r"; worker=$(field "$(status_of stuck)" 'd["worker_pid"]')
"$EFS" stop stuck >"$S/stuck/said" 2>&1 & stopping=$!
check 'a stop is about to remove the store' await 20 reached
if chattr +i "$S"/stuck/disk/efs-*/meta 2>/dev/null; then
  rm "$S/pause.reached"; kill -KILL "$worker"
  check 'its successor, too' await 20 reached
  rm "$S/pause"
  check 'who waits for it is answered' await 60 gone "$stopping"
  wait $stopping; code=$?
  check 'with an error' test $code = 1
  # The successor's own answer leads to efs status, which says the rest.
  check 'what to do' grep -qE 'efs (clean|status) stuck' "$S/stuck/said"
  check 'the daemon gives up' await 60 no_daemon
  chattr -i "$S"/stuck/disk/efs-*/meta
  check 'then it can be done' "$EFS" clean stuck
else
  rm "$S/pause"; wait $stopping
  skip 'a store that cannot be ended' 'no chattr +i here'
fi
check 'the result is back' grep -qx r "$OUT/r"

# --- an instance's directory that root created for a user, incompletely ---
if [ "$(id -u)" = 0 ]; then
  fresh given; chmod 755 "$S" "$S/given"; chown -R nobody "$S/given"
  sign
  pausing flock /given/lock start --user nobody "$JOB" >"$S/given/said" 2>&1 & starting=$!
  check 'a start is about to give it to him' await 20 reached
  kill -KILL $(daemons); wait $starting; rm "$S/pause"
  check 'and dies' await 20 no_daemon
  check 'the next one takes it' "$EFS" start --user nobody "$JOB"
  check 'stop' "$EFS" stop given
  check 'nothing is left' ended given
else
  skip 'a directory that root made for a user' 'not root'
fi
finish
