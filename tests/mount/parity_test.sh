#!/bin/bash
# The parity program (parity.cpp) on a tmpfs and on a mount with the same options: with passthrough, on the daemon's own
# path, and as an ordinary user. Declared differences: expect-passthrough.txt, expect-daemon.txt, expect-user.txt.
#   parity_test.sh BIN_DIR PARITY
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
[ $# -eq 2 ] && [ -x "$2" ] || { echo "usage: $0 BIN_DIR PARITY" >&2; exit 2; }
parity=$2
expect=$(cd "$(dirname "$0")" && pwd)

# compare NAME IO START_OPTIONS... -- PARITY_OPTIONS...
compare() {
  local name=$1 io=$2 text code; shift 2
  local start=(); while [ "$1" != -- ]; do start+=("$1"); shift; done; shift
  CAPACITY='2 GiB' fresh "$name" 'resources: []'
  mkdir "$MNT" "$S/$name/native"; chmod 1777 "$PFS"
  [ "$name" != user ] || chown 65534:65534 "$MNT" "$OUT"
  mount -t tmpfs -o nosuid,nodev,mode=1777,size=2g native "$S/$name/native"
  check "$name: start" "$EFS" start "$JOB" "${start[@]}"
  check "$name: I/O" json "$("$EFS" status --json "$name")" "d['io'] == '$io'"
  text=$("$parity" "$S/$name/native" "$MNT" "$@"); code=$?
  printf '%s\n' "$text" | grep -v '^DIFF [^ ]* (declared)' | sed "s/^/$name: /"
  skipped=$((skipped + $(sed -nE 's/^[0-9]+ passed, [0-9]+ failed, ([0-9]+) skipped$/\1/p' <<<"$text" | tail -n 1 | grep . || echo 0)))
  [ $code -ne 0 ] || ok
  [ $code -eq 0 ] || failed=$((failed + 1))
  check "$name: the daemon lives" json "$("$EFS" status --json "$name")" "d['state'] == 'running'"
  check "$name: stop" "$EFS" stop --no-stage-out "$name"
  umount "$S/$name/native"
}

compare passthrough passthrough -- --expect "$expect/expect-passthrough.txt"
compare daemon daemon -o daemon-io -- --expect "$expect/expect-daemon.txt"
# The daemon's path once more, through mapped segments: libpmem takes this memory for persistent.
export PMEM_IS_PMEM_FORCE=1
compare mapped daemon -o daemon-io -- --expect "$expect/expect-daemon.txt"
unset PMEM_IS_PMEM_FORCE
compare user passthrough --user 65534 -- --expect "$expect/expect-user.txt" --user 65534
finish
