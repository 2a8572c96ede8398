#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Results that go home while the job runs (drain): when they go, what stays, and a PFS that fails or
# hangs.
#   drain_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

late=30    # seconds, on a machine that is as busy as it may be
ON_CLOSE='outputs: [ { path: "tmp*", flags: temporary }, { path: "stay*" }, { path: "**", drain: on-close } ]'
drain() { field "$(status_of "$NAME")" "d['drain']$1"; }
has() { cmp -s <(printf '%s\n' "$2") "$OUT/$1"; }
goes() { check "$NAME: $1" await $late has "$2" "$3"; }          # goes TEXT FILE CONTENT
none_due() { [ "$(drain '["due"]')" = 0 ]; }
drained() { [ "$(drain '["drained"]')" = "$1" ]; }
fails() { [ "$(drain '.get("last_error", "")')" != "" ]; }
works() { ! fails; }
logged() { grep -c "event=$1" "$EFS_RUNTIME_DIR/$NAME/efsd.log"; }
stopped() { check_exit "$NAME: stop" 0 "$1 staged out" "$EFS" stop "$NAME"; }
reason() { field "$(receipt)" "[e['action'] + ': ' + e['reason'] for e in d['entries'] if e['path'] == '$1']"; }
worker() { field "$(status_of "$NAME")" 'd["worker_pid"]'; }

check_exit 'a drain that is none is an error' 2 'on-close' eval 'fresh bad "outputs: [ { path: a, drain: often } ]"; "$EFS" check "$JOB"'

# --- on-close ---
fresh close "$ON_CLOSE"
started "$JOB"
check 'close: nothing has gone' test "$(drain '["drained"]')$(drain '["due"]')" = 00
echo one >"$MNT/a"; mkdir "$MNT/d"; echo two >"$MNT/d/b"; ln -s b "$MNT/d/l"
echo no >"$MNT/tmp.c"; echo later >"$MNT/stay"
goes 'a result goes home when it is closed' a one
goes 'in a directory, too' d/b two
check 'close: so does a link' await $late test -L "$OUT/d/l"
check 'close: then nothing is due' await $late none_due
check 'close: what has no drain stays' test ! -e "$OUT/stay" -a ! -e "$OUT/tmp.c"
check 'close: status counts' drained 3
check_exit 'close: for people, too' 0 'drain    3 exports of results \(8 B\), 0 results are not home' "$EFS" status close
text=$("$EFS" metrics)
check 'close: and metrics' test "$(grep -c '^efs_drain[a-z_]*{instance="close"} [0-9]' <<<"$text")" = 8
check 'close: the count' grep -qxF 'efs_drained_files_total{instance="close"} 3' <<<"$text"
check 'close: the tasks of users have none of it' json "$(status_of close)" 'd["tasks"] == []'
echo more >>"$MNT/a"
goes 'changed again, it goes again' a $'one\nmore'
chmod 600 "$MNT/d/b"
check 'close: with its attributes' await $late eval '[ "$(stat -c %a "$OUT/d/b")" = 600 ]'
before=$(stat -c '%i %Z' "$OUT/a")
check 'close: all is home' await $late none_due
stopped 2   # stay, and the attributes of d
check 'close: the stop leaves what is home' test "$before" = "$(stat -c '%i %Z' "$OUT/a")"
check 'close: the receipt says so' grep -qF "unchanged: unloaded while the job ran" <<<"$(reason a)"
check 'close: and has its checksum' json "$(receipt)" "[e['checksum'] != '' for e in d['entries'] if e['path'] == 'a'] == [True]"
check 'close: the stop brings the rest' test "$(cat "$OUT/stay")" = later -a ! -e "$OUT/tmp.c"

# --- names and sets ---
fresh names "$ON_CLOSE"
started "$JOB"
# In one process: a name that is there for a second goes home.
python3 -c 'import os, sys
for i in (1, 2, 3):
    open(f"{sys.argv[1]}/new.{i}", "w").write(f"{i}\n"); os.rename(f"{sys.argv[1]}/new.{i}", f"{sys.argv[1]}/{i}")' "$MNT"
