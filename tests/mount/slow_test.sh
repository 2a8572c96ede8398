#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Slow requests block no other request. The slow requests are an fsync on a disk that does not
# answer, and writes on the daemon's path to a frozen file system; meanwhile other processes look up
# names. Checks the order, not the time: the slow requests end only when the test releases them. The
# store is an ext4 in a file of another ext4, so that its disk blocks when the outer one is frozen.
#   slow_test.sh BIN_DIR [PARITY]
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

outer=$S/outer inner=$S/inner frozen=
freeze() { fsfreeze -f "$1" && frozen=$1; }
thaw() { [ -z "$frozen" ] || fsfreeze -u "$frozen"; frozen=; }
trap 'thaw; clean' EXIT
trap 'thaw; clean; exit 130' INT TERM

disks() {
  [ "$(id -u)" = 0 ] || return 1
  mkdir "$outer" "$inner"
  truncate -s 600M "$S/outer.img" && mkfs.ext4 -q "$S/outer.img" && mount -o loop "$S/outer.img" "$outer" || return 1
  fallocate -l 400M "$outer/inner.img" && mkfs.ext4 -q "$outer/inner.img" && mount -o loop "$outer/inner.img" "$inner"
}

# Counts the worker's threads that wait for a disk or for a frozen file system.
blocked() { grep -lE '^State:.*D' "/proc/$worker/task"/*/status 2>/dev/null | wc -l; }
blocked_at_least() { [ "$(blocked)" -ge "$1" ]; }
# Names that do not exist: each lookup is a request to the daemon.
look_up() {
  local i
  for ((i = 0; i < 1000; i++)); do [ ! -e "$MNT/absent-$1-$i" ] || return 1; done
  [ "$(stat -c %s "$MNT/other")" = 6 ]
}
running() { local pid; for pid in "$@"; do ! gone "$pid" || return 1; done; }
requests() { field "$("$EFS" status --json "$NAME")" "d['counters']['requests']"; }

# begin NAME START_OPTIONS...: an instance on the inner disk, with a file `other` of 6 bytes and a
# large one.
begin() {
  fresh "$1" "backends: [ [ id: disk, type: NVRAM-NVML, daxfs: $inner ] ]" 'resources: []'; shift
  check "$NAME: start" "$EFS" start "$JOB" "$@"
  worker=$(field "$("$EFS" status --json "$NAME")" "d['worker_pid']")
  echo other >"$MNT/other"
  dd if=/dev/zero of="$MNT/large" bs=1M count=8 conv=fsync status=none
  before=$(requests)
}
# others_pass WHAT COUNT PIDS...: while COUNT threads are blocked, 1000 names are looked up.
others_pass() {
  local what=$1 count=$2; shift 2
  check "$NAME: $what blocks" await 30 blocked_at_least "$count"
  check "$NAME: 1000 names are looked up meanwhile" timeout 60 bash -c "$(declare -f look_up); MNT=$MNT look_up '$what'"
  check "$NAME: $what still blocks" running "$@"
  thaw
  local pid code
  for pid in "$@"; do
    wait "$pid"; code=$?
    check "$NAME: $what ends well" test $code -eq 0
  done
  pids=()
  check "$NAME: the daemon was asked" test $(($(requests) - before)) -ge 1000
}

if ! disks >/dev/null 2>&1; then
  skip 'slow requests' 'needs root, loop devices, ext4 and fsfreeze'
  finish
fi

begin fsync
dd if=/dev/zero of="$MNT/dirty" bs=1M count=4 status=none
freeze "$outer"
sync "$MNT/dirty" & pids=($!)
others_pass fsync 1 "${pids[@]}"
check 'fsync: stop' "$EFS" stop --no-stage-out fsync

begin write -o daemon-io
freeze "$inner"
pids=()
dd if=/dev/zero of="$MNT/large" bs=1M count=1 conv=notrunc status=none & pids+=($!)
dd if=/dev/zero of="$MNT/other" bs=1 count=1 seek=5 conv=notrunc status=none & pids+=($!)
others_pass 'large and small writes' 2 "${pids[@]}"
check 'write: stop' "$EFS" stop --no-stage-out write

umount "$inner"; umount "$outer"
finish
