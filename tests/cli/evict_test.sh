#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Contents leave a full buffer and come again (evict: when-full): which ones, which never, and what
# a job finds that reads and writes more than its buffer holds.
#   evict_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

late=60             # seconds, on a machine that is as busy as it may be
export CAPACITY='64 MiB'
READS='resources: [ { path: input, stage: on-access, evict: when-full } ]'
WRITES='outputs: [ { path: "**", drain: on-close, evict: when-full } ]'
of() { field "$(status_of "$NAME")" "d['$1']['$2']"; }
is_remote() { json "$("$EFS" ls -i "$NAME" --json "$1")" "d[0].get('remote', False) == True"; }
here() { ! is_remote "$1"; }
home() { [ "$(of drain due)" = 0 ]; }
evicted() { [ "$(of evict evicted)" -ge "$1" ]; }
worker() { field "$(status_of "$NAME")" 'd["worker_pid"]'; }
another_worker() { [ "$(worker)" != "$1" ]; }
logged() { grep -c "event=$1" "$EFS_RUNTIME_DIR/$NAME/efsd.log"; }
large() { local i; for i in $(seq "$2" "$3"); do head -c 8388608 /dev/urandom >"$1/$i"; done; }   # large DIRECTORY FIRST LAST
same() { local i; for i in $(seq "$1" "$2"); do cmp "$PFS/input/$i" "$MNT/input/$i" || return 1; done; }
backwards() { local i; for i in $(seq 24 -1 1); do cmp "$PFS/input/$i" "$MNT/input/$i" || return 1; done; }
at_once() { local i p=(); for i in "$@"; do cmp "$PFS/input/$i" "$MNT/input/$i" & p+=($!); done; for i in "${p[@]}"; do wait "$i" || return 1; done; }
made() { local i; for i in $(seq "$2" "$3"); do cmp "$S/made/$i" "$1/$i" || return 1; done; }   # made DIRECTORY FIRST LAST
right_or_error() { if is_remote "out/$1"; then ! cat "$MNT/out/$1" >"$S/read" 2>&1; else cmp "$MNT/out/$1" "$S/made/$1"; fi; }
sizes() { (cd "$1/input" && stat -c '%n %s %a %Y %y' *); }

check_exit 'an input of the background is none' 2 'goes with stage: now or on-access only' eval 'fresh bad "resources: [ { path: input, stage: background, evict: when-full } ]"; "$EFS" check "$JOB"'
check_exit 'a result that is not drained is none' 2 "goes with 'drain' only" eval 'fresh bad "outputs: [ { path: out, evict: when-full } ]"; "$EFS" check "$JOB"'
check_exit 'two backends are one too many' 2 'one backend only' eval 'fresh bad "backends: [ { id: a, type: DRAM, capacity: 64 MiB }, { id: b, type: DRAM, capacity: 64 MiB } ]" "$READS"; "$EFS" check "$JOB"'
fresh large "$READS"; head -c 70M /dev/urandom >"$PFS/input/full"
check_exit 'the largest input must fit' 1 'the inputs need 70' "$EFS" start "$JOB"
fresh all 'resources: [ { path: input, evict: when-full } ]'; large "$PFS/input" 1 8
check_exit 'all inputs that come at the start must fit' 1 'the inputs need 64' "$EFS" start "$JOB"

# --- more inputs than room ---
paths=daemon-io; [ "$(id -u)" != 0 ] || paths='passthrough daemon-io'
for how in $paths; do
  fresh "reads-$how" "$READS"
  large "$PFS/input" 1 24
  was=$(listing "$PFS")
  if [ $how = daemon-io ]; then started "$JOB" -o daemon-io; else started "$JOB"; fi
  before=$(sizes "$MNT")
  check "$how: reads: all contents are right" same 1 24
  check "$how: again" same 1 24
  check "$how: backwards" backwards
  check "$how: contents have left" evicted 20
  check "$how: and came again" test "$(of fetch fetched)" -gt 40
  check "$how: names, sizes, modes and times are as before" test "$before" = "$(sizes "$MNT")"
  check_exit "$how: status, for people" 0 'evicted  [0-9]+ contents' "$EFS" status "$NAME"
  check "$how: and metrics" grep -q "^efs_evicted_files_total{instance=\"$NAME\"} [1-9]" <<<"$("$EFS" metrics)"
  check "$how: that is logged" test "$(logged evicted)" -ge 1
  check "$how: four at once" at_once 1 7 13 19
  check "$how: room for a new file" eval 'head -c 8388608 /dev/zero >"$MNT/new"'
  check "$how: a changed input" eval 'echo more >>"$MNT/input/3"'
  check "$how: is never evicted" eval 'same 5 24 && here input/3 && [ "$(tail -c 5 "$MNT/input/3")" = more ]'
  check "$how: stop" "$EFS" stop "$NAME"
  check "$how: the new file is out" cmp "$OUT/new" <(head -c 8388608 /dev/zero)
  check "$how: the inputs are as they were" test "$was" = "$(listing "$PFS")"
