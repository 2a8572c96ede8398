#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Contents that users ask for or wait for (efs fetch, efs wait --inputs), and those that efs fetches
# before their open.
#   fetch_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

late=30   # seconds, on a machine that is as busy as it may be
fetch() { field "$(status_of "$NAME")" "d['fetch']$1"; }
is_remote() { json "$("$EFS" ls -i "$NAME" --json "$1")" "d[0].get('remote', False) == True"; }
here() { ! is_remote "$1"; }
fetched() { [ "$(fetch '["fetched"]')" = "$1" ] && [ "$(fetch '["running"]')" = 0 ]; }

# --- efs fetch ---
fresh asks 'resources: [ { path: input, stage: on-access } ]'
mkdir "$PFS/input/d"; for i in $(seq 20); do echo "content $i" >"$PFS/input/d/$i"; done
started "$JOB"
check_exit 'asks: a fetch says what it did' 0 '^task 1: fetch done: 1 files \(6 B' "$EFS" fetch -i asks input/a
check 'asks: it is here' here input/a
said=$("$EFS" fetch -i asks "$MNT/input/a" 2>&1); check 'asks: what is here already is a silent success' test "$?:$said" = 0:
check 'asks: a directory, by its path on the PFS' "$EFS" fetch -i asks "$PFS/input/d"
check 'asks: nothing else came' fetched 21
check 'asks: all of it is right' diff -r "$PFS/input/d" "$MNT/input/d"
check_exit 'asks: a path that is not there' 1 'input/none: not in the buffer' "$EFS" fetch -i asks input/none
check_exit 'asks: a path elsewhere' 1 'neither on the mount' "$EFS" fetch -i asks /elsewhere
check_exit 'asks: no path' 2 'path' "$EFS" fetch -i asks
check_exit 'asks: without a wait it prints the number of a task' 0 '^[0-9]+$' "$EFS" fetch --no-wait -i asks 'input/sub/*'
check_exit 'asks: efs wait waits for it' 0 'fetch done: 1 files' "$EFS" wait -i asks "$said"
check 'asks: and it is here' here input/sub/b
check 'asks: in JSON' json "$("$EFS" fetch -i asks --json input)" "d['task_state'] == 'done' and d['outcome']['files'] == 0 and d['outcome']['already'] == 22"
check 'asks: no input of the background: no wait' "$EFS" wait -i asks --inputs
check 'asks: stop' "$EFS" stop asks

# --- a version that has changed ---
fresh fails 'resources: [ { path: input, stage: background } ]'
sed -i '/results-dir/a\  max-rate: 2 MB/s' "$JOB"
head -c 8000000 /dev/urandom >"$PFS/input/large"; for i in $(seq 5); do echo "$i" >"$PFS/input/$i"; done
started "$JOB"
check_exit 'fails: a wait that ends before' 1 'time is up: [0-9]+ inputs of the background are not here' "$EFS" wait -i fails --inputs --timeout 0
check 'fails: ls says what is being fetched' await $late eval '"$EFS" ls -i fails input | grep -q "input/large (being fetched)"'
check 'fails: a wait' "$EFS" wait -i fails --inputs
check 'fails: after it all are here' test "$(fetch '["remote"]')" = 0
check 'fails: and right' diff -r "$PFS/input" "$MNT/input"
check 'fails: stop' "$EFS" stop fails
sed -i 's/2 MB/1 MB/' "$JOB"; started "$JOB"
rm "$PFS/input/sub/b"; echo changed >"$PFS/input/3"
"$EFS" wait -i fails --inputs >"$S/said" 2>&1; code=$?
# either may have been fetched before
left=$(fetch '["remote"]')
if [ "$left" = 0 ]; then check 'fails: all came before' test $code = 0
else check 'fails: some failed' test $code = 3; check 'fails: and says how many' grep -q "^efs: $left inputs of the background could not be fetched" "$S/said"; fi
check 'fails: stop' "$EFS" stop fails
fresh none 'resources: [ { path: input, stage: on-access } ]'
started "$JOB"
echo 'another one' >"$PFS/input/a"
check_exit 'none: a fetch that fails says why' 1 'fetch failed: 0 of 1 inputs were fetched; the first failure: input/a: it has changed on the PFS' "$EFS" fetch -i none input/a
check_exit 'none: a part fails' 3 '1 of 2 inputs were fetched' "$EFS" fetch -i none input
check_exit 'none: --timeout is of --inputs' 2 'inputs' "$EFS" wait -i none --timeout 3
check_exit 'none: no numbers with --inputs' 2 'inputs' "$EFS" wait -i none --inputs 1
check 'none: stop' "$EFS" stop none

