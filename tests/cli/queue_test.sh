#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The queue at the PFS from outside: waiters, holders, their deaths, and the owner of the queue.
#   queue_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
QUEUE=$S/queue
mkdir "$QUEUE"

# hold_slot [DIRECTION]: a process that never ends holds the only slot; its pid is in `holder`.
hold_slot() {
  local offset=$((1 << 20))
  [ "${1:-in}" = in ] || offset=$((1 << 21))
  rm -f "$S/held"
  python3 -c '
import fcntl, os, signal, struct, sys
locks = os.open(sys.argv[1] + "/locks", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.fcntl(locks, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, int(sys.argv[2]), 1, 0))
open(sys.argv[3], "w").close()
signal.pause()' "$QUEUE" "$offset" "$S/held" &
  holder=$!
  pids+=("$holder")
  await 20 test -e "$S/held"
}
free_slot() { kill -KILL "$holder" 2>/dev/null; wait "$holder" 2>/dev/null; }
waiting_in() { "$EFS" queue --json "$QUEUE" | python3 -c 'import json,sys; d=json.load(sys.stdin); sys.exit(0 if len(d["in"]["waiters"]) == int(sys.argv[1]) else 1)' "$1"; }
waiting_out() { "$EFS" queue --json "$QUEUE" | python3 -c 'import json,sys; d=json.load(sys.stdin); sys.exit(0 if len(d["out"]["waiters"]) == int(sys.argv[1]) else 1)' "$1"; }
tickets() { ls "$QUEUE/in" "$QUEUE/out" 2>/dev/null | grep -c '^[wh][0-9]'; }
start_behind() {  # start_behind OPTION...: efs start in the background; its pid in `starter`
  timeout 60 "$EFS" start "$@" "$JOB" >"$S/$NAME/said" 2>&1 &
  starter=$!
  pids+=("$starter")
}
# ends_well NAME PID: a child process ends with 0. (In this shell: a subshell cannot wait for it.)
ends_well() {
  local code
  wait "$2"; code=$?
  check "$1" test "$code" = 0
}
# The keeper: the child of the worker.
keeper_of() {
  local worker
  worker=$(field "$("$EFS" status --json "$1")" 'd["worker_pid"]')
  grep -lE "^PPid:[[:space:]]+$worker$" /proc/[0-9]*/status 2>/dev/null | cut -d/ -f3
}

# --- one instance waits for another ---
hold_slot
fresh turn
start_behind --interleaving "$QUEUE"
check 'a stage-in waits while the slot is held' await 20 waiting_in 1
check_exit 'efs queue shows it' 0 "waits turn on .*, user $(id -un), 11 B" "$EFS" queue "$QUEUE"
check 'and tells programs' json "$("$EFS" queue --json "$QUEUE")" 'd["ok"] and d["in"]["slots"] == 1 and d["in"]["waiters"][0]["job"] == "turn" and d["in"]["waiters"][0]["bytes"] == 11 and not d["out"]["waiters"]'
check_exit 'efs status says what it waits for' 0 'turn +waits to stage in, 0 ahead' "$EFS" status turn
check 'the state is staging-in' json "$("$EFS" status --json turn)" 'd["state"] == "staging-in" and d["turn"]["standing"] == "waiting"'
check_not 'nothing is mounted yet' mounted "$MNT"
# The Slurm plugin's record for the job of this instance.
mkdir -p "$S/shared/jobs/7.0"
record() { printf '{"node":"%s","job":7,"restart":0,"uid":0,"state":"%s","text":"%s","time":0,"instance":"turn","queue":"%s"}\n' "$1" "$2" "$3" "${4-$QUEUE}" >"$S/shared/jobs/7.0/$1"; }
node=$(hostname)
record "$node" staging-in 'staging in'
check_exit 'efs status --job says it as of now' 0 "^job 7 on $node: staging-in: waits to stage in, 0 ahead" env EFS_SHARED="$S/shared" "$EFS" status --job 7
record "$node" staging-in 'staging in' ''
check_exit 'where the queue is known' 0 "^job 7 on $node: staging-in: staging in$" env EFS_SHARED="$S/shared" "$EFS" status --job 7
# slurmctld's answers: about a job without nodes, and the site's directories.
mkdir "$S/bin"
printf '#!/bin/sh\n[ "$*" = "show config" ] && echo "PlugStackConfig = %s/plugstack.conf"\n' "$S" >"$S/bin/scontrol"
cat >"$S/bin/squeue" <<'SQUEUE'
#!/bin/sh
case "$*" in
  *--jobs=8\ *) echo '8|PENDING|Licenses|2026-11-22T20:00:00' ;;
  *--jobs=9\ *) printf '%s\n' '9|RUNNING|None|N/A' '12|PENDING|Resources|N/A' ;;
  *--jobs=10\ *) printf '%s\n' '11|PENDING|Resources|N/A' '10|PENDING|Priority|N/A' ;;
  *--jobs=6_3\ *) echo '7|RUNNING|None|N/A' ;;
  *) echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1 ;;
