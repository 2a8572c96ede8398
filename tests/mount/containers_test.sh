#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A mount inside containers of bubblewrap, as docs/containers.md says: contents, results, rights, and
# stops while a container has the mount.
#   containers_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
command -v bwrap >/dev/null || { skip 'a mount in containers' 'bubblewrap is not installed (make programs-deps)'; finish; }

# box ARGUMENT...: a container with the system's programs, and without a mount of efs
box=(bwrap --ro-bind /usr /usr --symlink usr/bin /bin --symlink usr/lib /lib --symlink usr/lib64 /lib64 --proc /proc --dev /dev --die-with-parent)
box() { "${box[@]}" "$@"; }
box --tmpfs /data true 2>/dev/null || { skip 'a mount in containers' 'bubblewrap cannot make a namespace here'; finish; }
has_state() { json "$(status_of "$NAME")" "d['state'] == '$1'"; }
# hold: a container that has the mount, and writes a result when the test says so
hold() {
  mkdir "$S/$NAME/signals" && mkfifo "$S/$NAME/signals/go"
  box --bind "$MNT" /data --bind "$S/$NAME/signals" /signals sh -c ': >/signals/begun; read -r _ </signals/go; echo late >/data/late' 2>/dev/null &
  holder=$!; pids=("$holder")
  await 20 test -e "$S/$NAME/signals/begun"
}
let_go() { echo >"$S/$NAME/signals/go"; wait "$holder"; pids=(); }

# --- contents and results ---
fresh boxed
started "$JOB"
check 'a container sees the inputs' test "$(box --bind "$MNT" /data cat /data/input/a /data/input/sub/b | tr '\n' ' ')" = 'alpha beta '
check 'the file system is that of the job' box --bind "$MNT" /data grep -q ' /data fuse.efs ' /proc/self/mounts
check 'it writes, renames and removes' box --bind "$MNT" /data bash -c 'mkdir /data/d && head -c 3M /dev/urandom >/data/d/new && mv /data/d/new /data/d/big && rm /data/input/sub/b'
check 'the job sees the same' test ! -e "$MNT/input/sub/b" -a "$(stat -c %s "$MNT/d/big")" = 3145728
check_exit 'a bind that is read-only denies a write' 1 'Read-only file system' box --ro-bind "$MNT" /data touch /data/no
check 'and shows the contents' box --ro-bind "$MNT" /data grep -qx alpha /data/input/a
check 'a container without the bind does not have the mount' box bash -c '! grep fuse.efs /proc/self/mounts'
cp "$MNT/d/big" "$S/big"
check 'stop' "$EFS" stop boxed
check 'results of containers are exported' cmp "$S/big" "$OUT/d/big"

# --- the program of efs run is a container ---
check 'efs run starts a container' "$EFS" run "$JOB" -- "${box[@]}" --bind "$MNT" /data sh -c 'cat /data/input/a >/data/copied'
check 'and exports its results' grep -qx alpha "$OUT/copied"

# --- a stop while a container has the mount ---
fresh held
started "$JOB"
hold
"$EFS" stop held >"$S/said" 2>&1 & stopping=$!
check 'a stop waits for the container' await 20 has_state unmounting
check 'the log says for what' await 60 grep -q 'event=mount_elsewhere' "$EFS_RUNTIME_DIR/held/efsd.log"
check 'nothing is exported meanwhile' test ! -e "$OUT/efs-receipt-held.json"
let_go
wait "$stopping"; check "the stop succeeds when the container has ended: $(cat "$S/said")" test $? = 0
check 'with the last result' grep -qx late "$OUT/late"
started "$JOB"
check 'afterwards the job can start again' grep -qx alpha "$MNT/input/a"
check 'and stop' "$EFS" stop held

fresh limited
started "$JOB"; echo result >"$MNT/result"
hold
check 'a stop with a deadline disconnects the container' timeout 60 "$EFS" stop --deadline 12 limited
check 'and exports the results' grep -qx result "$OUT/result"
let_go 2>/dev/null
check 'the container could write no more' test ! -e "$OUT/late"
check 'nothing is left' ended limited

# --- users ---
user=65534
as() { setpriv --reuid $user --regid $user --clear-groups "$@"; }
if [ "$(id -u)" = 0 ] && as "${box[@]}" --unshare-user true 2>/dev/null; then
  fresh users
  chown -R $user:$user "$S/users"
  started -u "$(id -un $user)" "$JOB"
  check "a user's container writes to the user's mount" as "${box[@]}" --bind "$MNT" /data touch /data/plain
  check 'as root of a user namespace, too' as "${box[@]}" --unshare-user --uid 0 --gid 0 --bind "$MNT" /data sh -c 'test "$(id -u)" = 0 && touch /data/mapped'
  check 'and without any namespace of the system' as "${box[@]}" --unshare-all --bind "$MNT" /data touch /data/alone
  check 'stop' "$EFS" stop users
  for file in plain mapped alone; do check "the result $file is the user's" test "$(stat -c %u "$OUT/$file")" = $user; done
else
  skip 'containers of users' 'not root, or no user namespaces for users'
fi
finish
