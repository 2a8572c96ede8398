#!/bin/bash
# What goes with the inputs, in and out: hard links, deletions, lists of inputs, extended attributes and ACLs.
#   staging_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

worker() { field "$("$EFS" status --json "$NAME")" 'd["worker_pid"]'; }
kill_both() {
  local text supervisor worker
  text=$("$EFS" status --json "$1"); supervisor=$(field "$text" 'd["supervisor_pid"]'); worker=$(field "$text" 'd["worker_pid"]')
  kill -KILL "$supervisor" "$worker"
  await 20 gone "$worker"; await 20 gone "$supervisor"
}
# in_place FILE LINE...: as job, with the inputs' own place as that of the results.
in_place() { local file=$1; shift; job "$file" "$@"; sed -i 's|^  results-dir:.*|  in-place: true|' "$file"; }
inode() { stat -c %i "$1"; }
same_file() { [ "$(inode "$1")" = "$(inode "$2")" ]; }
receipt() { cat "${1:-$OUT}/efs-receipt-$NAME.json"; }
action() { field "$(receipt "$1")" "[e['action'] for e in d['entries'] if e['path'] == '$2']"; }
takes_over() { local old; old=$(worker); kill -KILL "$old"; await 20 has_successor "$old"; }
has_successor() { local text; text=$("$EFS" status --json "$NAME") && json "$text" "d['worker_pid'] != $1 and d['state'] == 'running'"; }

# --- hard links ---
fresh links
mkdir "$PFS/other"
ln "$PFS/input/a" "$PFS/input/sub/a2"; ln "$PFS/input/a" "$PFS/other/a3"
in_place "$JOB" 'resources: [ [ path: input, flags: persistent ], [ path: other ] ]'
check_exit 'plan counts their bytes once' 0 'stage in 4 files, 11 B' "$EFS" plan "$JOB"
check 'start' "$EFS" start "$JOB"
check 'two names of a file are two names of a file' same_file "$MNT/input/a" "$MNT/input/sub/a2"
check 'across resources, too' same_file "$MNT/input/a" "$MNT/other/a3"
check 'with their number' test "$(stat -c %h "$MNT/other/a3")" = 3
if [ "$("$EFS" status --json links | grep -c '"takeover')" -gt 0 ] && takes_over; then
  check 'after a takeover' same_file "$MNT/input/a" "$MNT/other/a3"
else
  skip 'hard links after a takeover' 'no takeover here'
fi
kill_both links
ln "$PFS/input/sub/b" "$PFS/input/b2"   # meanwhile
check 'start on what is left' "$EFS" start "$JOB"
check 'they are still one file' same_file "$MNT/input/a" "$MNT/other/a3"
check 'a name more of an input is a name more of it' same_file "$MNT/input/sub/b" "$MNT/input/b2"
echo changed >>"$MNT/input/sub/a2"
check 'stop' "$EFS" stop links
check 'what is persistent is back under both names' grep -qx changed "$PFS/input/a"
check 'as one file' same_file "$PFS/input/a" "$PFS/input/sub/a2"
check_not 'what is temporary is as it was' grep -qx changed "$PFS/other/a3"
check 'and dropped' test "$(action "$PFS" other/a3)" = "['dropped']"

finish
