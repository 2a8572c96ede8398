#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The worker is killed while programs work on the mount: the programs must notice only a pause.
#   takeover_test.sh BIN_DIR
# EFS_KILLS and EFS_KILL_POINTS: how many; the long run: 2000 and 2000.
set -uo pipefail
trap "" PIPE
. "$(dirname "$0")/../cli/lib.sh" "$1"
. "$SOURCE/tests/takeover/stages.sh"
kills=${EFS_KILLS:-12} points=${EFS_KILL_POINTS:-24}
seed=${EFS_SEED:-$RANDOM}
echo "seed $seed (EFS_SEED=$seed repeats it), $kills kills at random moments, $points kill points"
RANDOM=$seed

state() { "$EFS" status --json "$NAME" 2>/dev/null; }
supervisor() { field "$(state)" "d['supervisor_pid']"; }
# Prints the worker of the supervisor $supervisor. Cheap, to allow kills at short intervals.
worker() { local pid; read -r pid _ <"/proc/$supervisor/task/$supervisor/children"; [ -n "$pid" ] && echo "$pid"; }
takeovers() { state | python3 -c 'import json,sys; print(json.load(sys.stdin)["takeovers"])' 2>/dev/null; }
# Waits for a working successor, which answers a lookup of a new name. The supervisor gives up on
# workers that are killed repeatedly before they have answered.
asked=0
has_successor() { local pid; pid=$(worker) && [ "$pid" != "$1" ] && asked=$((asked + 1)) && [ ! -e "$MNT/.never$asked" ] && kill -0 "$supervisor"; }

# load_start starts the programs that must not notice; load_end checks their results.
load_start() {
  mkfifo "$S/$NAME/stop"
  "$BIN/efs-takeover-load" "$MNT" "$seed" 3 <"$S/$NAME/stop" >"$S/$NAME/said" 2>&1 & load=$!; pids+=("$load")
  exec 7>"$S/$NAME/stop"
}
load_end() {  # load_end NAME
  echo 2>/dev/null >&7; exec 7>&-
  wait "$load"; local code=$?
  pids=()
  sed 's/^/  /' "$S/$NAME/said"
  if [ $code = 0 ]; then ok; else fail "$1: no call failed, no byte is lost" "$(tail -n 5 "$EFS_RUNTIME_DIR/$NAME/efsd.log")"; fi
}

random_kills() {  # random_kills NAME IO START_OPTIONS...
  local io=$2 name=$1 i pid; shift 2
  CAPACITY='512 MiB' fresh "$name" 'resources: []'
  mkdir "$MNT"
  [ "$name" != user ] || chown 65534:65534 "$MNT" "$OUT"
  check "$name: start" "$EFS" start "$JOB" "$@"
  [ "$name" != user ] || chmod 1777 "$MNT"
  supervisor=$(supervisor)
  check "$name: I/O" json "$(state)" "d['io'] == '$io' and d['takeovers'] == 0"
  load_start
  for ((i = 0; i < kills; i++)); do
    pid=$(worker) || { fail "$name: a worker after $i kills"; break; }
    # Waits for a while, not for an event: any moment will do.
    read -rt "0.$(printf '%03d' $((RANDOM % 150)))" <> <(:)
    kill -0 "$load" 2>/dev/null || { fail "$name: the programs run after $i kills"; break; }
    kill -KILL "$pid" 2>/dev/null
    # A client that connects now waits as the programs do.
    ((i % 8)) || check "$name: after kill $i it does not look dead" json "$(state)" "d['state'] in ('recovering', 'running')"
    ((i % 8 - 4)) || check "$name: after kill $i its mount point finds it, and its files can be asked about" "$EFS" explain "$MNT/p0"
    await 20 has_successor "$pid" || { fail "$name: a successor after kill $i"; break; }
  done
  load_end "$name"
  check "$name: takeovers are counted" json "$(state)" "d['takeovers'] >= $i and d['state'] == 'running'"
  check "$name: the log says why" grep -q 'event=takeover .*killed by signal 9' "$EFS_RUNTIME_DIR/$name/efsd.log"
  check "$name: files go back" "$EFS" stop "$name"
  check "$name: all of them" test -f "$OUT/p0/b0"
}

