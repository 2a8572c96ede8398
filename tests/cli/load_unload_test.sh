#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# load, unload, wait, cancel, ls, explain and set on a real mount with running programs: with
# passthrough, then on the daemon's path.
#   load_unload_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

mode=
mount_job() { local text; text=$("$EFS" start ${mode:+-o "$mode"} "$JOB" 2>&1) && ok || { fail "start of $NAME" "$text"; return 1; }; }
stop_job() { check "$1: stop" timeout 60 "$EFS" stop "$NAME"; }
efs() { timeout 60 "$EFS" "$@"; }
used() { field "$("$EFS" status --json "$NAME")" 'd["used"]'; }
containers() { find "$EFS_RUNTIME_DIR/$NAME/store/data" -type f | wc -l; }
task_state() { field "$("$EFS" status --json "$NAME")" "[t['task_state'] for t in d['tasks'] if t['task'] == $1][0]"; }
task_is() { [ "$(task_state "$1")" = "$2" ]; }
random() { head -c "$2" /dev/urandom >"$1"; }
item() { json "$("$EFS" ls --json -i "$NAME" "$1")" "len(d) == 1 and $2"; }
# program CODE ARGUMENT...: python with the file open until the test ends it; ready once it has
# created the file.
program() { rm -f "$S/ready" "$S/go"; python3 -c "import os, sys, time, mmap
def ready():
  open('$S/ready', 'w').close()
  while not os.path.exists('$S/go'): time.sleep(0.01)
$1" "${@:2}" & pids+=($!); program=$!; await 20 test -e "$S/ready"; }
# program_ends NAME: ends the program and checks its result. Not by check: a subshell cannot wait
# for it.
program_ends() { touch "$S/go"; if wait "$program"; then ok; else fail "$1" "the program gave $?"; fi; pids=(); }

tests() {
  local m=$1 id text code
  # --- load ---
  fresh "load$2"; mkdir -p "$PFS/late/deep"
  sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"   # so that 60 MB take a while
  mount_job || return
  check_not "$m: a name that is not loaded is not there" stat "$MNT/late"
  ls -R "$MNT" >/dev/null
  random "$PFS/late/one" 300000; random "$PFS/late/deep/two" 5000; ln -s one "$PFS/late/link"; chmod 640 "$PFS/late/one"; touch -d '2020-01-02 03:04:05.678901234' "$PFS/late/deep"
  before=$(listing "$PFS")
  check_exit "$m: load --wait of a directory" 0 'load done: 2 files' efs load --wait late
  check "$m: its files are whole" diff -r "$PFS/late" "$MNT/late"
  check "$m: modes and times as on the PFS" test "$(stat -c '%a %y' "$PFS/late/one" "$PFS/late/deep")" = "$(stat -c '%a %y' "$MNT/late/one" "$MNT/late/deep")"
  check "$m: the kernel forgot that it was not there" grep -qx late <<<"$(ls "$MNT")"
  check_exit "$m: again: nothing to do" 0 '0 files.*3 were there already' efs load --wait late
  check "$m: the PFS is as it was" test "$before" = "$(listing "$PFS")"
  random "$PFS/g1" 1000; random "$PFS/g2" 1000; random "$PFS/h" 1000
  check_exit "$m: load of a pattern" 0 'done: 2 files' efs load --wait 'g*'
  check "$m: what it matches" bash -c "cmp $PFS/g1 $MNT/g1 && cmp $PFS/g2 $MNT/g2 && ! test -e $MNT/h"
  id=$(efs load "$PFS/h"); check "$m: load gives a number" grep -qxE '[0-9]+' <<<"$id"
  check_exit "$m: wait" 0 "task $id: load done: 1 files" efs wait "$id"
  check "$m: a path of the PFS" cmp "$PFS/h" "$MNT/h"
  rm "$MNT/h"; check "$m: load by the path on the mount" efs load --wait "$MNT/h"
  check "$m: is there again" cmp "$PFS/h" "$MNT/h"
  random "$PFS/[h,i]" 1000; random "$PFS/{}" 1000
  check_exit "$m: a name in brackets is one name" 0 'done: 1 files' efs load --wait '[h,i]'
  check_exit "$m: and so is one in braces" 0 'done: 1 files' efs load --wait '{}'
  check "$m: they are there" bash -c "cmp '$PFS/[h,i]' '$MNT/[h,i]' && cmp '$PFS/{}' '$MNT/{}'"
  check_exit "$m: they are told of by their names" 0 '^\[h,i\]' efs explain '[h,i]'
  rm "$MNT/[h,i]" "$MNT/{}"
  check_exit "$m: load of what is not there" 1 'nosuch: does not exist' efs load --wait nosuch
  check_exit "$m: a pattern without a match" 1 'no file matches' efs load --wait 'nosuch*'
  check_exit "$m: a path elsewhere" 1 'neither on the mount' efs load -i "$NAME" --wait /etc/passwd
  check_exit "$m: a path with .." 1 '\.\.' efs load --wait ../x
  check_exit "$m: a task that never was" 1 'no task 4711' efs wait 4711
  check_exit "$m: a negative offset" 2 'not a number of bytes' efs load --wait --offset -1 g1
  check_exit "$m: a negative size" 2 'not a number of bytes' efs unload --wait --size -1 g1
  check_exit "$m: more names than one request holds" 1 'request is [0-9]+ bytes long.*1048576' efs load -i "$NAME" $(printf "input/$(printf 'x%.0s' {1..140})%d " {1..9500})
  check_exit "$m: wait for no number" 2 'no number' efs wait x

  # --- conflicts ---
  random "$PFS/c" 4000; cp "$PFS/c" "$S/c.old"; efs load --wait c >/dev/null
  random "$PFS/c" 6000
  check_exit "$m: another version is refused" 1 'use --replace' efs load --wait c
  check "$m: the old one is still there" cmp "$S/c.old" "$MNT/c"
  exec 8<"$MNT/c"
  check "$m: --replace" efs load --wait --replace c
  check "$m: the new one is there" cmp "$PFS/c" "$MNT/c"
  check "$m: who had the old one open keeps it" cmp - "$S/c.old" <&8
  exec 8<&-
  echo changed >>"$MNT/c"
  check_exit "$m: a changed one is refused" 1 'differs from the PFS' efs load --wait c
  check_exit "$m: --replace alone, too" 1 '(--force|unload it first)' efs load --wait --replace c
  check "$m: it is as it was" grep -qx changed <(tail -c 8 "$MNT/c")
  check_exit "$m: --force goes with --replace" 2 'replace' efs load --wait --force c
  check "$m: with --replace --force" efs load --wait --replace --force c
  check "$m: it is the PFS's" cmp "$PFS/c" "$MNT/c"
  check "$m: and clean" item c "not d[0]['dirty'] and d[0]['staged'] == 'in'"
  mkdir "$MNT/taken"; echo x >"$PFS/taken"
  check_exit "$m: a directory has the name" 1 'not a regular file' efs load --wait --replace --force taken
  head -c 200M /dev/zero >"$PFS/huge"
  check_exit "$m: what does not fit is refused before it moves" 1 'are to be loaded and the buffer takes' efs load --wait huge
  rm "$PFS/huge"

  # --- cancel ---
  mkdir "$PFS/slow"; random "$PFS/slow/a" 3000000; head -c 60M /dev/zero >"$PFS/slow/b"
  space=$(used) count=$(containers)
  id=$(efs load slow)
  check "$m: a long task runs" await 20 task_is "$id" running
  check "$m: status answers meanwhile" json "$("$EFS" status --json "$NAME")" "any(t['task'] == $id and t['kind'] == 'load' for t in d['tasks'])"
  next=$(efs load h)
  check "$m: the next one waits" task_is "$next" pending
  check "$m: nothing of it is visible" test ! -e "$MNT/slow"
  check "$m: cancel of one that waits" efs cancel "$next"
  check "$m: is at once" task_is "$next" cancelled
  check "$m: cancel of one that runs" efs cancel "$id"
  check_exit "$m: wait tells" 1 'cancelled' efs wait "$id"
  check "$m: nothing of it is there" test ! -e "$MNT/slow"
  check "$m: no container is left" test "$(containers)" = "$count"
  check "$m: no space is lost" test "$(used)" -le "$((space + 65536))"
  check_exit "$m: a second cancel is an error" 1 'has ended' efs cancel "$id"

  # --- a stop during a load ---
  id=$(efs load slow); await 20 task_is "$id" running
  exec 8<"$MNT/h"
  check_exit "$m: a stop that finds the mount busy" 1 'in use' efs stop "$NAME"
  check "$m: has cancelled the load" task_is "$id" cancelled
  check "$m: new loads go on" efs load --wait h
  exec 8<&-
  id=$(efs load slow); await 20 task_is "$id" running
  stop_job "$m with a load"

  # --- unload ---
  fresh "unload$2"
  mount_job || return
  mkdir "$MNT/d"; random "$MNT/d/x" 200000; random "$MNT/d/y" 70; chmod 750 "$MNT/d"; chmod 600 "$MNT/d/y"; cp -a "$MNT/d" "$S/d.$2"
  check_exit "$m: unload --wait of a directory" 0 '3 unloaded' efs unload --wait d
  check "$m: it is at results-dir" diff -r "$MNT/d" "$OUT/d"
  check "$m: with modes" test "$(stat -c %a "$OUT/d" "$OUT/d/y" | tr '\n' ' ')" = '750 600 '
  check "$m: the files are clean now" item d/x "not d[0]['dirty'] and d[0]['staged'] == 'out'"
  check_exit "$m: again: nothing to do" 0 '0 unloaded.* 2 unchanged' efs unload --wait 'd/*'
  echo more >>"$MNT/d/y"
  check "$m: a write makes it dirty" item d/y "d[0]['dirty']"
  check "$m: unload again" efs unload --wait d/y
  check "$m: brings the new version" cmp "$MNT/d/y" "$OUT/d/y"
  mv "$MNT/d/x" "$MNT/d/z"
  check "$m: a new name is dirty" item d/z "d[0]['dirty']"
  check_exit "$m: unload of what is not there" 1 'not in the buffer' efs unload --wait nosuch
  check "$m: unload --json has the receipt" json "$(efs unload --json --wait d/z)" "d['outcome']['receipt']['entries'][0]['action'] == 'staged-out' and 'unverified' not in d['outcome']['receipt']['entries'][0]"
  check_exit "$m: unload --remove" 0 'unloaded' efs unload --wait --remove d/y
  check_not "$m: it is gone from the buffer" stat "$MNT/d/y"
  check_not "$m: from the listing, too" grep -qx y <<<"$(ls "$MNT/d")"
  check "$m: and is at results-dir" grep -q more <(tail -c 5 "$OUT/d/y")
  exec 8<"$MNT/input/a"; space=$(used)
  check "$m: --remove of a clean input" efs unload --wait --remove input
  check "$m: who has it open reads on" grep -qx alpha <&8
  exec 8<&-
  check "$m: the input can be loaded again" efs load --wait input
  check "$m: as it was" cmp "$PFS/input/sub/b" "$MNT/input/sub/b"

  # --- files that programs can write to ---
  program "f = open(sys.argv[1], 'w'); f.write('half '); f.flush(); ready(); f.write('whole'); f.close()" "$MNT/open"
  check_exit "$m: a file open for writing" 1 'open for writing' efs unload --wait open
  check "$m: did not go out" test ! -e "$OUT/open"
  check_exit "$m: with --as-is it does, unverified" 0 'unverified' efs unload --wait --as-is open
  check "$m: as it was then" test "$(cat "$OUT/open")" = 'half '
  check "$m: it is still dirty" item open "d[0]['dirty']"
  check "$m: explain says so" grep -q 'open for writing' <<<"$(efs explain open)"
  program_ends "$m: the program ends"
  check "$m: closed, it goes out verified" json "$(efs unload --json --wait open)" "d['outcome']['ok'] and 'unverified' not in d['outcome']['receipt']['entries'][0]"
  check "$m: whole" test "$(cat "$OUT/open")" = 'half whole'
  program "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.write(fd, b'x' * 8192); m = mmap.mmap(fd, 8192); os.close(fd); ready(); m[0] = 66; m.close()" "$MNT/mapped"
  check_exit "$m: a file that is mapped only" 1 '(mapped|open) for writing' efs unload --wait mapped
  check "$m: did not go out" test ! -e "$OUT/mapped"
  program_ends "$m: the program ends"
  check_exit "$m: unmapped, it is proved" 0 '1 unloaded' efs unload --wait mapped
  check "$m: with the last store" test "$(head -c 1 "$OUT/mapped")" = B
  check "$m: and is clean" item mapped "not d[0]['dirty']"

  # --- running readers and writers ---
  random "$PFS/v1" 400000; random "$PFS/v2" 500000; cp "$PFS/v1" "$PFS/v"; efs load --wait v >/dev/null
  program "good = {open(p, 'rb').read() for p in sys.argv[2:4]}
n = 0
log = open(sys.argv[4], 'w')
open('$S/ready', 'w').close()
while not os.path.exists('$S/go') or n == 0:
  if open(sys.argv[1], 'rb').read() not in good: sys.exit('a mixture was read')
  log.write('%d\n' % n); log.flush()
  os.rename(sys.argv[5], sys.argv[6]); os.rename(sys.argv[6], sys.argv[5])
  n += 1
log.close()" "$MNT/v" "$PFS/v1" "$PFS/v2" "$MNT/log" "$MNT/input/a" "$MNT/input/r"
  for i in 1 2 3 4 5 6 7 8; do
    cp "$PFS/v$((i % 2 + 1))" "$PFS/v.new" && mv "$PFS/v.new" "$PFS/v"
    said=$(efs load --wait --replace v 2>&1) || fail "$m: load over a file that is read" "$said"
    said=$(efs unload --wait --as-is log 2>&1) || fail "$m: unload of a file that is written" "$said"
    efs unload --wait --remove d >/dev/null 2>&1; efs load --wait input/sub >/dev/null 2>&1
  done
  program_ends "$m: the reader never saw a mixture"
  check "$m: the last version is there" cmp "$PFS/v" "$MNT/v"
  check "$m: the log that was written can be unloaded" efs unload --wait log
  check "$m: whole" cmp "$MNT/log" "$OUT/log"

  # --- a changed and exported file is the job's version ---
  echo input >"$PFS/back"
  check "$m: load" efs load --wait back
  echo changed >"$MNT/back"
  check "$m: a change is brought out" efs unload --wait back
  check_exit "$m: load does not take it for the input" 1 'use --replace' efs load --wait back
  check_exit "$m: load --replace brings the input" 0 '1 files' efs load --wait --replace back
  check "$m: really" grep -qx input "$MNT/back"

  # --- parts ---
  random "$PFS/p" 100000
  check_exit "$m: load of a part, in numbers that begin with 0" 0 '1 files' efs load --wait --offset 010000 --size 05000 p
  check "$m: has the whole size" test "$(stat -c %s "$MNT/p")" = 100000
  check "$m: and those bytes" cmp -i 10000 -n 5000 "$PFS/p" "$MNT/p"
  check "$m: ls says that it is a part" item p "d[0]['parts'] == '10000+5000' and d[0]['class'] == 'temporary'"
  check "$m: another part" efs load --wait --offset 50000 p
  check "$m: both are there" bash -c "cmp -i 10000 -n 5000 $PFS/p $MNT/p && cmp -i 50000 $PFS/p $MNT/p"
  check "$m: load of all" efs load --wait p
  check "$m: makes it whole" item p "'parts' not in d[0]"
  check "$m: really" cmp "$PFS/p" "$MNT/p"
  check "$m: from byte 0" efs load --wait --replace --offset 00 --size 0 p
  check_exit "$m: a part behind the end" 1 'the file has 100000' efs load --wait --offset 100000 p
  random "$MNT/q" 30000; cp "$MNT/q" "$S/q"
  check_exit "$m: a part of a file that results-dir does not have" 1 'unload all of it first' efs unload --wait --offset 100 --size 10 q
  check "$m: unload of all" efs unload --wait q
  random "$S/change" 2000; dd if="$S/change" of="$MNT/q" bs=1000 seek=5 conv=notrunc status=none; dd if="$S/change" of="$MNT/q" bs=1000 seek=20 conv=notrunc status=none
  check "$m: unload of a part, likewise" efs unload --wait --offset 05000 --size 02000 q
  dd if="$S/change" of="$S/q" bs=1000 seek=5 conv=notrunc status=none
  check "$m: brings that part and no more" cmp "$S/q" "$OUT/q"
  check "$m: the file is still dirty" item q "d[0]['dirty']"

  # --- a stop during an unload ---
  truncate -s 8G "$MNT/sparse"
  id=$(efs unload sparse)
  stop_job "$m with an unload"
  check "$m: it was finished" test "$(stat -c %s "$OUT/sparse")" = 8589934592
  check "$m: the receipt tells of unloads" json "$(cat "$OUT/efs-receipt-$NAME.json")" "any(e['path'] == 'd/y' and 'unloaded while the job ran' in e['reason'] for e in d['entries'])"
  check "$m: no partial is left" test -z "$(find "$OUT" -name '*.efs-partial')"

  # --- classes ---
  fresh "class$2" 'resources: [ [ path: input, flags: temporary ] ]'
  mount_job || return
  echo t >"$MNT/drop"; echo s >"$MNT/save"; echo changed >"$MNT/input/a"; mkdir "$MNT/tmp"; echo a >"$MNT/tmp/a"
  check "$m: set temporary" efs set temporary drop tmp
  check "$m: set persistent" efs set persistent input/a
  echo b >"$MNT/tmp/b"
  check "$m: a directory's class holds for what comes later" item tmp/b "d[0]['class'] == 'temporary'"
  check "$m: unless said otherwise" efs set persistent tmp/b
  check_exit "$m: explain names the rule" 0 'temporary: set while the job ran' efs explain drop
  check_exit "$m: explain names the directory" 0 'for /tmp' efs explain tmp/a
  check_exit "$m: explain of a result" 0 "staged out to $OUT/save" efs explain save
  check_exit "$m: explain of an input" 0 'not changed since the stage-in' efs explain input/sub/b
  check_exit "$m: explain of a resource names its line" 0 "the resource $PFS/input" efs explain input/sub/b
  check_exit "$m: explain of what is only on the PFS" 1 'efs load later' bash -c "echo l >$PFS/later; timeout 60 $EFS explain later"
  check_exit "$m: explain of nothing" 1 'not in the buffer' efs explain nosuch
  check "$m: explain --json" json "$(efs explain --json save)" "d['in_buffer'] and d['class'] == 'persistent' and d['dirty'] and not d['writers']['possible']"
  check "$m: ls --json has all" json "$("$EFS" ls --json -i "$NAME")" "{x['path'] for x in d} >= {'drop', 'save', 'input', 'input/a', 'input/sub/b', 'tmp/a'} and all({'type', 'size', 'class', 'dirty', 'staged'} <= set(x) for x in d)"
  check_exit "$m: ls for people" 0 '^persistent +dirty +2 B +save$' efs ls save
  odd=$'odd\n\e[31m\xc2\x9b\tname'; echo x >"$MNT/$odd"; ln -s $'to\rnowhere' "$MNT/odd-link"
  check_exit "$m: ls of a name that would move the cursor" 0 ' odd\\012\\033\[31m\\302\\233\\011name$' efs ls "$odd"
  check "$m: it is one line" test "$(wc -l <<<"$said")" = 1
  check_exit "$m: and where a link leads to likewise" 0 'odd-link -> to\\015nowhere$' efs ls odd-link
  rm "$MNT/$odd" "$MNT/odd-link"
  check "$m: ls of a pattern" json "$("$EFS" ls --json -i "$NAME" 'tm*')" "[x['path'] for x in d] == ['tmp', 'tmp/a', 'tmp/b']"
  check_exit "$m: ls of nothing" 1 'nosuch' efs ls nosuch
  check_exit "$m: a class that is none" 2 . efs set eternal save
  check "$m: set default" efs set default tmp/b
  check "$m: is as before" item tmp/b "d[0]['class'] == 'temporary'"
  efs set persistent tmp/b
  echo ck1 >"$MNT/tmp/ck"; check "$m: set persistent a file that is written anew" efs set persistent tmp/ck
  echo ck2 >"$MNT/tmp/ck.new"; mv "$MNT/tmp/ck.new" "$MNT/tmp/ck"
  check_exit "$m: what is renamed over it has its class" 0 'persistent: set while the job ran' efs explain tmp/ck
  echo l1 >"$PFS/loaded"; check "$m: a file to be loaded again" efs load -w loaded; efs set temporary loaded
  echo l22 >"$PFS/loaded"; check "$m: is" efs load -w --replace loaded
  check_exit "$m: and has its class" 0 'temporary: set while the job ran' efs explain loaded
  stop_job "$m: classes"
  check "$m: the new version is back" grep -qx ck2 "$OUT/tmp/ck"
  check "$m: what was set persistent is back" bash -c "grep -qx changed $OUT/input/a && grep -qx b $OUT/tmp/b && grep -qx s $OUT/save"
  check "$m: what was set temporary is not" bash -c "! test -e $OUT/drop && ! test -e $OUT/tmp/a"

  # --- errors of the PFS, in place, conflicts ---
  fresh "full$2"; mount -t tmpfs -o size=1m full "$OUT"
  mount_job || return
  random "$MNT/big" 3000000; echo small >"$MNT/small"
  check_exit "$m: unload to a full PFS" 1 'No space left' efs unload --wait big
  check "$m: leaves no partial" test -z "$(ls "$OUT")"
  check "$m: the file is still dirty" item big "d[0]['dirty']"
  mount -o remount,size=8m "$OUT"
  check "$m: with room it goes" efs unload --wait big
  check "$m: whole" cmp "$MNT/big" "$OUT/big"
  mount -o remount,ro "$OUT"
  check_exit "$m: unload to a read-only PFS" 1 '[Rr]ead-only' efs unload --wait small
  mount -o remount,rw "$OUT"
  stop_job "$m: full"; umount "$OUT"

  fresh "place$2"; OUT=$PFS; job "$JOB" 'resources: [ [ path: input, flags: persistent ] ]'; sed -i '/results-dir/a\  in-place: true' "$JOB"
  mount_job || return
  echo first >"$MNT/input/a"
  check "$m: unload in place" efs unload --wait input/a
  check "$m: the input is the new version" grep -qx first "$PFS/input/a"
  echo second >"$MNT/input/a"
  check "$m: and again" efs unload --wait input/a
  echo third >"$MNT/input/a"; echo theirs >"$PFS/input/a"
  check_exit "$m: not over what somebody else wrote" 1 'conflict' efs unload --wait input/a
  check "$m: theirs is untouched" grep -qx theirs "$PFS/input/a"
  check "$m: stop --no-stage-out" timeout 60 "$EFS" stop --no-stage-out "$NAME"
}

# A program of `efs run` uses its own instance.
fresh other; check 'another instance' "$EFS" start "$JOB"
fresh inside; echo in >"$PFS/more"
check_exit 'load and unload in a job, with another instance about' 0 'task 2: unload done' "$EFS" run "$JOB" -- sh -c "$EFS load -w more && cp \"\$EFS_MOUNT/more\" \"\$EFS_MOUNT/res\" && $EFS unload -w res && $EFS wait 1 2"
check 'both' grep -qx in "$OUT/res"
check 'stop of the other' "$EFS" stop other

# --- clean files, and exported files ---
place() { fresh "$@"; OUT=$PFS; job "$JOB" 'resources: [ [ path: input, flags: persistent ] ]'; sed -i '/results-dir/a\  in-place: true' "$JOB"; }
of_receipt() { json "$(cat "$OUT/efs-receipt-$NAME.json")" "[e['action'] for e in d['entries'] if e['path'] == '$1'] == ['$2']"; }

fresh names 'resources: [ [ path: input, flags: persistent ] ]'; mount_job
echo new >>"$MNT/input/a"; ln "$MNT/input/a" "$MNT/c"
check 'unload --remove of one of two names' efs unload --wait --remove c
check 'the other is still changed' item input/a "d[0]['dirty']"
stop_job 'two names'
check 'and goes out' grep -qx new "$OUT/input/a"

place linked; ln "$PFS/input/a" "$PFS/input/b"; mount_job
echo new >>"$MNT/input/a"
check 'unload --remove in place of one of two names' efs unload --wait --remove input/a
stop_job 'two names in place'
check 'both have the new version' grep -qx new "$PFS/input/a" "$PFS/input/b"

if command -v setfattr >/dev/null; then
  fresh later; mount_job
  for name in f g h; do echo "$name" >"$MNT/$name"; done
  check 'unload' efs unload --wait f g h
  setfattr -n user.t -v 1 "$MNT/f"; setfacl -m u:4711:r "$MNT/g"; [ "$(id -u)" != 0 ] || chown 4711 "$MNT/h"
  program "fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.write(fd, b'x'); ready(); os.setxattr(sys.argv[1], 'user.t', b'2'); os.close(fd)" "$MNT/open"
  id=$(efs unload open); await 20 task_is "$id" running
  program_ends 'a program that sets an attribute while an unload waits for it'
  efs wait "$id" >/dev/null 2>&1
  stop_job 'attributes'
  check 'an attribute that was set after the unload is out' test "$(getfattr --only-values -n user.t "$OUT/f")" = 1
  check 'so is an ACL' grep -q 'user:4711:r' <<<"$(getfacl -cn "$OUT/g" 2>/dev/null)"
  [ "$(id -u)" != 0 ] || check 'and an owner' test "$(stat -c %u "$OUT/h")" = 4711
  check 'and what was set while it waited' test "$(getfattr --only-values -n user.t "$OUT/open")" = 2
else
  skip 'attributes after an unload' 'no setfattr here'
fi

place replaced; echo old >"$PFS/input/y"; echo old >"$PFS/input/z"; ln -s a "$PFS/input/l"; ln -s a "$PFS/input/m"; mount_job
sed -i s/alpha/job/ "$MNT/input/a"; rm "$MNT/input/y"; echo job >"$MNT/input/y"; mv "$MNT/input/z" "$MNT/input/z.old"; echo job >"$MNT/input/z"
touch -h "$MNT/input/l"; ln -sfn y "$MNT/input/m"
check 'what took the place of an input goes there' efs unload --wait input/z
sed -i s/job/again/ "$MNT/input/z"
check 'and what took its own' efs unload --wait input/z
sed -i s/again/last/ "$MNT/input/z"
check 'a stop books it, too' timeout 60 "$EFS" stop --keep "$NAME"
check 'PFS: as the job left it' test "$(cat "$PFS/input/a" "$PFS/input/y" "$PFS/input/z" "$PFS/input/z.old" | tr '\n' ' ')" = 'job job last old '
check 'PFS: symbolic links' test "$(readlink "$PFS/input/l" "$PFS/input/m" | tr '\n' ' ')" = 'a y '
mount_job
for name in a y z; do sed -i s/./X/ "$MNT/input/$name"; done
ln -sfn z "$MNT/input/m"
stop_job 'the second round'
check 'no conflict with what the first round brought' test "$(head -qc 1 "$PFS/input/a" "$PFS/input/y" "$PFS/input/z")" = XXX

place theirs; echo old >"$PFS/input/y"; ln -s a "$PFS/input/l"; mount_job
sed -i s/alpha/job/ "$MNT/input/a"; rm "$MNT/input/y"; echo job >"$MNT/input/y"; ln -sfn y "$MNT/input/l"
echo theirs >"$PFS/input/a"; echo theirs >"$PFS/input/y"; ln -sfn sub "$PFS/input/l"
check_exit 'an input that was replaced on both sides is a conflict' 1 'conflict' efs unload --wait input/a
check_exit 'in a stop' 1 'conflict: input/y' timeout 60 "$EFS" stop "$NAME"
check 'theirs is there' test "$(cat "$PFS/input/a" "$PFS/input/y" | tr '\n' ' ')$(readlink "$PFS/input/l")" = 'theirs theirs sub'
rm "$PFS/input/a" "$PFS/input/y" "$PFS/input/l"
stop_job 'when it is gone'
check 'ours is' test "$(cat "$PFS/input/a" "$PFS/input/y" | tr '\n' ' ')$(readlink "$PFS/input/l")" = 'job job y'

fresh missing; mount_job
echo f >"$MNT/f"; echo g >"$MNT/g"; echo h >"$MNT/h"
check 'unload' efs unload --wait f g
rm "$OUT/f"
check 'stop --keep' timeout 60 "$EFS" stop --keep "$NAME"
check 'what results-dir has lost is there again' grep -qx f "$OUT/f"
rm "$OUT/h"; mount_job; stop_job 'after a keep'
check 'also at a later stop' grep -qx h "$OUT/h"
check 'what is there is not moved again' of_receipt g unchanged

fresh receipt; mount_job
echo precious >"$MNT/efs-receipt-receipt.json"; echo other >"$MNT/other"
check_exit 'a result with the name of the receipt' 3 'the receipt has this name' timeout 60 "$EFS" stop "$NAME"
check 'the others are back' grep -qx other "$OUT/other"
check 'stop --no-stage-out' timeout 60 "$EFS" stop --no-stage-out "$NAME"

tests passthrough p
mode=daemon-io
tests "daemon's path" d
finish
