#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# limit-read, limit-write and limit-ops: requests wait, contents stay whole, efs limit changes the
# limits while programs run, a successor keeps them. tests/unit/fuse/limits_test.cpp checks the rates.
#   rates_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

limits() { field "$(status_of "$NAME")" "d['limits']['$1']"; }
worker() { field "$(status_of "$NAME")" "d['worker_pid']"; }
waits() { [ "$(limits delayed)" -gt "${1:-0}" ]; }
replaced() { json "$(status_of "$NAME")" 'd["takeovers"] == 1'; }

fresh free 'resources: []'
started "$JOB"
check_exit 'a mount without limits' 1 'limit-write' "$EFS" limit -i free write=5MB/s
check 'stop' "$EFS" stop free

fresh limited 'resources: [ [ path: input, flags: persistent ] ]'
head -c 3M /dev/urandom >"$PFS/input/data"
check_exit 'collected writes would pass a limit unseen' 2 'writeback' "$EFS" start "$JOB" -o writeback --set limit-write=1MiB/s
check_exit 'a limit below a request' 2 'limit-read' "$EFS" start "$JOB" --set limit-read=1KiB/s
started --set limit-write=1MiB/s --set limit-ops=100000/s "$JOB"
check 'the daemon serves all' json "$(status_of limited)" "d['io'] == 'daemon' and 'limited' in d['io_reason']"
check 'no limit: read' cmp "$PFS/input/data" "$MNT/input/data"
check 'limits are shown' test "$("$EFS" limit -i limited | tr '\n' ' ')" = 'read none write 1 MiB/s ops 100000/s '
for word in write write= write=slow speed=1 read=1 ops=none/s; do
  check_exit "efs limit $word" 1 'none|range|size|limit' "$EFS" limit -i limited "$word"
done
check 'the same limits' test "$(limits write)" = 1048576

# 60 MiB would take a minute.
dd if=/dev/zero of="$MNT/input/zeros" bs=1M count=60 2>/dev/null & writer=$!; pids+=("$writer")
check 'writes wait' await 20 waits
check 'reads do not' cmp "$PFS/input/data" "$MNT/input/data"
kill -9 "$(worker)"
check 'a successor comes' await 20 replaced
check 'with the limits' test "$(limits write)" = 1048576
check 'writes wait there, too' await 20 waits "$(limits delayed)"
check 'the limit is removed' "$EFS" limit -i limited write=none read=1GiB/s
wait "$writer" && ok || fail 'what waited goes on'; pids=()
check 'nothing is lost' test "$(stat -c %s "$MNT/input/zeros")" = $((60 << 20))
check 'contents' cmp -n $((60 << 20)) "$MNT/input/zeros" /dev/zero
check 'the limits have changed' test "$(limits write) $(limits read)" = "0 $((1 << 30))"
check 'as it was' "$EFS" limit -i limited write=1MiB/s
before=$(limits delayed)
check 'showing the limits, or the same value, changes nothing' "$EFS" limit -i limited write=1MiB/s
check_exit 'a request without sense changes nothing' 2 'EINVAL|whole number|limit' python3 -SE -c 'import json, socket, sys
control = socket.socket(socket.AF_UNIX); control.connect(sys.argv[1])
control.sendall(b"{\"verb\": \"limit\", \"write\": 0, \"read\": 1}\n")
answer = json.loads(control.makefile().readline()); print(answer["error"]); sys.exit(answer["exit"] and 2)' "$EFS_RUNTIME_DIR/limited/control.sock"
check 'the limit of writes stays' test "$(limits write)" = 1048576
# At 1 MiB/s what a program in another mount namespace has stored would need 30 s.
mkfifo "$S/stored" "$S/never"
"$SOURCE/tests/own_mounts.py" --keep "$MNT" python3 -SE -c 'import mmap, sys
f = open(sys.argv[1], "w+b"); f.truncate(30 << 20); m = mmap.mmap(f.fileno(), 30 << 20)
for i in range(30): m[i << 20:(i + 1) << 20] = bytes([i]) * (1 << 20)
print("stored", flush=True); sys.stdin.read()' "$MNT/input/mapped" <>"$S/never" >"$S/stored" & pids+=($!)
check 'a program stores through a mapping' grep -q stored "$S/stored"
check 'a stop lifts the limits' "$EFS" stop --cut-off --deadline 24 limited
kill -KILL "${pids[@]}"; wait "${pids[@]}" 2>/dev/null; pids=()
check 'what was mapped' python3 -SE -c 'import sys
data = open(sys.argv[1], "rb").read()
sys.exit(len(data) != 30 << 20 or any(data[i << 20] != i or data[(i << 20) + 4096] != i for i in range(30)))' "$OUT/input/mapped"
check 'the result' cmp -n $((60 << 20)) "$OUT/input/zeros" /dev/zero
finish
