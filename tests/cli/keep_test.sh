#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Old versions of results leave the buffer (keep): which ones, which never, and nothing is lost.
#   keep_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

late=60    # seconds, on a machine that is as busy as it may be
KEEP='outputs: [ { path: "ckpt.*", drain: on-close, keep: 2 }, { path: "sets/*", drain: on-close, keep: 1 }, { path: "**", drain: on-close } ]'
drain() { field "$(status_of "$NAME")" "d['drain']$1"; }
has() { cmp -s <(printf '%s\n' "$2") "$OUT/$1"; }
goes() { check "$NAME: $1" await $late has "$2" "$3"; }          # goes TEXT FILE CONTENT
version() { printf '%s\n' "$2" >"$MNT/$1"; goes "$1 goes home" "$1" "$2"; }  # version FILE CONTENT
in_buffer() { [ "$(cd "$MNT" && echo $1)" = "$2" ]; }            # in_buffer PATTERN NAMES
none_due() { [ "$(drain '["due"]')" = 0 ]; }
dropped() { [ "$(drain '["dropped"]')" = "$1" ]; }
logged() { grep -c "event=$1" "$EFS_RUNTIME_DIR/$NAME/efsd.log"; }
stopped() { check_exit "$NAME: stop" 0 "$1 staged out" "$EFS" stop "$NAME"; }
reason() { field "$(receipt)" "[e['action'] + ': ' + e['reason'] for e in d['entries'] if e['path'] == '$1']"; }
worker() { field "$(status_of "$NAME")" 'd["worker_pid"]'; }
all_there() { local i; for i in $(seq "$1" "$2"); do has "ckpt.$i" "content $i" || return 1; done; }

check_exit 'without drain it is an error' 2 "goes with 'drain' only" eval 'fresh bad "outputs: [ { path: \"a*\", keep: 2 } ]"; "$EFS" check "$JOB"'

# --- one version after the other ---
fresh keep "$KEEP"
started "$JOB"
for i in {1..6}; do version ckpt.$i "content $i"; done
version other.1 o; version other.2 o; version other.3 o
check 'keep: only the newest stay' await $late in_buffer 'ckpt.*' 'ckpt.5 ckpt.6'
check 'keep: and can be read' grep -qx 'content 6' "$MNT/ckpt.6"
check 'keep: the others are home' all_there 1 6
check 'keep: other rules drop nothing' in_buffer 'other.*' 'other.1 other.2 other.3'
check 'keep: status counts' await $late dropped 4
check_exit 'keep: for people, too' 0 '4 files of old versions dropped \(40 B\)' "$EFS" status keep
check 'keep: and metrics' grep -qxF 'efs_drain_dropped_files_total{instance="keep"} 4' <<<"$("$EFS" metrics)"
check 'keep: that is logged' test "$(logged dropped)" -ge 1
version ckpt.2 'again'
check 'keep: a version that is made again is the newest' await $late in_buffer 'ckpt.*' 'ckpt.2 ckpt.6'
stopped '[0-9]+'
check 'keep: no version is lost' eval 'has ckpt.2 again && has ckpt.1 "content 1" && all_there 3 6'
for i in 3 4 5; do check "keep: the receipt lists the drop of ckpt.$i" grep -qF 'removed from the buffer by keep' <<<"$(reason ckpt.$i)"; done
check 'keep: with its checksum' json "$(receipt)" "[e['checksum'] != '' for e in d['entries'] if e['path'] == 'ckpt.3'] == [True]"
check_not 'keep: the newest was not dropped' grep -qF 'removed from the buffer' <<<"$(reason ckpt.6)"
check 'keep: nothing failed' json "$(receipt)" 'd["verdict"] == "complete"'

# --- directories ---
fresh sets "$KEEP"
started "$JOB"
mkdir "$MNT/sets"
for i in 1 2 3; do
  mkdir "$MNT/tmp.$i"; echo $i >"$MNT/tmp.$i/a"; mkdir "$MNT/tmp.$i/d"; echo $i$i >"$MNT/tmp.$i/d/b"; mv "$MNT/tmp.$i" "$MNT/sets/$i"
  goes 'a set goes home' sets/$i/a $i; goes 'all of it' sets/$i/d/b $i$i
done
check 'sets: the files of old ones are dropped' await $late eval '[ "$(cd "$MNT/sets" && find . -type f | sort | tr "\n" " ")" = "./3/a ./3/d/b " ]'
check 'sets: four files' await $late dropped 4
stopped '[0-9]+'
check 'sets: all are home' eval 'has sets/1/a 1 && has sets/1/d/b 11 && has sets/2/a 2 && has sets/2/d/b 22 && has sets/3/d/b 33'

