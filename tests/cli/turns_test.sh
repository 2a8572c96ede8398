#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Slots of the queue for loads and unloads, and for all verbs if the queue's file system hangs.
#   turns_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
QUEUE=$S/queue
mkdir "$QUEUE"

# hold_slot DIRECTION [QUEUE]: a process that never ends holds the queue's only slot; its pid is in
# `holder`.
hold_slot() {
  rm -f "$S/held"
  python3 -c '
import fcntl, os, signal, struct, sys
locks = os.open(sys.argv[1] + "/locks", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.fcntl(locks, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 1 << (21 if sys.argv[2] == "out" else 20), 1, 0))
open(sys.argv[3], "w").close()
signal.pause()' "${2:-$QUEUE}" "$1" "$S/held" &
  holder=$!
  pids+=("$holder")
  await 20 test -e "$S/held"
}
free_slot() { kill -KILL "$holder" 2>/dev/null; wait "$holder" 2>/dev/null; }
waiters_are() { [ "$(field "$("$EFS" queue --json "$QUEUE")" "len(d['$1']['waiters'])")" = "$2" ]; }
tickets() { ls "$QUEUE/in" "$QUEUE/out" 2>/dev/null | grep -c '^[wh][0-9]'; }
task_is() { [ "$(field "$("$EFS" status --json "$NAME")" "[t['task_state'] for t in d['tasks'] if t['task'] == $1][0]")" = "$2" ]; }
task_waits() { json "$("$EFS" status --json "$NAME")" "[t for t in d['tasks'] if t['task'] == $1][0]['turn']['standing'] == 'waiting'"; }
in_log() { grep -qE "$1" "$EFS_RUNTIME_DIR/$NAME/efsd.log"; }
efs() { timeout 60 "$EFS" "$@"; }
ends_well() { local code; wait "$2"; code=$?; check "$1" test "$code" = 0; }

# --- loads ---
fresh load 'resources: [ [ path: input/a ] ]'
echo gamma >"$PFS/c"; echo delta >"$PFS/d"
check 'an instance with turns' efs start --interleaving "$QUEUE" "$JOB"
hold_slot in
one=$(efs load -i load c)
check 'a load waits for its turn' await 20 task_waits "$one"
check 'in the queue' waiters_are in 1
check_exit 'efs status says so' 0 "task +$one: load of c: running, waits to stage in, 0 ahead" efs status load
check_not 'the instance itself waits for nothing' json "$(status_of load)" '"turn" in d'
two=$(efs load -i load d)
check 'it can be cancelled' efs cancel -i load "$one"
check 'and ends' await 20 task_is "$one" cancelled
check 'the next one waits' await 20 task_waits "$two"
check_not 'what was cancelled is not there' test -e "$MNT/c"
free_slot
check_exit 'it goes when the slot is free' 0 'load done: 1 files' efs wait -i load "$two"
check 'and is there' grep -qx delta "$MNT/d"
check 'it had its turn' in_log 'event=turn direction=in bytes=6'
check 'which is over when the task is' await 20 waiters_are in 0
check 'no ticket is left while programs run' test "$(tickets)" = 0
hold_slot in
check_exit 'a load of what is there waits for nobody' 0 '1 were there already' efs load -i load --wait d
free_slot

