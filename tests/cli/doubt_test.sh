#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A start, a stop and a successor must not assume that a file with an old time is unchanged, that
# contents exist, or that a store under removal has lost them.
#   doubt_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
PERSISTENT='resources: [ [ path: input, flags: persistent ] ]'
in_place() { sed -i "s|results-dir: .*|results-dir: $PFS|; 1a\\  in-place: true" "$JOB"; }

# --- a change that keeps size and time, before both processes die ---
fresh quiet "$PERSISTENT"
in_place
head -c 8192 /dev/zero | tr '\0' a >"$PFS/input/m"
started "$JOB"
# As numpy's memmap in r+: a store to a page that was read before. On some data paths the kernel
# does not update mtime then.
python3 - "$MNT/input/m" <<'PYTHON'
import mmap, os, sys
with open(sys.argv[1], "r+b") as file:
    before = os.fstat(file.fileno()).st_mtime_ns
    mapped = mmap.mmap(file.fileno(), 0)
    mapped[0]
    mapped[0:4] = b"NEW!"
    mapped.flush()
    os.utime(sys.argv[1], ns=(before, before))
PYTHON
touch -r "$MNT/input/a" "$S/time"; printf 'ALPHA\n' | dd of="$MNT/input/a" conv=notrunc status=none; touch -r "$S/time" "$MNT/input/a"
kill_both quiet
check 'start' "$EFS" start "$JOB"
check 'stop' "$EFS" stop quiet
check 'what was written with its old time is back' grep -qx ALPHA "$PFS/input/a"
check 'what was stored through a mapping, too' test "$(head -c 4 "$PFS/input/m")" = 'NEW!'

# The same after a salvage to another directory than that of the inputs.
fresh again "$PERSISTENT"
started "$JOB"
echo first >"$MNT/result"
kill_both again
check 'salvage' "$EFS" salvage again
check 'brings it out' grep -qx first "$OUT/result"
check 'start' "$EFS" start "$JOB"
touch -r "$MNT/result" "$S/time"; printf 'other\n' | dd of="$MNT/result" conv=notrunc status=none; touch -r "$S/time" "$MNT/result"
kill_both again
check 'start again' "$EFS" start "$JOB"
check 'stop without a conflict' "$EFS" stop again
check 'the last version is back' grep -qx other "$OUT/result"

# --- a PFS with times in whole seconds: own results are no conflict ---
mkdir "$S/whole"; truncate -s 32M "$S/image"
if [ "$(id -u)" = 0 ] && mkfs.ext4 -q -I 128 -O ^has_journal "$S/image" >/dev/null 2>&1 && mount -o loop "$S/image" "$S/whole" 2>/dev/null; then
  seconds() { fresh "$1" "$PERSISTENT"; mkdir -p "$S/whole/$1"; mv "$PFS/input" "$S/whole/$1/"; PFS=$S/whole/$1; job "$JOB" "$PERSISTENT"; in_place; }
  seconds rounds
  started "$JOB"; echo one >>"$MNT/input/a"
  check 'whole seconds: stop --keep' "$EFS" stop --keep rounds
  started "$JOB"; echo two >>"$MNT/input/a"
  check 'whole seconds: the next stop' "$EFS" stop rounds
  check 'whole seconds: both rounds are there' test "$(tr '\n' ' ' <"$PFS/input/a")" = 'alpha one two '
  seconds repeated
  started "$JOB"; echo one >>"$MNT/input/a"; echo one >>"$MNT/input/sub/b"; echo theirs >"$PFS/input/sub/b"
  check_exit 'whole seconds: a stop with one conflict' 3 'conflict: input/sub/b' "$EFS" stop repeated
  rm "$PFS/input/sub/b"
  check 'whole seconds: repeated' "$EFS" stop repeated
  check 'whole seconds: all is back' grep -qx one "$PFS/input/a" "$PFS/input/sub/b"
  seconds late
  started "$JOB"; echo one >>"$MNT/input/a"; echo one >>"$MNT/input/sub/b"; echo theirs >"$PFS/input/sub/b"
  check_exit 'whole seconds: a stop with a deadline' 3 'conflict: input/sub/b' "$EFS" stop --deadline 60 late
  rm "$PFS/input/sub/b"
  check 'whole seconds: salvage' "$EFS" salvage late
  check 'whole seconds: all is back' grep -qx one "$PFS/input/a" "$PFS/input/sub/b"
  check 'clean' "$EFS" clean --force late
  umount "$S/whole"