mkdir "$MNT/tmp.set"; echo x >"$MNT/tmp.set/x"; echo y >"$MNT/tmp.set/y"; mv "$MNT/tmp.set" "$MNT/set"
echo z >"$MNT/z"; ln "$MNT/z" "$MNT/zz"
for i in 1 2 3; do goes "$i" $i $i; done
goes 'files of a directory that was renamed go' set/x x; goes 'all of them' set/y y
goes 'a file with two names goes' zz z
check 'names: nothing is due' await $late none_due
check 'names: they are one file' test "$(stat -c %i "$OUT/z")" = "$(stat -c %i "$OUT/zz")"
check 'names: no first name is there' test "$(ls "$OUT" | tr '\n' ' ')" = '1 2 3 set z zz '
rm "$MNT/1"; rm -r "$MNT/set"
stopped 3   # the receipt lists what is not in the buffer any more
check 'names: what the job removed stays' test -e "$OUT/1" -a -e "$OUT/set/x"
check 'names: and the receipt names it' grep -qF 'stays in results-dir' <<<"$(reason 1)"

# --- a set goes as a whole ---
fresh sets 'outputs: [ { path: "ckpt/*", drain: on-close }, { path: "tmp*", flags: temporary } ]'
started "$JOB"
whole() { has "ckpt/$1/a" a && has "ckpt/$1/d/b" b; }
mkdir "$MNT/ckpt"
set_of() { mkdir -p "$MNT/tmp/d"; echo a >"$MNT/tmp/a"; echo b >"$MNT/tmp/d/b"; }
set_of; mv "$MNT/tmp" "$MNT/ckpt/1"
check 'a set goes as a whole' await $late whole 1
set_of; exec 5>>"$MNT/tmp/d/b"; mv "$MNT/tmp" "$MNT/ckpt/2"
set_of; mv "$MNT/tmp" "$MNT/ckpt/3"
check 'sets: another one goes' await $late whole 3
sleep 2
check 'while a program writes to a file of a set, none of it goes' test ! -e "$OUT/ckpt/2"
exec 5>&-
check 'sets: then all of it goes' await 90 whole 2
mkdir "$OUT/ckpt/4"
set_of; mv "$MNT/tmp" "$MNT/ckpt/4"
check 'sets: a set whose name is taken is told' await $late eval 'fails && [ "$(drain "[\"due\"]")" = 2 ]'
check 'a set whose name is taken stays' test -z "$(ls "$OUT/ckpt/4")"
if kernel_has_it && [ "$(id -u)" = 0 ]; then
  set_of; exec 5>>"$MNT/tmp/a"
  sleep 0.1  # a successor knows a set by its times, and the clock of files has ticks
  mv "$MNT/tmp" "$MNT/ckpt/5"
  kill -KILL "$(worker)"
  check 'sets: a successor' await $late eval '[ "$(field "$(status_of sets)" "d[\"takeovers\"]")" = 1 ]'
  sleep 3
  check 'after a takeover a set goes as a whole, too' test ! -e "$OUT/ckpt/5"
  exec 5>&-
  check 'sets: the successor sends it' await 90 whole 5
fi
check 'sets: stop' "$EFS" stop sets
for i in 1 2 3 4; do check "sets: $i is home" whole $i; done
check 'sets: no partial is left' test -z "$(find "$OUT" -name '*.efs-partial')"

# --- programs that can still write ---
fresh open "$ON_CLOSE"
started "$JOB"
exec 5>"$MNT/a" 6>"$MNT/long.part"; echo one >&5; echo long >&6; opened=$SECONDS
python3 -c '
import mmap, os, sys, time
f = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.ftruncate(f, 4096)
m = mmap.mmap(f, 4096); os.close(f); m[0:6] = b"mapped"
open(sys.argv[2], "w").close()
while not os.path.exists(sys.argv[3]): time.sleep(0.01)
m[0:6] = b"behind"' "$MNT/m" "$S/ready" "$S/go" 5>&- 6>&- & mapper=$!; pids+=($mapper)
check 'open: it maps' await $late test -e "$S/ready"
echo b >"$MNT/b"; goes 'another one goes' b b
sleep 3
check 'while it is open it stays' test ! -e "$OUT/a"
check 'while it is mapped it stays' test ! -e "$OUT/m"
check 'open: all are due' test "$(drain '["due"]')" = 3
exec 5>&-
goes 'closed, it goes' a one
touch "$S/go"; wait $mapper; pids=()
check 'open: unmapped, it goes whole' await 90 eval '[ "$(head -c 6 "$OUT/m" 2>/dev/null)" = behind ]'
while [ $((SECONDS - opened)) -lt 12 ]; do sleep 0.2; done
exec 6>&-; mv "$MNT/long.part" "$MNT/long"
goes 'what was open for long goes under its last name' long long
check 'open: and no other' test ! -e "$OUT/long.part"
check 'open: nothing failed' test "$(drain '["failures"]')" = 0
stopped 0

