#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Inputs whose contents come when a program opens them (stage: on-access): what works without the
# content, what waits, a PFS that hangs or has another version, and the deaths of the daemon.
#   on_access_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

late=30   # seconds, on a machine that is as busy as it may be
LAZY='resources: [ { path: input, stage: on-access } ]'
fetch() { field "$(status_of "$NAME")" "d['fetch']$1"; }
is_remote() { json "$("$EFS" ls -i "$NAME" --json "$1")" "d[0].get('remote', False) == True"; }
here() { ! is_remote "$1"; }
waits() { [ "$(fetch '["waiting"]')" -ge "$1" ]; }
worker() { field "$(status_of "$NAME")" 'd["worker_pid"]'; }
same() { cmp "$PFS/input/$1" "$MNT/input/$1"; }
logged() { grep -c "event=$1" "$EFS_RUNTIME_DIR/$NAME/efsd.log"; }

check_exit 'a word that is none is an error' 2 'stage' eval 'fresh bad "resources: [ { path: input, stage: later } ]"; "$EFS" check "$JOB"'

# --- by passthrough, and by the daemon ---
paths=daemon-io; [ "$(id -u)" != 0 ] || paths='passthrough daemon-io'
for how in $paths; do
  fresh "reads-$how" "$LAZY"
  head -c 3000001 /dev/urandom >"$PFS/input/large"; truncate -s 5M "$PFS/input/sparse"; echo end >>"$PFS/input/sparse"
  chmod 640 "$PFS/input/a"; touch -d '2001-02-03 04:05:06.789' "$PFS/input/a"
  if [ $how = daemon-io ]; then started "$JOB" -o daemon-io; else started "$JOB"; fi
  before=$(cd "$PFS/input" && stat -c '%n %s %a %Y %y' a large sparse sub/b)
  check "$how: names are there with size, mode and times" test "$before" = "$(cd "$MNT/input" && stat -c '%n %s %a %Y %y' a large sparse sub/b)"
  check "$how: no content is" is_remote input/large
  check "$how: status says so" test "$(fetch '["remote"]')" = 4
  check_exit "$how: for people, too" 0 'remote   4 inputs are not here' "$EFS" status "$NAME"
  check_exit "$how: ls says so" 0 'input/a \(not here\)' "$EFS" ls -i "$NAME" input
  check_exit "$how: and explain" 0 'content      not here' "$EFS" explain -i "$NAME" input/a
  check "$how: a program does not take them for holes" test "$(stat -c %b "$MNT/input/large")" != 0
  change=$(stat -c %Z "$MNT/input/large")
  for name in large a sparse sub/b; do check "$how: $name is right at the first read" same $name; done
  check "$how: then it is here" here input/large
  check "$how: with the times of before" test "$before" = "$(cd "$MNT/input" && stat -c '%n %s %a %Y %y' a large sparse sub/b)"
  check "$how: also that of the change" test "$change" = "$(stat -c %Z "$MNT/input/large")"
  check "$how: status counts" test "$(fetch '["fetched"]') $(fetch '["remote"]') $(fetch '["waiting"]')" = '4 0 0'
  check "$how: and metrics" grep -qxF "efs_fetched_files_total{instance=\"$NAME\"} 4" <<<"$("$EFS" metrics)"
  check "$how: stop" "$EFS" stop "$NAME"
  check "$how: no input went to results-dir" test ! -e "$OUT/input"
done

