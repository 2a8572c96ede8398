#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Contents move between the backends of a job while its programs run (efs move), and pinned files
# (efs pin): what moves, what stays and why, and the death of the daemon.
#   move_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

late=60   # seconds, on a machine that is as busy as it may be
# two NAME: a job with memory and a directory; `input` is in memory, `big` in the directory.
two() {
  DISK=$S/$1/disk; mkdir -p "$DISK" "$S/$1/pfs/big"
  head -c 60000000 /dev/urandom >"$S/$1/pfs/big/b"
  fresh "$1" "backends: [ [ id: fast, type: DRAM, capacity: 128 MiB ], [ id: bulk, type: NVRAM-NVML, daxfs: $DISK, capacity: 256 MiB ] ]" \
    'resources: [ [ path: input, flags: persistent ], [ path: big, backend: bulk ] ]'
}
backend_of() { field "$("$EFS" ls -i "$NAME" --json "$1")" "d[0]['backend']"; }
is_in() { [ "$(backend_of "$1")" = "$2" ] || { echo "$1 is in $(backend_of "$1"), not in $2"; return 1; }; }
move() { "$EFS" move -i "$NAME" "$@"; }
worker() { field "$(status_of "$NAME")" 'd["worker_pid"]'; }
a_worker() { local text; text=$(status_of "$NAME" 2>/dev/null) && json "$text" "d['worker_pid'] != $1 and d['state'] == 'running'"; }
facts() { (cd "$MNT" && find . -printf '%p %i %y %m %U %G %s %T@ %C@ %n %l\n' | sort); }
died() { local first; first=$(worker); kill -KILL "$first"; await $late a_worker "$first"; }

# --- what cannot be asked for ---
fresh one
started "$JOB"
check_exit 'one backend has no other' 2 'one backend only' "$EFS" move -i one input/a --to ram
check_exit 'a move has a target' 2 '--to' "$EFS" move -i one input/a
check_exit 'a pin needs no second backend' 0 '' "$EFS" pin -i one input
check 'and says so' grep -q 'input/a (pinned)' <<<"$("$EFS" ls -i one input)"
check 'stop' "$EFS" stop one

two all
started "$JOB"
check_exit 'an unknown backend' 2 'no backend tape; it has: fast, bulk' move input/a --to tape
check_exit 'a path elsewhere' 2 'neither on the mount' move /elsewhere --to bulk
check_exit 'a path that is not there' 1 'input/none: not in the buffer' move input/none --to bulk

# --- inputs and results ---
before=$(facts)
check_exit 'a move says what it did' 0 '^task [0-9]+: move done: 1 files' move input/a --to bulk
check 'the file is there' is_in input/a bulk
check 'with its content' cmp "$PFS/input/a" "$MNT/input/a"
check_exit 'a file that is there already' 0 '1 were there already' move "$MNT/input/a" --to bulk
check 'a directory, by its path on the PFS' move "$PFS/input" --to bulk
check 'all of it' is_in input/sub/b bulk
check 'a pattern' move 'big/*' --to fast
check 'the other way' is_in big/b fast
check 'names, numbers, attributes and times are as before' test "$before" = "$(facts)"
check 'contents, too' diff -r "$PFS" "$MNT"
mkdir "$MNT/out"; head -c 5000000 /dev/urandom >"$S/result"; cp "$S/result" "$MNT/out/r"; ln "$MNT/out/r" "$MNT/out/link"; truncate -s 1G "$MNT/out/sparse"; : >"$MNT/out/empty"
before=$(facts)
check 'a written result' move out --to bulk
check 'is in the other backend' is_in out/r bulk
check 'by each name' is_in out/link bulk
check 'as it was' test "$before" = "$(facts)"
check 'with its content' cmp "$S/result" "$MNT/out/r"
check 'holes stay holes' test "$(du -m "$MNT/out/sparse" | cut -f1)" -le 1
check 'a program goes on with it' eval 'echo more >>"$MNT/out/r" && echo more >>"$S/result" && cmp "$S/result" "$MNT/out/link"'
check_exit 'in JSON' 0 '' eval 'move --json input/a --to fast >"$S/said"'
check 'with figures' json "$(cat "$S/said")" "d['kind'] == 'move' and d['outcome']['moved'] == 1 and d['outcome']['stayed'] == 0"
class=$(stat -f -c %T "$DISK")
case $class in
  tmpfs|ramfs) check 'from memory to memory' move out/r --to fast ;;
  *) check_exit 'a result that only the directory keeps' 3 'out/r: .*does not survive a restart' move out/r --to fast
     check 'stays there' is_in out/r bulk ;;
