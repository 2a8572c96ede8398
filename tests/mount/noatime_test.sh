#!/bin/bash
# -o noatime: reading moves no access time, on either path; without it reading does, once.
#   noatime_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
[ "$(id -u)" = 0 ] || { skip noatime 'needs root'; finish; }
# moves PATH COMMAND...: does the command move the access time, which is made old before? Pages kept by the kernel go first.
moves() {
  local path=$1 before; shift
  touch -a -d '2001-01-01 00:00:00.5' "$path" || return 2
  before=$(stat -c %X "$path")
  "$@" >/dev/null || return 2
  [ "$(stat -c %X "$path")" != "$before" ]
}
for io in passthrough daemon; do
  for policy in relatime noatime; do
    fresh "$io-$policy"
    mkdir "$MNT"
    options=$policy; [ $io = passthrough ] || options+=,daemon-io
    check "$NAME: start" "$EFS" start "$JOB" -o "$options"
    check "$NAME: I/O" json "$("$EFS" status --json "$NAME")" "d['io'] == '$io'"
    mkdir "$MNT/d"; touch "$MNT/d/f"
    if [ $policy = relatime ]; then expected=check; else expected=check_not; fi
    $expected "$NAME: reading a file moves its atime" moves "$MNT/input/a" cat "$MNT/input/a"
    $expected "$NAME: listing a directory moves its atime" moves "$MNT/d" ls "$MNT/d"
    check "$NAME: stop" "$EFS" stop --no-stage-out "$NAME"
  done
done
finish
