#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# No backing id is free: the daemon serves small files that are only read, and nobody sees old data.
#   full_table_test.sh BIN_DIR
# The machine seems to have as many open files as it may have: the instance keeps 256 ids.
set -uo pipefail
[ "$(id -u)" = 0 ] && [ -z "${EFS_FULL_TABLE:-}" ] && EFS_FULL_TABLE=1 exec "$(dirname "$0")/../own_mounts.py" "$0" "$@"
. "$(dirname "$0")/../cli/lib.sh" "$@"
files=2000

[ "$(id -u)" = 0 ] && kernel_has_it || { skip 'a full table' 'no passthrough on this kernel, or not root'; finish; }

printf '1000\t0\t1000\n' >"$S/file-nr" && printf '1000\n' >"$S/file-max"
mount --bind "$S/file-nr" /proc/sys/fs/file-nr && mount --bind "$S/file-max" /proc/sys/fs/file-max ||
  { fail 'bind mounts over /proc/sys/fs'; finish; }

counter() { field "$(status_of "$NAME")" "d['counters']['$1']"; }
remember() { through=$(counter passthrough_opens) on_daemon=$(counter daemon_opens) bytes=$(counter read_bytes); }
by_daemon() { echo $(($(counter daemon_opens) - on_daemon)); }

# program NAME [ARG...]: runs a part of full_table.py on the mount.
program() { local part=$1; shift; python3 "$(dirname "$0")/full_table.py" "$part" "$MNT" $files "$@"; }

fresh full 'resources: []'
started "$JOB" || finish
check 'files are made' program make

remember
check 'all are read' program read
check 'most by the daemon' test "$(by_daemon)" -gt $((files / 2))
check 'some are registered' test "$(counter passthrough_opens)" -gt "$through"
check 'the daemon has read them' test $(($(counter read_bytes) - bytes)) -gt $((files / 2 * 8))
remember
check 'all are read again' program read
check 'most by the daemon again' test "$(by_daemon)" -gt $((files / 2))
check 'of which the kernel has kept most' test $(($(counter read_bytes) - bytes)) -lt $((files / 4 * 8))

remember
check 'each reader sees the last write' program alternate
check 'reads took the daemon'"'"'s path' test "$(by_daemon)" -gt $((files / 2))
check 'writes were passed through' test "$(counter passthrough_opens)" -gt $((through + files / 2))

remember
check 'a mapping that outlives its open is seen' program map
check 'because all of it was passed through' test "$(by_daemon)" = 0

# Only small files that are only read take the daemon's path.
check 'large files are made' program make_large
check 'their ids go to others' program take_ids
remember
check 'large files are read' program read_large
check 'files are appended to' program append
check 'all of it was passed through' test "$(by_daemon)" = 0

# The successor keeps what is open on the daemon's path there.
mkfifo "$S/hold"
remember
program hold "$S/hold" "$S/held" >"$S/said" 2>&1 & reader=$!; pids+=("$reader")
check 'files are open' await 20 test -e "$S/held"
check "on the daemon's path" test "$(by_daemon)" -gt 50
kill -KILL "$(field "$(status_of "$NAME")" 'd["worker_pid"]')"
check 'a successor is there' await 20 eval 'json "$(status_of "$NAME")" "d[\"takeovers\"] == 1"'
remember
echo >"$S/hold"
wait "$reader"; code=$?; pids=()
check "the readers see the writes: $(cat "$S/said")" test $code = 0
check "which took the daemon's path" test "$(by_daemon)" -gt 50
check 'stop' "$EFS" stop --no-stage-out "$NAME"
finish