young() {
  CAPACITY='512 MiB' fresh young 'resources: []'
  check 'young: start' "$EFS" start "$JOB" -o daemon-io
  check 'young: no call fails where workers die at their first large requests' python3 "$SOURCE/tests/takeover/young.py" "$MNT" "$(supervisor)" $((kills * 4)) "$seed"
  check 'young: stop' "$EFS" stop --no-stage-out young
}

kill_points() {  # at the nth system call of a worker, n spread over one round of everything
  fresh points 'resources: []'
  check 'kill points: start' "$EFS" start "$JOB"
  load_start
  check 'kill points: each worker has a successor' python3 "$SOURCE/tests/takeover/points.py" "$BIN/efs-kill-at" "$MNT" "$(supervisor)" "$load" "$points" "$seed"
  load_end 'kill points'
  check 'kill points: stop' "$EFS" stop points
}

stages() {  # of every operation on a quiet mount; all of them: tests/soak/kill_points.sh
  local random=$((points / 2))
  every_stage stages spin=0 --random "$random" --seed "$seed"
  every_stage stages-daemon spin=0,daemon-io --random "$random" --seed "$seed"
}

successors() {  # killed while they take over; all stages of that: tests/soak/kill_points.sh
  local i
  every_stage takeovers spin=0 --kill successor --random "$points" --seed "$seed"
  every_stage takeovers-daemon spin=0,daemon-io --kill successor --random $((points / 2)) --seed "$seed"
  for ((i = 0; i < 1 + points / 16; i++)); do given_up "given-up$i" spin=0 $((seed + i)); done
}

# Loads and unloads: those that were under way, and the provable state of open files afterwards.
under_way() {
  local id waiter code pid count
  fresh underway
  sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"
  head -c 60M /dev/zero >"$PFS/big"; echo small >"$PFS/small"
  check 'under way: start' "$EFS" start "$JOB"
  supervisor=$(supervisor) pid=$(worker)
  echo changed >"$MNT/dirty"
  exec 9>"$MNT/held"; echo held >&9
  count=$(find "$EFS_RUNTIME_DIR/underway/store/data" -type f | wc -l)
  id=$("$EFS" load -i underway big)
  "$EFS" load -i underway --wait small >"$S/underway/said" 2>&1 & waiter=$!
  check 'under way: the load runs' await 20 eval 'json "$(state)" "[t[\"task_state\"] for t in d[\"tasks\"]] == [\"running\", \"pending\"]"'
  kill -KILL "$pid"
  check 'under way: a successor' await 20 has_successor "$pid"
  check_exit 'under way: what became of the load' 1 "task $id: load failed: lost when the daemon was replaced" "$EFS" wait -i underway "$id"
  wait $waiter; code=$?
  check 'under way: who waited is told' test $code = 1
  check 'under way: and why' grep -q 'lost when the daemon was replaced' "$S/underway/said"
  check 'under way: nothing of it is there' test ! -e "$MNT/big"
  check 'under way: its containers are free' test "$(find "$EFS_RUNTIME_DIR/underway/store/data" -type f | wc -l)" -le "$count"
  pid=$(worker); kill -KILL "$pid"
  check 'under way: another successor' await 20 has_successor "$pid"
  check_exit 'under way: it knows, too' 1 'lost when the daemon was replaced' "$EFS" wait -i underway "$id"
  check_exit 'under way: asked for again' 0 'load done: 1 files' "$EFS" load -i underway --wait small
  check 'under way: numbers are not used twice' json "$(state)" "[t['task'] for t in d['tasks']] == [1, 2, 3]"
  check_exit 'under way: a file that is open from before' 1 'a program has it open for writing' "$EFS" unload -i underway --wait held
  check_exit 'under way: explain says so' 0 'writers .*open for writing \(1 times\)' "$EFS" explain -i underway held
  check_exit 'under way: --as-is' 0 '1 unloaded.*unverified' "$EFS" unload -i underway --wait --as-is held
  exec 9>&-
  check_exit 'under way: a changed file that is closed' 0 '1 unloaded' "$EFS" unload -i underway --wait dirty
  check_not 'under way: is verified' grep -q unverified <<<"$said"
  check_exit 'under way: an input needs none' 0 '2 unchanged' "$EFS" unload -i underway --wait input
  echo more >>"$MNT/input/a"
  check_exit 'under way: nor one that is changed only now' 0 '1 unloaded' "$EFS" unload -i underway --wait input/a
  echo new >"$MNT/new"
  check_exit 'under way: nor a new one' 0 '1 unloaded' "$EFS" unload -i underway --wait new
  head -c 60M /dev/zero >"$MNT/result"
  id=$("$EFS" unload -i underway result)
  check 'under way: the unload runs' await 20 eval 'json "$(state)" "[t[\"task_state\"] for t in d[\"tasks\"]][-1:] == [\"running\"]"'
  pid=$(worker); kill -KILL "$pid"
  check 'under way: a third successor' await 20 has_successor "$pid"
  check_exit 'under way: what became of the unload' 1 "task $id: unload failed: lost when the daemon was replaced" "$EFS" wait -i underway "$id"
  check 'under way: results-dir has no half of it' test ! -e "$OUT/result"
  check 'under way: stop' "$EFS" stop underway
  check 'under way: which brings the rest' cmp "$OUT/result" <(head -c 60M /dev/zero)
  check 'under way: and leaves no partial' test -z "$(find "$OUT" -name '*efs-partial*')"
}