# --- an interval ---
fresh interval 'outputs: [ { path: "**", drain: 6 s } ]'
started "$JOB"
begin=$SECONDS
echo 0 >"$MNT/log"
while [ $((SECONDS - begin)) -lt 4 ]; do echo more >>"$MNT/log"; sleep 0.1; done
check 'interval: before it nothing goes' eval '[ ! -e "$OUT/log" ] || [ $((SECONDS - begin)) -ge 6 ]'
check 'interval: then it goes' await $late test -e "$OUT/log"
check 'interval: not before' test $((SECONDS - begin)) -ge 5
check 'interval: all of it' await $late cmp "$MNT/log" "$OUT/log"
check 'interval: then nothing is due' await $late none_due
sleep 1
check 'interval: and that stays' none_due
stopped 0

# --- a PFS that fails ---
fresh fails "$ON_CLOSE"
started "$JOB"
rmdir "$OUT"; echo 'in its place' >"$OUT"
echo a >"$MNT/a"; echo b >"$MNT/b"
check 'fails: status has the error' await $late fails
check_exit 'fails: for people, too' 0 'last error: results-dir .*Not a directory' "$EFS" status fails
check 'fails: both are due' test "$(drain '["due"]')" = 2
check 'fails: the job goes on' eval 'echo c >"$MNT/c"'
check 'fails: it tries again' await $late eval '[ "$(drain "[\"failures\"]")" -ge 3 ]'
check 'fails: it is logged once' test "$(logged drain_failed)" = 1
rm "$OUT"
for name in a b c; do goes "$name goes when the PFS is back" $name $name; done
check 'fails: the error is gone' await $late works
check 'fails: and that is logged' test "$(logged drain_goes_on)" = 1
stopped 0

# --- a conflict ---
fresh conflict "$ON_CLOSE"; sed -i '/results-dir/a\  existing: fail' "$JOB"
echo theirs >"$OUT/a"
started "$JOB"
echo ours >"$MNT/a"; echo b >"$MNT/b"
goes 'others go' b b
check 'conflict: status names it' await $late eval 'drain ".get(\"last_error\", \"\")" | grep -q "^a: "'
check 'conflict: theirs stays' grep -qx theirs "$OUT/a"
check_exit 'conflict: the stop reports it' 1 'conflict: a' "$EFS" stop conflict
rm "$OUT/a"
stopped 1

# --- files that are known as this job's, although their inodes are gone ---
fresh own "$ON_CLOSE"; sed -i '/results-dir/a\  existing: fail' "$JOB"
started "$JOB"
echo one >"$MNT/a"; echo one >"$MNT/b"; goes 'it goes' a one; goes 'and so does the other' b one
rm "$MNT/a"; echo two >"$MNT/a"
echo two >"$MNT/b.new"; mv "$MNT/b.new" "$MNT/b"
goes 'made again, it replaces its copy' a two; goes 'replaced, too' b two
rm "$MNT/a"; echo three >"$MNT/a"
check 'own: no conflict' eval '! fails'
stopped '[01]'
check 'own: the stop replaces the copy, too' has a three

fresh beside "$ON_CLOSE"; sed -i '/results-dir/a\  existing: keep-both' "$JOB"
echo theirs >"$OUT/a"
started "$JOB"
for i in 1 2 3; do echo $i >"$MNT/a"; echo $i >"$MNT/b"; goes "copy $i" b $i; done
check 'beside: one copy is beside theirs' test "$(ls "$OUT" | tr '\n' ' ')" = 'a a.efs-beside b '
check 'beside: and is due' await $late eval '[ "$(drain "[\"due\"]")" = 1 ]'
check_exit 'beside: the stop exports the last one' 0 '' "$EFS" stop beside
check 'beside: under a name of its own' eval 'has a theirs && cat "$OUT"/a.efs-beside* | grep -qx 3'

# --- several nodes ---
fresh node0 "$ON_CLOSE"; first=$JOB out=$OUT M0=$MNT
fresh node1 "$ON_CLOSE"; sed -i "s|results-dir: .*|results-dir: $out|" "$JOB"; OUT=$out
check 'nodes: node 0' "$EFS" start --node 0/2 "$first"
check 'nodes: node 1' "$EFS" start --node 1/2 "$JOB"
echo 0 >"$M0/of.0"; goes 'of node 0' of.0 0
echo 1 >"$MNT/of.1"; goes 'of node 1' of.1 1
echo 00 >"$M0/new"; mv "$M0/new" "$M0/of.0"; goes 'replaced by a rename' of.0 00
echo 11 >"$MNT/of.0"
check 'nodes: no node replaces the result of another' await $late eval 'drain ".get(\"last_error\", \"\")" | grep -q "^of.0: "'
check 'nodes: it stays' has of.0 00
check 'nodes: stop' "$EFS" stop node0
check_exit 'nodes: the stop reports it' 1 'conflict: of.0' "$EFS" stop node1
check 'nodes: end' "$EFS" stop --no-stage-out node1

