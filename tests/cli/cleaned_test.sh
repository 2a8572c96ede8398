#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Other programs remove containers and directories of a running store, or the runtime directory. efs
# exports all readable files, names the rest, and never reports success for lost data.
#   cleaned_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

mkdir "$S/scratch" "$S/aside"
store() { echo "$S/scratch/efs-$(id -u)-$NAME"; }
scratch() { fresh "$1" 'resources: [ [ path: input, flags: persistent ] ]' "backends: [ [ id: disk, type: NVRAM-NVML, daxfs: $S/scratch ] ]" "${@:2}"; }
# take TEXT: moves the container with this line away; give_back: moves it back.
take() { container=$(grep -rlx "$1" "$(store)/data") && mv "$container" "$S/aside/"; }
give_back() { mv "$S/aside/$(basename "$container")" "$container"; }
# After this, the daemon has no container open that programs have closed.
next_worker() { kill -KILL "$(field "$(status_of "$NAME")" 'd["worker_pid"]')" && await 20 json "$(status_of "$NAME")" 'd["takeovers"] > 0'; }
taken_over() { next_worker; await 20 is_taken_over; }
is_taken_over() { json "$(status_of "$NAME")" 'd["takeovers"] > 0 and d["state"] == "running"'; }

# --- the container of an input that the job never changed ---
scratch input
started "$JOB"
for i in 1 2 3; do echo "result $i" >"$MNT/r$i"; done
take alpha
check_exit 'input: ls lists all, and says which cannot be read' 0 'input/a \(cannot be read\)' "$EFS" ls -i input
check 'input: ls --json' json "$("$EFS" ls -i input --json)" '[i["path"] for i in d if "unreadable" in i] == ["input/a"] and {"r1", "r2", "r3"} <= {i["path"] for i in d}'
check_exit 'input: explain' 0 'content +cannot be read from the buffer' "$EFS" explain -i input "$MNT/input/a"
check_exit 'input: status' 0 'running' "$EFS" status input
check 'input: an unload of a result' "$EFS" unload -w "$MNT/r1"
check_exit 'input: a program gets an error' 1 'Input/output error' cat "$MNT/input/a"
check_exit 'input: the stop succeeds and names it' 0 'skipped: input/a: its content cannot be read .* no program has changed it' "$EFS" stop input
check 'input: all results are back' grep -q result "$OUT/r1" "$OUT/r2" "$OUT/r3"
check 'input: the receipt has it' json "$(receipt)" '[(e["action"], e["unreadable"]) for e in d["entries"] if e["path"] == "input/a"] == [("skipped", True)] and d["verdict"] == "complete"'

# --- the same if the daemon does the I/O ---
fresh strict 'resources: [ [ path: input, flags: persistent ] ]' "backends: [ [ id: disk, type: NVRAM-NVML, daxfs: $S/scratch, capacity: 64 MiB, enforce: strict ] ]"
started "$JOB"
take alpha
check_exit 'strict: a program gets an error and not an empty file' 1 'Input/output error' cat "$MNT/input/a"
check_exit 'strict: the stop succeeds and names it' 0 'skipped: input/a: its content cannot be read' "$EFS" stop strict

# --- a load imports an input again ---
scratch loaded
started "$JOB"
take alpha
check 'a load brings it again' "$EFS" load -w -i loaded input/a
check 'so that it can be read' grep -qx alpha "$MNT/input/a"
check 'stop' "$EFS" stop loaded

