#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# -o noatime: reads update no access time, on either path. Without it, a read updates it once; with
# strictatime, each time.
#   noatime_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
[ "$(id -u)" = 0 ] || { skip noatime 'needs root'; finish; }
# moves TIME PATH COMMAND...: returns whether the command updates the access time, which is set to
# this before. Drops the kernel's cached pages first.
moves() {
  local time=$1 path=$2 before; shift 2
  touch -a -d "$time" "$path" || return 2
  before=$(stat -c %X "$path")
  "$@" >/dev/null || return 2
  [ "$(stat -c %X "$path")" != "$before" ]
}
long_ago='2001-01-01 00:00:00.5' to_come='+1 hour'
for io in passthrough daemon; do
  for policy in relatime noatime strictatime,lazytime; do
    fresh "$io-${policy%,*}"
    mkdir "$MNT"
    options=$policy; [ $io = passthrough ] || options+=,daemon-io
    check "$NAME: start" "$EFS" start "$JOB" -o "$options"
    check "$NAME: I/O" json "$("$EFS" status --json "$NAME")" "d['io'] == '$io'"
    mkdir "$MNT/d"; touch "$MNT/d/f"
    if [ $policy = noatime ]; then expected=check_not; else expected=check; fi
    $expected "$NAME: reading a file moves its atime" moves "$long_ago" "$MNT/input/a" cat "$MNT/input/a"
    $expected "$NAME: listing a directory moves its atime" moves "$long_ago" "$MNT/d" ls "$MNT/d"
    # relatime does not update a file that was read after its last change.
    case $policy in strictatime*) expected=check ;; *) expected=check_not ;; esac
    $expected "$NAME: reading a file moves its atime each time" moves "$to_come" "$MNT/input/a" cat "$MNT/input/a"
    $expected "$NAME: listing a directory moves its atime each time" moves "$to_come" "$MNT/d" ls "$MNT/d"
    check "$NAME: stop" "$EFS" stop --no-stage-out "$NAME"
  done
done
finish
