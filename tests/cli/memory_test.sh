#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The capacity of a store in memory without a declared one: a share of the job's memory, within
# control groups, beside other instances, and after the death of a worker.
#   memory_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
[ -c /dev/fuse ] || { skip 'stores in memory' 'no /dev/fuse'; finish; }
unset ${!SLURM@}
export EFS_SITE_FILE=$S/site.yaml
echo >"$EFS_SITE_FILE"
mebibytes=$((1 << 20))

# undeclared NAME [LINE...]: a job whose file declares no capacity.
undeclared() { fresh "$@"; sed -i '/^backends:/,/capacity/d' "$JOB"; }
# capacity [NAME]: bytes.
capacity() { field "$(status_of "${1:-$NAME}")" 'd["capacity"]'; }
at_most() { [ "$1" -le $(($2 * mebibytes)) ] || { echo "$1 is more than $2 MiB"; return 1; }; }
at_least() { [ "$1" -ge $(($2 * mebibytes)) ] || { echo "$1 is less than $2 MiB"; return 1; }; }
stopped() { check "stop $1" "$EFS" stop --no-stage-out "$1"; await 20 ended "$1"; }

# --- the job's memory ---
undeclared job
started --memory '100 MiB' "$JOB"
check 'half of the memory of the job' at_most "$(capacity)" 50
check 'and no less' at_least "$(capacity)" 49
stopped job
SLURM_MEM_PER_NODE=100 started "$JOB"
check 'likewise, as Slurm tells a script' at_most "$(capacity)" 50
check 'stop, and keep' "$EFS" stop --keep job
started --memory '40 MiB' "$JOB"
check 'what was left has no less' at_least "$(capacity)" 49
check_not 'and that is no broken promise' grep -q capacity_not_lowered "$EFS_RUNTIME_DIR/job/efsd.log"
stopped job
check_exit 'a job with too little' 1 'the job can have 8 MiB of memory here.*at least 16 MiB.*Ask for more' "$EFS" start --memory 8MiB "$JOB"
printf 'memory-share: 25%%\nlimits: {capacity: 64 MiB}\n' >"$EFS_SITE_FILE"
started --memory '200 MiB' "$JOB"
check "the site's share" at_most "$(capacity)" 50
stopped job
started --memory '400 MiB' "$JOB"
check "and its limit" at_most "$(capacity)" 64
stopped job
echo >"$EFS_SITE_FILE"

# --- control groups ---
# The directory of the memory controller and its version; "": none is usable.
find_groups() {
  local point
  [ "$(id -u)" = 0 ] || return 1
  point=$(awk '$(NF-2) == "cgroup" && ("," $NF ",") ~ /,memory,/ { print $5; exit }' /proc/self/mountinfo)
  if [ -n "$point" ]; then groups=$point$(sed -n 's/^[0-9]*:\([^:]*,\)*memory\(,[^:]*\)*:\(.*\)/\3/p' /proc/self/cgroup) max=memory.limit_in_bytes; mkdir "$groups/efs-test-$$" 2>/dev/null; return; fi
  point=$(awk '$(NF-2) == "cgroup2" { print $5; exit }' /proc/self/mountinfo)
  groups=$point max=memory.max
  [ -n "$point" ] && mkdir "$groups/efs-test-$$" 2>/dev/null || return 1
  [ -e "$groups/efs-test-$$/memory.max" ] || { rmdir "$groups/efs-test-$$"; return 1; }
}
in_group() { bash -c 'echo $$ >"$0/cgroup.procs" && exec "$@"' "$@"; }
no_group() { rmdir "$group/inner" "$group"; }
if find_groups; then
  group=$groups/efs-test-$$
  echo 200M >"$group/$max"
  mkdir "$group/inner"
  undeclared limited
  check 'start in a group with a limit' in_group "$group" "$EFS" start "$JOB"
  check 'half of what is left in it' at_most "$(capacity)" 100
  check 'and no less' at_least "$(capacity)" 60
  check_exit 'a full store is no space, and not the end of a program' 1 'No space left' in_group "$group" dd if=/dev/zero of="$MNT/full" bs=1M
  check 'what is written is charged to who writes' test "$(cat "$group"/memory.{usage_in_bytes,current} 2>/dev/null)" -ge $((50 * mebibytes))
  # Some 100 of 200 MiB are used: the rest counts, also in an ancestor group.
  undeclared beside
  check 'start in a group below it' in_group "$group/inner" "$EFS" start "$JOB"
  check 'what the ancestor has used is not there any more' at_most "$(capacity)" 60
  check 'it says so in its log' grep -q "event=default_capacity .*bound=\"$group/" "$EFS_RUNTIME_DIR/beside/efsd.log"
  stopped beside; stopped limited
  await 20 no_group || fail 'the groups are empty'
else skip 'limits of control groups' 'they cannot be made here'; fi

# --- beside other instances ---
if [ "$(id -u)" = 0 ]; then
  undeclared first; started "$JOB"
  undeclared second; started "$JOB"
  # Half of the machine's memory was promised; this instance gets half of the rest.
  less() { [ $((4 * $1)) -lt $((3 * $2)) ] || { echo "$1 beside $2"; return 1; }; }
  check 'what the first was promised the second does not get' less "$(capacity second)" "$(capacity first)"
  stopped first; stopped second
else skip 'what others were promised' 'needs root'; fi

# --- after the death of a worker ---
replaced() { json "$(status_of "$1")" 'd["takeovers"] > 0 and d["state"] == "running"'; }
if kernel_has_it; then
  undeclared heir; mkfifo "$PFS/input/pipe"  # it is skipped: names of what is skipped are the worker's own memory
  started --memory '300 MiB' "$JOB"
  for i in 1 2 3 4 5; do : >"$MNT/new$i"; done
  before=$(status_of heir)
  kill -KILL "$(field "$before" 'd["worker_pid"]')"
  check 'the worker is replaced' await 20 replaced heir
  after=$(status_of heir)
  check 'the capacity is the same' test "$(field "$after" 'd["capacity"]')" = "$(field "$before" 'd["capacity"]')"
  check 'the inputs are still counted' test "$(field "$after" 'd["staged_in"]["files"], d["staged_in"]["bytes"]')" = "$(field "$before" 'd["staged_in"]["files"], d["staged_in"]["bytes"]')"
  check 'for people' grep -q '^  inputs   2 files' <("$EFS" status heir)
  check 'the counters go on' json "$after" "d['counters']['opens'] >= $(field "$before" 'd["counters"]["opens"]') >= 5 and d['counters']['requests'] >= $(field "$before" 'd["counters"]["requests"]')"
  check_not 'nothing is said of a capacity that was not declared' grep -q capacity_not_lowered "$EFS_RUNTIME_DIR/heir/efsd.log"
  check 'the receipt has the inputs' json "$("$EFS" stop --json heir)" 'd["receipt"]["staged_in"]["files"] == 2'
  await 20 ended heir
else skip 'what outlives a worker' 'needs Linux 6.9'; fi
finish
