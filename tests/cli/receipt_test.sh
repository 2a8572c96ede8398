#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# efs receipt: the summary, entries of one kind, and two receipts compared.
#   receipt_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

setting() { sed -i "s|^global-settings:|&\n  $1|" "$JOB"; }
fresh first 'resources: [ [ path: input ] ]' 'outputs:' '  - path: r*'
setting 'name: job'
echo old >"$OUT/r1"
check 'run' "$EFS" run "$JOB" -- sh -c "echo 1 >$MNT/r1; echo 2 >$MNT/r2; echo 3 >$MNT/r3; echo x >$MNT/stray"
a=$OUT/efs-receipt-job.json
check_exit 'the summary' 0 'stage-out complete: 3 staged out' "$EFS" receipt "$a"
check_exit 'by the job file' 0 'stage-out complete: 3 staged out' "$EFS" receipt "$JOB"
check_exit 'what was dropped' 0 '^stray: dropped, 2 B: no output rule' "$EFS" receipt --dropped "$a"
check 'and nothing else' test "$(wc -l <<<"$said")" = 1
check_exit 'what was replaced' 0 '^r1: staged-out, replaced, 2 B' "$EFS" receipt --replaced "$a"
check_exit 'what failed: nothing' 0 '^$' "$EFS" receipt --failed "$a"
check 'two kinds, in JSON' json "$("$EFS" receipt --json --dropped --replaced "$a")" 'd["exit"] == 0 and [e["path"] for e in d["entries"]] == ["r1", "stray"]'
cp "$a" "$S/a.json"

setting 'existing: fail'
sed -i 's|^outputs:|&\n  - path: stray|' "$JOB"
echo theirs >"$OUT/r9"
rm "$OUT"/r[123]
started "$JOB"
echo 1 >"$MNT/r1"; echo 22 >"$MNT/r2"; echo 9 >"$MNT/r9"; echo x >"$MNT/stray"; echo 4 >"$MNT/r4"
check_exit 'a conflict' 3 'conflict: r9' "$EFS" stop job
check_exit 'what failed' 0 '^r9: conflict, 2 B: .*existing: fail' "$EFS" receipt --failed "$a"
rm "$OUT/r9"
check 'stop' "$EFS" stop job
check_exit 'two receipts differ' 3 '^\+ r4' "$EFS" receipt --diff "$S/a.json" "$a"
check 'a result that is gone' grep -qx -- '- r3' <<<"$said"
check 'another size' grep -qx -- '~ r2: 2 -> 3 bytes' <<<"$said"
check 'another outcome' grep -qx -- '~ stray: dropped -> staged-out' <<<"$said"
check_not 'equal ones are not named' grep -q 'input/a' <<<"$said"
check 'JSON' json "$("$EFS" receipt --json --diff "$S/a.json" "$a")" 'd["exit"] == 3 and {one["path"]: one["change"] for one in d["differences"]}["r3"] == "removed"'
check_exit 'a receipt agrees with itself' 0 '^0 of the files' "$EFS" receipt --diff "$a" "$a"
check_exit 'one that cannot be read' 1 'is not a receipt' "$EFS" receipt --diff "$a" "$JOB"
check_exit 'two things at once' 2 'excludes' "$EFS" receipt --verify "$a" --failed
check_exit 'one receipt is no comparison' 2 '' "$EFS" receipt --diff "$a"
finish