esac
SQUEUE
chmod 755 "$S/bin"/*
echo "required spank_efs.so efs=$EFS shared=$S/shared queue=$QUEUE" >"$S/plugstack.conf"
at_site() { PATH=$S/bin:$PATH "$EFS" "$@"; }
check_exit 'efs status --job knows where the nodes write' 0 "^job 7 on $node: " at_site status --job 7
check_exit 'a task of an array, as squeue writes it' 0 "^job 7 on $node: " at_site status --job 6_3
check_exit 'one that slurmctld does not know' 1 'does not know the task 6_4' at_site status --job 6_4
check_exit 'a job that waits for its nodes' 0 '^job 8 waits for its nodes .Licenses., which Slurm expects at 2026-11-22T20:00:00; its inputs are staged in when it has them$' at_site status --job 8
check 'and tells programs' json "$(at_site status --json --job 8)" 'd["ok"] and d["nodes"] == [] and d["slurm"] == {"state": "PENDING", "reason": "Licenses", "start": "2026-11-22T20:00:00"}'
check_exit 'one that has nodes, which say nothing' 1 'Slurm has it as RUNNING: it uses no efs' at_site status --job 9
check_exit 'an array is not one of its tasks' 0 '^job 10 waits for its nodes .Priority.;' at_site status --job 10
check_exit 'one that is not known' 1 'no node has written anything about job 4711' at_site status --job 4711
for bad in x 7x 7_ _7 7_3_1 -7 '7;true'; do check_exit "\"$bad\" is no job" 2 'is not a job' "$EFS" status --job="$bad"; done
check_exit 'efs queue knows where the queue is' 0 "^queue $QUEUE, fifo" at_site queue
echo '# nothing' >"$S/plugstack.conf"
check_exit 'without the plugin it has to be told' 2 'directory is not known here: name it' at_site queue
check_exit 'and so has efs status --job' 2 'not known here: name the site' at_site status --job 7
rm -r "$S/bin" "$S/plugstack.conf"
free_slot
ends_well 'a holder that is killed frees its slot' "$starter"
check 'the inputs are there' test "$(cat "$MNT/input/a")" = alpha
check 'the turn is over' waiting_in 0
hold_slot out
echo r >"$MNT/result"
timeout 60 "$EFS" stop turn >"$S/turn/stopped" 2>&1 &
stopper=$!
check 'a stage-out waits for its own slot' await 20 waiting_out 1
record "$node" running "$MNT"
record other running /elsewhere
check_exit 'efs status --job tells of a stage-out within the job' 0 "^job 7 on $node: running: waits to stage out, 0 ahead" env EFS_SHARED="$S/shared" "$EFS" status --job 7
check 'of that node alone' grep -qx 'job 7 on other: running: /elsewhere' <<<"$said"
check 'and tells programs' json "$("$EFS" status --json --job 7 --shared "$S/shared")" 'd["ok"] and [n["turn"] for n in d["nodes"] if n["node"] != "other"] == ["waits to stage out, 0 ahead"] and len([n for n in d["nodes"] if "turn" in n]) == 1'
record other unsaved 'results are not exported'
check_exit 'the exit code is what it was' 3 'on other: unsaved' env EFS_SHARED="$S/shared" "$EFS" status --job 7
fresh other
check 'a stage-in does not wait for it' timeout 30 "$EFS" start --interleaving "$QUEUE" "$JOB"
free_slot
ends_well 'the stage-out goes on' "$stopper"
check_exit 'and is over' 3 "^job 7 on $node: running: $S/turn/mnt\$" env EFS_SHARED="$S/shared" "$EFS" status --job 7
check 'the result is back' test "$(cat "$S/turn/out/result")" = r
check 'efs stop' "$EFS" stop other
check 'no ticket is left' test "$(tickets)" = 0

# --- progress of a holder, and its remaining time ---
echo 'heartbeat: 1' >"$QUEUE/settings"
fresh moving
sed -i '2i\  max-rate: 1 MiB/s' "$JOB"
head -c 40M /dev/urandom >"$PFS/input/large"
start_behind --interleaving "$QUEUE"
moves() { json "$("$EFS" queue --json "$QUEUE")" 'd["in"]["holders"][0]["bytes_done"] > 0 and d["in"]["holders"][0]["left_seconds"] > 0'; }
check 'a stage-in that has its turn says how long it still takes' await 30 moves
check_exit 'efs queue, too' 0 'holds moving on .*, [0-9]+% moved, about [0-9a-z. ]+ left$' "$EFS" queue "$QUEUE"
record "$node" staging-in 'staging in'; sed -i 's/"turn"/"moving"/' "$S/shared/jobs/7.0/$node"; rm -f "$S/shared/jobs/7.0/other"
check_exit 'and efs status --job' 0 "^job 7 on $node: staging-in: stages in, [0-9]+% moved, about [0-9a-z. ]+ left\$" env EFS_SHARED="$S/shared" "$EFS" status --job 7
left_is_told() { json "$("$EFS" status --json moving)" 'd.get("eta_seconds", 0) > 0'; }
check 'and for programs efs status' await 20 left_is_told
check_exit 'and for people' 0 '^  moved    [0-9].* of 40 MiB, about [0-9a-z. ]+ left$' "$EFS" status moving
kill -TERM "$(pgrep -P "$starter")"
wait "$starter"
check 'it can be given up' await 20 ended moving
rm "$QUEUE/settings"

# --- a process dies or is cancelled ---
hold_slot
fresh quitter
start_behind --interleaving "$QUEUE"
await 20 waiting_in 1
kill -TERM "$(pgrep -P "$starter")"
wait "$starter"
check 'who gives up while waiting leaves the queue' await 20 waiting_in 0
check 'and leaves no daemon' await 20 no_daemon
fresh killed
start_behind --interleaving "$QUEUE"
await 20 waiting_in 1
supervisor=$(field "$("$EFS" status --json killed)" 'd["supervisor_pid"]')
kill -KILL "$supervisor"
check 'so does one whose daemon is killed' await 20 waiting_in 0
wait "$starter"
drop_store killed
fresh keeper
start_behind --interleaving "$QUEUE"
await 20 waiting_in 1
kill -KILL "$(keeper_of keeper)"
ends_well 'without its keeper a job goes ahead without a turn' "$starter"
check 'and says so in its log' grep -q 'event=no_turn direction=in .*is gone' "$EFS_RUNTIME_DIR/keeper/efsd.log"
check 'its input is there' test "$(cat "$MNT/input/a")" = alpha
check 'efs stop' "$EFS" stop keeper
free_slot

# --- a successor has its own keeper ---
has_taken_over() { [ "$(field "$("$EFS" status --json successor)" 'd["takeovers"]')" = 1 ]; }
fresh successor
check 'an instance with turns' timeout 30 "$EFS" start --interleaving "$QUEUE" "$JOB"
kill -KILL "$(field "$("$EFS" status --json successor)" 'd["worker_pid"]')"
check 'whose worker was replaced' await 20 has_taken_over
hold_slot
echo changed >"$MNT/input/a"
log=$S/successor.log
tail -n +1 -F "$EFS_RUNTIME_DIR/successor/efsd.log" >"$log" 2>/dev/null &
tail=$!
check 'stages out' timeout 30 "$EFS" stop successor
kill "$tail"
check 'in its turn' grep -q 'event=turn direction=out' "$log"
free_slot

# --- a deadline is not spent on waiting ---
hold_slot out
fresh deadline
check 'an instance with turns' timeout 30 "$EFS" start --interleaving "$QUEUE" "$JOB"
echo result >"$MNT/result"
check 'a stop with a deadline ends well' timeout 60 "$EFS" stop --deadline 12 deadline
check 'the results are back without a turn' grep -qx result "$OUT/result"
fresh usual
check 'a deadline of the job file' timeout 30 "$EFS" start --interleaving "$QUEUE" --set deadline=12 "$JOB"
echo result >"$MNT/result"
check 'is that of every stop' timeout 60 "$EFS" stop usual
check 'and its results are back' grep -qx result "$OUT/result"
fresh hurry
check 'another' timeout 30 "$EFS" start --interleaving "$QUEUE" "$JOB"
echo result >"$MNT/result"
timeout 60 "$EFS" stop hurry >"$S/hurry/patient" 2>&1 &
patient=$!
pids+=("$patient")
check 'a stop without one waits' await 20 waiting_out 1
check_exit 'a later one with a deadline is heard' 1 'in the image' timeout 60 "$EFS" stop --deadline 2 hurry
wait "$patient"
check 'what is not back is in the image' "$EFS" salvage hurry
check 'and comes out of it' grep -qx result "$OUT/result"
check 'efs clean' "$EFS" clean hurry
free_slot

# --- an unusable queue blocks no instance ---
fresh nowhere
check 'a queue that is not there' timeout 30 "$EFS" start --interleaving "$S/none" "$JOB"
check 'is told' grep -q "event=no_turn .*$S/none" "$EFS_RUNTIME_DIR/nowhere/efsd.log"
check 'efs stop' "$EFS" stop nowhere
chmod 777 "$QUEUE"
fresh open
check 'a queue that anybody can write' timeout 30 "$EFS" start --interleaving "$QUEUE" "$JOB"
check 'is not used' grep -q 'event=no_turn .*can be written by others' "$EFS_RUNTIME_DIR/open/efsd.log"
check 'efs stop' "$EFS" stop open
chmod 755 "$QUEUE"
echo 'slot-in: 2' >"$QUEUE/settings"
check_exit 'efs queue shows a problem of the settings' 1 'settings: line 1: unknown key "slot-in"; did you mean slots-in' "$EFS" queue "$QUEUE"
printf 'slots-in: 1\nlongest-wait: 0.3\n' >"$QUEUE/settings"
hold_slot
fresh patience
check 'who has waited for longer than the longest wait' timeout 30 "$EFS" start --interleaving "$QUEUE" "$JOB"
check 'goes ahead' grep -q 'event=no_turn .*longest-wait' "$EFS_RUNTIME_DIR/patience/efsd.log"
check 'efs stop' "$EFS" stop patience
free_slot
rm "$QUEUE/settings"
fresh file 'resources: [ [ path: input ] ]'
sed -i "2i\\  interleaving: $QUEUE" "$JOB"
check 'the job file can name the queue' timeout 30 "$EFS" start "$JOB"
check 'a turn was taken' grep -q 'event=turn direction=in' "$EFS_RUNTIME_DIR/file/efsd.log"
check 'efs stop' "$EFS" stop file

# --- the owner of the queue ---
if [ "$(id -u)" = 0 ] && id games >/dev/null 2>&1 && id nobody >/dev/null 2>&1; then
  SITE=$S/site
  install -d -o games -m 755 "$SITE"
  fresh account
  chown -R nobody "$S/account"
  check 'root starts a job for a user' timeout 30 "$EFS" start -u nobody --name account --mount-dir "$MNT" --interleaving "$SITE" "$JOB"
  check 'it had its turn' grep -q 'event=turn direction=in' "$EFS_RUNTIME_DIR/account/efsd.log"
  check 'the turn was taken as the owner of the queue' test "$(stat -c %U "$SITE/locks")" = games
  check 'the keeper runs as him' test "$(ps -o user= -p "$(keeper_of account)" | tr -d ' ')" = games
  check_not 'the user cannot open the locks' setpriv --reuid nobody --clear-groups cat "$SITE/locks"
  check 'but sees the queue' setpriv --reuid nobody --clear-groups "$EFS" queue "$SITE"
  check 'efs stop' "$EFS" stop account
  # A successor has fewer rights than the first worker. They must suffice for a keeper, for every
  # owner of the queue.
  for owner in games root; do
    install -d -o "$owner" -m 755 "$S/$owner-queue"
    fresh "of-$owner"
    chown -R nobody "$S/of-$owner"
    check "root starts a job for a user, with a queue of $owner's" timeout 30 "$EFS" start -u nobody --name "of-$owner" --mount-dir "$MNT" --interleaving "$S/$owner-queue" "$JOB"
    kill -KILL "$(field "$("$EFS" status --json "of-$owner")" 'd["worker_pid"]')"
    replaced() { [ "$(field "$("$EFS" status --json "of-$owner")" 'd["takeovers"]')" = 1 ]; }
    check 'its worker is replaced' await 20 replaced
    check "the successor's keeper is $owner's" test "$(ps -o user= -p "$(keeper_of "of-$owner")" | tr -d ' ')" = "$owner"
    check 'and can do nothing else' test "$(sed -n 's/^CapEff:[[:space:]]*//p' "/proc/$(keeper_of "of-$owner")/status")" = "$([ "$owner" = root ] && echo 0000000000000002 || echo 0000000000000000)"
    check 'efs stop' "$EFS" stop "of-$owner"
  done
  fresh own
  chown -R nobody "$S/own"
  install -d -o nobody -m 755 "$S/his"
  sed -i "2i\\  interleaving: $S/his" "$JOB"
  check 'of a user'"'"'s job file root takes no queue' timeout 30 "$EFS" start -u nobody --name own --mount-dir "$MNT" "$JOB"
  check 'nothing was made there' test -z "$(ls "$S/his")"
  check 'efs stop' "$EFS" stop own
  fresh fake
  chown -R nobody "$S/fake"
  check 'a queue that belongs to the user' timeout 30 "$EFS" start -u nobody --name fake --mount-dir "$MNT" --interleaving "$S/his" "$JOB"
  check 'is not used' grep -q 'event=no_turn .*belongs to the job' "$EFS_RUNTIME_DIR/fake/efsd.log"
  check 'efs stop' "$EFS" stop fake
else
  skip 'whose queue it is' 'needs root and the users games and nobody'
fi
finish