# What programs have open is known to successors, and its space is free when they end.
open_files() {  # open_files NAME START_OPTION...
  local i pid program used name=$1; shift
  fresh "$name" 'resources: []'
  check "$name: start" "$EFS" start "$JOB" "$@"
  supervisor=$(supervisor)
  used=$(field "$(state)" 'd["used"]')
  mkfifo "$S/$name/stop"
  python3 "$SOURCE/tests/takeover/opens.py" "$MNT" 20 <"$S/$name/stop" >"$S/$name/said" 2>&1 & program=$!; pids+=("$program")
  exec 7>"$S/$name/stop"
  check "$name: files are open" await 20 grep -q open "$S/$name/said"
  for ((i = 0; i < 3; i++)); do
    check "$name: status counts them, after $i kills" await 20 eval 'json "$(state)" "d[\"open_files\"] == {\"kernel\": 60, \"sessions\": 0}"'
    pid=$(worker); kill -KILL "$pid"
    check "$name: a successor ($i)" await 20 has_successor "$pid"
  done
  check "$name: for people, too" await 20 eval 'grep -qE "open +60 files by the kernel, 0 by sessions" <<<"$("$EFS" status "$NAME")"'
  check "$name: and for a monitoring system" grep -qF "efs_open_files{instance=\"$name\",owner=\"kernel\"} 60" <<<"$("$EFS" metrics)"
  check "$name: files without a name keep their space" json "$(state)" "d['used'] - $used >= 20 << 20"
  exec 7>&-
  wait "$program"; check "$name: no byte is lost" test $? = 0
  pids=()
  check "$name: none is open" await 20 eval 'json "$(state)" "d[\"open_files\"] == {\"kernel\": 0, \"sessions\": 0}"'
  check "$name: their space is free" await 20 eval "json \"\$(state)\" \"d['used'] - $used < 4 << 20\""
  check "$name: stop" "$EFS" stop "$name"
}

# A successor that lost a load expires the names of each directory, and the kernel waits there for the
# directory's lock. A client that looks up a name holds that lock until the successor serves it.
client_waits() { [ "$(cat "/proc/$1/wchan" 2>/dev/null)" = request_wait_answer ]; }
in_doubt() {
  local i pid client
  fresh indoubt
  sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"
  head -c 60M /dev/zero >"$PFS/big"
  check 'in doubt: start' "$EFS" start "$JOB"
  supervisor=$(supervisor)
  mkdir "$MNT/d"; touch "$MNT/d/"{1..200}
  "$EFS" load -i indoubt big >/dev/null
  check 'in doubt: the load runs' await 20 eval 'json "$(state)" "[t[\"task_state\"] for t in d[\"tasks\"]] == [\"running\"]"'
  for ((i = 0; i < kills / 2; i++)); do
    pid=$(worker)
    kill -STOP "$pid"
    # One thread takes the signal and stops the others: until it runs, they serve.
    check "in doubt: the worker stands ($i)" await 20 stalled "$pid"
    stat "$MNT/d/never$i" >/dev/null 2>&1 & client=$!
    check "in doubt: a client waits ($i)" await 20 client_waits "$client"
    kill -KILL "$pid"
    check "in doubt: the successor serves it ($i)" await 20 gone "$client"
    check "in doubt: and is ready ($i)" await 20 eval 'json "$(state)" "d[\"state\"] == \"running\""'
  done
  check 'in doubt: stop' "$EFS" stop indoubt
}