# --- what is opened next ---
fresh reads 'resources: [ { path: input, stage: on-access } ]'
mkdir "$PFS/input/d"; for i in $(seq 60); do echo "content $i" >"$PFS/input/d/$i"; done
started "$JOB"
check 'reads: one' cat "$MNT/input/d/30"
check 'reads: another one' cat "$MNT/input/d/50"
check 'reads: nothing else came' fetched 2
check 'reads: the first two' eval 'cat "$MNT/input/d/1" && cat "$MNT/input/d/2"'
check 'reads: two more come' await $late fetched 6
check 'reads: they are the next' eval 'here input/d/3 && here input/d/4 && is_remote input/d/5'
check 'reads: all' eval 'for i in $(seq 3 60); do [ "$(cat "$MNT/input/d/$i")" = "content $i" ] || exit 1; done'
check 'reads: are here' test "$(fetch '["remote"]')" = 2
check 'reads: none failed' test "$(fetch '["failures"]')" = 0
check 'reads: stop' "$EFS" stop reads

# --- versions that are accepted ---
for how in on-access background; do
  fresh accepts "resources: [ { path: input, stage: $how, changed: accept } ]"
  echo 'another one' >"$S/another"
  if [ $how = background ]; then sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"; fi
  head -c 8000000 /dev/urandom >"$PFS/input/large"
  started "$JOB"
  if [ $how = on-access ]; then
    check 'accepts: a program sees the old size' test "$(stat -c %s "$MNT/input/a")" = 6
    cat "$S/another" >"$PFS/input/a"; touch -d '2001-02-03 04:05:06.789' "$PFS/input/a"
    rm "$PFS/input/sub/b"; echo gamma >"$PFS/input/sub/b"
    check_exit 'accepts: explain says so' 0 'changed: accept' "$EFS" explain -i accepts input/a
    check 'accepts: the new version' cmp "$S/another" "$MNT/input/a"
    check 'accepts: its size and time' test "$(stat -c '%s %y' "$PFS/input/a")" = "$(stat -c '%s %y' "$MNT/input/a")"
    check 'accepts: a new file in its place' grep -qx gamma "$MNT/input/sub/b"
    check 'accepts: it is logged' test "$(grep -c 'event=input_changed path="input/a" bytes=12' "$EFS_RUNTIME_DIR/accepts/efsd.log")" = 1
    if kernel_has_it; then
      old=$(field "$(status_of accepts)" 'd["worker_pid"]'); kill -KILL "$old"
      check 'accepts: the same for a successor' await $late cmp "$S/another" "$MNT/input/a"
      check 'accepts: with its size' test "$(stat -c %s "$MNT/input/a")" = 12
    fi
    rm "$PFS/input/large"
    check_exit 'accepts: a file that is gone is none' 1 'Input/output error' cat "$MNT/input/large"
  fi
  check "accepts: stop ($how)" "$EFS" stop accepts