# --- contents that come while the job runs ---
check 'stop of it' "$EFS" stop load
fresh later 'resources: [ { path: input, stage: background }, { path: lazy, stage: on-access } ]'
mkdir "$PFS/lazy"; echo one >"$PFS/lazy/a"; echo two >"$PFS/lazy/b"
hold_slot in
check 'a start that copies nothing waits for no turn' efs start --interleaving "$QUEUE" "$JOB"
check 'the background waits for one' await 20 waiters_are in 1
check 'a program does not' grep -qx one "$MNT/lazy/a"
check 'nor does efs fetch' efs fetch -i later lazy
check 'nor a program that opens a file of the background' grep -qx alpha "$MNT/input/a"
check_exit 'the others are not here' 1 'time is up: 1 inputs' efs wait -i later --inputs --timeout 0
free_slot
check 'then they come' efs wait -i later --inputs
check 'and no turn is left' await 20 waiters_are in 0
check 'it was one' in_log 'event=turn direction=in'
check 'stop' "$EFS" stop later
sed -i '/results-dir/a\  max-rate: 1 MB/s' "$JOB"; head -c 30000000 /dev/zero >"$PFS/input/large"; echo gamma >"$PFS/c"
hold_slot in
check 'a start, again' efs start --interleaving "$QUEUE" "$JOB"
check 'that waits' await 20 waiters_are in 1
check 'a stop does not wait for the turn' efs stop later
free_slot

# --- unloads ---
fresh load 'resources: [ [ path: input/a ] ]'
echo gamma >"$PFS/c"; echo delta >"$PFS/d"
check 'an instance with turns, again' efs start --interleaving "$QUEUE" "$JOB"
hold_slot out
echo result >"$MNT/result"
one=$(efs unload -i load result)
check 'an unload waits for its turn' await 20 task_waits "$one"
check_exit 'efs status says so' 0 "task +$one: unload of result: running, waits to stage out, 0 ahead" efs status load
two=$(efs load -i load c)
check_exit 'a load does not wait for it' 0 'load done: 1 files' efs wait -i load "$two"
check 'it can be cancelled' efs cancel -i load "$one"
check 'and ends' await 20 task_is "$one" cancelled
check_not 'nothing was unloaded' test -e "$OUT/result"
one=$(efs unload -i load result)
await 20 task_waits "$one"
echo changed >"$MNT/result"
free_slot
check_exit 'it goes when the slot is free' 0 'unload done' efs wait -i load "$one"
check 'with what the file is then' grep -qx changed "$OUT/result"
check 'the turn is over' test "$(tickets)" = 0
check_exit 'a directory, by pattern' 0 'unload done' efs unload -i load --wait 'inp*'
check 'efs stop' efs stop load

# --- a stop while an unload waits ---
fresh stop
check 'an instance with turns' efs start --interleaving "$QUEUE" "$JOB"
echo result >"$MNT/result"
hold_slot out
one=$(efs unload -i stop result)
await 20 task_waits "$one"
timeout 60 "$EFS" stop stop >"$S/stop/patient" 2>&1 &
patient=$!
pids+=("$patient")
stops() { json "$(status_of stop)" 'd["state"] == "unmounting"'; }
check 'a stop waits for the unload' await 20 stops
check 'which waits still' task_waits "$one"
check 'a stop with a deadline is heard' timeout 40 "$EFS" stop --deadline 12 stop
wait "$patient"
check 'the result is back' grep -qx result "$OUT/result"
check 'nothing is left' ended stop
fresh drop
check 'an instance with turns' efs start --interleaving "$QUEUE" "$JOB"
echo result >"$MNT/result"
one=$(efs unload -i drop result)
await 20 task_waits "$one"
timeout 60 "$EFS" stop drop >"$S/drop/patient" 2>&1 &
patient=$!
pids+=("$patient")
stops() { json "$(status_of drop)" 'd["state"] == "unmounting"'; }
await 20 stops
check 'so is one that gives all up' timeout 40 "$EFS" stop --no-stage-out drop
wait "$patient"
check_not 'nothing was unloaded' test -e "$OUT/result"
free_slot

