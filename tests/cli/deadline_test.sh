#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A stop with a deadline: while a PFS hangs, while programs use the mount, beside other stops; and
# starts and unloads that hang.
#   deadline_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

state() { field "$(status_of "$1")" 'd["state"]'; }
has_left() { grep -q 'event=left_without_pfs' "$EFS_RUNTIME_DIR/$1/efsd.log"; }
ended_or_dead() { no_daemon "$1"; }
has_state() { [ "$(state "$1")" = "$2" ]; }

# --- a deadline, and a PFS that hangs: a separate efs whose processes are stopped ---
late=20    # seconds, on a machine that is as busy as it may be
fresh pfs 'resources: []'
accesses=$S/pfs/accesses
started --set access-log="$accesses" "$JOB"; hung=$MNT; mkdir "$hung/out"
members=$(field "$(status_of pfs)" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')
for way in option key; do
  fresh "hangs-$way"
  sed -i "s|results-dir: .*|results-dir: $hung/out|" "$JOB"
  [ $way = option ] || sed -i '/results-dir/a\  deadline: 2' "$JOB"
  started "$JOB"; mkdir "$MNT/d"; echo "by $way" >"$MNT/d/$way"
  both="$(field "$(status_of "$NAME")" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')"
  stall $members
  if [ $way = option ]; then said=$(timeout $((2 + late)) "$EFS" stop --json --deadline 2 "$NAME" 2>/dev/null); else said=$(timeout $((2 + late)) "$EFS" stop --json "$NAME" 2>/dev/null); fi
  check "a deadline by $way: the stop does not wait for a PFS that hangs" test $? = 1
  check "$way: and says so" json "$said" "'The PFS did not answer in time' in d['summary'] and 'image' in d"
  check "$way: what may not be back is listed" json "$said" "[e['path'] for e in d['receipt']['entries'] if e['action'] == 'not-saved'] == ['d/$way']"
  check "$way: in the instance's directory, too" grep -q "d/$way" "$EFS_RUNTIME_DIR/$NAME/receipt.json"
  for pid in $both; do check "$way: the daemon is gone" await 30 gone "$pid"; done
  check_not "$way: and the mount" mounted "$MNT"
  check "$way: the log says why" grep -q 'event=left_without_pfs' "$EFS_RUNTIME_DIR/$NAME/efsd.log"
  check "$way: the image tells how it was left" json "$(status_of "$NAME")" "d['left'] == 'unsaved'"
  kill -CONT $members
  check "$way: a salvage brings out the rest when the PFS answers" "$EFS" salvage "$NAME"
  check "$way: all of it" grep -qx "by $way" "$hung/out/d/$way"
  check "$way: clean" "$EFS" clean "$NAME"
done
# Programs in the mount stay in it: the stop is refused in time, and the buffer keeps the files that
# the PFS does not accept.
fresh hangs-busy
sed -i "s|results-dir: .*|results-dir: $hung/out|" "$JOB"
started "$JOB"; echo held >"$MNT/held"; exec 7<"$MNT/held"
stall $members
check_exit 'a PFS that hangs, and a program that stays: the stop is refused' 1 'the PFS did not answer in time' timeout $((3 + late)) "$EFS" stop --deadline 3 "$NAME"
check 'and the mount stays' grep -qx held "$MNT/held"
# Repeated: a stop never waits for a hung call beyond the deadline, and no program loses the mount.
for again in 2 3; do
  check_exit "refused again ($again)" 1 'is in use' timeout $((again + late)) "$EFS" stop --deadline $again "$NAME"
done
check_exit 'nor by a stop that drops all' 1 'is in use' timeout $late "$EFS" stop --no-stage-out "$NAME"
check 'a program writes on' eval 'echo more >"$MNT/more"'
check 'the mount is there' grep -qx held "$MNT/held"
kill -CONT $members
exec 7<&-
check 'it is stopped when the PFS answers' "$EFS" stop "$NAME"
check 'and all is back' test "$(cat "$hung/out/held" "$hung/out/more")" = $'held\nmore'
# The long deadline of a stop that unloads does not apply to a later stop.
fresh hangs-hurry
sed -i "s|results-dir: .*|results-dir: $hung/out|" "$JOB"
started "$JOB"; echo held >"$MNT/held2"; exec 7<"$MNT/held2"
stall $members
"$EFS" stop --deadline 300 "$NAME" >"$S/said" 2>&1 & stopper=$!
check 'a stop unloads' await 20 grep -q 'event=stop_unloads ' "$EFS_RUNTIME_DIR/$NAME/efsd.log"
check_exit 'one with less time is refused in its own' 1 'is in use' timeout $((2 + late)) "$EFS" stop --deadline 2 "$NAME"
wait $stopper; check 'so is the first' test $? = 1
exec 7<&-
check_exit 'dropping all does not wait for a PFS that hangs where nobody is in the mount' 0 '' timeout $((10 + late)) "$EFS" stop --no-stage-out "$NAME"
check 'the instance is gone' await 20 ended "$NAME"
check_not 'and the mount' mounted "$MNT"
kill -CONT $members
check_not 'nothing was brought out' test -s "$hung/out/held2"
# The last program leaves the mount while the PFS hangs. Then every stop leaves the hung calls
# behind, for any order of stops and any deadline.
for how in one two; do
  fresh "hangs-left-$how"
  sed -i "s|results-dir: .*|results-dir: $hung/out|" "$JOB"
  started "$JOB"; echo held >"$MNT/left-$how"; exec 7<"$MNT/left-$how"
  stall $members
  "$EFS" stop --deadline 12 "$NAME" >"$S/said" 2>&1 7<&- & stopper=$!
  check "$how: a stop unloads" await 20 grep -q 'event=stop_unloads ' "$EFS_RUNTIME_DIR/$NAME/efsd.log"
  [ $how = one ] || { "$EFS" stop --deadline 0.5 "$NAME" >"$S/said2" 2>&1 7<&- & second=$!; }
  exec 7<&-
  check "$how: nobody waits for ever" await 60 gone "$stopper"
  wait "$stopper"; check "$how: it is not called good" test $? = 1
  [ $how = one ] || { check "$how: nor does the second" await 60 gone "$second"; wait "$second"; }
  if [ $how = one ]; then check 'one: the instance has left' await 20 has_left "$NAME"; else "$EFS" stop --deadline 1 "$NAME" >/dev/null 2>&1; fi
  kill -CONT $members
  await 20 ended_or_dead "$NAME"
  check "$how: what was there is brought out" "$EFS" salvage "$NAME"
  check "$how: all of it" grep -qx held "$hung/out/left-$how"
  check "$how: clean" "$EFS" clean "$NAME"
done
# A stop without a deadline waits for an unload that hangs. A stop with a deadline, or one that
# drops all results, does not wait for that stop.
fresh hangs-unload
sed -i "s|results-dir: .*|results-dir: $hung/out|" "$JOB"
started "$JOB"; echo held >"$MNT/held3"; exec 7<"$MNT/held3"
stall $members
check 'an unload' "$EFS" unload "$MNT/held3"
"$EFS" stop "$NAME" >"$S/said" 2>&1 & stopper=$!
check 'a stop waits for it' await 20 has_state "$NAME" unmounting
check_exit 'one with a deadline is refused in time' 1 'is in use' timeout $((4 + late)) "$EFS" stop --deadline 4 "$NAME"
wait $stopper; check 'and the first with it' test $? = 1
check 'nobody has lost the mount' grep -qx held "$MNT/held3"
exec 7<&-
check_exit 'dropping all' 0 '' timeout $((10 + late)) "$EFS" stop --no-stage-out "$NAME"
check 'ends it' await 20 ended "$NAME"
kill -CONT $members
# A stop that drops the results does not wait for another stop's stage-out that hangs.
fresh hangs-dropped
sed -i "s|results-dir: .*|results-dir: $hung/out|" "$JOB"
started "$JOB"; echo dropped >"$MNT/dropped"
stall $members
"$EFS" stop "$NAME" >"$S/said" 2>&1 & stopper=$!
check 'a stop brings out' await 20 has_state "$NAME" staging-out
check_exit 'dropping all does not wait for it' 0 '' timeout $((30 + late)) "$EFS" stop --no-stage-out "$NAME"
wait $stopper; check 'and the first is told' eval "test $? = 1 && grep -q 'overruled by another stop --no-stage-out' '$S/said'"
check 'it has ended' await 20 ended "$NAME"
check_not 'the mount is gone' mounted "$MNT"
check_not 'and the buffer' test -e "$EFS_RUNTIME_DIR/$NAME"
kill -CONT $members
# Objects without data do not block the end either: a mount point and a status file on a hung PFS,
# and results that go elsewhere.
for how in '--deadline 6' --no-stage-out; do
  fresh "hangs-trifles-${how:2:2}"
  sed -i "s|mount-dir: .*|mount-dir: $hung/$NAME|; /results-dir/a\  status-file: $hung/$NAME.json" "$JOB"; MNT=$hung/$NAME
  started "$JOB"; echo result >"$MNT/r"
  check "$NAME: its status file is there" await 20 test -s "$hung/$NAME.json"
  both="$(field "$(status_of "$NAME")" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')"
  stall $members
  check_exit "$NAME: the stop does not wait for them" 0 '' timeout $((30 + late)) "$EFS" stop $how "$NAME"
  for pid in $both; do check "$NAME: the daemon is gone" await 60 gone "$pid"; done
  kill -CONT $members
  [ "$how" = --no-stage-out ] || check "$NAME: the result is there" grep -qx result "$OUT/r"
  check "$NAME: the mount is gone" await 20 eval '! mounted "$MNT"'
  check "$NAME: nothing is left" await 20 ended "$NAME"
done
# Neither programs nor the daemon wait for a log, an access log or a trace on a hung PFS.
fresh hangs-logs
sed -i "/results-dir/a\  access-log: $hung/$NAME.log\n  trace: $hung/$NAME.trace\n  log-file: $hung/$NAME.efsd.log" "$JOB"
started "$JOB"; echo before >"$MNT/before"
check 'what happens is logged' await 20 grep -q before "$hung/$NAME.log"
stall $members
# The supervisor writes log lines too, repeatedly.
worker=$(field "$(status_of "$NAME")" 'd["worker_pid"]')
kill -STOP "$worker"
is_running() { [ "$(sed -n 's/^State:[[:space:]]*\(.\).*/\1/p' "/proc/$worker/status")" != T ]; }
check 'a stopped worker is set going again' await 40 is_running
check 'programs go on' timeout $((100 + late)) bash -c "for i in \$(seq 3000); do echo \$i >'$MNT/many' && read -r got <'$MNT/many' && [ \$got = \$i ] || exit 1; done; sync '$MNT/many'"
kill -KILL "$(field "$(status_of "$NAME")" 'd["worker_pid"]')"
check 'also when the worker is killed' timeout $((20 + late)) cat "$MNT/before"
check 'the successor has another log' await 20 grep -q 'event=log_file_unusable' "$EFS_RUNTIME_DIR/$NAME/efsd.log"
check 'and answers' json "$(timeout $((10 + late)) "$EFS" status --json "$NAME")" "d['takeovers'] == 1"
check_exit 'so does a stop' 0 '' timeout $((20 + late)) "$EFS" stop --deadline 5 "$NAME"
check 'it has ended' await 20 no_daemon "$NAME"
kill -CONT $members
check 'the results are back' test "$(cat "$OUT/before" "$OUT/many")" = $'before\n3000'
# The same if the PFS answers slowly.
for with in '' '--deadline 600'; do
  fresh "drops${with:+-late}"
  started --set 'max-rate=1 MB/s' "$JOB"; head -c 48M /dev/zero >"$MNT/dropped"
  "$EFS" stop $with "$NAME" >"$S/said" 2>&1 & stopper=$!
  check "$NAME: a stop brings out" await 20 has_state "$NAME" staging-out
  check_exit "$NAME: dropping all ends that" 0 '' timeout $late "$EFS" stop --no-stage-out "$NAME"
  wait $stopper; check "$NAME: and the first is told" eval "test $? = 1 && grep -q 'overruled by another stop --no-stage-out: the other results are dropped' '$S/said'"
  check "$NAME: it has ended" await 20 ended "$NAME"
  check_not "$NAME: no image is left" test -e "$EFS_RUNTIME_DIR/$NAME"
  check "$NAME: no partial file is left" test -z "$(find "$OUT" -name '*dropped*')"
done
# A user can change an earlier request: the last request succeeds, or fails because it came too
# late.
fresh changed
started --set 'max-rate=1 MB/s' "$JOB"; head -c 24M /dev/zero >"$MNT/f"
"$EFS" stop --deadline 600 "$NAME" >"$S/said" 2>&1 & stopper=$!
check 'changed: a stop brings out' await 20 has_state "$NAME" staging-out
"$EFS" stop --no-stage-out "$NAME" >"$S/said2" 2>&1 & dropper=$!
"$EFS" stop "$NAME" >"$S/said3" 2>&1; code=$?
wait $stopper $dropper
if [ $code = 0 ]; then check 'changed: all is out' test "$(stat -c %s "$OUT/f")" = 25165824
else check 'changed: it was too late, and that is said' grep -qE 'overruled by|no instance|is over' "$S/said3"; fi
check 'changed: it has ended' await 20 ended "$NAME"
# A start has no results: it ends without a deadline too, and an instance that was kept before stays
# kept.
mkdir "$hung/in"; head -c 16M /dev/zero >"$hung/in/a"
for what in planned kept interrupted; do
  fresh "starts-$what"
  sed -i "s|root-dir: .*|root-dir: $hung/in|; s|^resources:.*|resources: [ [ path: a ] ]|" "$JOB"
  [ $what != kept ] || { started "$JOB"; echo result >"$MNT/r"; check "$what: it is" "$EFS" stop --keep "$NAME"; rm "$OUT"/*; }
  if [ $what = interrupted ]; then slowly=100 state=staging-in; else slowly=1000000 state=planning; stall $members; fi
  timeout $((30 + late)) "$EFS" start --set "max-rate=$slowly KB/s" "$JOB" >"$S/said" 2>&1 & starter=$!
  check "$what: a start is $state" await 20 has_state "$NAME" $state
  both="$(field "$(status_of "$NAME")" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')"
  stall $members
  case $what in
    planned) check_exit "$what: where the PFS hangs its stop does not" 1 'stopped before the inputs were there' timeout $((10 + late)) "$EFS" stop --deadline 1 "$NAME" ;;
    kept) check_exit "$what: where the PFS hangs its stop does not" 1 'stopped before the inputs were there' timeout $((10 + late)) "$EFS" stop "$NAME" ;;
    interrupted) kill -INT $starter ;;
  esac
  wait $starter; code=$?
  [ $what = interrupted ] || { check "$what: nor does the start" test $code = 1; check "$what: which says why" grep -q 'the PFS does not answer' "$S/said"; }
  for pid in $both; do check "$what: the daemon is gone" await 20 gone "$pid"; done
  check_not "$what: and the mount" mounted "$MNT"
  kill -CONT $members
  if [ $what = kept ]; then
    check "$what: is still" json "$(status_of "$NAME")" "d['left'] == 'kept'"
    check "$what: a start goes on with it" "$EFS" start "$JOB"
    check "$what: with all of it" grep -qx result "$MNT/r"
    check "$what: and stops" "$EFS" stop "$NAME"
  fi
  check_not "$what: nothing is left" test -e "$EFS_RUNTIME_DIR/$NAME"
done
# The server is handling a request, and a thread waits for the answer and cannot be killed. This
# happens mostly to servers that handle one request at a time.
CAPACITY='400 MiB' fresh slow 'resources: []'
started -o daemon-io "$JOB"; slow=$MNT; mkdir "$slow/out"
members_of_slow=$(field "$(status_of slow)" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')
CAPACITY='384 MiB' fresh caught   # with more than can go out until the deadline
sed -i "s|results-dir: .*|results-dir: $slow/out|; 1a\\  max-rate: 100 MB/s" "$JOB"
started "$JOB"; head -c 240M /dev/urandom >"$MNT/big"; sum=$(cksum <"$MNT/big")
both="$(field "$(status_of "$NAME")" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')"
timeout $((2 + late)) "$EFS" stop --json --deadline 2 "$NAME" >"$S/said" 2>/dev/null & stopper=$!
written() { [ "$(stat -c %s "$slow"/out/big*partial 2>/dev/null || echo 0)" -ge 4000000 ]; }
await 10 written
kill -STOP $members_of_slow
wait $stopper; check "$NAME: the stop does not wait for who cannot die" test $? = 1
check "$NAME: what may not be back is listed" json "$(cat "$S/said")" "[e['path'] for e in d['receipt']['entries'] if e['action'] == 'not-saved'] == ['big'] and d['receipt']['verdict'] == 'failed'"
kill -CONT $members_of_slow
for pid in $both; do check "$NAME: the daemon ends when the PFS answers" await 20 gone "$pid"; done
check "$NAME: a salvage brings it out" "$EFS" salvage "$NAME"
check "$NAME: all of it" test "$(cksum <"$slow/out/big")" = "$sum"
check "$NAME: clean" "$EFS" clean "$NAME"
rm "$slow/out/big"
check 'the slow one ends' "$EFS" stop --no-stage-out slow
# A sync of all files sends no request to a FUSE server, so each result is synced separately.
# This one stores on a disk: a store in memory has nothing to sync, and says so once.
fresh synced "backends: [ [ id: disk, type: NVRAM-NVML, daxfs: $S/synced/store ] ]" 'resources: []'
mkdir "$S/synced/store"; synced=$MNT accesses=$S/synced/accesses
started --set access-log="$accesses" "$JOB"; mkdir "$synced/out"
fresh many
sed -i "s|results-dir: .*|results-dir: $synced/out|" "$JOB"
started "$JOB"
for i in $(seq 40); do echo "$i" >"$MNT/r$i"; done
before=$(grep -c fsync "$accesses")
check 'many results for a PFS of FUSE' "$EFS" stop many
if [ "$(field "$(status_of synced)" 'd["durability"]')" = memory ]; then skip 'results are each synced' 'the test is on a tmpfs'
else check 'are each synced there' test $(($(grep -c fsync "$accesses") - before)) -ge 40; fi
check 'the synced one ends' "$EFS" stop --no-stage-out synced
check 'the PFS ends' "$EFS" stop --no-stage-out pfs


# --- a part of the deadline is for programs that are about to leave the mount; a refused signal is
#     logged ---
fresh leaving
started "$JOB"; echo one >"$MNT/r"
sleep 1.5 <"$MNT/r" & holder=$!
check 'a stop with a deadline waits a moment for a program to leave' "$EFS" stop --deadline 20 leaving
check 'and brings out what is there' grep -qx one "$OUT/r"
wait "$holder"
# A program that stays keeps the mount. Results that no program can write to are still exported, as
# a stop selects them.
fresh staying
started "$JOB"; echo one >"$MNT/r"; mkdir -p "$MNT/d/empty"; echo two >"$MNT/d/s"; ln -s r "$MNT/l"; echo scratch >"$MNT/t"
check 'a temporary file' "$EFS" set temporary "$MNT/t"
exec 7<"$MNT/r" 8>>"$MNT/busy"; echo half >&8
check_exit 'a stop with a deadline is refused where a program stays' 1 'is in use' "$EFS" stop --deadline 8 staying
check_exit 'again, and says what is not back' 1 'failed: busy: a program has it open for writing' "$EFS" stop --deadline 8 staying
check 'what no program writes to is back' test "$(cat "$OUT/r" "$OUT/d/s" "$OUT/l")" = $'one\ntwo\none'
check 'a directory, too' test -d "$OUT/d/empty"
check_not 'what is being written is not' test -e "$OUT/busy"
check_not 'nor what is temporary' test -e "$OUT/t"
check 'the program goes on' eval 'echo more >&8'
check 'and the instance' test "$(cat "$MNT/busy")" = $'half\nmore'
check 'an unload is taken again' "$EFS" unload --wait "$MNT/l"
said=$("$EFS" stop --json --deadline 4 staying); code=$?
check 'in JSON: refused' test $code = 1
check 'and what was brought out, which is nothing more' json "$said" "d['code'] == 16 and ' unloaded (0 B)' in d['summary']"
kill -TERM "$(field "$("$EFS" status --json staying)" "d['worker_pid']")"
check 'a signal that is refused is logged' await 20 grep -q 'event=stop_refused.*is in use' "$EFS_RUNTIME_DIR/staying/efsd.log"
rm "$MNT/d/s"
exec 7<&- 8>&-
check_exit 'stop: and says what the job has removed since' 0 'then removed or renamed by the job: d/s' "$EFS" stop staying
check 'all is back' test "$(cat "$OUT/busy")" = $'half\nmore'
check 'the receipt tells when' json "$(cat "$OUT"/efs-receipt-staying.json)" "[e['reason'] for e in d['entries'] if e['path'] == 'r'] == ['unloaded while the job ran']"
# A later stop without a deadline has no time limit, once the earlier stop was refused.
fresh inherits
started "$JOB"; exec 8>"$MNT/busy"
"$EFS" stop --deadline 6 inherits >"$S/said" 2>&1 & stopper=$!
check 'a stop waits for the program' await 20 has_state inherits unmounting
"$EFS" stop inherits >"$S/said2" 2>&1 & second=$!
wait $stopper; check 'it is refused' test $? = 1
exec 8>&-
wait $second; code=$?
check 'the second is refused as one without a deadline, or brings all out' test $code = 0 -o -n "$(grep -o 'is in use' "$S/said2")"
check_not 'and has not run out of time' grep -q 'Time was up' "$S/said2"
[ $code = 0 ] || check 'inherits: stop' "$EFS" stop inherits
check 'inherits: all is back' test -e "$OUT/busy"
finish
