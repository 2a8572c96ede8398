#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Ordinary users: a user's own mount through fusermount3, and an instance that root starts for a
# user.
#   user_test.sh BIN_DIR
set -uo pipefail
# A mount namespace with a /dev/fuse that every user may open, as on a machine that offers FUSE to
# users.
if [ "${EFS_TEST_NAMESPACE:-}" != yes ]; then EFS_TEST_NAMESPACE=yes exec "$(dirname "$0")/../own_mounts.py" bash "$0" "$@"; fi
unset EFS_TEST_NAMESPACE
. "$(dirname "$0")/../cli/lib.sh" "$@"

user=65534 stranger=65533
as() { local uid=$1; shift; setpriv --reuid "$uid" --regid "$uid" --clear-groups --inh-caps=-all env "$@"; }
own() { as $user EFS_RUNTIME_DIR="$S/u" "$@"; }        # the user with a separate runtime directory
his() { as $user EFS_RUNTIME_DIR="$S/r" "$@"; }        # the user in root's
owner() { stat -c %u:%g "$1"; }
# connect UID DIRECTORY: prints the control socket's answer to this user.
connect() {
  as "$1" python3 -c 'import socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(10); s.connect(sys.argv[1])
try: s.sendall(b"{\"verb\":\"status\"}\n")
except BrokenPipeError: pass
print(s.recv(65536).decode())' "$2/control.sock"
}
may_not_connect() {
  local text; text=$(connect $stranger "$1" 2>&1) && { echo "he may: $text"; return 1; }
  grep -q PermissionError <<<"$text" || { echo "$text"; return 1; }
}
# The daemon itself refuses too, if the directory admits another user.
is_refused() {
  local answer; chmod 755 "$(dirname "$1")" "$1" && chmod 666 "$1/control.sock" && answer=$(connect $stranger "$1" 2>&1); chmod 600 "$1/control.sock"; chmod 700 "$1"
  grep -q 'another user' <<<"$answer" && ! grep -q worker_pid <<<"$answer" || { echo "answer: $answer"; return 1; }
}
capabilities() { awk '/^CapEff/ {print $2}' "/proc/$1/status"; }
uids() { awk '/^Uid/ {print $2, $3, $4, $5}' "/proc/$1/status"; }
work() {  # COMMAND that runs as the user; then the job's work in $MNT
  check "$1: writes" "${@:2}" sh -c "echo mine >$MNT/mine && mkdir -m 750 $MNT/d && head -c 3M /dev/urandom >$MNT/d/big && mv $MNT/d/big $MNT/d/large && ln -s mine $MNT/link"
  check "$1: reads" "${@:2}" grep -qx mine "$MNT/mine"
  check "$1: reads inputs" "${@:2}" cmp "$PFS/input/sub/b" "$MNT/input/sub/b"
  cp "$MNT/d/large" "$S/large" 2>/dev/null || as $user cat "$MNT/d/large" >"$S/large"
}
results() {
  check "$1: results are back" grep -qx mine "$OUT/mine"
  check "$1: whole" cmp "$S/large" "$OUT/d/large"
  check "$1: results are the user's" test "$(owner "$OUT/mine") $(owner "$OUT/d") $(owner "$OUT/d/large")" = "$user:$user $user:$user $user:$user"
  check "$1: modes" test "$(stat -c %a "$OUT/d")" = 750
}

mkdir "$S/dev" && mount -t tmpfs -o mode=755,size=64k dev "$S/dev" && mknod -m 666 "$S/dev/fuse" c 10 229 && mount --bind "$S/dev/fuse" /dev/fuse ||
  { echo 'cannot make a /dev/fuse of our own' >&2; exit 2; }