# --- what is in use stays ---
fresh used "$KEEP"
started "$JOB"
version ckpt.1 'content 1'; version ckpt.2 'content 2'
exec 5<"$MNT/ckpt.1"
python3 -c '
import mmap, os, sys, time
f = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(f, 0, mmap.MAP_SHARED, mmap.PROT_READ); os.close(f)
open(sys.argv[2], "w").close()
while not os.path.exists(sys.argv[3]): time.sleep(0.01)
sys.exit(m[0:9] != b"content 2")' "$MNT/ckpt.2" "$S/ready" "$S/go" 5<&- & mapper=$!; pids+=($mapper)
check 'used: it maps' await $late test -e "$S/ready"
for i in 3 4 5; do version ckpt.$i "content $i"; done
check 'used: others go' await $late in_buffer 'ckpt.*' 'ckpt.1 ckpt.2 ckpt.4 ckpt.5'
sleep 3
check 'keep: an old version that is open stays' test -e "$MNT/ckpt.1"
check 'keep: an old version that is mapped stays' test -e "$MNT/ckpt.2"
check 'used: what is open can be read' grep -qx 'content 1' /dev/fd/5
check 'used: that is no matter for the log' test "$(logged version_stays)" = 0
touch "$S/go"; wait $mapper; check 'used: what was mapped was right' test $? = 0; pids=()
exec 5<&-
check 'used: then they go' await 90 in_buffer 'ckpt.*' 'ckpt.4 ckpt.5'
exec 6>"$MNT/ckpt.6"; echo half >&6
version ckpt.7 'content 7'
check 'used: what is being written does not count' await $late in_buffer 'ckpt.*' 'ckpt.5 ckpt.6 ckpt.7'
sleep 2
check 'used: and does not go' test -e "$MNT/ckpt.6" -a ! -e "$OUT/ckpt.6"
exec 6>&-
goes 'closed, it goes' ckpt.6 half
check 'used: it was closed last' await $late in_buffer 'ckpt.*' 'ckpt.6 ckpt.7'
stopped '[0-9]+'
check 'used: no version is lost' all_there 1 5

# --- a directory stays as a whole while one of its files is open ---
fresh whole 'outputs: [ { path: "sets/*", drain: on-close, keep: 1 }, { path: "other/*", drain: on-close, keep: 1 } ]'
started "$JOB"
mkdir -p "$MNT/sets/1" "$MNT/sets/2" "$MNT/other"
for f in a b c; do version sets/1/$f $f; done
exec 5<"$MNT/sets/1/c"
version sets/2/a later
version other/1 1; version other/2 2   # a drop after the set could have gone
check 'whole: a version of another series is dropped' await $late in_buffer 'other/*' 'other/2'
check 'keep: a version stays as a whole while one of its files is open' in_buffer 'sets/1/*' 'sets/1/a sets/1/b sets/1/c'
exec 5<&-
check 'whole: closed, it goes as a whole' await 90 in_buffer 'sets/1/*' 'sets/1/*'
stopped '[0-9]+'
check 'whole: nothing is lost' eval 'has sets/1/a a && has sets/1/b b && has sets/1/c c'

# --- results-dir has another version ---
fresh other "$KEEP"
started "$JOB"
version ckpt.1 'content 1'; version ckpt.2 'content 2'; version ckpt.3.x 'content 3'
check 'other: the first is dropped' await $late in_buffer 'ckpt.*' 'ckpt.2 ckpt.3.x'
echo 'content 2' >"$S/theirs"; mv "$S/theirs" "$OUT/ckpt.2"   # equal, but not what efs exported
rm "$OUT/ckpt.3.x"
version ckpt.4 'content 4'; version ckpt.5 'content 5'; version ckpt.6 'content 6'
check 'other: younger ones go' await $late in_buffer 'ckpt.*' 'ckpt.2 ckpt.3.x ckpt.5 ckpt.6'
check 'other: that is logged once for each' await $late eval '[ "$(logged version_stays)" = 2 ]'
sleep 5
check 'keep: a version whose copy was replaced stays' grep -qx 'content 2' "$MNT/ckpt.2"
check 'keep: a version whose copy was removed stays' grep -qx 'content 3' "$MNT/ckpt.3.x"
check 'other: it is not logged again' test "$(logged version_stays)" = 2
"$EFS" stop other >/dev/null 2>&1
check 'other: theirs stays' has ckpt.2 'content 2'

# --- a conflict and a name beside ---
fresh beside "$KEEP"; sed -i '/results-dir/a\  existing: keep-both' "$JOB"
echo theirs >"$OUT/ckpt.1"
started "$JOB"
echo ours >"$MNT/ckpt.1"
for i in 2 3 4; do version ckpt.$i "content $i"; done
check 'beside: what is home goes' await $late in_buffer 'ckpt.*' 'ckpt.1 ckpt.3 ckpt.4'
sleep 2
check 'beside: what is beside another file stays' grep -qx ours "$MNT/ckpt.1"
check 'beside: stop' "$EFS" stop beside
check 'beside: both are there' eval 'has ckpt.1 theirs && cat "$OUT"/ckpt.1.efs-beside* | grep -qx ours'

