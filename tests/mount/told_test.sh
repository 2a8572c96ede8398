#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A worker dies during a load or an unload, after a name was created or removed and before it
# notified the kernel. Afterwards programs see the actual names, and their writes are not lost.
#   told_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
kernel_has_it || { skip 'names that the kernel was not told of' 'needs Linux 6.9'; finish; }

# start_pausing AT: an instance whose workers pause there while $S/pause exists.
start_pausing() {
  check "$NAME: start" env LD_PRELOAD="$BIN/../lib/libefs-pausing.so" EFS_PAUSE_AT="$1" EFS_PAUSE_WHILE="$S/pause" ASAN_OPTIONS="verify_asan_link_order=0:${ASAN_OPTIONS:-}" "$EFS" start "$JOB"
}
sign() { rm -f "$S/pause.reached"; touch "$S/pause"; }
reached() { test -e "$S/pause.reached"; }
worker() { field "$(status_of "$NAME")" 'd["worker_pid"]'; }
# dies VERB ...: kills the worker at its first notification about a name, after it has committed the
# change.
dies() {
  local pid asking; pid=$(worker)
  sign
  "$EFS" "$1" -i "$NAME" --wait "${@:2}" >"$S/$NAME/said" 2>&1 & asking=$!
  check "$NAME: $1 is about to tell the kernel" await 20 reached
  kill -KILL "$pid"; rm "$S/pause"
  wait $asking; code=$?
  check "$NAME: who waits is told that it is lost" test $code = 1
}

fresh loaded
start_pausing notify
mkdir "$PFS/more"; echo mmm >"$PFS/more/m"; ln -s m "$PFS/more/l"
check_not "$NAME: the kernel knows that it is not there" test -e "$MNT/more"
dies load more
check_exit "$NAME: asked for again" 0 'load done' "$EFS" load -i "$NAME" --wait more
check "$NAME: is there for programs" grep -qx mmm "$MNT/more/m"
check "$NAME: all of it" test "$(ls "$MNT/more" | tr '\n' ' ')" = 'l m '
check "$NAME: stop" "$EFS" stop "$NAME"

fresh replaced 'resources: [ [ path: input, flags: persistent ] ]'
start_pausing notify
check "$NAME: the kernel knows the old one" grep -qx alpha "$MNT/input/a"
cd "$MNT/input" || exit 1
echo 'a new version' >"$PFS/input/a"
dies load --replace input/a
check_exit "$NAME: asked for again" 0 'load done' "$EFS" load -i "$NAME" --wait --replace input/a
check "$NAME: programs see the new one" grep -qx 'a new version' "$MNT/input/a"
check "$NAME: who works in its directory is still there" test "$(env -u PWD pwd -P)" = "$MNT/input"
echo more >>a
cd "$S" || exit 1
check "$NAME: stop" "$EFS" stop "$NAME"
check "$NAME: what was written to it is back" test "$(cat "$OUT/input/a")" = $'a new version\nmore'

fresh removed
start_pausing notify
echo result >"$MNT/r"
dies unload --remove r
echo again >>"$MNT/r"
check "$NAME: the name was free" test "$(cat "$MNT/r")" = again
check "$NAME: stop" "$EFS" stop "$NAME"
check "$NAME: what was written under it is back" test "$(cat "$OUT/r")" = again

# A verb that arrives during a takeover.
fresh early
start_pausing session
mkdir "$PFS/more"; echo mmm >"$PFS/more/m"
check_not "$NAME: the kernel knows that it is not there" test -e "$MNT/more"
pid=$(worker); sign
kill -KILL "$pid"
check "$NAME: a successor is about to go on with the mount" await 20 reached
"$EFS" load -i "$NAME" --wait more >"$S/$NAME/said" 2>&1 & asking=$!
asks() { gone "$asking" || ls -l "/proc/$asking/fd" 2>/dev/null | grep -q socket; }
check "$NAME: a load asks it" await 20 asks
rm "$S/pause"
wait $asking; code=$?
[ $code = 0 ] || check_exit "$NAME: or is asked for again" 0 'load done' await 20 "$EFS" load -i "$NAME" --wait more
check "$NAME: is there for programs" grep -qx mmm "$MNT/more/m"
check "$NAME: stop" "$EFS" stop "$NAME"
finish
