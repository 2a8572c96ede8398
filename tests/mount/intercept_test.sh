#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# libefs-intercept: a program with it must see what it sees without it (tests/intercept/cases.cpp),
# on the kernel's path and on the daemon's; and what a stop, a takeover and a dead mount do to it.
#   intercept_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
LIBRARY=$BIN/../lib/libefs-intercept.so
CASES=$BIN/efs-intercept-cases
if [ ! -e "$LIBRARY" ]; then skip 'interception' 'the library is built for x86-64 only'; finish; fi

# with COMMAND...: with the library. It says at the end what it served, in $S/served.
with() { LD_PRELOAD=$LIBRARY EFS_INTERCEPT_AFTER=32 EFS_INTERCEPT=stats EFS_INTERCEPT_STATS=$S/served "$@"; }
# each KIND COMMAND...: every case of the program as one check.
each() {
  local kind=$1 line text; shift
  text=$("$@" timeout 120 "$CASES" "$MNT/cases" "$kind" 2>&1) || fail "$NAME, $kind: the program" "exit $?"
  while read -r line; do
    case $line in
      'not ok line '*) echo "     $line" ;;
      'not ok '*) fail "$NAME, $kind: ${line#not ok }" ;;
      'ok '*) ok ;;
      *) fail "$NAME, $kind: a line that is none" "$line" ;;
    esac
  done <<<"$text"
}
# Prints reads, writes and calls of the kernel of the line of the program: served NAME.
served() { sed -nE "s/^efs-intercept: $1\[[0-9]+\]: reads ([0-9]+) .* writes ([0-9]+) .* kernel ([0-9]+) .*/\1 \2 \3/p" "$S/served" | sort -n | tail -n 1; }
# hold: a program with the library that keeps $MNT/held mapped. It reads a line, answers what byte 0
# of the file is, or the error, and writes its own byte to byte 1.
hold() {
  mkfifo "$S/$NAME/tell" "$S/$NAME/said" || return
  head -c 65536 /dev/zero >"$MNT/held" || return
  with python3 -SE "$SOURCE/tests/mount/intercept.py" "$MNT/held" <"$S/$NAME/tell" >"$S/$NAME/said" 2>"$S/$NAME/errors" & holder=$!; pids+=("$holder")
  exec 7>"$S/$NAME/tell" 8<"$S/$NAME/said"
  [ "$(said)" = mapped ]
}
# grown: a program maps a file, another one makes it longer, and the first reads behind the old end.
grown() {
  with python3 -SE - "$MNT/grown" <<'PY'
import os, subprocess, sys
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.pwrite(fd, bytes(4096), 0)
for _ in range(64):
    os.pread(fd, 10, 0)
subprocess.run(["dd", "if=/dev/zero", "of=" + sys.argv[1], "bs=4k", "count=100", "conv=notrunc", "status=none"], check=True)
for number in range(4000):
    assert os.pread(fd, 90, 8192 + number * 90) == bytes(90)
PY
}
said() { local line; read -r -t 60 line <&8; echo "$line"; }
ask() { echo more >&7; said; }
here() { local name=$1; shift; if "$@"; then ok; else fail "$name" "$* gave $?
$(cat "$S/$NAME/errors" 2>/dev/null)"; fi; }
let_go() { exec 7>&-; wait "$holder"; exec 8<&-; pids=(); }
worker() { field "$(status_of "$NAME")" "d['worker_pid']"; }

if ! kernel_has_it; then skip 'writes by memory' 'the kernel has no passthrough'; fi

fresh doors 'resources: []'
CAPACITY='256 MiB'
started "$JOB"
mkdir "$MNT/cases"
each plain env
kind=reads; json "$(status_of doors)" "d['io'] == 'passthrough'" 2>/dev/null && kind=served
each "$kind" with
read -r reads writes kernel < <(served efs-intercept-cases)
check 'most reads are served' test "${reads:-0}" -gt 1000
[ "$kind" = reads ] || check 'and writes' test "${writes:-0}" -gt 1000
check 'a file that another program has made longer' grown
read -r reads _ < <(served python3)
check 'is served' test "${reads:-0}" -gt 3500
check 'verify: no read differs' eval 'LD_PRELOAD=$LIBRARY EFS_INTERCEPT_AFTER=32 EFS_INTERCEPT=verify EFS_INTERCEPT_STATS=$S/verified timeout 60 "$CASES" "$MNT/cases" "$kind" "both doors" && grep -q "different 0" "$S/verified"'
check 'off: nothing is served' eval 'LD_PRELOAD=$LIBRARY EFS_INTERCEPT=off timeout 60 "$CASES" "$MNT/cases" plain "both doors"'
check 'skip: nothing is served' eval 'LD_PRELOAD=$LIBRARY EFS_INTERCEPT_SKIP=git,efs-intercept-cases timeout 60 "$CASES" "$MNT/cases" plain "both doors"'

here 'a program maps a file' hold
check_exit 'a stop names the program' 1 'python3' "$EFS" stop --deadline 3 doors
check 'the job goes on' test "$(ask)" = 0
kill -9 "$(worker)"
check 'a takeover: the program goes on' test "$(ask)" = 1
check 'a truncation after it is seen' eval 'truncate -s 0 "$MNT/held" && truncate -s 65536 "$MNT/held" && [ "$(ask)" = 0 ]'
here 'the program closes its file and stays' test "$(echo close >&7; said)" = closed
check 'then it does not hold up the stop' "$EFS" stop --no-stage-out doors
let_go

fresh dead 'resources: []'
started "$JOB"
here 'a program maps a file' hold
check 'it is served' test "$(ask)" = 0
kill_both dead
check 'a dead mount: no store after a moment' test "$(echo dead >&7; said)" = unmapped
let_go
clean dead

fresh daemon 'resources: []'
started "$JOB" -o daemon-io
mkdir "$MNT/cases"
each reads with
check 'daemon: stop' "$EFS" stop --no-stage-out daemon
finish