# --- in place, with removals that go to the PFS ---
fresh place 'resources: [ [ path: input, flags: persistent ] ]' "$KEEP"
sed -i 's|results-dir: .*|in-place: true\n  deletions: propagate|' "$JOB"; OUT=$PFS
started "$JOB"
for i in 1 2 3 4; do version ckpt.$i "content $i"; done
rm "$MNT/input/a"
check 'place: two stay' await $late in_buffer 'ckpt.*' 'ckpt.3 ckpt.4'
check 'place: an input is none' test -e "$MNT/input/sub/b"
check 'place: one is loaded again' "$EFS" load -i place -w ckpt.1
check 'place: whole' grep -qx 'content 1' "$MNT/ckpt.1"
stopped '[0-9]+'
check 'place: what the job removed is removed' test ! -e "$PFS/input/a"
check 'place: what efs dropped is not' all_there 1 4

# --- the worker is killed ---
if ! kernel_has_it || [ "$(id -u)" != 0 ]; then skip 'a takeover' 'not root, or Linux before 6.9'; else
  fresh taken "$KEEP"
  started "$JOB"
  for i in 1 2 3 4; do version ckpt.$i "content $i"; done
  check 'taken: two stay' await $late in_buffer 'ckpt.*' 'ckpt.3 ckpt.4'
  exec 5<"$MNT/ckpt.3"
  kill -KILL "$(worker)"
  check 'taken: a successor' await $late eval '[ "$(field "$(status_of taken)" "d[\"takeovers\"]")" = 1 ]'
  check 'taken: what was dropped stays away' in_buffer 'ckpt.*' 'ckpt.3 ckpt.4'
  for i in 5 6; do version ckpt.$i "content $i"; done
  check 'taken: the successor goes on' await $late in_buffer 'ckpt.*' 'ckpt.3 ckpt.5 ckpt.6'
  sleep 2
  check 'taken: what is open since before stays' test -e "$MNT/ckpt.3"
  exec 5<&-
  check 'taken: closed, it goes' await 90 in_buffer 'ckpt.*' 'ckpt.5 ckpt.6'
  check 'taken: the count goes on' await $late dropped 4
  stopped '[0-9]+'
  check 'taken: no version is lost' all_there 1 6
  for i in 1 4; do check "taken: the receipt lists the drop of ckpt.$i" grep -qF 'removed from the buffer by keep' <<<"$(reason ckpt.$i)"; done
fi

# --- both processes are killed ---
for how in salvage start; do
  fresh "killed-$how" "$KEEP"; sed -i '/results-dir/a\  deletions: propagate' "$JOB"
  started "$JOB"
  for i in 1 2 3; do version ckpt.$i "content $i"; done
  check "$NAME: one is dropped" await $late in_buffer 'ckpt.*' 'ckpt.2 ckpt.3'
  echo 'content 4' >"$MNT/ckpt.4"
  kill_both "$NAME"
  if [ $how = salvage ]; then
    check "$NAME: salvage" "$EFS" salvage "$NAME"
    check "$NAME: clean" "$EFS" clean "$NAME"
  else
    started "$JOB"
    check "$NAME: what was dropped stays away" test ! -e "$MNT/ckpt.1"
    check "$NAME: it goes on" await $late in_buffer 'ckpt.*' 'ckpt.3 ckpt.4'
    stopped '[0-9]+'
  fi
  check "$NAME: no version is lost" all_there 1 4
done
# --- both are killed, in place, and an input covers the versions ---
fresh killed-place 'resources: [ [ path: input, flags: persistent ] ]' 'outputs: [ { path: "input/ckpt.*", drain: on-close, keep: 1 } ]'
sed -i 's|results-dir: .*|in-place: true|' "$JOB"; OUT=$PFS
started "$JOB"
for i in 1 2 3; do version input/ckpt.$i "content $i"; done
check 'killed-place: two are dropped' await $late in_buffer 'input/ckpt.*' 'input/ckpt.3'
kill_both killed-place
started "$JOB"
check 'keep: a start in place does not import what was dropped' in_buffer 'input/ckpt.*' 'input/ckpt.3'
check 'killed-place: inputs are there' test -e "$MNT/input/a"
stopped '[0-9]+'
check 'killed-place: no version is lost' eval 'has input/ckpt.1 "content 1" && has input/ckpt.2 "content 2" && has input/ckpt.3 "content 3"'
finish