else
  skip 'a PFS that keeps whole seconds' 'needs root, mkfs.ext4 and a loop device'
fi

# --- removed contents ---
fresh scrubbed 'resources: []'
started "$JOB"
echo precious >"$MNT/r"
check 'unload' "$EFS" unload -w "$MNT/r"
echo more >>"$MNT/r"; echo other >"$MNT/other"
kill_both scrubbed
rm "$(grep -rlx precious "$EFS_RUNTIME_DIR/scrubbed/store/data" | head -n 1)"
check_exit 'a start names the file' 0 '1 files cannot be read, first /r' "$EFS" start "$JOB"
kill_both scrubbed
check_exit 'salvage says which' 3 'r' "$EFS" salvage scrubbed
check 'and brings out the rest' grep -qx other "$OUT/other"
check 'what was there is there' grep -qx precious "$OUT/r"
check 'clean' "$EFS" clean --force scrubbed

# --- a store under removal ---
# half_removed DIRECTORY: kills the worker after the first containers of the store below DIRECTORY
# are removed.
half_removed() {
  python3 - "$1" "$(field "$(status_of "$NAME")" 'd["worker_pid"]')" <<'PYTHON'
import os, signal, sys, time
end = time.monotonic() + 60
while time.monotonic() < end:
    try:
        left = len(os.listdir(sys.argv[1]))
    except FileNotFoundError:
        left = 0
    if left < 256:
        os.kill(int(sys.argv[2]), signal.SIGKILL)
        sys.exit(left == 0)   # too late to be of use
sys.exit(1)
PYTHON
}
fill() { python3 -c 'import sys
for i in range(3000): open(sys.argv[1] + "/f%d" % i, "w").write("x" * 100)' "$MNT"; }
whole() { [ "$(find "$OUT" -name 'f*' -size 100c | wc -l)" = 3000 ]; }
going() {  # going KIND
  fresh "going$1" 'resources: []' "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/stores$1 ] ]"
  started "$JOB"; fill
  timeout 60 "$EFS" stop "$NAME" >"$S/said" 2>&1 & local stop=$!
  if half_removed "$S/stores$1/efs-$(id -u)-$NAME/data"; then ok; else skip "$1: a worker that dies while it removes the store" 'it was done before'; fi
  wait $stop
  check "$1: nobody hangs" test $? != 124
  check "$1: the successor removes the rest" await 20 ended "$NAME"
  check "$1: the store is gone" test ! -e "$S/stores$1/efs-$(id -u)-$NAME"
  check "$1: the results are whole" whole
}
mkdir "$S/storesdisk"
if kernel_has_it; then going disk; else skip 'a store that is half removed' 'the kernel is older than 6.9'; fi
if kernel_has_it && [ "$(id -u)" = 0 ]; then
  mkdir "$S/storesmemory" && mount -t tmpfs t "$S/storesmemory"
  going memory
  umount "$S/storesmemory"
else
  skip 'a store in memory that is half removed' 'needs root, and Linux 6.9'
fi

# Both processes die: every later verb finds the mark of the removal, and takes nothing for a file.
fresh mark 'resources: []' "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/storesdisk ] ]"
started "$JOB"; fill
kill_both mark
store=$S/storesdisk/efs-$(id -u)-mark
mv "$store/meta/journal" "$store/meta/removed"; rm -r "$store"/data/0*
check_exit 'a salvage finds no image' 1 'no image' "$EFS" salvage mark
check 'start begins anew' "$EFS" start "$JOB"
check 'with an empty file system' test -z "$(ls "$MNT")"
echo 1 >"$MNT/f"
check 'which works' "$EFS" stop mark
check 'its result is back, and no other' test -e "$OUT/f" -a ! -e "$OUT/f1"
fresh mark2 'resources: []' "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/storesdisk ] ]"
started "$JOB"; echo 1 >"$MNT/f"
kill_both mark2
mv "$S/storesdisk/efs-$(id -u)-mark2/meta/journal" "$S/storesdisk/efs-$(id -u)-mark2/meta/removed"
check 'clean removes the rest' "$EFS" clean mark2
check 'all of it' test -z "$(ls -A "$S/storesdisk")"

finish