# --- a full PFS ---
if [ "$(id -u)" != 0 ] || ! mount -t tmpfs -o size=1M,mode=777 full "$OUT" 2>/dev/null; then skip 'a full PFS' 'cannot mount a tmpfs'; else
  full=$OUT
  fresh full "$ON_CLOSE"; sed -i "s|results-dir: .*|results-dir: $full|" "$JOB"; OUT=$full
  started "$JOB"
  head -c 3000000 /dev/urandom >"$MNT/big"; echo small >"$MNT/small"
  check 'full: status has the error' await $late eval 'drain ".get(\"last_error\", \"\")" | grep -q "^big: .*No space"'
  goes 'what fits goes' small small
  check 'full: no partial is left' await $late eval '! compgen -G "$OUT/*.efs-partial"'
  check 'full: the job goes on' eval 'echo more >>"$MNT/small"'
  check 'full: it fails at growing intervals' test "$(drain '["failures"]')" -lt 10
  check_exit 'full: a stop ends, and keeps what did not fit' 3 'big' timeout 60 "$EFS" stop full
  mount -o remount,size=8M "$OUT"
  check_exit 'full: with room the next one exports it' 0 '' "$EFS" stop full
  check 'full: whole' test "$(stat -c %s "$OUT/big")" = 3000000
  umount "$OUT"
fi

# --- in place, with inputs ---
fresh place 'resources: [ [ path: input, flags: persistent ] ]' 'outputs: [ { path: "**", inputs: true, drain: on-close } ]'
sed -i 's|results-dir: .*|in-place: true|' "$JOB"; OUT=$PFS
started "$JOB"
echo one >"$MNT/input/a"; goes 'a changed input goes' input/a one
echo two >"$MNT/input/a"; goes 'and again' input/a two
check 'place: an unchanged one does not' await $late drained 2
stopped 0

# --- a stop in the middle, and one that is refused ---
fresh middle "$ON_CLOSE"; sed -i '/results-dir/a\  max-rate: 1 MB/s' "$JOB"
started "$JOB"
head -c 20000000 /dev/urandom >"$MNT/big"; sum=$(cksum <"$MNT/big")
is_copied() { compgen -G "$OUT/*.efs-partial" >/dev/null; }
check 'middle: it is being copied' await $late is_copied
exec 5<"$MNT/big"
check_exit 'middle: a stop is refused' 1 'in use' "$EFS" stop middle
check 'middle: the drain goes on' await $late is_copied
exec 5<&-
check_exit 'middle: a stop that drops the rest does not wait for it' 0 '' timeout 15 "$EFS" stop --no-stage-out middle
check 'middle: nothing half is left' test -z "$(ls "$OUT")"

fresh rest "$ON_CLOSE"; sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"
started "$JOB"
head -c 12000000 /dev/urandom >"$MNT/big"; sum=$(cksum <"$MNT/big")
check 'rest: it is being copied' await $late is_copied
stopped 1
check 'rest: the stop brings what was under way' test "$sum" = "$(cksum <"$OUT/big")"

# --- an unload, a drain and a stop at once ---
fresh three "$ON_CLOSE"; sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"
started "$JOB"
head -c 8000000 /dev/urandom >"$MNT/big"; sum=$(cksum <"$MNT/big"); echo stay >"$MNT/stay"
check 'three: it is being copied' await $late is_copied
"$EFS" unload -i three -w stay >"$S/unloaded" 2>&1 & unload=$!
check 'three: the unload waits' await $late eval 'json "$(status_of three)" "[t[\"task_state\"] for t in d[\"tasks\"]] == [\"pending\"]"'
stopped '[01]'
wait $unload
check 'three: all is out' eval 'has stay stay && [ "$sum" = "$(cksum <"$OUT/big")" ]'
check 'three: and no partial' eval '! compgen -G "$OUT/*.efs-partial"'

