#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Results and results-dir: other jobs' results, inherited groups and modes; holes; verified
# receipts.
#   results_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# setting LINE: adds a line to global-settings.
setting() { sed -i "s|^global-settings:|&\n  $1|" "$JOB"; }
attributes() { stat -c '%g %a' "$1"; }
is() { [ "$(attributes "$1")" = "$2" ] || { echo "$1 has $(attributes "$1"), not $2"; return 1; }; }

# --- existing files ---
fresh existing
echo good >"$OUT/same"
started "$JOB"
echo half >"$MNT/same"; echo half >"$MNT/other"
check_exit 'the summary counts what was replaced' 0 '\(1 replaced\)' "$EFS" stop existing
check 'so does the receipt' json "$(receipt)" "d['totals']['replaced'] == 1 and [e['path'] for e in d['entries'] if e.get('replaced')] == ['same']"

fresh left 'resources: [ [ path: input ] ]'
setting 'existing: fail'
echo good >"$OUT/same"
started "$JOB"
echo half >"$MNT/same"; echo half >"$MNT/other"
check_exit 'existing: fail: it is told' 3 'conflict: same: .*existing: fail' "$EFS" stop left
check 'and left alone' grep -qx good "$OUT/same"
mv "$OUT/same" "$S/away"
check_exit 'when it is away, the rest is brought back, and nothing is replaced' 0 'staged out' "$EFS" stop left
check 'with no count' json "$(receipt)" "d['totals']['replaced'] == 0"
check 'the result is there' grep -qx half "$OUT/same"

# --- holes ---
fresh holes
truncate -s 1T "$PFS/input/sparse"; printf x >>"$PFS/input/sparse"
CAPACITY='32 MiB' job "$JOB" 'resources: [ [ path: input ] ]'
check 'plan: a tebibyte of hole fits' "$EFS" plan "$JOB"
started "$JOB"
check 'it came in' test "$(stat -c %s "$MNT/input/sparse")" = $((1024 ** 4 + 1))
kill_both holes
printf y >>"$PFS/input/sparse"
started "$JOB"
check 'a start on what is left brings in what has changed' test "$(stat -c %s "$MNT/input/sparse")" = $((1024 ** 4 + 2))
truncate -s 1T "$MNT/map"; echo small >"$MNT/small"
check_exit 'and goes out in the time of its data' 0 'staged out' timeout 120 "$EFS" stop --deadline 60 holes
check 'with a checksum of its own kind' json "$(receipt)" "[e['checksum'].split(':')[0] for e in d['entries'] if e['path'] in ('map', 'small')] == ['xxh3-sparse', 'xxh3']"
check_exit 'the receipt is verified' 0 '2 results .* are as the receipt says, 0 are not' timeout 120 "$EFS" receipt --verify "$OUT/efs-receipt-holes.json"
echo SMALL >"$OUT/small"; rm "$OUT/map"
check_exit 'and what differs is named' 3 'map: cannot be opened' "$EFS" receipt --verify "$OUT/efs-receipt-holes.json"
check 'in JSON, too' json "$("$EFS" receipt --json --verify "$OUT/efs-receipt-holes.json")" "d['exit'] == 3 and d['verified'] == 0 and [one['path'] for one in d['different']] == ['map', 'small']"
check_exit 'what is no receipt is told' 1 'is not a receipt' "$EFS" receipt --verify "$JOB"

# --- groups and modes ---
if [ "$(id -u)" = 0 ]; then
  fresh group
  chgrp 23456 "$OUT"; chmod 2775 "$OUT"; chgrp 34567 "$PFS"; chmod 2755 "$PFS"
  started "$JOB"
  mkdir "$MNT/d"; echo x >"$MNT/f"; echo x >"$MNT/d/f"; echo x >"$MNT/mine"; chgrp 45678 "$MNT/mine"
  check 'the mount hands root-dir'\''s group down' is "$MNT/d" '34567 2755'
  check 'stop' "$EFS" stop group
  check 'a result has the group that results-dir hands down' is "$OUT/f" '23456 644'
  check 'a directory hands it on' is "$OUT/d" '23456 2755'
  check 'in it' is "$OUT/d/f" '23456 644'
  check 'a group that a program chose goes with the file' is "$OUT/mine" '45678 644'

  fresh asked
  setting 'results-group: 23456'; setting 'results-mode: 0660'
  started "$JOB"
  mkdir "$MNT/d"; echo x >"$MNT/d/f"; cp /bin/true "$MNT/program"
  check 'unload' "$EFS" unload -w d/f
  check 'results-group and results-mode: of an unload' is "$OUT/d/f" '23456 660'
  check 'stop' "$EFS" stop asked
  check 'of an executable file' is "$OUT/program" '23456 770'
  check 'of a directory' is "$OUT/d" '23456 770'
  if command -v setpriv >/dev/null; then
    chmod 777 "$OUT" "$S/asked"
    check_exit 'a group that is not the user'\''s is refused' 1 'not a member' setpriv --reuid 65534 --regid 65534 --clear-groups env EFS_RUNTIME_DIR="$S/r2" "$EFS" plan "$JOB"
  else skip 'a group that is not the user'\''s' 'no setpriv'; fi
else skip 'groups' 'only root can choose any'; fi

finish
