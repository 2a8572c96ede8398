#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The worker is killed while programs with libefs-intercept work: no call fails, no byte is lost, and
# the library goes on.
#   intercept_takeover_test.sh BIN_DIR
# EFS_KILLS: how many; the long run (tests/soak/intercept_takeover.sh): 500. EFS_SEED repeats a run.
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
LIBRARY=$BIN/../lib/libefs-intercept.so
[ -e "$LIBRARY" ] || { skip 'takeovers' 'the library is built for x86-64 only'; finish; }
kernel_has_it || { skip 'takeovers' 'no takeover before Linux 6.9'; finish; }
kills=${EFS_KILLS:-8}
seed=${EFS_SEED:-$RANDOM}
echo "seed $seed (EFS_SEED=$seed repeats it), $kills kills"
RANDOM=$seed

with() { LD_PRELOAD=$LIBRARY EFS_INTERCEPT_AFTER=1 EFS_INTERCEPT=stats EFS_INTERCEPT_STATS=$S/$NAME/served "$@"; }
# Prints the worker of the supervisor $supervisor.
worker() { local pid; read -r pid _ <"/proc/$supervisor/task/$supervisor/children"; [ -n "$pid" ] && echo "$pid"; }
# A successor works once it has answered a lookup of a new name.
asked=0
has_successor() { local pid; pid=$(worker) && [ "$pid" != "$1" ] && asked=$((asked + 1)) && [ ! -e "$MNT/.never$asked" ] && kill -0 "$supervisor"; }
alive() { local pid; for pid; do kill -0 "$pid" 2>/dev/null || return 1; done; }
# The reads that the Python program has served so far, by its last report to the daemon.
so_far() { field "$(status_of "$NAME")" "sum(client['reads'] for client in d['intercept']['clients'] if client['program'] == 'python3')"; }
more_than() { [ "$(so_far)" -gt "$1" ]; }
# served PROGRAM reads|writes: a process of it says at its end that it served some
served() { grep -qE "^efs-intercept: $1\[[0-9]+\]: .*\b$2 [1-9]" "$S/$NAME/served"; }
# Random calls against a model, with a new seed each time, until the end.
random_calls() {
  local i
  for ((i = 0; ; i++)); do
    [ ! -e "$S/$NAME/end" ] || { echo "$i runs"; return; }
    mkdir "$MNT/random$i" && with timeout 120 "$BIN/efs-intercept-random" "$MNT/random$i" --steps 200 $((seed + i)) >/dev/null && rm -r "$MNT/random$i" || { echo "seed $((seed + i))"; return 1; }
  done
}

takeovers() {  # takeovers NAME IO START_OPTIONS...
  local name=$1 io=$2 i pid code; shift 2
  CAPACITY='512 MiB' fresh "$name" 'resources: []'
  mkfifo "$S/$name/stop"
  mkdir "$MNT"
  [ "$name" != user ] || chown 65534:65534 "$MNT" "$OUT"
  started "$JOB" "$@" || return
  [ "$name" != user ] || chmod 1777 "$MNT"
  supervisor=$(field "$(status_of "$name")" "d['supervisor_pid']")
  check "$name: I/O" json "$(status_of "$name")" "d['io'] == '$io'"
  with "$BIN/efs-takeover-load" "$MNT" "$seed" 2 <"$S/$name/stop" >"$S/$name/said0" 2>&1 & pids=($!)
  with python3 -SE "$SOURCE/tests/takeover/both_doors.py" "$MNT/doors" "$seed" <"$S/$name/stop" >"$S/$name/said1" 2>&1 & pids+=($!)
  random_calls >"$S/$name/said2" 2>&1 & pids+=($!)
  exec 7>"$S/$name/stop"
  for ((i = 0; i < kills; i++)); do
    pid=$(worker) || { fail "$name: a worker after $i kills"; break; }
    # Waits for a while, not for an event: any moment will do.
    read -rt "0.$(printf '%03d' $((RANDOM % 200)))" <> <(:)
    alive "${pids[@]}" || { fail "$name: the programs run after $i kills"; break; }
    kill -KILL "$pid" 2>/dev/null
    await 20 has_successor "$pid" || { fail "$name: a successor after kill $i"; break; }
  done
  check "$name: the last worker knows the program" await 20 more_than 0
  check "$name: whose library goes on" await 20 more_than "$(so_far)"
  check "$name: takeovers are counted" json "$(status_of "$name")" "d['takeovers'] >= $i and d['state'] == 'running'"
  exec 7>&-
  touch "$S/$name/end"
  for i in 0 1 2; do
    wait "${pids[i]}"; code=$?
    if [ $code = 0 ]; then ok; else fail "$name: program $i: no call failed, no byte is lost" "exit $code: $(cat "$S/$name/said$i")"; fi
  done
  pids=()
  echo "   $name: $(tail -qn 1 "$S/$name"/said[012] | tr '\n' ';')"
  for i in python3 efs-intercept-random; do check "$name: $i was served" served "$i.*" reads; done
  [ "$io" = daemon ] || check "$name: also its writes" served 'python3.*' writes
  check "$name: stop" "$EFS" stop --no-stage-out "$name"
}

if [ "$(id -u)" = 0 ]; then takeovers passthrough passthrough; else skip passthrough 'needs root'; fi
takeovers daemon daemon -o daemon-io
if [ "$kills" -ge 100 ] && [ "$(id -u)" = 0 ]; then takeovers user passthrough --user 65534; fi
finish