# --- operations on files that are not here ---
fresh works 'resources: [ { path: input, stage: on-access, flags: persistent } ]' 'outputs: [ { path: "**" } ]'
for name in unlink rename replaced chmod truncate append link touch xattr mapped; do echo "of $name" >"$PFS/input/$name"; done
mkdir "$PFS/input/d" "$PFS/input/d/e"; echo deep >"$PFS/input/d/e/f"; echo flat >"$PFS/input/d/g"
started "$JOB"
all=$(fetch '["remote"]')
check 'works: access' test -r "$MNT/input/a"
check 'works: ls' test "$(ls "$MNT/input" | wc -l)" = 13
check 'works: no extended attribute' eval '! getfattr -n user.none "$MNT/input/a" 2>/dev/null'
check 'works: unlink' rm "$MNT/input/unlink"
check 'works: a name is replaced' eval 'echo new >"$MNT/new" && mv "$MNT/new" "$MNT/input/replaced" && grep -qx new "$MNT/input/replaced"'
check 'works: none of these has fetched' test "$(fetch '["fetched"]') $(fetch '["remote"]')" = "0 $((all - 2))"
check 'works: rename' eval 'mv "$MNT/input/rename" "$MNT/renamed" && grep -qx "of rename" "$MNT/renamed"'
check 'works: chmod' eval 'chmod 600 "$MNT/input/chmod" && grep -qx "of chmod" "$MNT/input/chmod"'
check 'works: truncate' eval 'truncate -s 2 "$MNT/input/truncate" && [ "$(cat "$MNT/input/truncate")" = of ]'
check 'works: append' eval 'echo more >>"$MNT/input/append" && [ "$(cat "$MNT/input/append")" = "$(printf "of append\nmore")" ]'
check 'works: link' eval 'ln "$MNT/input/link" "$MNT/linked" && grep -qx "of link" "$MNT/linked"'
check 'works: touch' eval 'touch -d 2001-01-01 "$MNT/input/touch" && grep -qx "of touch" "$MNT/input/touch"'
check 'works: mmap' python3 -c '
import mmap, sys
with open(sys.argv[1], "r+b") as f:
    m = mmap.mmap(f.fileno(), 0); assert m[:] == b"of mapped\n"; m[0:2] = b"OF"' "$MNT/input/mapped"
check 'works: a directory is renamed with what is in it' eval 'mv "$MNT/input/d" "$MNT/moved" && grep -qx deep "$MNT/moved/e/f" && grep -qx flat "$MNT/moved/g"'
check 'works: load brings contents' "$EFS" load --wait -i works input/sub/b
check 'works: they are here' here input/sub/b
check 'works: stop' "$EFS" stop works
for name in renamed linked moved/e/f input/chmod input/truncate input/append input/mapped; do check "works: $name is out" test -e "$OUT/$name"; done
check 'works: what was not opened is not' test ! -e "$OUT/input/a" -a ! -e "$OUT/input/xattr"
check 'works: the receipt lists it as not here' json "$(receipt)" "['not here' in e['reason'] and e['action'] == 'unchanged' for e in d['entries'] if e['path'] == 'input/a'] == [True]"
check 'works: a mapped change is whole' grep -qx 'OF mapped' "$OUT/input/mapped"

# --- another version on the PFS ---
fresh changed "$LAZY"
echo other >"$PFS/input/c"
started "$JOB"
cp -a "$PFS/input/a" "$S/kept"; echo 'another one' >"$PFS/input/a"
check_exit 'changed: the open fails' 1 'Input/output error' cat "$MNT/input/a"
check_exit 'changed: status has the reason' 0 'last error: input/a: it has changed on the PFS' "$EFS" status changed
check 'changed: another file does not' same c
check 'changed: it is logged' test "$(logged fetch_failed)" = 1
check_exit 'changed: explain has the reason' 0 'the last fetch failed: it has changed on the PFS' "$EFS" explain -i changed input/a
rm "$PFS/input/c"
check 'changed: it is still not here' is_remote input/a
cat "$S/kept" >"$PFS/input/a"; touch -r "$S/kept" "$PFS/input/a"
check 'changed: the version of the plan is back: the next open is good' eval '[ "$(cat "$MNT/input/a")" = alpha ]'
check 'changed: what was fetched needs no PFS' eval '[ "$(cat "$MNT/input/c")" = other ]'
check 'changed: stop' "$EFS" stop changed