# --- both processes killed in the middle, in place ---
fresh killed 'resources: [ [ path: input, flags: persistent ] ]' 'outputs: [ { path: "**", inputs: true, drain: on-close } ]'
sed -i 's|results-dir: .*|in-place: true\n  max-rate: 4 MB/s|' "$JOB"; OUT=$PFS
before=$(cat "$OUT/input/a")
started "$JOB"
head -c 12000000 /dev/urandom >"$MNT/input/a"; sum=$(cksum <"$MNT/input/a")
check 'killed: it is being copied' await $late eval 'compgen -G "$OUT/input/*.efs-partial"'
kill_both killed
check 'killed: the PFS has the former version' test "$before" = "$(cat "$OUT/input/a")"
check 'killed: a salvage' "$EFS" salvage killed
check 'killed: brings the new one' test "$sum" = "$(cksum <"$OUT/input/a")"
check 'killed: and leaves no partial' eval '! compgen -G "$OUT/input/*.efs-partial"'
check 'killed: clean' "$EFS" clean killed

# --- with a deadline, what is home is home ---
fresh deadline "$ON_CLOSE"
started "$JOB"
for i in {1..50}; do echo $i >"$MNT/$i"; done
check 'deadline: all go' await $late drained 50
check_exit 'deadline: a stop has nothing to do' 0 '0 staged out' "$EFS" stop --deadline 20 deadline

# --- kept, and resumed ---
fresh kept 'outputs: [ { path: "**", drain: 1 h } ]'
started "$JOB"
echo a >"$MNT/a"
check 'kept: stop --keep' "$EFS" stop --keep kept
sed -i 's/1 h/on-close/' "$JOB"
started "$JOB"
sleep 2
check 'kept: what a stop exported is not due' none_due
echo b >"$MNT/b"; goes 'a new one goes' b b
kill_both kept; check 'kept: killed' "$EFS" start "$JOB"
echo c >>"$MNT/b"; goes 'after a resume, too' b $'b\nc'
stopped 0

# --- a takeover ---
if ! kernel_has_it || [ "$(id -u)" != 0 ]; then skip 'takeover' 'not root, or Linux before 6.9'; else
  fresh taken "$ON_CLOSE"; sed -i '/results-dir/a\  max-rate: 2 MB/s' "$JOB"
  started "$JOB"
  echo first >"$MNT/first"; goes 'the first goes' first first
  head -c 6000000 /dev/urandom >"$MNT/big"; sum=$(cksum <"$MNT/big")
  check 'taken: it is being copied' await $late is_copied
  echo small >"$MNT/small"
  kill -KILL "$(worker)"
  check 'taken: a successor' await $late eval '[ "$(field "$(status_of taken)" "d[\"takeovers\"]")" = 1 ]'
  check 'taken: the successor goes on' await 60 eval '[ "$(cksum <"$OUT/big")" = "$sum" ]'
  goes 'with all of them' small small
  check 'taken: nothing is due' await $late none_due
  check 'taken: the count goes on' drained 3
  echo again >"$MNT/first"; goes 'it knows what is home' first again
  stopped 0
  check 'taken: no partial is left' test -z "$(find "$OUT" -name '*.efs-partial')"
  check 'taken: the receipt has the first worker'"'"'s' grep -qF 'unloaded while the job ran' <<<"$(reason first)"
fi

# --- a PFS that hangs: a separate efs whose processes are stopped ---
fresh pfs 'resources: []'
started "$JOB"; hung=$MNT; mkdir "$hung/out"
members=$(field "$(status_of pfs)" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')
for how in deadline drop; do
  fresh "hangs-$how" "$ON_CLOSE"; OUT=$hung/out
  sed -i "s|results-dir: .*|results-dir: $hung/out|" "$JOB"
  started "$JOB"
  stall $members
  echo one >"$MNT/a"; sleep 3
  check "$NAME: the job goes on" timeout 10 bash -c "echo two >'$MNT/b' && cat '$MNT/a'"
  check "$NAME: status answers" await 10 eval '[ "$(drain "[\"due\"]")" = 2 ]'
  if [ $how = deadline ]; then timeout 40 "$EFS" stop --deadline 3 "$NAME" >"$S/said" 2>&1
  else timeout 40 "$EFS" stop --no-stage-out "$NAME" >"$S/said" 2>&1; fi
  check_not "$NAME: the stop ends in time" test $? = 124
  kill -CONT $members
  check "$NAME: the daemon is gone" await $late eval 'json "$(status_of "$NAME")" "d[\"state\"] == \"dead\"" || ended "$NAME"'
  [ $how = drop ] || { check "$NAME: a salvage" "$EFS" salvage "$NAME"; check "$NAME: clean" "$EFS" clean "$NAME"; check "$NAME: all is out" test "$(cat "$hung/out/a" "$hung/out/b")" = $'one\ntwo'; }
done
NAME=pfs; check 'pfs: stop' "$EFS" stop --no-stage-out pfs
finish