esac
check_exit 'without a wait it prints the number of a task' 0 '^[0-9]+$' move --no-wait input/sub --to fast
check_exit 'efs wait waits for it' 0 'move done: 1 files' "$EFS" wait -i all "$said"

# --- libefs ---
library=$BIN/../lib/libefs.so
# moves_by_library PATH BACKEND: prints the code of efs_move(), and of the task.
moves_by_library() {
  EFS_INSTANCE=$NAME python3 -c '
import ctypes, sys
class Block(ctypes.Structure):
    _fields_ = [("backend", ctypes.c_char_p), ("path", ctypes.c_char_p), ("offset", ctypes.c_long), ("size", ctypes.c_size_t),
                ("tid", ctypes.c_int), ("flags", ctypes.c_uint), ("reserved", ctypes.c_uint64 * 4)]
efs = ctypes.CDLL(sys.argv[1])
block = Block(sys.argv[3].encode(), sys.argv[2].encode())
code = efs.efs_move(ctypes.byref(block))
print(code, efs.efs_wait(ctypes.byref(block), -1) if code == 0 else "")' "$library" "$@"
}
if [ -e "$library" ]; then
  check 'efs_move' test "$(moves_by_library input/sub bulk)" = '0 0'
  check 'has moved it' is_in input/sub/b bulk
  exec 5<"$MNT/input/sub/b"
  check 'a file that is open is EFS_API_EBUSY' test "$(moves_by_library input/sub fast)" = '0 -17'
  exec 5<&-
  check 'an unknown backend is EFS_API_EINVAL' test "$(moves_by_library input/sub tape)" = '-2 '
  check 'and none' test "$(moves_by_library input/sub '')" = '-2 '
else
  skip 'efs_move' 'no libefs beside the programs'
fi

# --- what is in use stays ---
exec 5<"$MNT/input/a"
check_exit 'a file that is open stays' 3 'input/a: a program may have it open' move input --to bulk
check 'where it is' is_in input/a fast
check 'and others move' is_in input/sub/b bulk
check 'in JSON, too' json "$(move --json input/a --to bulk)" "d['outcome']['stayed_first'][0]['path'] == 'input/a' and d['task_state'] == 'failed'"
exec 5<&-
python3 -c '
import mmap, os, sys, time
f = os.open(sys.argv[1], os.O_RDWR)
m = mmap.mmap(f, 0); os.close(f)
open(sys.argv[2], "w").close()
while not os.path.exists(sys.argv[3]): time.sleep(0.01)
m[0:4] = b"seen"' "$MNT/input/a" "$S/ready" "$S/go" & mapper=$!; pids+=($mapper)
check 'a program maps one' await $late test -e "$S/ready"
check_exit 'which stays, too' 3 'input/a: ' move input/a --to bulk
touch "$S/go"; wait $mapper; check 'the program is well' test $? = 0; pids=()
check 'then it moves' await $late move input/a --to bulk
check 'with what the program wrote' grep -qx 'seena' "$MNT/input/a"

