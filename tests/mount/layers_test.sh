#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Passthrough with other file systems below and above the mount: an overlay on it, a store on an
# overlay, on two of them, and a root user of a user namespace. Either the kernel does the I/O, or
# the daemon does it and status and log give the reason, once.
#   layers_test.sh BIN_DIR
set -uo pipefail
if [ "${EFS_TEST_NAMESPACE:-}" != yes ]; then EFS_TEST_NAMESPACE=yes exec "$(dirname "$0")/../own_mounts.py" bash "$0" "$@"; fi
unset EFS_TEST_NAMESPACE
. "$(dirname "$0")/../cli/lib.sh" "$@"
[ "$(id -u)" = 0 ] && kernel_has_it || { skip 'layers' 'no passthrough on this kernel, or not root'; finish; }

# overlay LOWER WHERE: mounts on WHERE an overlay of LOWER and a tmpfs.
overlay() {
  mkdir -p "$2.top" "$2" && mount -t tmpfs top "$2.top" && mkdir "$2.top/upper" "$2.top/work" &&
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$2.top/upper,workdir=$2.top/work" "$2"
}
remove_overlay() { umount "$1" && umount "$1.top"; }
# serves IO: status reports it, and files are written, read and exported.
serves() {
  local text; text=$(status_of "$NAME")
  check "$NAME: I/O" json "$text" "d['io'] == '$1'"
  local file; for file in 1 2 3 4 5; do cp "$PFS/input/a" "$MNT/file$file"; done
  check "$NAME: a file that was written is read" cmp "$PFS/input/a" "$MNT/file3"
  text=$(status_of "$NAME")
  if [ "$1" = passthrough ]; then check "$NAME: the kernel serves files" json "$text" "d['counters']['passthrough_opens'] >= 5"
  else check "$NAME: status counts none that the kernel serves" json "$text" "d['counters']['passthrough_opens'] == 0"; fi
}
log_of() { cat "$EFS_RUNTIME_DIR/$NAME/efsd.log"; }
# says_why PATTERN: status gives the reason, and so does the log, in one line for all files.
says_why() {
  check "$NAME: status says why" grep -qE "I/O +daemon \(.*$1" <("$EFS" status "$NAME")
  check "$NAME: the log says so once" test "$(log_of | grep -c 'event=no_passthrough')" = 1
  check "$NAME: and not for each file" test "$(log_of | grep -c 'event=passthrough_refused')" = 0
}
# successor_says IO: the successor serves, and reports it.
successor_says() { json "$(status_of "$NAME")" "d['state'] == 'running' and d['takeovers'] == 1 and d['io'] == '$1'"; }
store_on() { fresh "$1" "backends: [ {id: disk, type: NVRAM-NVML, daxfs: $2, capacity: all} ]" 'resources: [ [ path: input ] ]' && mkdir "$2"; }

if grep -qw overlay /proc/filesystems || modprobe overlay 2>/dev/null; then
  fresh above
  check 'above: start' "$EFS" start "$JOB"
  mkdir "$MNT/image"; echo lower >"$MNT/image/f"
  if check 'above: an overlay lies on the mount' overlay "$MNT/image" "$S/seen" && mounted "$S/seen"; then
    echo upper >>"$S/seen/f"
    check 'above: what is written there goes to its upper layer' test "$(cat "$S/seen/f" "$MNT/image/f")" = $'lower\nupper\nlower'
    remove_overlay "$S/seen"
  fi
  serves passthrough
  check 'above: stop' "$EFS" stop "$NAME"

  mkdir "$S/bottom"; overlay "$S/bottom" "$S/first"; overlay "$S/first" "$S/second"
  store_on one-below "$S/first/store"
  check 'one-below: start' "$EFS" start "$JOB"
  serves passthrough
  check_not 'one-below: no third layer' overlay "$MNT/input" "$S/third"
  umount "$S/third.top"
  check 'one-below: stop' "$EFS" stop "$NAME"
  store_on two-below "$S/second/other"
  check 'two-below: start' "$EFS" start "$JOB"
  serves daemon
  says_why 'too many file systems'
  kill -KILL "$(field "$(status_of "$NAME")" 'd["worker_pid"]')"
  check 'two-below: the successor says so, too' await 20 successor_says daemon
  check 'two-below: stop' "$EFS" stop "$NAME"
  for point in second first; do remove_overlay "$S/$point"; done
else
  skip 'overlays above and below a mount' 'this kernel has no overlayfs'
fi

fresh namespace
root_there="unshare --user --map-root-user $SOURCE/tests/own_mounts.py"
if $root_there true 2>/dev/null; then
  export -f ok fail check json status_of serves says_why log_of field
  export EFS NAME PFS MNT OUT JOB S
  text=$($root_there bash -c 'passed=0 failed=0
    check "$NAME: start" "$EFS" start "$JOB"
    serves daemon
    says_why "initial user namespace"
    check "$NAME: stop" "$EFS" stop "$NAME"
    check "$NAME: the results are there" cmp "$PFS/input/a" "$OUT/file3"
    echo "$passed $failed"')
  printf '%s\n' "$text" | sed '$d'
  read -r there_passed there_failed <<<"$(tail -n 1 <<<"$text")"
  passed=$((passed + there_passed)) failed=$((failed + there_failed))
else
  skip 'root of a user namespace' 'this kernel makes none'
fi

# A container engine removes capabilities from root.
fresh fewer
without() { setpriv --bounding-set="-$1" "${@:2}"; }
check_exit 'fewer: a root that cannot mount is told so' 1 'no CAP_SYS_ADMIN' without sys_admin "$EFS" start "$JOB"
check 'fewer: nothing is left of that' test ! -e "$EFS_RUNTIME_DIR/$NAME"
check 'fewer: a root without some others starts' without dac_read_search,-setfcap,-sys_resource "$EFS" start "$JOB"
serves passthrough
check 'fewer: stop' "$EFS" stop "$NAME"
finish
