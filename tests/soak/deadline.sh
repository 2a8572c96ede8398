#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A stop with a deadline of an instance with many files: it ends within the deadline plus two
# seconds, and names only real obstacles. Then a start continues the store, alone and beside programs
# that use the processors. Uses real time, so it needs an otherwise idle machine; takes minutes.
#   deadline.sh BIN_DIR [COUNT]          as root, with some GiB of free memory
#   LATE=2: seconds beyond the deadline; BUSY=2: programs beside the second start; DEADLINES="1 5"
set -uo pipefail
COUNT=${2:-1000000}
LATE=${LATE:-2}
BUSY=${BUSY:-2}
CAPACITY=${CAPACITY:-16 GiB}
. "$(dirname "$0")/../cli/lib.sh" "${1:-build/bin}"

clock() { python3 -c 'import time; print(time.monotonic())'; }
since() { python3 -c 'import sys, time; print("%.1f" % (time.monotonic() - float(sys.argv[1])))' "$1"; }
at_most() { python3 -c 'import sys; sys.exit(float(sys.argv[1]) > float(sys.argv[2]))' "$1" "$2"; }
load() { cut -d' ' -f1-3 /proc/loadavg; }
make() { python3 - "$MNT" "$COUNT" <<'END'
import os, sys
mount, count = sys.argv[1], int(sys.argv[2])
for i in range(count):
    if i % 10000 == 0: os.mkdir(f"{mount}/d{i // 10000}")
    os.close(os.open(f"{mount}/d{i // 10000}/f{i}", os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))
END
}
count() { find "$MNT" -type f | wc -l; }
busy() { local i; for ((i = 0; i < BUSY; i++)); do (while :; do :; done) & pids+=($!); done; }
idle() { kill "${pids[@]}"; wait "${pids[@]}" 2>/dev/null; pids=(); }

# stop DEADLINE: is it gone in time?
stop() {
  local deadline=$1 before begin took said code
  before=$(load) begin=$(clock)
  said=$("$EFS" stop --keep --deadline "$deadline" "$NAME" 2>&1); code=$?
  took=$(since "$begin")
  echo "   stop --keep --deadline $deadline, $COUNT files: $took s (load $before)"
  check "deadline $deadline: in time" at_most "$took" $((deadline + LATE))
  check "deadline $deadline: no daemon is left behind it" no_daemon
  check "deadline $deadline: not all are back" test "$code" != 0
  check "deadline $deadline: the PFS is not blamed" bash -c '! grep -q "PFS did not answer" <<<"$1"' - "$said"
  check "deadline $deadline: the deadline is named" grep -q deadline <<<"$said"
  check_not "deadline $deadline: nothing was left behind" grep -qs 'event=left_without_pfs' "$log"
}
# start WORDS: a start on what was left has every file.
start() {
  local before begin took
  before=$(load) begin=$(clock)
  check "$1: a start goes on" "$EFS" start "$JOB"
  took=$(since "$begin")
  echo "   start on what was left, $1: $took s (load $before)"
}

for deadline in ${DEADLINES:-1 5}; do
  fresh "late$deadline" 'resources: []'
  started "$JOB"; log=$EFS_RUNTIME_DIR/$NAME/efsd.log
  check "$COUNT files" make
  stop "$deadline"
  start alone
  check "deadline $deadline: with every file" test "$(count)" = "$COUNT"
  stop "$deadline"
  busy
  start "beside $BUSY busy programs"
  idle
  check "deadline $deadline: with every file again" test "$(count)" = "$COUNT"
  check 'stop' "$EFS" stop --no-stage-out "$NAME"
done
finish
