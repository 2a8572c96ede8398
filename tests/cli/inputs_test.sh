#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The names that are inputs: not the files that efs creates for the job, not vanished files; targets
# of links; job files from pipes.
#   inputs_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# whole FILE LINE...: a job on all of root-dir with persistent results. The lines go to
# global-settings.
whole() {
  local file=$1; shift
  job "$file" 'resources: [ [ path: ".", flags: persistent ] ]'
  for line; do sed -i "/^  results-dir:/a\\  $line" "$file"; done
}
in_place() { whole "$@"; sed -i '/^  results-dir:/d; 3a\  in-place: true' "$1"; }

# --- files that efs creates for the job ---
fresh own
in_place "$JOB" "status-file: $PFS/state.json" "log-file: $PFS/input/own.log"
sed -i '/^backends:/,$d' "$JOB"
mkdir "$PFS/store"
printf 'backends:\n  - id: disk\n    type: NVRAM-NVML\n    daxfs: %s/store\nresources:\n  - path: .\n    flags: persistent\n' "$PFS" >>"$JOB"
for run in 1 2; do
  check_exit "run $run" 0 'is mounted' "$EFS" start "$JOB"
  for file in state.json input/own.log; do check_not "run $run: $file is no input" test -e "$MNT/$file"; done
  check "run $run: nor is the store" test -z "$(ls -A "$MNT/store")"
  echo "run $run" >>"$MNT/input/a"; chmod -R g+w "$MNT"
  [ $run = 1 ] || check_exit 'status counts what was skipped' 0 'inputs .* skipped' "$EFS" status own
  check "stop $run" "$EFS" stop own
done
check 'the second run is as good as the first' test "$(grep -c run "$PFS/input/a")" = 2
check_exit 'a start says what it skips' 0 'skipped efs-receipt-own.json \(this job.s receipt\)' "$EFS" start "$JOB"
check_exit 'and how many' 0 'skipped' "$EFS" status own
check 'in JSON, too' json "$(status_of own)" '{"path": "efs-receipt-own.json", "reason": "this job'"'"'s receipt", "vanished": False} in d["staged_in"]["skipped_first"]'
check 'stop' "$EFS" stop own
check 'the receipt names it' json "$(receipt "$PFS")" '"efs-receipt-own.json" in [s["path"] for s in d["staged_in"]["skipped"]]'
printf '  - path: efs-receipt-own.json\n' >>"$JOB"
check 'a resource may name a receipt' sh -c '"$1" plan --json "$2" | grep -q "\"path\":\"efs-receipt-own.json\",.*\"type\":\"file\""' sh "$EFS" "$JOB"
printf '  - path: state.json\n' >>"$JOB"; touch "$PFS/state.json"
check_exit 'but not a file that the job writes' 1 "state.json: is this job.s status-file, not an input" "$EFS" plan "$JOB"

# --- vanished files ---
fresh gone
whole "$JOB"
mkdir "$PFS/busy"
for i in $(seq 200); do echo "$i" >"$PFS/busy/f$i"; done
churn() { while [ -d "$PFS/busy" ]; do for k in 1 2 3 4; do echo x >"$PFS/busy/.tmp$k"; mkdir -p "$PFS/busy/d$k/e"; done; rm -rf "$PFS"/busy/.tmp* "$PFS"/busy/d?; done; }
whole "$JOB" 'vanished: skip'
churn 2>/dev/null & pids+=($!); churner=$!
for i in 1 2 3 4 5; do
  check "start $i in a directory that changes" "$EFS" start "$JOB"
  check "start $i: all that stays is there" test "$(cat "$MNT"/busy/f* | sort -n | tail -n 1)" = 200
  check "stop $i" "$EFS" stop gone
done
kill "$churner"; wait "$churner" 2>/dev/null; pids=()