done
# The kernel remembers the size of the former version: what is appended must not be written there.
fresh appends 'resources: [ { path: input, stage: on-access, changed: accept } ]'
started "$JOB" -o daemon-io
check 'appends: a program sees the old sizes' test "$(stat -c %s "$MNT/input/a" "$MNT/input/sub/b" | paste -sd,)" = 6,5
echo 'a longer version' >"$PFS/input/a"; echo x >"$PFS/input/sub/b"
echo more >>"$MNT/input/a"; echo more >>"$MNT/input/sub/b"
check 'appends: behind a longer version' cmp "$MNT/input/a" <(printf 'a longer version\nmore\n')
check 'appends: behind a shorter one' cmp "$MNT/input/sub/b" <(printf 'x\nmore\n')
check 'appends: stop' "$EFS" stop appends
check_exit 'accepts: not with a write cache' 2 'mount option writeback: .*changed: accept' eval 'fresh cached "resources: [ { path: input, stage: on-access, changed: accept } ]"; "$EFS" start "$JOB" -o writeback'

check_exit 'accepts: only what is copied later' 2 "'changed' is accept, and the contents are copied before" eval 'fresh bad "resources: [ { path: input, changed: accept } ]"; "$EFS" check "$JOB"'

# --- room ---
for how in passthrough daemon-io; do
  [ $how = daemon-io ] || [ "$(id -u)" = 0 ] || continue
  CAPACITY='64 MiB' fresh room 'resources: [ { path: input, stage: on-access } ]'
  for i in 1 2 3; do head -c 14000000 /dev/urandom >"$PFS/input/$i"; done
  if [ $how = daemon-io ]; then started "$JOB" -o daemon-io; else started "$JOB"; fi
  free=$(df -B1 --output=avail "$MNT" | tail -1)
  check "room: df leaves it out ($how)" test "$free" -lt 30000000
  check "room: a program takes the rest ($how)" eval 'for i in $(seq 100); do head -c 1000000 /dev/zero >"$MNT/fill.$i" 2>/dev/null || exit 0; done; exit 1'
  check_exit "room: a new file is refused ($how)" 1 'No space' bash -c "echo more >'$MNT/one-more'"
  check "room: contents find theirs ($how)" diff -r "$PFS/input" "$MNT/input"
  check "room: no fetch has failed ($how)" test "$(fetch '["failures"] + d["fetch"]["remote"]')" = 0
  check "room: stop ($how)" "$EFS" stop room
done

# --- a worker dies under a fetch and under a wait ---
if kernel_has_it; then
  fresh dies 'resources: [ { path: input, stage: background } ]'
  sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"
  head -c 12000000 /dev/urandom >"$PFS/input/large"
  started "$JOB"
  "$EFS" wait -i dies --inputs >"$S/said" 2>&1 & waiter=$!; pids+=($waiter)
  old=$(field "$(status_of dies)" 'd["worker_pid"]'); kill -KILL "$old"
  wait $waiter; check 'dies: the wait goes on with the successor' test $? = 0; pids=()
  check 'dies: all is here' test "$(fetch '["remote"]')" = 0
  check 'dies: and right' cmp "$PFS/input/large" "$MNT/input/large"
  check 'dies: stop' "$EFS" stop dies
else skip 'a worker dies under a wait' 'takeover needs Linux 6.9'; fi

# --- a worker dies in a fetch that no program waits for ---
worker() { field "$(status_of "$NAME")" 'd["worker_pid"]'; }
another_worker() { [ "$(worker)" != "$1" ]; }
taken() { [ "$(field "$(status_of "$NAME")" 'd["used"]')" -gt "$1" ]; }
available() { df --output=avail -k "$MNT" | tail -n 1; }
fresh dead 'resources: [ { path: input, stage: on-access } ]'
sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"
head -c 32000000 /dev/urandom >"$PFS/input/large"
if kernel_has_it; then
started "$JOB"
before=$(available) first=$(worker)
check 'dead: a fetch' "$EFS" fetch --no-wait -i dead input/large
check 'dead: a part comes' await $late taken 12000000
kill -9 "$first"
check 'dead: another one serves' await $late another_worker "$first"
check 'dead: the part does not count beside the whole' test "$(available)" -gt $((before - 4096))
check 'dead: and is not the content' cmp "$PFS/input/large" "$MNT/input/large"
check 'dead: stop' "$EFS" stop dead
else skip 'a worker dies in such a fetch' 'takeover needs Linux 6.9'; fi

finish
