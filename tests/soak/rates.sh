#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The bytes that a limited mount serves to 8 processes, in each window of five seconds: within 5 % of
# limit-read and limit-write. Prints the least and the most.
#   rates.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
rate=${EFS_RATE:-200} seconds=${EFS_SECONDS:-20}  # MiB/s

# windows KEY: samples a counter while 8 programs run, and checks each window.
windows() { python3 -SE -c 'import json, os, socket, sys, time
key, directory, rate, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3]) * 2**20, float(sys.argv[4])
control = socket.socket(socket.AF_UNIX); control.connect(directory + "/control.sock"); answers = control.makefile()
def bytes_now():
    control.sendall(b"{\"verb\": \"status\"}\n")
    return json.loads(answers.readline())["counters"][key]
time.sleep(1)  # the programs start
samples, end = [], time.monotonic() + seconds
while time.monotonic() < end:
    samples.append((time.monotonic(), bytes_now()))
    time.sleep(0.05)
shares = []
for i, (start, first) in enumerate(samples):
    for when, last in samples[i:]:
        if when - start >= 5:
            shares.append((last - first) / (when - start) / rate)
            break
print("%s: %d windows, %.3f to %.3f of the limit" % (key, len(shares), min(shares), max(shares)))
sys.exit(not (shares and min(shares) >= 0.95 and max(shares) <= 1.05))' "$1" "$EFS_RUNTIME_DIR/$NAME" "$rate" "$seconds"; }
# eight COMMAND...: runs it 8 times at once, with {} as the number, until end_eight.
eight() { local i; for i in 1 2 3 4 5 6 7 8; do until [ -e "$S/end" ]; do "${@//\{\}/$i}" 2>/dev/null || break; done & pids+=($!); done; }
end_eight() { touch "$S/end"; wait "${pids[@]}"; pids=(); rm "$S/end"; }

CAPACITY='1 GiB' fresh rates 'resources: []'
started --set limit-read="$rate MiB/s" --set limit-write="$rate MiB/s" "$JOB"
eight dd if=/dev/zero of="$MNT/f{}" bs=256k count=256 conv=notrunc
windows written_bytes && ok || fail 'writes'
end_eight
eight dd if="$MNT/f{}" of=/dev/null bs=128k
windows read_bytes && ok || fail 'reads'
end_eight
check 'stop' "$EFS" stop --no-stage-out rates
finish
