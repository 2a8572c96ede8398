#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Only some versions of results go home (to-pfs): which ones, which leave the buffer unsent and
# which never, and each drop is told.
#   to_pfs_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

late=60    # seconds, on a machine that is as busy as it may be
SOME='outputs: [ { path: "ckpt.*", drain: on-close, keep: 2, to-pfs: 1 in 4 }, { path: "sets/*", drain: on-close, keep: 1, to-pfs: 1 in 3 }, { path: "**", drain: on-close } ]'
drain() { field "$(status_of "$NAME")" "d['drain']$1"; }
has() { cmp -s <(printf '%s\n' "$2") "$OUT/$1"; }
in_buffer() { [ "$(cd "$MNT" && echo $1)" = "$2" ]; }            # in_buffer PATTERN NAMES
at_home() { [ "$(cd "$OUT" && echo $1)" = "$2" ]; }              # at_home PATTERN NAMES
unsent() { [ "$(drain '["unsent"]')" = "$1" ]; }
dropped() { [ "$(drain '["dropped"]')" = "$1" ]; }
logged() { grep -c "event=$1" "$EFS_RUNTIME_DIR/$NAME/efsd.log"; }
worker() { field "$(status_of "$NAME")" 'd["worker_pid"]'; }
write_versions() { local i; for i in $(seq "$1" "$2"); do echo "content $i" >"$MNT/ckpt.$i"; done; }
told() { field "$(receipt)" "[e['action'] + ': ' + e['reason'] for e in d['entries'] if e['path'] == '$1']"; }
# never_sent NAME...: the receipt says of each version that it was dropped and never sent
never_sent() { local i; for i in "$@"; do check "$NAME: the receipt says that $i was never sent" grep -qF "['dropped: removed from the buffer by keep; never sent to results-dir (to-pfs)']" <<<"$(told "$i")"; done; }
complete() { check "$NAME: nothing failed" json "$(receipt)" 'd["verdict"] == "complete"'; }

bad() { fresh bad "outputs: [ { path: \"a*\", $1 } ]"; "$EFS" check "$JOB"; }
check_exit 'without keep it is an error' 2 "goes with 'drain' and 'keep' only" bad 'drain: on-close, to-pfs: 1 in 3'
check_exit 'a text that is none is an error' 2 'say 1 in N' bad 'drain: on-close, keep: 2, to-pfs: every 3'
check_exit 'several nodes are an error' 1 "'to-pfs' does not go with a job on several nodes" eval 'fresh nodes "$SOME"; "$EFS" start --node 0/2 "$JOB"'

# --- the first version, and then each fourth ---
fresh some "$SOME"
started "$JOB"
write_versions 1 9; echo o >"$MNT/other"
check 'to-pfs: the newest stay' await $late in_buffer 'ckpt.*' 'ckpt.8 ckpt.9'
check 'to-pfs: one in four goes home' await $late at_home 'ckpt.*' 'ckpt.1 ckpt.5 ckpt.9'
check 'some: other rules send all' await $late has other o
check 'to-pfs: status counts what was never sent' await $late unsent 5
check 'some: and what is home' await $late dropped 2
check_exit 'some: for people, too' 0 '5 files of old versions dropped that were never sent \(50 B\)' "$EFS" status some
check 'some: and metrics' grep -qxF 'efs_drain_unsent_files_total{instance="some"} 5' <<<"$("$EFS" metrics)"
check 'some: that is logged' test "$(logged dropped_unsent)" -ge 1
check 'some: the rest is no result that should be home' await $late eval '[ "$(drain "[\"due\"]")" = 0 ]'
check 'some: stop' "$EFS" stop some
check 'to-pfs: the stop exports the newest' eval 'at_home "ckpt.*" "ckpt.1 ckpt.5 ckpt.8 ckpt.9" && has ckpt.8 "content 8" && has ckpt.5 "content 5"'
never_sent ckpt.2 ckpt.3 ckpt.4 ckpt.6 ckpt.7
for i in 1 5; do check "some: ckpt.$i is home" grep -qF 'removed from the buffer by keep' <<<"$(told ckpt.$i)"; check_not "some: ckpt.$i was sent" grep -qF 'never sent' <<<"$(told ckpt.$i)"; done
complete

# --- what must not go ---
fresh used "$SOME"
started "$JOB"
write_versions 1 4
check 'used: the newest stay' await $late in_buffer 'ckpt.*' 'ckpt.3 ckpt.4'
check 'used: one was never sent' await $late unsent 1
exec 5<"$MNT/ckpt.3"
python3 -c '
import mmap, os, sys, time
f = os.open(sys.argv[1], os.O_RDONLY)
m = mmap.mmap(f, 0, mmap.MAP_SHARED, mmap.PROT_READ); os.close(f)
open(sys.argv[2], "w").close()
while not os.path.exists(sys.argv[3]): time.sleep(0.01)
sys.exit(m[0:9] != b"content 4")' "$MNT/ckpt.4" "$S/ready" "$S/go" 5<&- & mapper=$!; pids+=($mapper)
check 'used: it maps' await $late test -e "$S/ready"
check 'used: one has a class' eval 'echo "content 5" >"$MNT/ckpt.5" && echo "content 6" >"$MNT/ckpt.6" && "$EFS" set -i used persistent ckpt.6'
write_versions 7 8
check 'used: others go' await $late in_buffer 'ckpt.*' 'ckpt.3 ckpt.4 ckpt.7 ckpt.8'
sleep 3
check 'to-pfs: a version that is open stays' grep -qx 'content 3' /dev/fd/5
check 'to-pfs: a version that is mapped stays' test -e "$MNT/ckpt.4"
check 'used: what has a class goes home' await $late has ckpt.6 'content 6'
touch "$S/go"; wait $mapper; check 'used: what was mapped was right' test $? = 0; pids=()
exec 5<&-
check 'used: then they go' await 90 in_buffer 'ckpt.*' 'ckpt.7 ckpt.8'
exec 6>>"$MNT/ckpt.8"; echo more >&6
write_versions 10 10
sleep 3
check 'to-pfs: a newer version that is being written does not count' eval 'in_buffer "ckpt.*" "ckpt.10 ckpt.7 ckpt.8"'
exec 6>&-
check 'used: closed, it counts' await 90 in_buffer 'ckpt.*' 'ckpt.10 ckpt.8'
check 'used: unload' "$EFS" unload -i used -w ckpt.10
echo again >>"$MNT/ckpt.10"
check 'to-pfs: a version that results-dir has in an older state goes again' await $late has ckpt.10 'content 10
again'
check 'used: stop' "$EFS" stop used
check 'used: the newest are home' eval 'has ckpt.8 "content 8
more"'
never_sent ckpt.2 ckpt.3 ckpt.4 ckpt.7
complete

