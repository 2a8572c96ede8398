#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The data of an earlier instance is not lost: neither by a failed start, nor under another node's
# results.
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
check_exit 'a start whose trace cannot be opened fails' 1 'trace' timeout 30 "$EFS" start "$JOB"
if [ "$(id -u)" = 0 ]; then
  echo 'global-settings: [' >"$JOB"
  check_exit 'a start whose job file is none fails' 1 'failing.yaml' timeout 30 "$EFS" start -u root --name failing --mount-dir "$MNT" "$JOB"
fi
printf '%s\n' "$good" >"$JOB"
mv "$PFS" "$PFS.away"
check_exit 'a start without its PFS fails' 1 'root-dir' timeout 30 "$EFS" start "$JOB"
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
check 'but what its own salvage brought' grep -qx third "$OUT/own"
rm "$OUT/log"
check 'out of the way it is brought back' timeout 30 "$EFS" stop node0
check 'the files of this node' test "$(cat "$OUT/log" "$OUT/own")" = $'by node 0\nthird'

# --- the same file from two nodes, changed afterwards ---
fresh twin0; first=$JOB first_mnt=$MNT both=$OUT
fresh twin1; sed -i "s|results-dir: .*|results-dir: $both|" "$JOB"
check 'one node' "$EFS" start --node 0/2 "$first"
check 'and another' "$EFS" start --node 1/2 "$JOB"
for name in f g h k; do echo same | tee "$first_mnt/$name" >"$MNT/$name"; done
touch -d 2020-01-01 "$first_mnt"/[fgk] "$MNT"/[fgk]   # h has a time of its own on each
check 'the first one unloads' "$EFS" unload -w "$first_mnt"/{f,g,h}
check 'what the second one unloads stands for both' "$EFS" unload -w "$MNT"/{f,g,h,k}
check 'and is clean here, too' json "$("$EFS" ls --json "$MNT"/{f,g,h})" '[(e["staged"], e["dirty"]) for e in d] == [("out", False)] * 3'
rm "$first_mnt/f"; echo other >"$first_mnt/g"; echo other >"$first_mnt/h"; echo other >"$first_mnt/k"
check_exit 'the first one changes its own: a conflict' 3 'another node' timeout 30 "$EFS" stop twin0
for name in f g h k; do check "both were told that this is there: $name" grep -qx same "$both/$name"; done
echo 'another yet' >"$MNT/g"
check_exit 'as with the second one' 1 'another node' timeout 30 "$EFS" stop twin1
check 'it is there still' grep -qx same "$both/g"
for name in g h k; do rm "$both/$name"; done
check 'out of the way, the first one'\''s are brought' timeout 30 "$EFS" stop twin0
check 'as they were' test "$(cat "$both"/{g,h,k} | uniq -c | awk '{print $1, $2}')" = '3 other'
rm "$both/g"
check_exit 'the second one does not say that k, which it alone had unloaded, is back' 3 'conflict: k: .*another node' timeout 30 "$EFS" stop twin1
check 'its other one is' grep -qx 'another yet' "$both/g"
rm "$both/k"
check 'out of the way, that is brought, too' timeout 30 "$EFS" stop twin1
check 'as it was' grep -qx same "$both/k"

# --- partials of several nodes ---
fresh slow0; first=$JOB first_mnt=$MNT both=$OUT
sed -i '/results-dir/a\  max-rate: 1 MB/s' "$first"
fresh slow1; sed -i "s|results-dir: .*|results-dir: $both|" "$JOB"
check 'a node that is slow' "$EFS" start --node 0/2 "$first"
check 'and another' "$EFS" start --node 1/2 "$JOB"
head -c 3000000 /dev/urandom | tee "$first_mnt/large" >"$MNT/large"
sum=$(md5sum <"$MNT/large")
"$EFS" stop slow0 >/dev/null 2>&1 & stopping=$!
check 'what one has half written' await 30 compgen -G "$both/large.*.efs-partial"
check 'the other leaves alone' timeout 30 "$EFS" stop slow1
check 'one is done' test "$(md5sum <"$both/large")" = "$sum"
wait "$stopping"; code=$?
check 'the slow one, too' test $code = 0
check 'it is there' test "$(md5sum <"$both/large")" = "$sum"
check 'and no partial' test -z "$(ls "$both" | grep partial)"

fresh again
check 'a node' "$EFS" start --node 0/2 "$JOB"
echo 'first' >"$MNT/own"
check 'unloads a file' "$EFS" unload -w "$MNT/own"
echo 'second' >"$MNT/own"
check 'and brings its next state out over its own' timeout 30 "$EFS" stop again
check 'which is there' grep -qx second "$OUT/own"

finish
