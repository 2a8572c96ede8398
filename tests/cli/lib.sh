# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the end-to-end tests with the directory of the binaries as argument: `. lib.sh
# BIN_DIR`. All files are below $S, a scratch directory of this test: job files, the PFS, mount
# points, the runtime directory. At the end, only processes and mounts of $S count, so other
# instances on the machine do not matter.
[ $# -ge 1 ] && [ -x "$1/efs" ] && [ -x "$1/efsd" ] || { echo "usage: $0 BIN_DIR (with efs and efsd)" >&2; exit 2; }
BIN=$(cd "$1" && pwd)
SOURCE=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
EFS=$BIN/efs
S=$(mktemp -d /tmp/et.XXXXXX) && chmod 755 "$S" || exit 2   # short: a socket's path has 108 bytes
export EFS_RUNTIME_DIR=$S/r
unset EFS_CONFIG EFS_MOUNT
passed=0 failed=0 skipped=0
pids=()   # what we started and have not waited for

ok() { passed=$((passed + 1)); }
fail() { failed=$((failed + 1)); echo "FAIL $1"; [ -z "${2:-}" ] || printf '%s\n' "$2" | head -n 20 | sed 's/^/     /'; }
skip() { skipped=$((skipped + 1)); echo "SKIP $1: $2"; }

# check NAME COMMAND...: the command must succeed; on failure its output is shown.
check() {
  local name=$1 text; shift
  if text=$("$@" 2>&1); then ok; else fail "$name" "$* gave $?
$text"; fi
}
# differs NAME COMMAND...: the command must fail.
check_not() {
  local name=$1 text; shift
  if text=$("$@" 2>&1); then fail "$name" "$* succeeded: $text"; else ok; fi
}
# check_exit NAME CODE PATTERN COMMAND...: checks the exit code, and the output (grep -E). The
# output stays in $said.
check_exit() {
  local name=$1 code=$2 pattern=$3 got; shift 3
  said=$("$@" 2>&1); got=$?
  if [ $got -ne "$code" ]; then fail "$name" "$*: exit $got, not $code: $said"
  elif ! grep -qE -- "$pattern" <<<"$said"; then fail "$name" "$*: says nothing that matches $pattern: $said"
  else ok; fi
}
# await SECONDS COMMAND...: retries until the command succeeds; false after that time.
await() {
  local deadline=$((SECONDS + $1)); shift
  until "$@" >/dev/null 2>&1; do [ $SECONDS -lt $deadline ] || return 1; read -rt 0.02 <> <(:) || :; done
}
# json TEXT EXPRESSION: the expression over `d` must be true. An invalid document is a failure.
json() { python3 -SE -c 'import json,sys
d = json.loads(sys.argv[1])
if not eval(sys.argv[2]): sys.exit("not so: %s in %s" % (sys.argv[2], sys.argv[1][:2000]))' "$1" "$2"; }
# field TEXT EXPRESSION: prints the value.
field() { python3 -SE -c 'import json,sys; d = json.loads(sys.argv[1]); print(eval(sys.argv[2]))' "$1" "$2"; }

mounted() { grep -qF " $1 " /proc/self/mounts; }
# gone PID: with all its threads: while the first is a zombie, others may still hold its files and
# locks.
gone() { [ ! -e "/proc/$1" ] || { grep -q '^State:.*Z' "/proc/$1/status" 2>/dev/null && [ "$(ls "/proc/$1/task" 2>/dev/null | wc -l)" -le 1 ]; }; }
# Prints the pids of the daemons of a runtime directory.
daemons() {
  local found; found=$(grep -lzxF -- --runtime-dir /proc/[0-9]*/cmdline 2>/dev/null)
  [ -z "$found" ] || grep -lzxF -- "${1:-$EFS_RUNTIME_DIR}" $found 2>/dev/null | cut -d/ -f3
}
no_daemon() { [ -z "$(daemons "${1:-}")" ]; }

# kernel_has_it: passthrough and takeover need Linux 6.9. This is checked beforehand, so that an
# error is a failure, not a skip.
kernel_has_it() { [ "$(printf '6.9\n%s\n' "$(uname -r)" | sort -V | head -n 1)" = 6.9 ]; }
# receipt [RESULTS_DIR], action RESULTS_DIR PATH: the job's receipt, and its action for a path.
receipt() { cat "${1:-$OUT}/efs-receipt-$NAME.json"; }
action() { field "$(receipt "$1")" "[e['action'] for e in d['entries'] if e['path'] == '$2']"; }
status_of() { "$EFS" status --json "$1"; }
# started ARGUMENTS...: efs start, as one check.
started() { local text; text=$("$EFS" start "$@" 2>&1) && ok || { fail "start $*" "$text"; return 1; }; }
# stall PID...: simulates a hung file server with no request in progress. A thread that took a
# request while it was being stopped would leave a client that cannot even be killed: then all go on
# for a moment. Without root the requests of the mounts cannot be counted.
stall() {
  ! stalled "$@" || return 0
  local end=$((SECONDS + 60))
  while [ $SECONDS -lt $end ]; do
    kill -STOP "$@" && await 20 stalled "$@" || return 1
    [ "$(requests_in_progress)" != 0 ] || return 0
    kill -CONT "$@"; read -rt 0.02 <> <(:) || :
  done
  echo 'there is always a request in progress'; return 1
}
# Prints the number of requests that have no answer yet, to the mounts below $STALL_BELOW.
requests_in_progress() {
  local connections=$S/connections device sum=0
  mkdir -p "$connections" && mount -t fusectl none "$connections" 2>/dev/null || { echo 0; return; }
  for device in $(awk -v below="${STALL_BELOW:-$S}/" 'index($5 "/", below) == 1 && / - fuse.efs / { sub(/.*:/, "", $3); print $3 }' /proc/self/mountinfo | sort -u); do
    sum=$((sum + $(cat "$connections/$device/waiting" 2>/dev/null || echo 0)))
  done
  umount "$connections"
  echo $sum
}
stalled() { local pid; for pid; do ! grep -hs '^State:' /proc/"$pid"/task/*/status | grep -qv 'T (stopped)' || return 1; done; }
# ended NAME: the instance has no files left.
ended() { [ ! -e "$EFS_RUNTIME_DIR/$1" ]; }
# kill_both NAME: as the out-of-memory killer might; the mount stays, dead.
kill_both() {
  local text supervisor worker
  text=$(status_of "$1"); supervisor=$(field "$text" 'd["supervisor_pid"]'); worker=$(field "$text" 'd["worker_pid"]')
  kill -KILL "$supervisor" "$worker"
  await 20 gone "$worker"; await 20 gone "$supervisor"
}

# fresh NAME [LINE...]: a new PFS with inputs, and a new job, in the variables PFS MNT OUT JOB NAME.
# The lines go into the job file. Without lines, the job stages `input` in and exports all new
# files.
fresh() {
  NAME=$1; shift
  local d=$S/$NAME
  PFS=$d/pfs MNT=$d/mnt OUT=$d/out JOB=$d/$NAME.yaml
  mkdir -p "$PFS/input/sub" "$OUT"
  echo alpha >"$PFS/input/a"; echo beta >"$PFS/input/sub/b"
  job "$JOB" "${@:-resources: [ [ path: input ] ]}"
}
# job FILE LINE...: a job file for $PFS, $MNT and $OUT.
job() {
  local file=$1; shift
  printf 'global-settings:\n  root-dir: %s\n  mount-dir: %s\n  results-dir: %s\n' "$PFS" "$MNT" "$OUT" >"$file"
  local line capacity=1
  for line in "$@"; do case $line in *backends:*) capacity=0 ;; esac; done
  [ $capacity = 0 ] || printf 'backends:\n  - id: ram\n    type: DRAM\n    capacity: %s\n' "${CAPACITY:-128 MiB}" >>"$file"
  printf '%s\n' "$@" >>"$file"
}
# Lists a tree with find: names, types, modes, owners, sizes, times, link targets and contents.
listing() { (cd "$1" && find . -printf '%p %y %m %U %G %s %T@ %C@ %l\n' | sort && find . -type f -readable -exec cksum {} + | sort -k3) | cksum; }

leftovers() {
  local left=
  left+=$(grep -F "$S" /proc/self/mounts)
  left+=$(daemons | sed 's/^/efsd /')
  left+=$(find "$S" -name '*.efs-partial')
  left+=$(ls -A "$EFS_RUNTIME_DIR" 2>/dev/null | sed 's/^/instance /')
  left+=$(ls -d /dev/shm/efs-*-"$(basename "$S")"* 2>/dev/null)
  [ -z "$left" ] || { echo "$left"; return 1; }
}
# Removes the store that a killed daemon left on purpose.
drop_store() {
  while mounted "$EFS_RUNTIME_DIR/$1/store"; do umount "$EFS_RUNTIME_DIR/$1/store" || return 1; done
  rm -rf "${EFS_RUNTIME_DIR:?}/$1"
}
clean() {
  local pid point name
  trap - EXIT
  [ ${#pids[@]} = 0 ] || kill -KILL "${pids[@]}" 2>/dev/null
  for name in "$EFS_RUNTIME_DIR"/*; do [ ! -d "$name" ] || timeout 20 "$EFS" stop --no-stage-out "$(basename "$name")" >/dev/null 2>&1; done
  for pid in $(daemons); do kill -KILL "$pid" 2>/dev/null; done
  # The last mount first; lazily, because a process may still use it.
  grep -F " $S" /proc/self/mounts | cut -d' ' -f2 | tac | while read -r point; do umount -l "$point" 2>/dev/null; done
  rm -rf --one-file-system "$S"
}
trap 'clean; exit 130' INT TERM
trap clean EXIT

# Ends a test: no process or mount may remain. Prints the verdict.
finish() {
  await 20 no_daemon   # after its last answer it gives the store's memory back, which takes the kernel a moment
  check 'nothing is left: no mount, daemon, instance, partial file' leftovers
  clean
  echo "$passed passed, $failed failed, $skipped skipped"
  [ "$failed" -eq 0 ]
  exit
}
# numpy_python: the first Python that has NumPy, or python3
numpy_python() {
  local python
  for python in ${EFS_NUMPY_PYTHON:-} python3 /usr/bin/python3; do
    "$python" -c 'import numpy' 2>/dev/null && break
    python=python3
  done
  echo "$python"
}