# --- directories ---
fresh sets "$SOME"
started "$JOB"
mkdir "$MNT/sets"
for i in 1 2 3 4 5; do
  mkdir "$MNT/tmp"; echo $i >"$MNT/tmp/a"; echo $i$i >"$MNT/tmp/b"; mv "$MNT/tmp" "$MNT/sets/$i"
done
check 'sets: the newest stays' await $late eval '[ "$(cd "$MNT/sets" && find . -type f | sort | tr "\n" " ")" = "./5/a ./5/b " ]'
check 'sets: one in three is home' await $late eval 'has sets/1/a 1 && has sets/1/b 11 && has sets/4/a 4 && has sets/4/b 44'
check 'sets: both files of both others were never sent' await $late unsent 4
check 'sets: no part of them is there' eval '[ ! -e "$OUT/sets/2" ] && [ ! -e "$OUT/sets/3" ]'
check 'sets: stop' "$EFS" stop sets
check 'sets: the newest is home' eval 'has sets/5/a 5 && has sets/5/b 55'
never_sent sets/2/a sets/2/b sets/3/a sets/3/b
complete

# --- the worker is killed ---
if ! kernel_has_it || [ "$(id -u)" != 0 ]; then skip 'a takeover' 'not root, or Linux before 6.9'; else
  fresh taken "$SOME"
  started "$JOB"
  write_versions 1 4
  check 'taken: the newest stay' await $late in_buffer 'ckpt.*' 'ckpt.3 ckpt.4'
  check 'taken: the first is home' await $late at_home 'ckpt.*' ckpt.1
  kill -KILL "$(worker)"
  check 'taken: a successor' await $late eval '[ "$(field "$(status_of taken)" "d[\"takeovers\"]")" = 1 ]'
  write_versions 5 8
  check 'taken: the successor goes on' await $late in_buffer 'ckpt.*' 'ckpt.7 ckpt.8'
  check 'to-pfs: the count goes on after a takeover' await $late at_home 'ckpt.*' 'ckpt.1 ckpt.5'
  check 'taken: that is counted' await $late unsent 4
  check 'taken: stop' "$EFS" stop taken
  check 'taken: what is home' at_home 'ckpt.*' 'ckpt.1 ckpt.5 ckpt.7 ckpt.8'
  never_sent ckpt.2 ckpt.3 ckpt.4 ckpt.6
  complete
fi

# --- both processes are killed ---
for how in salvage start; do
  fresh "killed-$how" "$SOME"
  started "$JOB"
  write_versions 1 4
  check "$NAME: the newest stay" await $late in_buffer 'ckpt.*' 'ckpt.3 ckpt.4'
  check "$NAME: the first is home" await $late at_home 'ckpt.*' ckpt.1
  kill_both "$NAME"
  if [ $how = salvage ]; then
    check "$NAME: salvage" "$EFS" salvage "$NAME"
    salvaged=$(cat "$OUT"/efs-salvage-*.json)
    check 'to-pfs: the receipt of a salvage lists what was never sent' json "$salvaged" '[e["reason"] for e in d["entries"] if e["path"] == "ckpt.2"] == ["removed from the buffer by keep; never sent to results-dir (to-pfs)"]'
    check 'keep: the receipt of a salvage lists what was dropped' json "$salvaged" '[e["action"] for e in d["entries"] if e["path"] == "ckpt.1"] == ["kept"]'
    check "$NAME: what is home" at_home 'ckpt.*' 'ckpt.1 ckpt.3 ckpt.4'
    check "$NAME: clean" "$EFS" clean "$NAME"
  else
    started "$JOB"
    write_versions 5 8
    check "$NAME: it goes on" await $late in_buffer 'ckpt.*' 'ckpt.7 ckpt.8'
    check 'to-pfs: the count goes on after a start' await $late at_home 'ckpt.*' 'ckpt.1 ckpt.5'
    check "$NAME: stop" "$EFS" stop "$NAME"
    check "$NAME: what is home" at_home 'ckpt.*' 'ckpt.1 ckpt.5 ckpt.7 ckpt.8'
    never_sent ckpt.2 ckpt.3 ckpt.4 ckpt.6
    check 'keep: the receipt of a resumed instance lists what was dropped' grep -qF 'removed from the buffer' <<<"$(told ckpt.1)"
  fi
done
finish