done

# --- more results than room ---
fresh writes "$WRITES"
mkdir "$S/made"; large "$S/made" 1 24
started "$JOB"
mkdir "$MNT/out"
for i in {1..24}; do
  check "writes: result $i" cp "$S/made/$i" "$MNT/out/$i"
  check "writes: $i is home" await $late eval '[ -e "$OUT/out/$i" ] && home'
done
check 'writes: all results are right' diff -r "$S/made" "$OUT/out"
check 'writes: contents have left' evicted 10
check 'writes: the oldest is not here' is_remote out/1
check 'writes: all can be read in the buffer' diff -r "$S/made" "$MNT/out"
check 'writes: a result is renamed' eval 'mv "$MNT/out/1" "$MNT/first" && cmp "$MNT/first" "$S/made/1"'
check 'writes: one is removed' rm "$MNT/out/2"
check 'writes: one is changed' eval 'echo more >>"$MNT/out/4"; echo more >>"$S/made/4"'
check 'writes: and goes home' await $late eval 'cmp -s "$S/made/4" "$OUT/out/4" && home'
check 'writes: room is made again' made "$MNT/out" 5 24
mv "$OUT/out/5" "$S/kept"; mv "$OUT/out/6" "$S/kept6"; head -c 8388608 /dev/urandom >"$OUT/out/6"
for i in 9 10 11 12 13 14 15 16 17; do cat "$MNT/out/$i" >/dev/null; done
check 'writes: without a copy it stays or is an error' right_or_error 5
check 'changed: a result with another version at home, too' right_or_error 6
mv "$S/kept" "$OUT/out/5"; mv "$S/kept6" "$OUT/out/6"
check 'writes: the copies are back' eval 'cmp "$MNT/out/5" "$S/made/5" && cmp "$MNT/out/6" "$S/made/6"'
check 'writes: stop' "$EFS" stop writes
check 'writes: nothing is lost' eval 'made "$OUT/out" 3 24 && cmp "$S/made/1" "$OUT/first"'
check 'writes: the receipt says where a content is' grep -qF 'its content has left the buffer' <<<"$(receipt)"

# --- what is in use stays ---
fresh open "$READS"
large "$PFS/input" 1 24
started "$JOB"
exec 5<"$MNT/input/1"
python3 -c '
import mmap, os, sys, time
f = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(f, 0, mmap.MAP_SHARED, mmap.PROT_READ); os.close(f)
first = m[:]
open(sys.argv[2], "w").close()
while not os.path.exists(sys.argv[3]): time.sleep(0.01)
sys.exit(m[:] != first)' "$MNT/input/2" "$S/ready" "$S/go" 5<&- & mapper=$!; pids+=($mapper)
check 'open: it maps' await $late test -e "$S/ready"
check 'open: others come and go' eval 'same 3 24 && same 3 24'
check 'open: it stays' here input/1
check 'open: what is mapped stays' here input/2
check 'open: and can be read' cmp /dev/fd/5 "$PFS/input/1"
touch "$S/go"; wait $mapper; check 'open: what was mapped was right' test $? = 0; pids=()
exec 5<&-
check 'open: stop' "$EFS" stop open

# --- the daemon dies, and then both ---
fresh dies "$READS" "$WRITES"
large "$PFS/input" 1 24
was=$(listing "$PFS")
started "$JOB"
check 'dies: some come' same 1 16
for turn in 1 2 3; do
  first=$(worker)
  same 1 24 >"$S/read" 2>&1 & reader=$!
  kill -9 "$first"
  check "dies: another one serves ($turn)" await $late another_worker "$first"
  wait $reader; check "dies: and the contents are right ($turn)" test $? = 0