# --- pins ---
check 'pin' "$EFS" pin -i all "$MNT/out" input/sub/b
check_exit 'ls says so' 0 'out/r \[[a-z]+\] \(pinned\)' "$EFS" ls -i all out
check_exit 'explain, too' 0 'pinned  ' "$EFS" explain -i all out/r
check 'in JSON' json "$("$EFS" ls -i all --json out/r)" "d[0]['pinned'] == True"
check_exit 'a pin of nothing' 1 'not in the buffer' "$EFS" pin -i all none
check 'the worker dies' died
check_exit 'a takeover keeps the pin' 0 'pinned  ' "$EFS" explain -i all out/r
check 'and the backend' is_in out/r "$(case $class in tmpfs|ramfs) echo fast ;; *) echo bulk ;; esac)"
check 'a user moves a pinned file' move input/sub --to fast
check 'which is there' is_in input/sub/b fast
check 'and pinned' grep -q pinned <<<"$("$EFS" ls -i all input/sub/b)"
check 'unpin' "$EFS" unpin -i all out
check_not 'ends it' grep -q pinned <<<"$("$EFS" ls -i all out)"
check 'stop' "$EFS" stop all
check 'the results are right' eval 'cmp "$S/result" "$OUT/out/r" && [ "$(stat -c %s "$OUT/out/sparse")" = 1073741824 ] && [ -e "$OUT/out/empty" ] && grep -qx seena "$OUT/input/a"'
check 'the directory is empty' test -z "$(ls -A "$DISK")"

# --- the worker dies between moves, and during them ---
two dies
head -c 6000000 /dev/urandom >"$S/made"
started "$JOB"
cp "$S/made" "$MNT/made"
check 'dies: a result moves' move made --to bulk
check 'dies: the worker' died
check 'dies: the result is where it was' is_in made bulk
check 'dies: and right' cmp "$S/made" "$MNT/made"
to=fast
for turn in {1..12}; do
  first=$(worker)
  move big/b --to $to >"$S/said" 2>&1 & mover=$!; pids+=($mover)
  read -rt "0.0$((RANDOM % 10))" <> <(:) || :   # the worker dies at any moment of the move
  kill -KILL "$first"
  check "dies: during a move ($turn)" await $late a_worker "$first"
  wait $mover; pids=()
  check "dies: the content is right ($turn)" cmp "$PFS/big/b" "$MNT/big/b"
  check "dies: a move after it ($turn)" await $late move big/b --to $to
  check "dies: has moved it ($turn)" is_in big/b $to
  [ $to = fast ] && to=bulk || to=fast
done
if grep -q 'event=task_lost .*kind=move' "$EFS_RUNTIME_DIR/dies/efsd.log"; then ok; else skip 'dies: during a move' 'each move had ended before'; fi
check 'dies: keep' "$EFS" stop --keep dies
check_exit 'dies: the store is whole' 0 'whole' "$EFS" check-image dies
left=$(find "$DISK" -type f -size 6000000c)
check 'dies: the result has one container' test -f "$left"
touch -r "$left" "$S/stamp"; echo more >>"$left"
check_exit 'dies: another process changes it' 1 'the contents of 1 files were changed' "$EFS" start "$JOB"
check_exit 'dies: check-image names the file' 1 'damage: made: container .* it has 6000005 bytes instead of 6000000' "$EFS" check-image dies
truncate -s 6000000 "$left"; touch -r "$S/stamp" "$left"
check 'dies: a start goes on' "$EFS" start "$JOB"
check 'dies: with the result' cmp "$S/made" "$MNT/made"
check 'dies: in its backend' is_in made bulk
check 'dies: stop' "$EFS" stop dies
check 'dies: the result is out' cmp "$S/made" "$OUT/made"

# --- both processes die ---
two both
started "$JOB"
cp "$S/made" "$MNT/made"; echo changed >>"$MNT/input/a"
check 'both: results move' move made input --to bulk
check 'both: and inputs' move big --to fast
check 'both: a pin' "$EFS" pin -i both made
kill_both both
check_exit 'both: the store is whole' 0 'whole' "$EFS" check-image both
check_exit 'both: a salvage' 0 'receipt:' "$EFS" salvage both
check 'both: the result is right' cmp "$S/made" "$OUT/made"
check 'both: and the changed input' grep -qx changed "$OUT/input/a"
check 'both: a start goes on' "$EFS" start "$JOB"
check 'both: the backends are known' eval 'is_in made bulk && is_in big/b fast'
check 'both: the pin, too' grep -q pinned <<<"$("$EFS" ls -i both made)"
check 'both: contents are right' eval 'cmp "$PFS/big/b" "$MNT/big/b" && cmp "$S/made" "$MNT/made"'
check 'both: stop' "$EFS" stop both

finish