# sources DIRECTORY: the sources of a program of several files that prints 66.
sources() {
  local i
  for i in $(seq 11); do printf '#include "all.h"\nint part%d(void) { return %d; }\n' "$i" "$i" >"$1/part$i.c"; printf 'int part%d(void);\n' "$i"; done >"$1/all.h"
  printf '#include <stdio.h>\n#include "all.h"\nint main(void) { return printf("%%d\\n", 0%s) < 0; }\n' "$(seq -f ' + part%g()' -s '' 11)" >"$1/main.c"
  printf '%s\n' 'objects = $(patsubst %.c,%.o,$(wildcard *.c))' 'all: main' 'main: $(objects)' '$(objects): all.h' 'clean: ; rm main *.o' >"$1/Makefile"
}

real_programs() {  # [START_OPTION...]: a database, with and without a write-ahead log, a compiler, and one that holds and waits for all that can be held
  local i pid code name=programs${*:+-daemon}
  CAPACITY='512 MiB' fresh $name 'resources: []'
  check 'programs: start' "$EFS" start "$JOB" "$@"
  supervisor=$(supervisor)
  mkdir "$MNT/one" "$MNT/two" "$MNT/three"
  mkfifo "$S/$name/stop"
  python3 "$SOURCE/tests/takeover/sqlite.py" "$MNT/one" <"$S/$name/stop" >"$S/$name/said1" 2>&1 & local one=$!
  python3 "$SOURCE/tests/takeover/sqlite.py" "$MNT/two" wal <"$S/$name/stop" >"$S/$name/said2" 2>&1 & local two=$!
  sources "$MNT/three"
  (cd "$MNT/three" && until [ -e done ]; do make -s -j2 all && [ "$(./main)" = 66 ] && echo built && make -s clean || exit 1; done) >"$S/$name/said3" 2>&1 & local three=$!
  python3 "$SOURCE/tests/takeover/held.py" "$MNT/four" <"$S/$name/stop" >"$S/$name/said4" 2>&1 & local four=$!
  pids+=("$one" "$two" "$three" "$four")
  exec 7>"$S/$name/stop"
  for ((i = 0; i < kills; i++)); do
    pid=$(worker) || { fail "programs: a worker after $i kills"; break; }
    read -rt "0.$(printf '%03d' $((RANDOM % 300)))" <> <(:)
    kill -KILL "$pid" 2>/dev/null
    await 20 has_successor "$pid" || { fail "programs: a successor after kill $i"; break; }
  done
  touch "$MNT/three/done"
  exec 7>&-
  for i in 1 2 3 4; do
    local of=($one $two $three $four)
    wait "${of[i - 1]}"; code=$?
    if [ $code = 0 ]; then ok; else fail "programs: program $i" "$(cat "$S/$name/said$i")"; fi
  done
  pids=()
  check 'programs: the compiler has built something' grep -q built "$S/$name/said3"
  echo "   programs: $(tail -qn 1 "$S/$name"/said[124] | tr '\n' ' '), $(grep -c built "$S/$name/said3") builds"
  check 'programs: stop' "$EFS" stop $name
}
real_programs_daemon() { real_programs -o daemon-io; }