# --- symbolic links ---
fresh links
mkdir -p "$S/links/else/deep"
echo far >"$S/links/else/deep/file"
ln -s "$S/links/else" "$PFS/input/away"; ln -s ../../mnt "$PFS/input/up"; ln -s a "$PFS/input/near"
check_exit 'plan has a word on links that lead out' 0 "input/away -> $S/links/else leads out of root-dir" "$EFS" plan "$JOB"
check 'and none on others' test "$(grep -c '^note: ' <<<"$said")" = 2
rm "$PFS/input/up"
job "$JOB" 'resources: [ [ path: input, flags: persistent, follow: true ] ]'
check_exit 'what they lead to can be an input' 0 'is mounted' "$EFS" start "$JOB"
check 'with all below it' grep -qx far "$MNT/input/away/deep/file"
check 'a file too' test -f "$MNT/input/near" -a ! -L "$MNT/input/near"
echo more >>"$MNT/input/away/deep/file"
check 'stop' "$EFS" stop links
check 'changed, it is a result' grep -qx more "$OUT/input/away/deep/file"
check_not 'and the PFS has what it had' grep -qx more "$S/links/else/deep/file"
ln -s ../../.. "$S/links/else/deep/round"
check_exit 'links that lead in a circle are refused' 1 'leads back to this link' "$EFS" plan "$JOB"
rm "$S/links/else/deep/round"; ln -s nowhere "$PFS/input/dangling"
check_exit 'and those that lead nowhere' 1 'input/dangling: is a symbolic link to nowhere, which does not exist' "$EFS" start "$JOB"
rm "$PFS/input/dangling"

# --- names and patterns ---
echo 1 >"$PFS/data[1].nc"
job "$JOB" 'resources: [ [ path: "data[1].nc" ] ]'
check_exit 'a name that looks like a pattern' 1 'a file has this very name: to mean it, write data\[\[\]1\]\.nc' "$EFS" plan "$JOB"
job "$JOB" 'resources: [ [ path: "data[[]1].nc" ] ]'
check 'as it is written then' "$EFS" plan "$JOB"

# --- job files from pipes ---
fresh piped
check_exit 'a job file from standard input' 0 'is mounted' sh -c '"$1" start -n piped - <"$2"' sh "$EFS" "$JOB"
check 'the inputs are there' test -e "$MNT/input/a"
kill_both piped
check_exit 'the way on says that it is to be given again' 1 'efs start -n piped - <JOBFILE' "$EFS" status piped
check 'and is so' sh -c 'cat "$2" | "$1" start -n piped /dev/stdin' sh "$EFS" "$JOB"
check 'stop' "$EFS" stop piped
check_exit 'from a pipe of the shell, and standard input is the program s' 0 '^typed$' bash -c 'echo typed | "$1" run -n piped <(cat "$2") -- sh -c "cat; test -r \$EFS_CONFIG"' bash "$EFS" "$JOB"
check_exit 'check' 0 '^-: good' sh -c '"$1" check - <"$2"' sh "$EFS" "$JOB"
check_exit 'its problems have places' 2 '^-:1:1: unknown key' sh -c 'echo "a: b" | "$1" start -' sh "$EFS"
check_exit 'nothing to read' 2 "'root-dir' is missing" sh -c '"$1" start - </dev/null' sh "$EFS"

# --- the command line ---
check_exit 'a misspelt command' 2 "unknown command 'stauts': did you mean status\?" "$EFS" stauts
check_exit 'in JSON, too' 2 . "$EFS" stauts --json
check 'as an error' json "$said" 'd["exit"] == 2 and "did you mean status?" in d["error"]'
check_exit 'a misspelt option' 2 'did you mean --foreground\?' "$EFS" start --foregruond "$JOB"
check_exit 'a dash that is no hyphen' 2 'begins with an en dash, U\+2013' "$EFS" start $'\xe2\x80\x93f' "$JOB"
check_exit 'a name that is not seen whole' 2 'cannot read the job file.*its name holds a no-break space, U\+00A0' "$EFS" check "$JOB"$'\xc2\xa0'
sed -i '/^  mount-dir:/d' "$JOB"
check_exit 'a job of Slurm needs no mount-dir' 0 'mounts at /.*/job' "$EFS" check --at-submission "$JOB"
check 'nor for its plan' "$EFS" plan --at-submission "$JOB"
check_exit 'another job does' 2 "'mount-dir' is missing .*--at-submission" "$EFS" check "$JOB"

finish
