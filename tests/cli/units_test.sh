#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The units of systemd: systemd accepts them, and the commands in them do what they promise. No
# manager of systemd runs here; the test runs the commands as systemd would.
#   units_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
PATH=$BIN:$PATH
units=$SOURCE/conf/systemd
command_of() { sed -n "s/^$2=//p" "$units/$1"; }   # command_of UNIT KEY
# unit KEY: runs the command of efs@.service for $JOB
unit() { local text; text=$(command_of efs@.service "$1"); text=${text//\$\$/\$}; sh -c "${text//%f/$JOB}"; }
seconds() { sed -n "s/^$2=\([0-9]*\)h$/\1/p; s/.*--$2 \([0-9]*\).*/\1/p" "$units/$1"; }

# --- systemd accepts them ---
# The units name efs without a directory: systemd looks for it in fixed places.
mkdir "$S/units"
for file in "$units"/*; do sed -E "s#\befs (start|stop|status|clean)( |\$)#$EFS \1\2#g" "$file" >"$S/units/${file##*/}"; done
verify() { XDG_RUNTIME_DIR=$S systemd-analyze verify --man=no "$@"; }
if command -v systemd-analyze >/dev/null; then
  check 'there are units' test "$(ls "$units" | wc -l)" -ge 3
  said=$(verify "$S"/units/efs-clean.* 2>&1); check "units of the system: $said" test -z "$said"
  said=$(verify --user "$S"/units/* 2>&1); check "units of a user: $said" test -z "$said"
  sed 's/^ExecStart=.*/ExecStart=no-such-program/' "$S/units/efs-clean.service" >"$S/units/bad.service"
  check_not 'a bad one is found' verify "$S/units/bad.service"
else
  skip 'systemd accepts the units' 'no systemd-analyze (Debian: package systemd)'
fi
check 'systemd waits longer than the stop' test $((3600 * $(seconds efs@.service TimeoutStopSec))) -gt $(($(seconds efs@.service deadline) + 60))

# --- the job file of several instances ---
fresh several
check 'the unit starts' unit ExecStart
started -n second -m "$S/several/second" "$JOB"
check_not 'a stop that may mean either fails' unit ExecStop
check 'stop the one' "$EFS" stop several
check 'stop the other' "$EFS" stop second

# --- an instance as a unit ---
fresh unit
check 'the unit starts' unit ExecStart
check 'with the inputs' grep -qx alpha "$MNT/input/a"
echo result >"$MNT/result"
check 'it stops' unit ExecStop
check 'with stage-out' grep -qx result "$OUT/result"
check 'and nothing stays' ended unit
check 'a stop of what has ended is none' unit ExecStop
check 'starts again' unit ExecStart
echo more >"$MNT/more"
: >"$OUT/d"; mkdir "$MNT/d"; echo kept >"$MNT/d/kept"   # not a directory: a result cannot be exported
check_exit 'a stop whose results stay fails, and says so' 3 'd/kept' unit ExecStop
rm "$OUT/d"
check 'the next start continues' unit ExecStart
check 'and the next stop exports them' unit ExecStop
check 'which is so' grep -qx kept "$OUT/d/kept"

# --- the sweep ---
sweep() { sh -c "$(command_of efs-clean.service ExecStart)"; }
check 'nothing to remove is no failure' sweep
fresh saved
started "$JOB"; kill_both saved
fresh unsaved
started "$JOB"; echo precious >"$MNT/r"; kill_both unsaved
fresh kept
started "$JOB"; "$EFS" stop --keep kept >/dev/null
fresh running
started "$JOB"
check_exit 'a sweep fails for results without another copy, and names them' 1 'unsaved is not removed: .*no other copy' sweep
check 'it removes what has none' ended saved
check 'a running instance stays' grep -qx alpha "$MNT/input/a"
check 'and a kept one' test -e "$EFS_RUNTIME_DIR/kept"
check 'and results' "$EFS" salvage unsaved
check 'with their contents' grep -qx precious "$S/unsaved/out/r"
check 'then the sweep removes the rest' sweep
check 'which is so' ended unsaved
"$EFS" stop running >/dev/null; "$EFS" clean --kept >/dev/null
finish
