#!/bin/bash
# What an earlier instance left is not lost: not by a start that fails, and not under another node's results.
#   earlier_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"


# --- starts that fail ---
fresh failing
check 'start' "$EFS" start "$JOB"
echo precious >"$MNT/result"
kill_both failing
good=$(cat "$JOB")
sed -i "/results-dir/a\\  trace: $S/nowhere/trace" "$JOB"
check_not 'a start whose trace cannot be opened fails' timeout 30 "$EFS" start "$JOB"
if [ "$(id -u)" = 0 ]; then
  echo 'global-settings: [' >"$JOB"
  check_not 'a start whose job file is none fails' timeout 30 "$EFS" start -u root --name failing --mount-dir "$MNT" "$JOB"
fi
printf '%s\n' "$good" >"$JOB"
mv "$PFS" "$PFS.away"
check_not 'a start without its PFS fails' timeout 30 "$EFS" start "$JOB"
mv "$PFS.away" "$PFS"
check 'the data are still there' timeout 30 "$EFS" start "$JOB"
check 'and in place' grep -qx precious "$MNT/result"
check 'stop' "$EFS" stop failing
check 'brings them back' grep -qx precious "$OUT/result"

# --- several nodes ---
fresh node0
check 'the first of two nodes' "$EFS" start --node 0/2 "$JOB"
echo 'by node 0' >"$MNT/log"
echo 'first' >"$MNT/own"
check 'unloads' "$EFS" unload -w "$MNT/own"
echo 'second' >"$MNT/own"
kill_both node0
echo 'by node 1' >"$OUT/log"   # meanwhile
check_exit 'a salvage does not replace the other node'\''s file' 3 'another node' "$EFS" salvage node0
check 'it is as it was' grep -qx 'by node 1' "$OUT/log"
check 'but its own' grep -qx second "$OUT/own"
check 'the job goes on' timeout 30 "$EFS" start --node 0/2 "$JOB"
echo 'third' >"$MNT/own"
check_exit 'and does not replace it either' 3 'another node' timeout 30 "$EFS" stop node0
check 'still as it was' grep -qx 'by node 1' "$OUT/log"
check 'but once more its own' grep -qx third "$OUT/own"
rm "$OUT/log"
check 'out of the way it is brought back' timeout 30 "$EFS" stop node0
check 'the file of this node' grep -qx 'by node 0' "$OUT/log"

fresh again
check 'a node' "$EFS" start --node 0/2 "$JOB"
echo 'first' >"$MNT/own"
check 'unloads a file' "$EFS" unload -w "$MNT/own"
echo 'second' >"$MNT/own"
check 'and brings its next state out over its own' timeout 30 "$EFS" stop again
check 'which is there' grep -qx second "$OUT/own"

finish
