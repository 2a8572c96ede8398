#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The parity program (parity.cpp) on a tmpfs and on a mount with the same options. With passthrough
# and on the daemon's own path; as root, as an ordinary user on root's mount, and as an ordinary
# user on the user's own mount (by fusermount3); with containers in memory and on ext4; with
# libefs-intercept. Declared differences: expect-*.txt.
#   parity_test.sh BIN_DIR PARITY
set -uo pipefail
# A mount namespace with a /dev/fuse that every user may open, as on a machine that offers FUSE to
# users.
if [ "${EFS_TEST_NAMESPACE:-}" != yes ]; then EFS_TEST_NAMESPACE=yes exec "$(dirname "$0")/../own_mounts.py" bash "$0" "$@"; fi
unset EFS_TEST_NAMESPACE
. "$(dirname "$0")/../cli/lib.sh" "$@"
[ $# -eq 2 ] && [ -x "$2" ] || { echo "usage: $0 BIN_DIR PARITY" >&2; exit 2; }
parity=$2
expect=$(cd "$(dirname "$0")" && pwd)

declared() { local file; for file; do cat "$expect/expect-$file.txt"; done; }
# statx reports birth times, and libfuse supports statx from 3.18 on.
libfuse=$(readlink -f "$(ldd "$1/efsd" | awk '/libfuse3/ { print $3 }')")
if [ "$(printf '%s\n' 3.18 "${libfuse##*.so.}" | sort -V | head -n 1)" != 3.18 ]; then
  declared() { local file; for file; do cat "$expect/expect-$file.txt"; done; echo "statx-btime: libfuse ${libfuse##*.so.} asks for no time of birth"; }
fi
for kind in passthrough daemon user; do declared "$kind" >"$S/expect-$kind"; done
declared daemon writeback >"$S/expect-writeback"
# moves: moves all contents to and fro between two backends until moves.end exists. Files that are open
# stay (exit code 3), and names that are gone by then are no failure.
moves() {
  local to=two
  until [ -e "$S/moves.end" ]; do
    "$EFS" move -i "$1" '*' --to "$to" >>"$S/moves.log" 2>&1
    [ "$to" = two ] && to=one || to=two
  done
}

# compare NAME IO START_OPTIONS... -- PARITY_OPTIONS...; $as is the mounting user; the store is in
# memory, in $store, or in both if $both is set: then contents move between them all the time; the
# program runs with $library.
compare() {
  local name=$1 io=$2 text code; shift 2
  local start=(); while [ "$1" != -- ]; do start+=("$1"); shift; done; shift
  if [ -n "${both:-}" ]; then fresh "$name" "backends: [ {id: one, type: DRAM, capacity: 2 GiB}, {id: two, type: NVRAM-NVML, daxfs: $both} ]" 'resources: []'
  elif [ -n "${store:-}" ]; then fresh "$name" "backends: [ {id: disk, type: NVRAM-NVML, daxfs: $store, capacity: all} ]" 'resources: []'
  else CAPACITY='2 GiB' fresh "$name" 'resources: []'; fi
  mkdir "$MNT" "$S/$name/native"; chmod 1777 "$PFS"
  case $name in *user* | own) chown 65534:65534 "$MNT" "$OUT" ;; esac
  mount -t tmpfs -o nosuid,nodev,mode=1777,size=2g native "$S/$name/native"
  check "$name: start" ${as:-} "$EFS" start "$JOB" "${start[@]}"
  check "$name: I/O" json "$(${as:-} "$EFS" status --json "$name")" "d['io'] == '$io'"
  rm -f "$S/moves.end" "$S/moves.log"; local mover=
  if [ -n "${both:-}" ]; then moves "$name" & mover=$!; fi
  text=$(${as:-} env ${library:+LD_PRELOAD=$library EFS_INTERCEPT_AFTER=1 EFS_INTERCEPT=stats EFS_INTERCEPT_STATS=$S/served} "$parity" "$S/$name/native" "$MNT" "$@"); code=$?
  if [ -n "$mover" ]; then touch "$S/moves.end"; wait "$mover"; check "$name: contents have moved" grep -qE 'move done: [1-9]' "$S/moves.log"; fi
  printf '%s\n' "$text" | grep -v '^DIFF [^ ]* (declared)' | sed "s/^/$name: /"
  skipped=$((skipped + $(sed -nE 's/^[0-9]+ passed, [0-9]+ failed, ([0-9]+) skipped$/\1/p' <<<"$text" | tail -n 1 | grep . || echo 0)))
  [ $code -ne 0 ] || ok
  [ $code -eq 0 ] || failed=$((failed + 1))
  check "$name: the daemon lives" json "$(${as:-} "$EFS" status --json "$name")" "d['state'] == 'running'"
  check "$name: stop" ${as:-} "$EFS" stop --no-stage-out "$name"
  umount "$S/$name/native"
}

compare passthrough passthrough -- --expect "$S/expect-passthrough"
compare daemon daemon -o daemon-io -- --expect "$S/expect-daemon"
if [ -e "$BIN/../lib/libefs-intercept.so" ]; then
  declared passthrough intercepted >"$S/expect-intercepted"
  library=$BIN/../lib/libefs-intercept.so compare intercepted passthrough -- --expect "$S/expect-intercepted"
  check 'intercepted: reads and writes were served' grep -qE ': reads [1-9].* writes [1-9]' "$S/served"
else
  skip 'parity with libefs-intercept' 'it is built for x86-64 only'
fi
# From Linux 6.6 on, a traced mount has no page cache except that of mappings: every read reaches
# the daemon, which sets the time.
cp "$S/expect-daemon" "$S/expect-traced"
if [ "$(printf '%s\n' 6.6 "$(uname -r)" | sort -V | head -n 1)" = 6.6 ]; then sed -i '/^atime-\(file\|relatime\)/d' "$S/expect-traced"; fi
compare traced daemon --trace "$S/trace" -- --expect "$S/expect-traced"
compare writeback daemon -o writeback -- --expect "$S/expect-writeback"
# The daemon's path again, with mapped segments: libpmem takes this memory for persistent.
export PMEM_IS_PMEM_FORCE=1 EFS_TEST_PMEM=1
compare mapped daemon -o daemon-io -- --expect "$S/expect-daemon"
unset PMEM_IS_PMEM_FORCE EFS_TEST_PMEM
compare user passthrough --user 65534 -- --expect "$S/expect-user" --user 65534
declared user user-daemon | grep -v '(not on the daemon.s path)' >"$S/expect-user-daemon"
compare user-daemon daemon --user 65534 -o daemon-io -- --expect "$S/expect-user-daemon" --user 65534

# A user's own mount.
if [ "$(id -u)" = 0 ] && command -v fusermount3 >/dev/null; then
  chmod 755 "$S"; install -d -o 65534 -g 65534 -m 700 "$S/u"
  mkdir "$S/dev" && mount -t tmpfs -o mode=755,size=64k dev "$S/dev" && mknod -m 666 "$S/dev/fuse" c 10 229 && mount --bind "$S/dev/fuse" /dev/fuse
  as="setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all env EFS_RUNTIME_DIR=$S/u HOME=/" compare own daemon -- --expect "$S/expect-user-daemon"
  umount /dev/fuse "$S/dev"
else
  skip 'a mount of a user' 'needs root, to become one, and fusermount3'
fi

# Contents move under the test's feet, between a tmpfs of the instance and one that others have, too.
mkdir "$S/both" && mount -t tmpfs -o nosuid,nodev,mode=1777,size=2g both "$S/both"
both=$S/both compare moves passthrough -- --expect "$S/expect-passthrough"
both=$S/both compare moves-daemon daemon -o daemon-io -- --expect "$S/expect-daemon"
umount "$S/both"

mkdir "$S/disk"
if [ "$(id -u)" = 0 ] && truncate -s 4G "$S/image" && mkfs.ext4 -q "$S/image" && mount -o loop "$S/image" "$S/disk"; then
  mkdir "$S/disk/store"
  declared passthrough disk >"$S/expect-disk"; declared daemon disk | grep -v '(not on the daemon.s path)' >"$S/expect-disk-daemon"
  store=$S/disk/store compare disk passthrough -- --expect "$S/expect-disk"
  store=$S/disk/store compare disk-daemon daemon -o daemon-io -- --expect "$S/expect-disk-daemon"
  umount "$S/disk"
else
  skip 'containers on ext4' 'needs root, mkfs.ext4 and a loop device'
fi
finish