done
echo result >"$MNT/result"
check 'dies: a result goes home' await $late cmp -s "$OUT/result" <(echo result)
kill_both dies
check_exit 'dies: a salvage' 0 'receipt:' "$EFS" salvage dies
check 'dies: the PFS is as it was' test "$was" = "$(listing "$PFS")"
check 'dies: with the result' grep -qx result "$OUT/result"
check 'dies: a start goes on with it' "$EFS" start "$JOB"
check 'dies: and contents are right' same 1 24
check 'dies: also of the result' grep -qx result "$MNT/result"
check 'dies: stop' "$EFS" stop dies
check 'dies: the PFS is as it was, again' test "$was" = "$(listing "$PFS")"

# --- results that have left, and both die ---
fresh both "$WRITES"
mkdir "$S/again"; large "$S/again" 1 12
started "$JOB"
mkdir "$MNT/out"
for i in {1..12}; do cp "$S/again/$i" "$MNT/out/$i"; check "both: $i is home" await $late eval '[ -e "$OUT/out/$i" ] && home'; done
check 'both: contents have left' evicted 3
echo last >"$MNT/out/last"
kill_both both
check_exit 'both: a salvage' 0 'receipt:' "$EFS" salvage both
check_exit 'both: another results-dir is refused' 1 "results-dir $OUT" "$EFS" start "$JOB" --results-dir "$S/elsewhere"
check_not 'both: a salvage elsewhere is not whole' "$EFS" salvage --all --to "$S/elsewhere" both
check 'both: a salvage elsewhere names the place' grep -rqF "copy it from $OUT/out/1" "$S/elsewhere"
check 'both: nothing is lost' diff -r -x last "$S/again" "$OUT/out"
check 'both: also what was not home' grep -qx last "$OUT/out/last"
check 'both: a start goes on with it' "$EFS" start "$JOB"
check 'both: contents are right' diff -r -x last "$S/again" "$MNT/out"
check 'both: stop' "$EFS" stop both
check 'both: nothing is lost in the end' diff -r -x last "$S/again" "$OUT/out"

# --- inputs that come at the start, and by a load ---
fresh now 'resources: [ { path: input, evict: when-full } ]' "$WRITES"
large "$PFS/input" 1 4
started "$JOB"
large "$PFS/input" 5 5
check 'now: a load' "$EFS" load -w -i now input/5
cp "$PFS/input/2" "$S/two"; echo changed | dd of="$PFS/input/2" conv=notrunc status=none
before=$(sizes "$MNT")
mkdir "$MNT/out"
results() { local i; for i in $(seq "$1" "$2"); do cp "$S/again/$i" "$MNT/out/$i" && await $late eval '[ -e "$OUT/out/$i" ] && home' || return 1; done; }
right() { local i; for i in 1 3 4 5; do cmp "$PFS/input/$i" "$MNT/input/$i" || return 1; done; cmp "$S/two" "$MNT/input/2"; }
check 'now: results take the room' results 1 6
check 'now: an input has left' is_remote input/1
check 'now: and a loaded one' is_remote input/5
check 'now: one that is changed on the PFS stays' here input/2
check 'now: names, sizes, modes and times are as before' test "$before" = "$(sizes "$MNT")"
check 'now: contents are right' right
first=$(worker)
results 7 10 >"$S/read" 2>&1 & writer=$!
check 'now: the worker dies' eval 'right && kill -9 "$first"'
check 'now: another one serves' await $late another_worker "$first"
wait $writer; check 'now: the results go home' test $? = 0
check 'now: and contents are right' right
check 'now: results take the room again' eval 'results 11 12 && results 1 6'
check 'now: an input has left again' eval 'is_remote input/1 || is_remote input/3 || is_remote input/4'
kill_both now
check_exit 'now: a salvage' 0 'receipt:' "$EFS" salvage now
check 'now: a start goes on with it' "$EFS" start "$JOB"
check 'now: without what has left' eval 'is_remote input/1 || is_remote input/3 || is_remote input/4'
cp "$PFS/input/2" "$S/two"   # a start copies the new version
check 'now: contents are right again' right
check 'now: results, too' diff -r "$S/again" "$MNT/out"
check 'now: stop' "$EFS" stop now
check 'now: nothing is lost' diff -r "$S/again" "$OUT/out"

finish
