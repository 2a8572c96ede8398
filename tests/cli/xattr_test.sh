#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Extended attributes of inputs, and a mount without them (xattr: off).
#   xattr_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# attribute PATH CALL: the value of user.k, or the error, of a call of Python's os
attribute() {
  python3 -SE -c 'import errno, os, sys
try: print({"get": lambda: os.getxattr(sys.argv[1], "user.k").decode(),
            "set": lambda: os.setxattr(sys.argv[1], "user.k", b"new"),
            "remove": lambda: os.removexattr(sys.argv[1], "user.k"),
            "list": lambda: os.listxattr(sys.argv[1])}[sys.argv[2]]())
except OSError as problem: print("refused" if problem.errno == errno.EOPNOTSUPP else problem)' "$@"
}
# asked OPERATION: how many requests reached the daemon
asked() { field "$(status_of "$NAME")" "d['counters']['operations'].get('$1', {'count': 0})['count']"; }
input() {
  echo x >"$PFS/input/a"
  python3 -SE -c 'import os, sys; os.setxattr(sys.argv[1], "user.k", b"v")' "$PFS/input/a" 2>/dev/null
}
work() {
  local i
  for i in $(seq 100); do echo "$i" >"$MNT/f$i" || return 1; done
  ls -l "$MNT" >/dev/null
}

fresh on 'resources: [ [ path: input, flags: persistent ] ]'
input || { skip 'extended attributes' 'the file system of the test has none'; finish; }
started "$JOB"
check 'by default a program reads the attribute' test "$(attribute "$MNT/input/a" get)" = v
check 'stop' "$EFS" stop --no-stage-out on

fresh off 'resources: [ [ path: input, flags: persistent ] ]'
input; sed -i 's|^\( *\)results-dir: .*|&\n\1xattr: off|' "$JOB"
check 'the job file says so' grep -q 'xattr: off' "$JOB"
started "$JOB"
for call in get set remove list; do
  check "a program cannot $call an attribute" test "$(attribute "$MNT/input/a" "$call")" = refused
done
check 'files are written and listed' work
for operation in getxattr listxattr setxattr removexattr; do
  check "the kernel asks once at most: $operation" test "$(asked $operation)" -le 1
done
worker=$(field "$(status_of off)" "d['worker_pid']")
kill -KILL "$worker"
check 'a successor takes over' await 20 eval '[ "$(field "$(status_of off)" "d[\"takeovers\"]")" = 1 ]'
check 'it has no attributes either' test "$(attribute "$MNT/input/a" get)" = refused
mv "$MNT/input/a" "$MNT/renamed"
check 'stop of the mount without attributes' "$EFS" stop off
check 'the attribute arrives with the input' test "$(attribute "$OUT/renamed" get)" = v
finish