# --- the user's own mount, through fusermount3 ---
mkdir -m 700 "$S/u" && chown $user:$user "$S/u"
if command -v fusermount3 >/dev/null && [ -u "$(command -v fusermount3)" ]; then
  # The daemon counts: the contents of a store do not reduce the available memory again.
  fresh counted; sed -i '/^backends:/,/capacity/d' "$JOB"
  chown -R $user:$user "$S/counted"
  check 'fusermount3: start without a capacity' own "$EFS" start --memory '300 MiB' "$JOB"
  if kernel_has_it; then
    before=$(own "$EFS" status --json counted)
    replaced() { json "$(own "$EFS" status --json counted)" "d['takeovers'] == 1 and d['capacity'] == $(field "$before" 'd["capacity"]')"; }
    check 'fusermount3: the capacity is half of the memory of the job' test $(($(field "$before" 'd["capacity"]') >> 20)) = 150
    kill -KILL "$(field "$before" 'd["worker_pid"]')"
    check 'fusermount3: a successor has the same' await 20 replaced
  fi
  check 'fusermount3: stop' own "$EFS" stop --no-stage-out counted
  fresh self
  chown -R $user:$user "$S/self"
  text=$(own "$EFS" start "$JOB" 2>&1); code=$?
  check "fusermount3: start ($text)" test $code -eq 0
  status=$(own "$EFS" status --json self)
  check "fusermount3: the daemon's path, and why" json "$status" "d['io'] == 'daemon' and 'root' in d['io_reason']"
  check 'fusermount3: the mount is nosuid,nodev' grep -q " $MNT fuse.efs [^ ]*nosuid,nodev" /proc/self/mounts
  check 'fusermount3: the worker is his' test "$(uids "$(field "$status" 'd["worker_pid"]')")" = "$user $user $user $user"
  check 'fusermount3: the supervisor is his' test "$(capabilities "$(field "$status" 'd["supervisor_pid"]')")" = 0000000000000000
  work fusermount3 own
  check_not 'fusermount3: a stranger does not get in' as $stranger ls "$MNT"
  check 'fusermount3: a stranger cannot connect' may_not_connect "$S/u/self"
  check 'fusermount3: nor where the directory is open' is_refused "$S/u/self"
  check 'fusermount3: a full buffer is ENOSPC' own python3 -c 'import errno, os, sys
fd = os.open(sys.argv[1], os.O_CREAT | os.O_WRONLY)
try:
    while True: os.write(fd, bytes(1 << 20))
except OSError as e: assert e.errno == errno.ENOSPC, e
os.unlink(sys.argv[1])' "$MNT/full"
  own sh -c "cd $MNT && echo \$\$ >$S/u/held && exec sleep 1000" & job=$!
  await 10 test -s "$S/u/held"; holder=$(cat "$S/u/held"); pids+=("$holder")
  check_exit 'fusermount3: stop of a busy mount names the holder' 1 "$holder sleep" own "$EFS" stop self
  { kill "$holder"; wait $job; } 2>/dev/null; pids=(); rm "$S/u/held"
  check 'fusermount3: stop' own "$EFS" stop self
  results fusermount3
  check 'fusermount3: nothing is left' bash -c "! grep -qF ' $MNT ' /proc/self/mounts && [ -z \"\$(ls -A $S/u)\" ] && ! ls -d /dev/shm/efs-$user-self"
  check 'fusermount3: no daemon is left' no_daemon "$S/u"

  check_exit "fusermount3: run gives the program's code" 5 . own "$EFS" run "$JOB" -- sh -c 'echo again >"$EFS_MOUNT/again"; exit 5'
  check 'fusermount3: and its results' grep -qx again "$OUT/again"

  check 'fusermount3: start once more' own "$EFS" start "$JOB"
  own sh -c "echo outside >$MNT/outside"
  check 'fusermount3 -u from outside' own fusermount3 -u "$MNT"
  check 'stages out and ends' await 20 test ! -e "$S/u/self"
  check 'with the results' grep -qx outside "$OUT/outside"

  check 'fusermount3: start for a kill' own "$EFS" start "$JOB"
  status=$(own "$EFS" status --json self); supervisor=$(field "$status" 'd["supervisor_pid"]')
  kill -KILL "$(field "$status" 'd["worker_pid"]')"
  taken_over() { json "$(own "$EFS" status --json self)" "d['takeovers'] == 1 and d['state'] == 'running' and d['supervisor_pid'] == $supervisor"; }
  check 'fusermount3: kill -9 of the worker: another one takes over' await 20 taken_over
  check 'fusermount3: the mount goes on' timeout 20 setpriv --reuid $user --regid $user --clear-groups sh -c "echo after >$MNT/after && grep -qx after $MNT/after"
  nproc() { own prlimit --pid "$supervisor" --nproc="$1:"; }
  most=$(sed -n 's/^Max processes *[0-9a-z]* *\([0-9a-z]*\).*/\1/p' "/proc/$supervisor/limits")
  check 'fusermount3: no process can be had for a successor' nproc 1
  kill -KILL "$(field "$(own "$EFS" status --json self)" 'd["worker_pid"]')"
  check 'fusermount3: it is waited for' await 20 grep -q 'event=no_worker .*fork' "$S/u/self/efsd.log"
  check 'fusermount3: until there is one' nproc "$most"
  check 'fusermount3: and the mount goes on' timeout 20 setpriv --reuid $user --regid $user --clear-groups grep -qx after "$MNT/after"
  check 'fusermount3: and stops' own "$EFS" stop --no-stage-out self

  check 'fusermount3: start for the end of both' own "$EFS" start "$JOB"
  own sh -c "echo left >$MNT/left"
  status=$(own "$EFS" status --json self)
  kill -KILL "$(field "$status" 'd["supervisor_pid"]')" "$(field "$status" 'd["worker_pid"]')"
  of_users() { EFS_RUNTIME_DIR="$S/u" "$EFS" "$@"; }
  has_died() { json "$(of_users status --json self)" "d['state'] == 'dead'"; }
  check 'fusermount3: it is dead' await 20 has_died
  check "fusermount3: root's salvage" of_users salvage self
  check 'fusermount3: brings the result' grep -qx left "$OUT/left"
  check "fusermount3: root's clean" of_users clean self
  check "fusermount3: takes the user's dead mount as well" bash -c "! grep -qF ' $MNT ' /proc/self/mounts"

  mkdir "$S/foreign"
  check_exit 'fusermount3: a mount point that is not his' 1 "$S/foreign" own "$EFS" start -m "$S/foreign" "$JOB"
  check 'leaves nothing' bash -c "[ -z \"\$(ls -A $S/u)\" ] && ! ls -d /dev/shm/efs-$user-self"
