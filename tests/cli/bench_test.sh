#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# bench/bench.py: each row is printed, nothing is left in any ending, and a failing workload fails
# the run. The sizes are tiny, so the figures mean nothing.
#   bench_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
[ "$(id -u)" = 0 ] || { skip 'the bench' 'it mounts, as root'; finish; }
[ -x "$BIN/efs-bench-growth" ] || { skip 'the bench' 'this build has no programs for it'; finish; }
export TMPDIR=$S/tmp
mkdir "$TMPDIR" "$S/path"
# In memory: the syncs of the ext4 do not wait for what other tests write.
mount -t tmpfs -o size=4g bench-test "$TMPDIR" || { skip 'the bench' 'no right to mount'; finish; }

# bench ARGUMENT...: its output goes to $said, its exit code to $code
bench() { said=$(python3 "$SOURCE/bench/bench.py" "$BIN/.." "$@" 2>&1); code=$?; }
# nothing_left: no mount, loop device or file of the bench
nothing_left() {
  ! grep -F "$TMPDIR/" /proc/self/mounts &&
    ! grep -F "$TMPDIR/" /sys/block/loop*/loop/backing_file 2>/dev/null &&
    [ -z "$(ls -A "$TMPDIR")" ]
}
# fake NAME LINE...: a program that the bench finds before the system's
fake() { printf '%s\n' '#!/bin/bash' "${@:2}" >"$S/path/$1" && chmod 755 "$S/path/$1"; }
# row NAME: the line of this name, and the requests by kind below it
row() { grep -A 1 -E "^$1 +[0-9]" <<<"$said"; }
# is_row NAME: speeds of all places, the ratio, a number of requests
is_row() {
  row "$1" |
    grep -E "^$1 +[0-9.]+ +[0-9.]+ +$disk [a-zA-Z/]+ +[0-9.]+ \([0-9.-]+\) .* [0-9]+\.[0-9]"
}
# row_or_skipped PROGRAM NAME: the row, or how one gets the program
row_or_skipped() {
  if command -v "$1" >/dev/null; then is_row "$2"
  else grep -E "^ +$2: skipped: $1 is not installed \(apt-get install $1\)" <<<"$said"; fi
}
# says NAME PATTERN: the row or the line below it matches
says() { grep -E -- "$2" <<<"$(row "$1")"; }
disk='[0-9.]+'
command -v mkfs.ext4 >/dev/null && losetup -f >/dev/null 2>&1 ||
  { skip 'the figures of ext4' 'no mkfs.ext4, or no loop device'; disk=-; }

# --- all rows ---
bench 1 workloads names growth --files 40 --most 100
check 'the bench succeeds' test $code = 0
[ $code = 0 ] || echo "$said"
for name in 'tar x' 'ls -lR' find du 'grep -r' 'grep -r again' 'tar c' 'cp -a' 'rm -rf' make \
  'sqlite delete, FULL' 'sqlite wal' 'python imports' 'create and close' 'stat, just created' \
  stat 'open and close' chmod rename 'stat of no file' unlink mkdir rmdir 'null request'; do
  check "the row $name" is_row "$name"
done
check 'the row git clone' row_or_skipped git 'git clone'
check 'the row git status' row_or_skipped git 'git status'
check 'the row dbench' row_or_skipped dbench dbench
for layout in flat nested; do
  for name in create open stat unlink; do
    check "the row $layout $name" \
      grep -E "^$layout $name +[0-9.]+ .* of the first, goal 0.90 (met|missed)" <<<"$said"
  done
done
check 'a goal beside a figure' says 'tar x' ' 0\.25 (met|missed) '
check 'tar x takes a create for each file' says 'tar x' '[ ,]create 1\.0(,|$)'
check 'a null request is one request' says 'null request' '[ ,]getxattr 1\.0(,|$)'
check 'nothing is left of a run' await 20 nothing_left

# --- modes, and a choice of workloads ---
bench 1 workloads --files 40 --only 'tar x' -o rw -o 'daemon-io,xattr: off'
if kernel_has_it; then check 'served by passthrough' says 'tar x rw' 'passthrough$'; fi
check 'served by the daemon' says 'tar x daemon-io,xattr: off' 'daemon$'
check_not 'a workload that was not chosen' is_row find

# --- two clients ---
bench 1 clients --files 40
check 'two clients are measured' test $code = 0
if [ "$(nproc)" -gt 1 ]; then
  for place in efs tmpfs; do check "what two make on $place" grep -E "^$place +[0-9.]+ +[0-9.]+ " <<<"$said"; done
  check 'the goal of two' grep -E '^efs .* goal of create 1\.50 (met|missed)$' <<<"$said"
else skip 'what two clients make' 'this machine has one CPU'; fi
check 'nothing is left of them' await 20 nothing_left

# --- two builds ---
bench 1 builds --old "$S/none"
check 'another build that is not there fails the run' test $code = 1
check 'it is named' grep -E "^builds: FAILED: .*$S/none" <<<"$said"

# --- endings ---
fake du 'exit 3'
fake find ':'
PATH=$S/path:$PATH bench 1 workloads --files 40 --only du --only find --only 'ls -lR'
check 'a failing workload fails the run' test $code = 1
check 'it is named' grep -E '^du on [a-z0-9]+: FAILED: .*exit status 3' <<<"$said"
check 'so is one that does nothing' grep -E '^find on [a-z0-9]+: FAILED: .*: 0, not 40' <<<"$said"
check_not 'it has no figure' is_row find
check 'the others are measured' is_row 'ls -lR'
check 'nothing is left of a run that failed' await 20 nothing_left

fake du "echo \$\$ >$S/reached.new" "mv $S/reached.new $S/reached" 'exec sleep 1000'
PATH=$S/path:$PATH python3 "$SOURCE/bench/bench.py" "$BIN/.." 1 workloads --files 40 --only du \
  >"$S/said" 2>&1 & pids=($!)
check 'the bench runs a workload' await 20 test -e "$S/reached"
kill -TERM "${pids[0]}"
wait "${pids[0]}"; code=$?; pids=()
check 'a signal ends the bench' test $code = 143
check 'the workload is ended' await 20 gone "$(cat "$S/reached")"
check 'nothing is left of a run that a signal ended' await 20 nothing_left
umount "$TMPDIR"
finish
