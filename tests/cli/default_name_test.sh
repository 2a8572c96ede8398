#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Two jobs of one user whose job files have one name: each has an instance, and finds it again.
#   default_name_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# twin DIRECTORY [LINE...]: a job in a directory of its own, whose job file is called job.yaml; its variables as by fresh.
twin() {
  fresh "$1" 'resources: [ [ path: input ] ]' "${@:2}"
  mv "$JOB" "$S/$1/job.yaml" && JOB=$S/$1/job.yaml
}
name_of() { field "$("$EFS" check --json "$1")" 'd["name"]'; }
suffixed='^job-[0-9a-f]{8}$'

# --- both in memory ---
twin one; ONE=$JOB ONE_MNT=$MNT ONE_OUT=$OUT
twin two; TWO=$JOB TWO_MNT=$MNT TWO_OUT=$OUT
check 'alone, the name is the job file'\''s' test "$(name_of "$TWO")" = job
started "$ONE"
check_exit 'the second one says how it is called' 0 "one/job.yaml\): the instance is called job-[0-9a-f]{8}" "$EFS" start "$TWO"
other=$(name_of "$TWO")
check_exit 'its name' 0 "$suffixed" echo "$other"
check 'the first one keeps its name' test "$(name_of "$ONE")" = job
check 'both run' test "$(ls "$EFS_RUNTIME_DIR" | wc -l)" = 2
echo 1 >"$ONE_MNT/r"; echo 2 >"$TWO_MNT/r"
check 'found by job file' json "$("$EFS" status --json "$TWO")" "d['name'] == '$other' and d['mount'] == '$TWO_MNT'"
check 'found by mount point' json "$("$EFS" status --json "$TWO_MNT")" "d['name'] == '$other'"
check 'found by name' json "$("$EFS" status --json "$other")" "d['mount'] == '$TWO_MNT'"
check_exit 'the same job file twice is refused' 1 "$other is there already" "$EFS" start "$TWO"
check_exit 'by its first name, too' 1 'named job is there already' "$EFS" start "$ONE"
(cd "$S/two" && check 'a relative path is the same job' test "$(name_of job.yaml)" = "$other"; [ "$failed" = 0 ]) && ok || fail 'a relative path'

# --- each finds what it left ---
check 'the first one ends' "$EFS" stop "$ONE"
check 'the second one still has its name' test "$(name_of "$TWO")" = "$other"
check 'a stop that keeps' "$EFS" stop --keep "$TWO"
check 'what was kept has the name' test "$(name_of "$TWO")" = "$other"
started "$TWO"
check 'and is there again' grep -qx 2 "$TWO_MNT/r"
kill_both "$other"
check 'what a crash left has it, too' test "$(name_of "$TWO")" = "$other"
check 'salvage by the job file' "$EFS" salvage "$TWO"
check 'brings it out' grep -qx 2 "$TWO_OUT/r"
check 'clean by the job file' "$EFS" clean --force "$TWO"
check 'then the name is free' test "$(name_of "$TWO")" = job
check 'results of the first one' grep -qx 1 "$ONE_OUT/r"

# --- what is left of another job, with no directory of an instance ---
mkdir "$S/disk"
disk="backends: [ [ id: disk, type: NVRAM-NVML, daxfs: $S/disk ] ]"
twin three "$disk"; THREE=$JOB
twin four "$disk"; FOUR=$JOB FOUR_MNT=$MNT FOUR_OUT=$OUT
started "$THREE"
echo 3 >"$S/three/mnt/r"
check 'kept' "$EFS" stop --keep "$THREE"
rm -rf "$EFS_RUNTIME_DIR/job"
check_exit 'a store on a disk keeps the name' 0 'three/job.yaml' "$EFS" start "$FOUR"
echo 4 >"$FOUR_MNT/r"
fourth=$(name_of "$FOUR")
check_exit 'the other one has a suffix' 0 "$suffixed" echo "$fourth"
check 'and leaves its store' "$EFS" stop --keep "$FOUR"
rm -rf "${EFS_RUNTIME_DIR:?}/$fourth"
check 'clean of the first one' "$EFS" clean --force "$THREE"
check 'the store of the other one is found by its job file' "$EFS" salvage "$FOUR"
check 'and brought out' grep -qx 4 "$FOUR_OUT/r"
check 'clean of the other one' "$EFS" clean --force "$FOUR"
check 'nothing is on the disk' test -z "$(ls "$S/disk")"

# --- a copy of the job file with the same directories is the same job ---
twin five "$disk"; FIVE=$JOB
started "$FIVE"; echo 5 >"$MNT/r"
check 'kept, to be continued' "$EFS" stop --keep "$FIVE"
mkdir "$S/five/copy"; cp "$FIVE" "$S/five/copy/job.yaml"
check 'a copy of the job file has the name' test "$(name_of "$S/five/copy/job.yaml")" = job
started "$S/five/copy/job.yaml"
check 'and goes on' grep -qx 5 "$MNT/r"
check 'its end' "$EFS" stop job

# --- what a job left keeps the name, also if another instance has it now ---
twin eight "$disk"; EIGHT=$JOB EIGHT_MNT=$MNT
started "$EIGHT"; echo 8 >"$MNT/r"
check 'kept on a disk' "$EFS" stop --keep "$EIGHT"
rm -rf "${EFS_RUNTIME_DIR:?}/job"
twin nine; NINE=$JOB
check 'another job in memory takes the name' "$EFS" start "$NINE"
check 'the store on the disk keeps it for its job' test "$(name_of "$EIGHT")" = job
check_exit 'which is refused, and not begun anew' 1 'named job is there already' "$EFS" start "$EIGHT"
check 'until the other job ends' "$EFS" stop "$NINE"
check 'then it goes on' "$EFS" start "$EIGHT"
check 'with what it left' grep -qx 8 "$EIGHT_MNT/r"
check 'and ends' "$EFS" stop "$EIGHT"

# --- a name that is given stays ---
twin six; started "$JOB" --name job
twin seven 'outputs: [ [ path: "**", flags: persistent ] ]'
check_exit 'a name that is given is refused' 1 'named job is there already' "$EFS" start --name job "$JOB"
check 'end of it' "$EFS" stop job
finish