else
  skip 'a mount through fusermount3' 'no set-uid fusermount3'
fi

# --- results that their owner may not read ---
# unreadable NAME [START-OPTION...]: they are checked and exported, and recognised after their
# export.
unreadable() {
  local how=$1; shift
  fresh "$how"; chown -R $user:$user "$S/$how"; mkdir -p "$MNT"; chown $user:$user "$MNT"
  sed -i '/^global-settings:/a\  verify: read-back' "$JOB"
  check "$how: start" "$EFS" start --user $user "$JOB"
  his sh -c "cd $MNT && echo secret >z && chmod 0 z && echo drop >w && chmod 200 w && echo plain >n"
  check "$how: unload, with a look at what the PFS has" his "$EFS" unload -i "$how" -w z w n
  his sh -c "chmod 600 $MNT/z && echo more >>$MNT/z && chmod 0 $MNT/z"
  kill_both "$how"
  check "$how: salvage" his "$EFS" salvage "$how"
  check "$how: and once more, over what is there" his "$EFS" salvage "$how"
  check "$how: start again" "$EFS" start --user $user "$JOB"
  check_exit "$how: stop" 0 complete "$EFS" stop "$how"
  check "$how: all is back" test "$(cat "$OUT"/[zwn] | sort | tr '\n' ' ')" = 'drop more plain secret '
  check "$how: with its modes" test "$(stat -c %a "$OUT"/[nwz] | tr '\n' ' ')" = '644 200 0 '
}
unreadable modes

# In place, such results are inputs too.
for how in unloaded salvaged; do
  fresh "in-place-$how" 'resources: [ [ path: input, flags: persistent ] ]'
  sed -i 's|results-dir: .*|in-place: true|' "$JOB"; chown -R $user:$user "$S/$NAME"; mkdir -p "$MNT"; chown $user:$user "$MNT"
  check "$NAME: start" "$EFS" start --user $user "$JOB"
  his sh -c "cd $MNT/input && echo one >>a && chmod 0 a && echo one >>sub/b && chmod 0 sub/b"
  [ $how = salvaged ] || check "$NAME: unload" his "$EFS" unload -i "$NAME" -w input/a
  kill_both "$NAME"
  [ $how = unloaded ] || check "$NAME: salvage" his "$EFS" salvage "$NAME"
  check "$NAME: start again" "$EFS" start --user $user "$JOB"
  his sh -c "cd $MNT/input && chmod 600 a && echo two >>a && chmod 0 a && chmod 600 sub/b && echo two >>sub/b"
  check_exit "$NAME: stop" 0 complete "$EFS" stop "$NAME"
  check "$NAME: all is back" test "$(cat "$PFS/input/a" "$PFS/input/sub/b" | tr '\n' ' ')" = 'alpha one two beta one two '
  check "$NAME: with its modes" test "$(stat -c %a "$PFS/input/a" "$PFS/input/sub/b" | tr '\n' ' ')" = '0 600 '