gives_up() {  # a worker that cannot live: killed before it answers anything, again and again
  fresh hopeless 'resources: []'
  check 'gives up: start' "$EFS" start "$JOB"
  echo precious >"$MNT/file"
  exec 8<"$MNT/file"
  supervisor=$(supervisor)
  local log=$EFS_RUNTIME_DIR/hopeless/efsd.log
  # The journal is made unreadable: no successor can restore the state.
  local journal; journal=$(find "$EFS_RUNTIME_DIR/hopeless/store" -name journal)
  cp "$journal" "$S/journal.kept"
  printf 'garbage' | dd of="$journal" conv=notrunc status=none
  kill -KILL "$(worker)"
  check 'gives up: the supervisor ends' await 30 gone "$supervisor"
  check 'gives up: the mount is gone' await 20 eval '! mounted "$MNT"'
  # (cat asks for the file's attributes; with passthrough the kernel itself could read on.)
  check_exit 'gives up: an open file gives an error and no hang' 1 '' timeout 20 cat <&8
  exec 8<&-
  check 'gives up: the log says what to do' grep -qE 'event=given_up .*advice=".*efs start .*efs salvage hopeless .*efs clean hopeless' "$log"
  check 'gives up: the image is kept' test -d "$EFS_RUNTIME_DIR/hopeless/store/data"
  check "gives up: nobody holds the store" await 20 drop_store hopeless  # what the kernel had open goes a moment later
}

again_and_again() {  # every worker is killed before it has answered anything new
  local i pid last=0
  fresh again 'resources: []'
  check 'again and again: start' "$EFS" start "$JOB"
  supervisor=$(supervisor)
  echo precious >"$MNT/file"
  exec 8<"$MNT/file"
  # Other programs may look at this mount meanwhile (efs doctor does): the count then begins again.
  for ((i = 0; i < 400; i++)); do
    await 20 eval 'gone "$supervisor" || { pid=$(worker) && [ "$pid" != "$last" ]; }'
    gone "$supervisor" && break
    kill -KILL "$pid" 2>/dev/null
    last=$pid
  done
  check "again and again: the supervisor ends, after $i deaths" test $i -lt 400
  check 'again and again: the mount is gone' await 20 eval '! mounted "$MNT"'
  check_exit 'again and again: an open file gives an error and no hang' 1 '' timeout 20 cat <&8
  exec 8<&-
  check 'again and again: the log says so' grep -q 'event=given_up' "$EFS_RUNTIME_DIR/again/efsd.log"
  check 'again and again: efs start goes on' "$EFS" start "$JOB"
  check 'again and again: with everything' grep -qx precious "$MNT/file"
  check 'again and again: stop' "$EFS" stop again
  check 'again and again: it goes back' grep -qx precious "$OUT/file"
}

staging_out() {  # killed while results go back: the stop goes on with the successor
  local i
  for ((i = 0; i < 1 + kills / 100; i++)); do stage_out_once; done
}
stage_out_once() {
  fresh late 'resources: []'
  sed -i '/results-dir/a\  max-rate: 10 MB/s' "$JOB"
  check 'stage-out: start' "$EFS" start "$JOB" -l "$S/late/log"
  supervisor=$(supervisor)
  for i in {1..40}; do head -c 1000000 /dev/urandom >"$MNT/f$i"; done
  local sums pid; sums=$(cd "$MNT" && cksum f*)
  "$EFS" stop late >"$S/late/said" 2>&1 & local stop=$!
  check 'stage-out: it is under way' await 20 eval 'state | grep -q staging-out && [ -n "$(ls "$OUT")" ]'
  read -rt "1.$(printf '%03d' $((RANDOM % 1000)))" <> <(:)   # any moment is a good one
  pid=$(worker)
  check 'stage-out: the worker is killed' kill -KILL "$pid"
  wait $stop; local code=$?
  check 'stage-out: there was a successor' grep -q 'event=takeover .*killed by signal 9' "$S/late/log"
  if [ $code = 0 ]; then ok; else fail 'stage-out: the stop goes on with it' "$(cat "$S/late/said")"; fi
  check 'stage-out: it has ended' await 20 ended late
  check 'stage-out: every byte is there' test "$(cd "$OUT" && cksum f*)" = "$sums"
}

