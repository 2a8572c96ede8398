#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs for persistent memory on a mount: a pool of libpmemobj and memkind's PMEM kind. The worker is
# replaced while the files are mapped and while the pool is closed; a program dies in a transaction.
#   pmdk_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

program=$S/pmdk_check
for library in libpmemobj memkind; do
  pkg-config --exists $library 2>/dev/null || { skip "pools and kinds" "$library is not installed: make programs-deps"; finish; }
done
# Its macros are GNU C.
check 'the checker compiles' "${CC:-cc}" -std=gnu11 -Wall -Wextra -Werror -O1 "$SOURCE/tests/cli/pmdk_check.c" -o "$program" $(pkg-config --cflags --libs libpmemobj memkind)

state() { "$EFS" status --json "$NAME"; }
worker() { local pid; read -r pid _ <"/proc/$supervisor/task/$supervisor/children"; [ -n "$pid" ] && echo "$pid"; }
# A successor that has answered a lookup of a new name.
asked=0
replaced() { local pid; pid=$(worker) && [ "$pid" != "$1" ] && asked=$((asked + 1)) && [ ! -e "$MNT/.never$asked" ]; }
begun() { grep -qx begun "$1"; }
replace_worker() {  # replace_worker NAME
  local pid; pid=$(worker)
  kernel_has_it || { skip "$1: another worker" 'needs Linux 6.9'; return; }
  check "$1: its worker is killed" kill -KILL "$pid"
  check "$1: another worker" await 20 replaced "$pid"
}
# The worker is replaced in the program's pause.
with_pause() {  # with_pause NAME ARGUMENT...
  local name=$1 user; shift
  rm -f "$S/go"; mkfifo "$S/go"
  "$program" "$@" <"$S/go" >"$S/said" 2>&1 & user=$!; pids+=("$user")
  exec 7>"$S/go"
  check "$name: the program has begun" await 20 begun "$S/said"
  replace_worker "$name, mapped"
  echo >&7; exec 7>&-
  if wait "$user" && grep -qx 'done' "$S/said"; then ok; else fail "$name: the program ends well" "$(cat "$S/said")"; fi
  pids=()
}

for options in passthrough daemon-io; do
  CAPACITY='256 MiB' fresh "$options" 'outputs: [ [ path: "**", flags: temporary ] ]'
  if [ $options = daemon-io ]; then started "$JOB" -o daemon-io; else started "$JOB"; fi
  supervisor=$(field "$(state)" "d['supervisor_pid']")
  pool=$MNT/pool
  check_exit "$options: a pool is created" 0 '^done$' "$program" create "$pool"
  replace_worker "$options, closed"
  check_exit "$options: a program dies in its transaction" 137 '' "$program" die "$pool"
  with_pause "$options: the pool" continue "$pool"
  mkdir "$MNT/kinds"
  with_pause "$options: the kind" kind "$MNT/kinds"
  check "$options: the kind leaves no file" test -z "$(ls -A "$MNT/kinds")"
  check "$options: stop" "$EFS" stop $options
done
finish