done
fresh in-place-others 'resources: [ [ path: input, flags: persistent ] ]'
sed -i 's|results-dir: .*|in-place: true|' "$JOB"; chown -R $user:$user "$S/$NAME"; mkdir -p "$MNT"; chown $user:$user "$MNT"
check "$NAME: start" "$EFS" start --user $user "$JOB"
kill_both "$NAME"; chmod 0 "$PFS/input/a"
check_exit "$NAME: what the job has not changed is no start" 1 'input/a: is not readable' "$EFS" start --user $user "$JOB"
chmod 644 "$PFS/input/a"; check "$NAME: clean" "$EFS" clean --force "$NAME"

# --- root starts for the user ---
fresh given
mkdir "$MNT"; chown $user:$user "$MNT" "$OUT"
text=$("$EFS" start --user $user -o suid,dev "$JOB" 2>&1); code=$?
check "--user: start ($text)" test $code -eq 0
status=$("$EFS" status --json given)
check '--user: passthrough' json "$status" "d['io'] == 'passthrough'"
worker=$(field "$status" 'd["worker_pid"]') supervisor=$(field "$status" 'd["supervisor_pid"]')
check '--user: the worker is him' test "$(uids "$worker")" = "$user $user $user $user"
check '--user: the worker has no capability' test "$(capabilities "$worker")" = 0000000000000000
check '--user: nor can it get one' test "$(awk '/^Cap(Prm|Inh|Amb)/ {printf "%s ", $2}' "/proc/$worker/status")" = '0000000000000000 0000000000000000 0000000000000000 '
check '--user: nor has it groups of root' test -z "$(awk '/^Groups/ {$1 = ""; gsub(/ /, ""); print}' "/proc/$worker/status" | sed "s/^$user$//")"
check '--user: the supervisor has only CAP_SYS_ADMIN in effect' test "$(capabilities "$supervisor")" = 0000000000200000
check '--user: not set-uid nor devices whatever -o says' grep -q " $MNT fuse.efs [^ ]*nosuid,nodev" /proc/self/mounts
work --user his
check '--user: files are his' test "$(owner "$MNT/mine") $(owner "$MNT/d/large")" = "$user:$user $user:$user"
check '--user: I/O did not reach the daemon' json "$("$EFS" status --json given)" "d['counters']['passthrough_opens'] > 0 and d['counters']['written_bytes'] == 0"
check_not '--user: a stranger cannot write' as $stranger sh -c "echo x >$MNT/mine"
check_not '--user: a stranger cannot read what is private' as $stranger cat "$MNT/d/large"
check '--user: a stranger cannot connect' may_not_connect "$EFS_RUNTIME_DIR/given"
check '--user: nor where the directory is open' is_refused "$EFS_RUNTIME_DIR/given"
check_exit '--user: a stranger cannot stop it' 1 given as $stranger "EFS_RUNTIME_DIR=$S/r" "$EFS" stop given
check '--user: he sees it' json "$(his "$EFS" status --json given)" "d['state'] == 'running'"
check '--user: he can stop it' his "$EFS" stop given
results --user

check_exit '--user: run runs as him' 0 "^$user $user 0000000000000000\$" "$EFS" run --user $user "$JOB" -- sh -c 'echo $(id -u) $(id -g) $(awk "/^CapEff/ {print \$2}" /proc/self/status); echo run >"$EFS_MOUNT/run"'
check '--user: with his results' test "$(owner "$OUT/run")" = $user:$user
check '--user: run by name' "$EFS" run --user nobody "$JOB" -- true

umount /dev/fuse; umount "$S/dev"
finish
