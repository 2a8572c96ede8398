#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The daemon serves a program that is bound to one CPU on that CPU, and never on one that taskset(1)
# denies it.
#   placement_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

joined() { field "$(status_of "$NAME")" "d['counters']['joined_callers']"; }
# The CPUs of each thread of the worker, one a line: a bound thread has one.
worker_cpus() { taskset -acp "$(field "$(status_of "$NAME")" 'd["worker_pid"]')" | sed 's/.*: //'; }
no_bound_thread() { [ "$(worker_cpus | sort -u)" = "$cpus" ]; }
# 300 requests of one process, which the words run.
requests() { "$@" python3 -c 'import os, sys
for i in range(150):
    os.mkdir(sys.argv[1] + "/x")
    os.rmdir(sys.argv[1] + "/x")' "$MNT"; }

cpus=$(taskset -cp $$ | sed 's/.*: //')
first=${cpus%%[,-]*}
[ "$cpus" != "$first" ] || { skip 'placement' 'this machine, or this test, has only one CPU'; finish; }

fresh joins 'resources: []'
started "$JOB"
check 'a program that may use several CPUs' requests
check 'is not joined' test "$(joined)" = 0
check 'a program that is bound to one' requests taskset -c "$first"
check 'is joined' test "$(joined)" -ge 1
check 'for as long as it asks' await 20 no_bound_thread
before=$(joined)
check 'the other program again' requests
check 'is not joined' test "$(joined)" = "$before"
taskset -acp "${cpus##*[,-]}" "$(field "$(status_of "$NAME")" 'd["worker_pid"]')" >/dev/null
before=$(joined)
check 'a program on a CPU that the daemon may not use' requests taskset -c "$first"
check 'is not joined' test "$(joined)" = "$before"
check 'stop' "$EFS" stop "$NAME"

fresh off 'resources: []'
started -o placement=off "$JOB"
check 'placement=off: a bound program' requests taskset -c "$first"
check 'is not joined' test "$(joined)" = 0
check 'stop' "$EFS" stop "$NAME"
finish
