#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The medium of a store fails under a mount: programs get errors, status and log report it, and a
# stop exports the readable files.
#   store_failed_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
LIBRARY=$BIN/../lib/libefs-failing-store.so
[ -e "$LIBRARY" ] || { echo "$LIBRARY is not built" >&2; exit 2; }

# start_failing: an instance whose medium fails while $S/fault exists.
start_failing() { LD_PRELOAD=$LIBRARY EFS_FAIL_WHILE=$S/fault ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" "$EFS" start "$JOB"; }
# exhaust FILE: makes changes until one fails, and prints its errno. Eventually the journal needs
# more space.
exhaust() { python3 -c 'import errno, os, sys
for n in range(2000):
    try: os.setxattr(sys.argv[1], "user.k", b"x" * 60000)
    except OSError as e: print(errno.errorcode[e.errno]); break' "$1"; }
json_status() { json "$(status_of "$1")" "$2"; }
read_only() { json "$(status_of "$1")" 'd["read_only"]'; }
failures() { grep -c 'event=journal_failed' "$EFS_RUNTIME_DIR/$1/efsd.log"; }

fresh broken
check 'start' start_failing
echo result >"$MNT/r"; echo filler >"$MNT/filler"; mkdir "$MNT/d"; echo deep >"$MNT/d/r"
check_not 'a store that works' read_only broken
touch "$S/fault"
check 'the change that the medium refuses fails with its error' test "$(exhaust "$MNT/filler")" = EIO
check_exit 'no name can be made' 1 'Read-only file system' touch "$MNT/new"
check_exit 'none can be moved' 1 'Read-only file system' mv "$MNT/r" "$MNT/s"
check_exit 'none can be removed' 1 'Read-only file system' rm "$MNT/r"
check_exit 'and no mode be changed' 1 'Read-only file system' chmod 600 "$MNT/d"
check 'what is there can be read' grep -qx result "$MNT/r"
check_exit 'status says so' 0 'THE STORE HAS FAILED' "$EFS" status broken
check 'in JSON, too' read_only broken
check 'the log has it, once' test "$(failures broken)" = 1
rm "$S/fault"
check_exit 'a medium that works again proves nothing' 1 'Read-only file system' touch "$MNT/new"
check 'a stop brings everything out' "$EFS" stop broken
check 'the result' grep -qx result "$OUT/r"
check 'and what is deeper' grep -qx deep "$OUT/d/r"
check 'with a receipt' json "$(cat "$OUT/efs-receipt-broken.json")" 'd["verdict"] == "complete"'
check 'nothing is left' ended broken

# A medium that cannot read one file still delivers the others.
fresh unreadable
check 'start' env LD_PRELOAD="$LIBRARY" EFS_FAIL_READ="$S/unread" ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" "$EFS" start "$JOB"
echo 'lost result' >"$MNT/lost"; echo good >"$MNT/good"
grep -rlx 'lost result' "$EFS_RUNTIME_DIR/unreadable/store/data" | tr -d '\n' >"$S/unread"
check_exit 'a stop names the file that cannot be read' 3 'failed: lost: .*Input/output error' "$EFS" stop unreadable
check 'the other is back' grep -qx good "$OUT/good"
check 'nothing has the name of the one that is not' test ! -e "$OUT/lost"
rm "$S/unread"
check 'when it can be read it comes out' "$EFS" stop unreadable
check 'whole' grep -qx 'lost result' "$OUT/lost"

# A successor cannot write a new journal either: it continues read-only.
if kernel_has_it; then
  fresh successor
  check 'start' start_failing
  echo result >"$MNT/r"; echo filler >"$MNT/filler"
  touch "$S/fault"
  check 'the medium fails' test "$(exhaust "$MNT/filler")" = EIO
  kill -KILL "$(field "$(status_of successor)" 'd["worker_pid"]')"
  check 'a successor' await 20 json_status successor 'd["takeovers"] == 1'
  check 'is read-only' await 20 read_only successor
  check_exit 'and says so to programs' 1 'Read-only file system' touch "$MNT/new"
  check 'what is there can be read' grep -qx result "$MNT/r"
  check 'a stop brings it out' "$EFS" stop successor
  check 'the result' grep -qx result "$OUT/r"
  rm "$S/fault"
else
  skip 'a successor of a store that has failed' 'needs Linux 6.9'
fi

# Failing syncs of a store on a disk. start_unsynced NAME: an instance on a disk whose syncs fail
# while $S/no_sync exists.
start_unsynced() {
  fresh "$1"; mkdir "$S/$1/disk"
  job "$JOB" 'resources: [ [ path: input ] ]' "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/$1/disk ] ]"
  check "$1: start" env EFS_FAIL_SYNC_WHILE="$S/no_sync" LD_PRELOAD="$LIBRARY" ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" "$EFS" start "$JOB"
}
start_unsynced unsynced
echo result >"$MNT/r"; check 'a sync' sync "$MNT/r"
touch "$S/no_sync"; echo more >"$MNT/more"
check_exit 'a program is told that its sync has failed' 1 'Input/output error' sync "$MNT/more"
check 'the store is read-only' await 20 read_only unsynced
check_exit 'and says so to programs' 1 'Read-only file system' touch "$MNT/new"
check_exit 'status does, too' 0 'THE STORE HAS FAILED' "$EFS" status unsynced
check 'and the log' test "$(failures unsynced)" = 1
rm "$S/no_sync"
check_exit 'a sync that would succeed again proves nothing' 1 'Read-only file system' touch "$MNT/new"
check 'a stop brings everything out' "$EFS" stop unsynced
check 'what was synced' grep -qx result "$OUT/r"
check 'and what was not' grep -qx more "$OUT/more"

# The daemon, and a successor, sync data that no program syncs. If that fails, the failure is
# reported without a request by a program. tends NAME
tends() {
  touch "$S/no_sync"; echo more >"$MNT/more"
  check "$1: what no program syncs is synced, which fails" await 20 read_only "$1"
  rm "$S/no_sync"
  check "$1: a stop brings it out" "$EFS" stop "$1"
  check "$1: whole" grep -qx more "$OUT/more"
}
start_unsynced tended
tends tended
if kernel_has_it; then
  start_unsynced inherited
  kill -KILL "$(field "$(status_of inherited)" 'd["worker_pid"]')"
  check 'inherited: a successor' await 20 json_status inherited 'd["takeovers"] == 1 and d["state"] == "running"'
  tends inherited
else
  skip 'what a successor syncs by itself' 'needs Linux 6.9'
fi

unattached() { [ -z "$(losetup -j "$1")" ]; }

# The file system below the store has failed and is read-only since: its files can still be read.
if kernel_has_it && [ "$(id -u)" = 0 ] && command -v mkfs.ext4 >/dev/null; then
  fresh readonly
  mkdir "$S/readonly/disk"; truncate -s 64M "$S/readonly/image"; mkfs.ext4 -q "$S/readonly/image"
  if mount -o loop,errors=remount-ro "$S/readonly/image" "$S/readonly/disk" 2>/dev/null; then
    job "$JOB" 'resources: [ [ path: input ] ]' "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/readonly/disk ] ]"
    started "$JOB"; echo result >"$MNT/r"; exec 5>>"$MNT/open"; echo 1 >&5
    echo t >"/sys/fs/ext4/$(basename "$(findmnt -no SOURCE "$S/readonly/disk")")/trigger_fs_error"
    kill -KILL "$(field "$(status_of readonly)" 'd["worker_pid"]')"
    check 'a successor on a file system that has failed' await 20 json_status readonly 'd["takeovers"] == 1'
    check 'is read-only' await 20 read_only readonly
    check_exit 'and says so to programs' 1 'Read-only file system' touch "$MNT/new"
    check 'what is there can be read' grep -qx result "$MNT/r"
    check 'inputs, too' grep -qx alpha "$MNT/input/a"
    exec 5>&-
    check_exit 'a stop brings it out, and says what it cannot remove' 0 'the buffer cannot be removed.*efs clean readonly' "$EFS" stop readonly
    check 'the result' grep -qx result "$OUT/r"
    check 'and what was open' grep -qx 1 "$OUT/open"
    check_exit 'status knows of it' 1 '"left":"over"' "$EFS" status --json readonly
    check_exit 'a start does not go on with it' 1 'Read-only file system' "$EFS" start "$JOB"
    check_exit 'and a clean says why not' 1 'Read-only file system' "$EFS" clean readonly
    check 'nobody holds the disk' umount "$S/readonly/disk"
    # A mount namespace of another test may have a copy of the mount for a moment.
    check 'nor its image' await 60 unattached "$S/readonly/image"
    e2fsck -fy "$S/readonly/image" >/dev/null 2>&1
    check 'which works again' mount -o loop "$S/readonly/image" "$S/readonly/disk"
    echo newer >"$OUT/r"
    started "$JOB"
    check 'when the file system works again a start begins empty' test ! -e "$MNT/r" -a -e "$MNT/input/a"
    check 'stop' "$EFS" stop readonly
    check 'has brought out nothing old' grep -qx newer "$OUT/r"
    check 'and leaves nothing' test -z "$(ls "$S/readonly/disk" | grep efs; ls "$EFS_RUNTIME_DIR" | grep readonly)"
    umount "$S/readonly/disk"
  else
    skip 'a successor on a file system that has failed' 'no loop device'
  fi
else
  skip 'a successor on a file system that has failed' 'needs root, Linux 6.9 and mkfs.ext4'
fi

# Both processes die: the next instance writes a new journal, or refuses to start.
fresh both
check 'start' start_failing
echo result >"$MNT/r"; echo filler >"$MNT/filler"
touch "$S/fault"
check 'the medium fails' test "$(exhaust "$MNT/filler")" = EIO
kill_both both
check_not 'no start while it does' start_failing
rm "$S/fault"
check 'a start when it works again' start_failing
check 'goes on' grep -qx result "$MNT/r"
check 'with a store that can be changed' touch "$MNT/new"
check 'stop' "$EFS" stop both
check 'the result' grep -qx result "$OUT/r"
finish