# --- the container of a result ---
if kernel_has_it; then
  scratch result
  started "$JOB"
  echo 'lost result' >"$MNT/lost"; mkdir "$MNT/d"; echo 'lost temporary' >"$MNT/d/renamed"; echo good >"$MNT/good"; mv "$MNT/input/sub/b" "$MNT/moved"
  take 'lost result'
  check 'result: a successor takes over' taken_over
  check_exit 'result: it cannot be changed' 1 'Input/output error' bash -c "echo more >>$MNT/lost"
  check 'result: the others are there' grep -qx good "$MNT/good"
  check_exit 'result: an unload names it, and brings the other' 3 'failed: lost: its content cannot be read' "$EFS" unload -w -i result lost good
  exec 7<"$MNT/good"   # keeps the mount busy
  check_exit 'result: a stop with a deadline brings out what it can' 1 'lost: its content cannot be read' "$EFS" stop --deadline 5 result
  exec 7<&-
  check_exit 'result: a stop brings out the others, and names it' 3 'failed: lost: its content cannot be read from the buffer: container' "$EFS" stop result
  check 'result: and says what helps' grep -q '1 results cannot be read from the buffer.*restore them, then retry: efs stop result' <<<"$said"
  check 'result: the others are back' grep -q . "$OUT/good" "$OUT/moved" "$OUT/d/renamed"
  check 'result: not the one that is lost' test ! -e "$OUT/lost"
  check 'result: the receipt has it' json "$(receipt)" '[e["path"] for e in d["entries"] if e.get("unreadable")] == ["lost"] and d["verdict"] == "partial"'
  check 'result: so has the answer' json "$("$EFS" stop --json result)" 'd["unreadable"] == 1 and d["exit"] == 3 and "lost" in d["error"]'
  give_back
  check 'result: put back, it comes out' "$EFS" stop result
  check 'result: whole' grep -qx 'lost result' "$OUT/lost"
else
  skip 'the container of a result' 'needs Linux 6.9'
fi

# --- a kept store ---
scratch kept
started "$JOB"
echo 'lost result' >"$MNT/lost"; echo good >"$MNT/good"
check 'kept: stop' "$EFS" stop --keep kept
take 'lost result'; rm "$OUT/lost" "$OUT/efs-receipt-kept.json"
check_exit 'kept: a start goes on with the rest, and says so' 0 '1 files cannot be read, first /lost' "$EFS" start "$JOB"
check_exit 'kept: so does status' 0 '1 files cannot be read, first /lost' "$EFS" status kept
check_exit 'kept: it is no empty file' 1 'Input/output error' cat "$MNT/lost"
check 'kept: it can be removed' rm "$MNT/lost"
echo again >"$MNT/lost"
check 'kept: and made again' "$EFS" stop kept
check 'kept: which is what is out' grep -qx again "$OUT/lost"

# --- a directory of containers that cannot be listed ---
if kernel_has_it; then
  scratch unlisted
  started "$JOB"
  echo 'lost result' >"$MNT/lost"; echo good >"$MNT/good"
  directory=$(dirname "$(grep -rlx 'lost result' "$(store)/data")")
  mv "$directory" "$S/aside/directory"; : >"$directory"
  check 'unlisted: a successor takes over' taken_over
  check_exit 'unlisted: the rest comes out' 3 'failed: lost: its content cannot be read' "$EFS" stop unlisted
  check 'unlisted: it is back' grep -qx good "$OUT/good"
  rm "$directory"; mv "$S/aside/directory" "$directory"
  check 'unlisted: so is what was in the directory' "$EFS" stop unlisted
  check 'unlisted: whole' grep -qx 'lost result' "$OUT/lost"
fi

# --- empty directories ---
scratch empty
started "$JOB"
find "$S/scratch" -mindepth 1 -type d -empty -delete
check 'empty: files can be made' python3 -c 'import sys
for i in range(600): open(sys.argv[1] + "/f%d" % i, "w").write(str(i))' "$MNT"
check 'empty: the log says why' grep -q container_directory_made_again "$EFS_RUNTIME_DIR/empty/efsd.log"
check 'empty: stop' "$EFS" stop empty
check 'empty: all are back' test "$(cat "$OUT"/f* | sort -n | cksum)" = "$(seq 0 599 | tr -d '\n' | cksum)" -o "$(ls "$OUT" | grep -c '^f')" = 600

# --- two backends, one of which loses a container ---
mkdir "$S/second"
fresh two 'resources: [ [ path: input, flags: persistent ] ]' "backends: [ [ id: disk, type: NVRAM-NVML, daxfs: $S/scratch ], [ id: more, type: NVRAM-NVML, daxfs: $S/second ] ]" 'outputs: [ [ path: r, flags: persistent ], [ path: s, flags: persistent, backend: more ] ]'
if started "$JOB"; then
  echo one >"$MNT/r"; echo two >"$MNT/s"
  take alpha
  check 'two: both are locked' bash -c "! flock -n $S/second/efs-$(id -u)-two.1 true && ! flock -n $S/scratch/efs-$(id -u)-two true"
  check_exit 'two: the stop succeeds' 0 'skipped: input/a' "$EFS" stop two
  check 'two: all is back' grep -q . "$OUT/r" "$OUT/s"
fi

