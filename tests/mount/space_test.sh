#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Space of removed files is available to the next write, on each data path and each kind of store.
#   space_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
removals() {
  timeout 300 python3 -SE "$SOURCE/tests/mount/space.py" "$1" && return
  local pid
  for pid in $(daemons); do find "/proc/$pid/fd" -lname '*data*' -printf "$pid holds %l\n"; done
  [ ! -d "$S/disk/store" ] || { df -k "$S/disk/store"; find "$S/disk/store" -size +500k -ls; }
  "$EFS" status --json "$NAME"; tail -n 5 "$EFS_RUNTIME_DIR/$NAME/efsd.log"
  return 1
}

# each NAME START_OPTION...: an instance with the current job file.
each() {
  local name=$1; shift
  started "$@" "$JOB" || return
  check "$name" removals "$MNT"
  check "$name: stop" "$EFS" stop --no-stage-out "$NAME"
}

CAPACITY='48 MiB' fresh memory 'resources: []'
each 'in memory'
each 'in memory, by the daemon' -o daemon-io

# Writes 128 pages, one in each 2 MiB of a file that is set to its size first. Prints the KiB that
# the open file uses.
sparse() { python3 -SE -c 'import os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_RDWR)
os.ftruncate(fd, 256 << 20)
for i in range(128): os.pwrite(fd, b"x" * 4096, i << 21)
os.fsync(fd)
print(os.fstat(fd).st_blocks // 2)' "$1"; }
fresh sparse 'resources: []' 'backends: [ [ id: ram, type: DRAM, capacity: 24 MiB, huge: never ] ]'
started "$JOB"
check 'a sparse file without huge pages takes what was written' test "$(sparse "$MNT/f")" = 512
check 'sparse: stop' "$EFS" stop --no-stage-out sparse

[ "$(id -u)" = 0 ] && command -v mkfs.ext4 >/dev/null || { skip 'on a disk' 'needs root and mkfs.ext4'; finish; }
fresh disk 'resources: []'
mkdir "$S/disk/store"; truncate -s 64M "$S/disk/image"; mkfs.ext4 -q -m 0 "$S/disk/image"
mount -o loop "$S/disk/image" "$S/disk/store" 2>/dev/null || { skip 'on a disk' 'no loop device'; finish; }
for kind in '' ', capacity: 40 MiB' ', capacity: 40 MiB, enforce: strict'; do
  job "$JOB" 'resources: []' "backends: [ [ id: disk, type: NVRAM-NVML, daxfs: $S/disk/store$kind ] ]"
  each "on a disk$kind"
done
umount "$S/disk/store"
finish