# --- in the background ---
fresh background 'resources: [ { path: input, stage: background } ]'
for i in $(seq 50); do head -c 100000 /dev/urandom >"$PFS/input/$i"; done
started "$JOB"
check 'background: all come' await $late eval '[ "$(fetch "[\"remote\"]")" = 0 ]'
check 'background: and are right' diff -r "$PFS/input" "$MNT/input"
check 'background: stop' "$EFS" stop background

# --- in place, both processes die, nothing was opened ---
fresh place 'resources: [ { path: input, stage: on-access, flags: persistent } ]' 'outputs: [ { path: "**" } ]'
sed -i '/results-dir/d; /mount-dir/a\  in-place: true' "$JOB"; OUT=$PFS
for i in $(seq 20); do echo "content $i" >"$PFS/input/$i"; done
started "$JOB"
was=$(listing "$PFS/input")
kill_both place
check_exit 'place: a salvage' 0 'receipt:' "$EFS" salvage place
check 'place: the PFS is as it was' test "$was" = "$(listing "$PFS/input")"
check 'place: the receipt lists them as not here' json "$(cat "$PFS/efs-salvage-place.json")" "sum('not here' in e['reason'] for e in d['entries']) == 22"
check_exit 'place: a salvage of all elsewhere' 3 'not here' "$EFS" salvage place --all --to "$S/place/all"
check 'place: has no hole' test -z "$(find "$S/place/all" -type f -path '*input*' 2>/dev/null)"
check 'place: the PFS is as it was, again' test "$was" = "$(listing "$PFS/input")"
check 'place: a start goes on with it' "$EFS" start "$JOB"
check 'place: and contents are right' eval '[ "$(cat "$MNT/input/7")" = "content 7" ]'
echo mine >"$MNT/input/7"
check 'place: stop' "$EFS" stop place
check 'place: what the job wrote is there' grep -qx mine "$PFS/input/7"
check 'place: and nothing else has changed' test "$(cat "$PFS/input/8")" = 'content 8'