half_saved() {  # one result cannot be exported, and the worker is killed at its nth call of that stop: every worker's answer reports it
  local i n point pid killer stop code died=0
  for ((i = 0; i < 4 + points / 6; i++)); do
    fresh "half$i" 'resources: []'
    mkdir -p "$OUT/taken"
    check 'half saved: start' "$EFS" start "$JOB" -l "$S/half$i/log"
    for n in {1..8}; do echo $n >"$MNT/f$n"; done
    echo mine >"$MNT/taken"
    supervisor=$(supervisor); pid=$(worker); point=$((1 + RANDOM % 1300))
    "$BIN/efs-kill-at" "$pid" $point >/dev/null 2>&1 & killer=$!
    await 20 grep -q '^TracerPid:.*[1-9]' "/proc/$pid/status"
    timeout 60 "$EFS" stop "half$i" >"$S/half$i/said" 2>&1; code=$?
    kill -0 "$killer" 2>/dev/null || died=$((died + 1))
    kill $killer 2>/dev/null; wait $killer 2>/dev/null
    # 1 if the successor found the other results exported already and exported none itself.
    if [ $code = 3 ] || [ $code = 1 ]; then ok; else fail "half saved: killed at $point: the stop tells that one is missing" "exit $code: $(cat "$S/half$i/said")"; fi
    check "half saved: killed at $point: the others are back" test "$(cat "$OUT"/f[1-8] | tr -d '\n')" = 12345678
    check "half saved: killed at $point: it names what is not" grep -q taken "$S/half$i/said"
    rmdir "$OUT/taken"
    check "half saved: killed at $point: the next stop" timeout 60 "$EFS" stop "half$i"
    check "half saved: killed at $point: brings it" grep -qx mine "$OUT/taken"
    check "half saved: killed at $point: it has ended" await 20 ended "half$i"
  done
  check 'half saved: some are killed on their way' test $died -gt 0
  echo "half saved: $died of $i were killed"
}

# The worker of a start, as soon as it exists: $pid.
youngest_worker() { for supervisor in $(daemons); do pid=$(worker 2>/dev/null) && return; done; return 1; }
starts() {  # the worker of a start is killed at its nth system call: it fails and the next start goes on, or the mount was there
  local i n point code pid killer after=0 down=0 most=$((points / 2))
  for ((i = 0; i < (most < 100 ? most : 100); i++)); do
    fresh "start$i" 'resources: [ [ path: input ] ]'
    for ((n = 0; n < 40; n++)); do echo $n >"$PFS/input/n$n"; done
    sed -i '1a\  max-ops: 300' "$JOB"   # slow enough that the worker is met while it stages
    timeout 60 "$EFS" start "$JOB" >"$S/$NAME/said" 2>&1 & local starter=$!
    await 20 youngest_worker || { fail "starts: a worker of start $i" "$(cat "$S/$NAME/said")"; wait $starter; continue; }
    point=$((1 + RANDOM % 7000))
    "$BIN/efs-kill-at" "$pid" $point >/dev/null 2>&1 & killer=$!
    wait $starter; code=$?
    kill $killer 2>/dev/null; wait $killer 2>/dev/null
    case $code in
      0) [ "$(takeovers)" = 0 ] || after=$((after + 1)) ;;
      1)
        down=$((down + 1))
        check "starts: killed at $point: it says so, and how to go on" grep -qE "^efs: $NAME: its daemon died while it staged in: efsd .*\. .* efs start $JOB" "$S/$NAME/said"
        check "starts: killed at $point: no daemon" await 10 no_daemon
        check "starts: killed at $point: no mount" eval '! mounted "$MNT"'
        check "starts: killed at $point: the next start" timeout 60 "$EFS" start "$JOB" ;;
      *) fail "starts: killed at $point: it ends" "exit $code: $(cat "$S/$NAME/said")" ;;
    esac
    check "starts: killed at $point: the inputs are there" diff -r "$PFS/input" "$MNT/input"
    check "starts: killed at $point: stop" "$EFS" stop "$NAME"
  done
  check 'starts: some are killed on their way' test $down -gt 0
  echo "starts: $down failed, $after came up with a successor, $((i - down - after)) as if nothing had been"
}

open_files_passthrough() { open_files opens; }
open_files_daemon() { open_files opensdaemon -o daemon-io; }
passthrough() { random_kills passthrough passthrough; }
daemon() { random_kills daemon daemon -o daemon-io; }
writeback() { random_kills writeback daemon -o writeback; }
user() { random_kills user passthrough --user 65534; }

# Runs one part alone: EFS_PART=stages
if [ -n "${EFS_PART:-}" ]; then "$EFS_PART"; finish; fi
passthrough
daemon
writeback
user
young
kill_points
stages
successors
under_way
open_files_passthrough
open_files_daemon
in_doubt
starts
real_programs
real_programs_daemon
gives_up
again_and_again
staging_out
half_saved
finish