# --- a slot that is held too long ---
printf 'longest-hold: 1\nheartbeat: 1\n' >"$QUEUE/settings"
fresh slow
sed -i '2i\  max-rate: 1 MiB/s' "$JOB"
head -c 60M /dev/urandom >"$PFS/input/large"
timeout 60 "$EFS" start --interleaving "$QUEUE" "$JOB" >"$S/slow/said" 2>&1 &
starter=$!
pids+=("$starter")
check 'a slow stage-in has the turn' await 20 in_log 'event=turn direction=in'
fresh other
check 'another one has it when longest-hold is over' efs start --interleaving "$QUEUE" "$JOB"
check 'in earnest' in_log 'event=turn direction=in'
check 'of which the first is told' await 20 grep -q 'event=turn_over direction=in reason="held its turn for longer than longest-hold"' "$EFS_RUNTIME_DIR/slow/efsd.log"
check 'while the first still stages' json "$(status_of slow)" 'd["state"] == "staging-in"'
check 'efs stop' efs stop other
kill -TERM "$(pgrep -P "$starter")"
wait "$starter"
check 'and can be given up' await 20 ended slow
rm "$QUEUE/settings"

# --- a queue whose file system hangs: a separate efs whose processes are stopped ---
if [ "$(id -u)" != 0 ]; then skip 'a queue whose file system hangs' 'needs root'; finish; fi
fresh pfs 'resources: []'
of_pfs() { EFS_RUNTIME_DIR=$S/p timeout 60 "$EFS" "$@"; }   # where others do not look for their instances
mkdir "$S/p"
check 'a file system' of_pfs start "$JOB"
HANGING=$MNT/queue
mkdir "$HANGING"
member_pids=$(field "$(of_pfs status --json pfs)" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')
hang() { stall $member_pids; }
resume() { kill -CONT $member_pids; }
end_pfs() { resume 2>/dev/null; of_pfs stop --no-stage-out pfs >/dev/null 2>&1; clean; }
trap end_pfs EXIT
trap 'end_pfs; exit 130' INT TERM
waits() { json "$(status_of "$NAME")" 'd["turn"]["standing"] == "waiting" and d["turn"].get("reason", "") == ""'; }
waiting_there() { [ "$(field "$("$EFS" queue --json "$HANGING")" 'len(d["in"]["waiters"])')" = 1 ]; }
echo 'longest-wait: 8' >"$HANGING/settings"
fresh hung
hold_slot in "$HANGING"
timeout 60 "$EFS" start --interleaving "$HANGING" "$JOB" >"$S/hung/said" 2>&1 &
starter=$!
pids+=("$starter")
check 'a stage-in waits' await 20 waiting_there
hang
ends_well 'when the queue hangs, it goes ahead after its longest wait' "$starter"
check 'and says so' in_log 'event=no_turn direction=in reason="the queue does not answer: its file system hangs"'
check 'its input is there' grep -qx alpha "$MNT/input/a"
check_exit 'efs status answers' 0 'hung: running' efs status hung
echo r >"$MNT/result"
check 'a stop with a deadline ends in time' timeout 40 "$EFS" stop --deadline 6 hung
check 'the result is back' grep -qx r "$OUT/result"
check_exit 'efs queue ends' 1 'its file system does not answer' timeout 40 "$EFS" queue "$HANGING"
fresh quitter
timeout 60 "$EFS" start --interleaving "$HANGING" "$JOB" >"$S/quitter/said" 2>&1 &
starter=$!
pids+=("$starter")
check 'a stage-in that finds the queue hanging waits' await 20 waits
kill -TERM "$(pgrep -P "$starter")"
wait "$starter"
check 'and can be given up' await 20 ended quitter
fresh tasks 'resources: [ [ path: input/a ] ]'
resume
free_slot
check 'an instance with turns' efs start --interleaving "$HANGING" "$JOB"
hang
one=$(efs load -i tasks input/sub/b)
check 'a load waits' await 20 task_waits "$one"
check 'and can be cancelled' efs cancel -i tasks "$one"
check 'at once' await 20 task_is "$one" cancelled
resume
check_exit 'when the queue is back loads have their turns' 0 'load done: 1 files' efs load -i tasks --wait input/sub/b
check 'in earnest' in_log 'event=turn direction=in bytes=5'
check 'efs stop' efs stop tasks
check 'of the file system' of_pfs stop pfs
finish