# --- a PFS that hangs: a separate efs whose processes are stopped ---
if [ "$(id -u)" != 0 ]; then skip 'a PFS that hangs' 'not root'; finish; fi
fresh pfs 'resources: []'
started "$JOB"; hung=$MNT; mkdir -p "$hung/in/input"
for i in $(seq 200); do echo "content $i" >"$hung/in/input/$i"; done
head -c 30000000 /dev/urandom >"$S/large"; cp "$S/large" "$hung/in/input/large"
members=$(field "$(status_of pfs)" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')
begin() { fresh "$1" "$LAZY"; sed -i "s|root-dir: .*|root-dir: $hung/in|" "$JOB"; started "$JOB"; }

begin hangs
stall $members
for i in $(seq 200); do cat "$MNT/input/$i" >"$S/got.$i" 2>"$S/error.$i" & pids+=($!); done
check 'hangs: 200 opens wait' await $late waits 200
check 'hangs: stat answers' timeout 10 stat "$MNT/input/large"
check 'hangs: so does a lookup of none' timeout 10 test ! -e "$MNT/absent"
check 'hangs: so does create' timeout 10 bash -c "echo made >'$MNT/made' && cat '$MNT/made'"
check 'hangs: so does status' timeout 10 "$EFS" status hangs
check 'hangs: they hold no thread' test "$(ls "/proc/$(worker)/task" | wc -l)" -lt 100
victim=${pids[9]}
kill -CHLD ${pids[10]}; kill -WINCH ${pids[10]}
kill -TERM $victim
check 'hangs: a program that waits can be killed' await $late gone $victim
check 'hangs: the others wait' await $late eval '[ "$(fetch "[\"waiting\"]")" = 199 ]'
timeout 40 "$EFS" stop hangs >"$S/said" 2>&1
check 'hangs: a stop is refused, as programs use the mount' test $? != 0 -a $? != 124
if kernel_has_it; then
  old=$(worker); kill -KILL $old
  check 'hangs: a successor takes over' await $late eval '[ "$(worker)" != '$old' ]'
  check 'hangs: they wait there' await $late waits 199
fi
kill -CONT $members
for i in $(seq 200); do [ $i = 10 ] || wait "${pids[$((i - 1))]}" || fail "hangs: $i" "$(cat "$S/error.$i")"; done
wait $victim 2>/dev/null; pids=()
wrong=0; for i in $(seq 200); do [ $i = 10 ] || [ "$(cat "$S/got.$i")" = "content $i" ] || wrong=$((wrong + 1)); done
check 'hangs: then all have their contents' test $wrong = 0
check 'hangs: none waits' test "$(fetch '["waiting"]')" = 0
check 'hangs: stop' "$EFS" stop hangs

# --- a worker dies in the middle of a fetch ---
if kernel_has_it; then
  begin dies; echo 'max-rate' >/dev/null
  sed -i "/root-dir/a\  max-rate: 8 MiB" "$JOB"; "$EFS" stop dies >/dev/null; started "$JOB"
  cat "$MNT/input/large" >"$S/got" & reader=$!; pids+=($reader)
  check 'dies: it is being fetched' await $late eval '[ "$(fetch "[\"running\"]")" = 1 ]'
  for round in 1 2; do
    read -rt 0.7 <> <(:) || :
    old=$(worker); kill -KILL $old
    check "dies: a successor takes over ($round)" await $late eval '[ "$(worker)" != '$old' ]'
  done
  wait $reader; check 'dies: the open goes on' test $? = 0; pids=()
  check 'dies: and the content is right' cmp "$S/large" "$S/got"
  check 'dies: stop' "$EFS" stop dies
fi

# --- a stop while the PFS hangs in a fetch of the background ---
begin drops; sed -i "s/on-access/background/" "$JOB"
"$EFS" stop drops >/dev/null
sed -i "/root-dir/a\  max-rate: 1 MiB" "$JOB"
started "$JOB"
stall $members
timeout 40 "$EFS" stop --no-stage-out drops >"$S/said" 2>&1
check 'drops: the stop ends' test $? != 124
kill -CONT $members
check 'drops: the daemon is gone' await $late ended drops
# --- the same, with results: they do not wait for it ---
reads_pfs() { grep -qsE "request_wait_answer|fuse_simple_request|fuse_send" /proc/$(worker)/task/*/wchan; }
for left in dropped kept; do
  fresh "saves-$left" 'resources: [ { path: input, stage: background } ]' 'outputs: [ { path: "**" } ]'
  sed -i "s|root-dir: .*|root-dir: $hung/in|; /root-dir/a\  max-rate: 4 MiB" "$JOB"
  started "$JOB"
  echo result >"$MNT/result"
  old=$(worker)
  stall $members
  check "saves-$left: a fetch hangs" await $late reads_pfs
  if [ $left = kept ]; then timeout 60 "$EFS" stop --keep "$NAME" >"$S/said" 2>&1; else timeout 60 "$EFS" stop "$NAME" >"$S/said" 2>&1; fi
  status=$?
  [ $status = 0 ] || sed 's/^/  said: /' "$S/said"
  check "saves-$left: the stop is good" test $status = 0
  check "saves-$left: and has exported" grep -qx result "$OUT/result"
  check "saves-$left: the daemon is gone" await $late gone "$old"
  kill -CONT $members
  if [ $left = kept ]; then
    check "saves-$left: it has left the fetch" test "$(logged fetch_hangs) $(logged left_with_fetch)" = '1 1'
    check "saves-$left: a start goes on with the store" "$EFS" start "$JOB"
    check "saves-$left: and contents are right" cmp "$S/large" "$MNT/input/large"
    check "saves-$left: stop" "$EFS" stop "$NAME"
  fi
done

NAME=pfs; check 'pfs: stop' "$EFS" stop --no-stage-out pfs
finish
