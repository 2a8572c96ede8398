#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The worker's memory for an input, and for an input during its stage-in, does not exceed the
# numbers in efsd(8). Uses EFS_INPUTS empty files (200000) with short names.
#   inputs_memory_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
inputs=${EFS_INPUTS:-200000}
page=$SOURCE/man/efsd.8

[ "$(id -u)" = 0 ] || { skip 'memory of inputs' 'needs root'; finish; }
! grep -qE '__[at]san_init' "$BIN/efsd" || { skip 'memory of inputs' 'a sanitizer takes more than the inputs'; finish; }

# The numbers in the manual: bytes.
said() { sed -n 's/^An input takes \([0-9,]*\) bytes, .* and \([0-9,]*\) while it is staged in\.$/\1 \2/p' "$page" | tr -d ,; }
read -r kept most < <(said) || { fail 'efsd(8) says what an input takes'; finish; }
check 'docs/limits.md says the same' grep -q "$kept for an input" "$SOURCE/docs/limits.md"

# A PFS in memory: elsewhere, creating so many files takes longer than the test.
mkdir "$S/memory" && mount -t tmpfs -o mode=755 memory "$S/memory" || { fail 'a tmpfs for the inputs'; finish; }

# measure NAME COUNT: prints the worker's memory after its stage-in, and its maximum, in bytes.
measure() {
  CAPACITY='512 MiB' fresh "$1" 'resources: [ [ path: input ] ]'
  # fresh() made two inputs; these are elsewhere.
  PFS=$S/memory/$1; job "$JOB" 'resources: [ [ path: input ] ]'
  mkdir -p "$PFS/input"
  python3 -c 'import os, sys
for i in range(int(sys.argv[2])): os.mknod("%s/f%d" % (sys.argv[1], i))' "$PFS/input" "$2"
  started "$JOB" || return
  local worker; worker=$(field "$(status_of "$NAME")" 'd["worker_pid"]')
  has=$(bytes "$worker" RssAnon) had=$(bytes "$worker" VmHWM)
  check "$NAME: all are there" test "$(ls -U "$MNT/input" | wc -l)" = "$2"
  check "$NAME: stop" "$EFS" stop "$NAME"
}
bytes() { awk -v key="$2:" '$1 == key {print $2 * 1024}' "/proc/$1/status"; }

# A few inputs give the worker's basic memory, including that of its threads, which are more on a
# larger machine.
few=1000
measure few $few; has_few=$has had_few=$had
measure many $((few + inputs))
has=$(((has - has_few) / inputs)) had=$(((had - had_few) / inputs))
echo "   an input takes $has bytes (efsd(8): $kept), and $had while it is staged in ($most)"
check 'an input takes no more than efsd(8) says' test "$has" -le "$kept"
check 'nor does it while it is staged in' test "$had" -le "$most"
# Checks the measurement: an inode, its name and its origin on the PFS need some hundred bytes.
check 'it takes something' test "$has" -gt 300
check 'more while it is staged in' test "$had" -gt "$has"
check 'the tmpfs goes' umount "$S/memory"
finish