# --- cleaners that check before they remove ---
scratch locked
started "$JOB"
echo result >"$MNT/r"
refused() { local part; for part in . data meta; do ! flock -n "$(store)/$part" true || return 1; done; }
check 'locked: what runs is locked' refused
if kernel_has_it; then
  check 'locked: a successor' taken_over
  check 'locked: has the locks, too' refused
fi
if command -v systemd-tmpfiles >/dev/null && [ "$(id -u)" = 0 ]; then
  printf 'e %s - - - 0\n' "$S/scratch" >"$S/clean.conf"
  systemd-tmpfiles --clean "$S/clean.conf" >/dev/null 2>&1
  printf 'e %s/* - - - 0\n' "$S/scratch" >"$S/clean.conf"
  systemd-tmpfiles --clean "$S/clean.conf" >/dev/null 2>&1
  check 'locked: systemd-tmpfiles leaves it alone' grep -rqx result "$(store)/data"
fi
check 'locked: stop' "$EFS" stop locked
check 'locked: the result' grep -qx result "$OUT/r"

# --- a removed socket ---
scratch mute
started "$JOB"
echo result >"$MNT/r"
rm "$EFS_RUNTIME_DIR/mute/control.sock"
check_exit 'mute: status names the way out' 1 'mute: unreachable' "$EFS" status
for verb in 'status mute' 'stop mute' 'ls -i mute'; do
  check_exit "mute: $verb, too" 1 "its socket $EFS_RUNTIME_DIR/mute/control.sock has been removed. Unmount it: .*(umount|fusermount3 -u) $MNT ends it" timeout 60 "$EFS" $verb
done
umount "$MNT" 2>/dev/null || fusermount3 -u "$MNT"
check 'mute: the unmount brings the results home' await 20 ended mute
check 'mute: they are' grep -qx result "$OUT/r"

# --- a runtime directory that a logout removes ---
cat >"$S/logout.sh" <<'SCRIPT'
set -u
EFS=$1 S=$2
export XDG_RUNTIME_DIR=$S/x/run; unset EFS_RUNTIME_DIR; cd /
"$EFS" start "$S/x/gone.yaml" || exit 2
echo result >"$S/x/mnt/r"
rm -rf "$XDG_RUNTIME_DIR/efs"
for verb in "status" "status gone" "status $S/x/mnt" "stop" "stop gone" "stop $S/x/mnt" "start $S/x/gone.yaml" "start --name other $S/x/gone.yaml" "salvage $S/x/gone.yaml" "salvage gone" "clean gone" "ls -i gone" "unload -i gone r" "doctor"; do
  echo "$verb: $("$EFS" $verb 2>&1 | tr '\n' ' ')"
done
fusermount3 -u "$S/x/mnt" || exit 3
for i in $(seq 500); do [ -e "$S/x/out/efs-receipt-gone.json" ] && exit 0; sleep 0.02; done
exit 4
SCRIPT
if [ "$(id -u)" != 0 ]; then
  skip 'a runtime directory that is removed' 'needs root, to be another user'
elif [ ! -u "$(command -v fusermount3)" ]; then
  skip 'a runtime directory that is removed' 'no fusermount3 that is set-uid'
else
  mkdir -p "$S/x/run" "$S/x/out" "$S/x/pfs" "$S/dev"; chmod 755 "$S"; chmod 700 "$S/x/run"
  PFS=$S/x/pfs MNT=$S/x/mnt OUT=$S/x/out job "$S/x/gone.yaml" 'resources: [ [ path: ., flags: persistent ] ]'
  chown -R 65534:65534 "$S/x"
  said=$("$SOURCE/tests/own_mounts.py" bash -c "mount -t tmpfs -o mode=755,size=64k dev $S/dev && mknod -m 666 $S/dev/fuse c 10 229 && mount --bind $S/dev/fuse /dev/fuse &&
    exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all bash $S/logout.sh $EFS $S" 2>&1)
  check 'gone: the unmount brings the results home' test $? = 0
  check 'gone: they are' grep -qx result "$S/x/out/r"
  check 'gone: every verb names the one way out' test "$(grep -c "efs cannot reach it: its directory $S/x/run/efs/gone has been removed.*fusermount3 -u $S/x/mnt ends it as efs stop does, and exports its results to $S/x/out" <<<"$said")" = 14
  [ "$(grep -c 'fusermount3 -u' <<<"$said")" = 14 ] || echo "$said"
fi
finish
