#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The rights of each process and thread of an instance: compares the table in docs/dev/privileges.md
# with /proc.
#   rights_test.sh BIN_DIR
set -uo pipefail
# As user_test.sh: a mount namespace with a /dev/fuse that every user may open.
if [ "${EFS_TEST_NAMESPACE:-}" != yes ]; then EFS_TEST_NAMESPACE=yes exec "$(dirname "$0")/../own_mounts.py" bash "$0" "$@"; fi
unset EFS_TEST_NAMESPACE
. "$(dirname "$0")/../cli/lib.sh" "$@"

user=65534 keeper_user=5
table=$SOURCE/docs/dev/privileges.md
rights() { python3 "$SOURCE/tests/mount/rights.py" "${README:-$table}" "$@"; }
keeper_of() {  # the child of the worker that is no thread of it
  local child; for child in $(cat /proc/"$1"/task/*/children); do echo "$child"; return; done; return 1
}
processes() {  # processes NAME COLUMN USER STATUS
  check "$1: the supervisor" rights "$2" supervisor "$(field "$4" 'd["supervisor_pid"]')" "$3"
  check "$1: the worker" rights "$2" worker "$(field "$4" 'd["worker_pid"]')" "$3"
}

# --- root starts for a user, with a queue, so there is a keeper too ---
mkdir "$S/queue" && chown $keeper_user "$S/queue"
fresh given; mkdir "$MNT"; chown $user:$user "$MNT" "$OUT"
check 'for a user: start' "$EFS" start --user $user --interleaving "$S/queue" "$JOB"
status=$("$EFS" status --json given)
processes 'for a user' 1 $user "$status"
check 'for a user: the keeper' rights 1 keeper "$(keeper_of "$(field "$status" 'd["worker_pid"]')")" $keeper_user
# The comparison detects differences.
sed 's/^| in effect | CAP_SYS_ADMIN |/| in effect | none |/' "$table" >"$S/less.md"
README=$S/less.md check_not 'a right that the table does not name is noticed' rights 1 supervisor "$(field "$status" 'd["supervisor_pid"]')" $user
sed 's/; gid likewise |/ |/' "$table" >"$S/less.md"
README=$S/less.md check_not 'so is a group' rights 1 supervisor "$(field "$status" 'd["supervisor_pid"]')" $user
check_not 'and whose groups they are' rights 1 worker "$(field "$status" 'd["worker_pid"]')" $keeper_user
kill -KILL "$(field "$status" 'd["worker_pid"]')"
replaced() { json "$("$EFS" status --json given)" "d['takeovers'] == 1"; }
check 'for a user: a successor' await 20 replaced
processes 'for a user, after a takeover' 1 $user "$("$EFS" status --json given)"
check 'for a user: stop' "$EFS" stop given
# A queue of root. The table has a row for its keeper.
roots_keeper='keeper, where root owns the queue'\''s directory'
mkdir "$S/roots-queue"
check 'for a user, in a queue of root'\''s: start' "$EFS" start --user $user --interleaving "$S/roots-queue" "$JOB"
check 'for a user, in a queue of root'\''s: the keeper' rights 1 "$roots_keeper" "$(keeper_of "$(field "$("$EFS" status --json given)" 'd["worker_pid"]')")" 0
check 'for a user, in a queue of root'\''s: stop' "$EFS" stop given

# During stage-in, unload and stage-out: the working threads have no more rights.
fresh busy; mkdir "$MNT"; chown $user:$user "$MNT" "$OUT"
sed -i '/results-dir/a\  max-rate: 1 MB/s' "$JOB"
for i in 1 2 3; do head -c 2000000 /dev/urandom >"$PFS/input/large$i"; done
in_state() { json "$("$EFS" status --json busy)" "d['state'] == '$1'"; }
"$EFS" start --user $user "$JOB" >"$S/busy/said" 2>&1 & starter=$!; pids+=($starter)
check 'staging in: it does' await 20 in_state staging-in
processes 'staging in' 1 $user "$("$EFS" status --json busy)"
check 'staging in: still' in_state staging-in
wait $starter; code=$?; pids=()
check 'staging in: it is done' test $code = 0
for i in 1 2 3 4 5; do head -c 2000000 /dev/urandom | setpriv --reuid $user --regid $user --clear-groups tee "$MNT/new$i" >/dev/null; done
task=$("$EFS" unload -i busy new1 new2)
processes 'unloading' 1 $user "$("$EFS" status --json busy)"
check 'unloading: still' json "$("$EFS" status --json busy)" "[t['task_state'] for t in d['tasks']] == ['running']"
check 'unloading: it is done' "$EFS" wait -i busy "$task"
"$EFS" stop busy >"$S/busy/said" 2>&1 & stopper=$!; pids+=($stopper)
check 'staging out: it does' await 20 in_state staging-out
processes 'staging out' 1 $user "$("$EFS" status --json busy)"
check 'staging out: still' in_state staging-out
wait $stopper; code=$?; pids=()
check 'staging out: it is done' test $code = 0

fresh program; mkdir "$MNT"; chown $user:$user "$MNT" "$OUT"
mkfifo "$S/program/go"; chmod 666 "$S/program/go"
"$EFS" run --user $user "$JOB" -- sh -c 'echo $$ >"$EFS_MOUNT/pid"; read -r _' <"$S/program/go" >"$S/program/said" 2>&1 & runner=$!; pids+=($runner)
exec 6>"$S/program/go"
check 'for a user: a program runs' await 20 test -s "$MNT/pid"
check 'for a user: the program' rights 1 program "$(cat "$MNT/pid")" $user
for private in "" /store /store/data /store/meta /control.sock /status.json /job.yaml /efsd.log /store/meta/journal; do
  check "for a user: .$private is his alone" eval '[[ $(stat -c "%u %a" "$EFS_RUNTIME_DIR/program$private") =~ ^"$user "[67]00$ ]]'
done
exec 6>&-
wait $runner; code=$?; pids=()
check 'for a user: efs run' test $code = 1   # read met the end

# --- root starts for root ---
fresh roots
check 'for root: start' "$EFS" start --interleaving "$S/queue" "$JOB"
status=$("$EFS" status --json roots)
processes 'for root' 2 0 "$status"
check 'for root: the keeper' rights 2 keeper "$(keeper_of "$(field "$status" 'd["worker_pid"]')")" $keeper_user
check 'for root: stop' "$EFS" stop roots
check 'for root, in a queue of root'\''s: start' "$EFS" start --interleaving "$S/roots-queue" "$JOB"
check 'for root, in a queue of root'\''s: the keeper' rights 2 "$roots_keeper" "$(keeper_of "$(field "$("$EFS" status --json roots)" 'd["worker_pid"]')")" 0
check 'for root, in a queue of root'\''s: stop' "$EFS" stop roots

# --- an ordinary user starts ---
if command -v fusermount3 >/dev/null && [ -u "$(command -v fusermount3)" ] && mkdir "$S/dev" && mount -t tmpfs -o mode=755,size=64k dev "$S/dev" && mknod -m 666 "$S/dev/fuse" c 10 229 && mount --bind "$S/dev/fuse" /dev/fuse; then
  mkdir -m 700 "$S/u" && chown $user:$user "$S/u"
  own() { setpriv --reuid $user --regid $user --clear-groups --inh-caps=-all env EFS_RUNTIME_DIR="$S/u" "$@"; }
  fresh self; chown -R $user:$user "$S/self"
  chmod 711 "$S"; chmod 777 "$S/roots-queue"
  for queue in queue roots-queue; do
    role=keeper; [ $queue = queue ] || role=$roots_keeper
    chmod 777 "$S/$queue"
    check "by a user, in $queue: start" own "$EFS" start --interleaving "$S/$queue" "$JOB"
    status=$(own "$EFS" status --json self)
    processes "by a user, in $queue" 3 $user "$status"
    keeper=$(keeper_of "$(field "$status" 'd["worker_pid"]')")
    check "by a user, in $queue: the keeper" rights 3 "$role" "$keeper" $user
    check "by a user, in $queue: stop" own "$EFS" stop self
  done
  umount /dev/fuse; umount "$S/dev"
else
  skip 'an instance of an ordinary user' 'no set-uid fusermount3, or no /dev/fuse for him'
fi
finish
