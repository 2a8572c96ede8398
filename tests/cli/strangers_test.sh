#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Root and the instances of users: a silent instance, or one that lies, neither blocks root nor
# obtains other users' data.
#   strangers_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
if [ "$(id -u)" != 0 ] || ! id nobody >/dev/null 2>&1; then skip 'instances of users' 'needs root and the user nobody'; finish; fi
efs() { timeout 40 "$EFS" "$@"; }
stopped=
resume() { [ -z "$stopped" ] || kill -CONT $stopped 2>/dev/null; stopped=; }
trap 'resume; clean' EXIT
trap 'resume; clean; exit 130' INT TERM

# Directory order is arbitrary: of three other names, some come after the silent instance.
for name in one two three; do
  fresh $name
  started "$JOB"
  echo "of $name" >"$MNT/result"
done
fresh silent
chown -R nobody "$S/silent"
started -u nobody --mount-dir "$MNT" "$JOB"
stopped=$(field "$(status_of silent)" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')
kill -STOP $stopped
for name in one two three; do check_exit "efs status $name does not wait for a user's daemon that is stopped" 0 "$name: running" efs status $name; done
check_exit 'nor does a name that nobody has' 1 'no instance has the name' timeout 4 "$EFS" stop nosuch
check_exit 'a path asks it, not for long' 0 'two: running' efs status "$S/two/mnt"
resume

# --- a user whose socket claims to serve other instances ---
fresh liar
chown -R nobody "$S/liar"
started -u nobody --mount-dir "$MNT" "$JOB"
cd "$S/two" || exit 2
python3 -c '
import json, os, socket, sys
os.setgroups([])
os.setuid(int(sys.argv[3]))
path = sys.argv[1] + "/control.sock"
os.rename(path, path + ".true")
server = socket.socket(socket.AF_UNIX)
server.bind(path)
server.listen(8)
open(sys.argv[1] + "/lies", "w").close()
while True:
    peer = server.accept()[0]
    peer.recv(65536)
    peer.sendall((json.dumps({"event": "result", "ok": True, "state": "running", "mount": sys.argv[2], "job_file": sys.argv[2], "staged_out": True, "exit": 0}) + "\n").encode())
    peer.close()' "$EFS_RUNTIME_DIR/liar" "$S/two/two" "$(id -u nobody)" >/dev/null 2>&1 &
liar=$!
pids+=("$liar")
check 'a user whose socket lies' await 20 test -e "$EFS_RUNTIME_DIR/liar/lies"
check 'efs stop of a name that it claims' efs stop two
check 'stops the one of that name' grep -qx 'of two' "$S/two/out/result"
check_exit 'and when that is gone, none' 1 'no instance has the name' efs stop two
kill "$liar"; wait "$liar" 2>/dev/null
mv "$EFS_RUNTIME_DIR/liar/control.sock.true" "$EFS_RUNTIME_DIR/liar/control.sock"; rm -f "$EFS_RUNTIME_DIR/liar/lies"
cd "$S" || exit 2
for name in one three silent liar; do check "efs stop $name" efs stop $name; done
finish
