#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A million small files in one instance: created through the mount, counted, inspected, removed;
# with their cost in memory and descriptors. Then the worker is killed, and later both processes:
# measures the recovery. Takes minutes; not part of tests/run-all.sh.
#   million_files.sh BIN_DIR [COUNT]          as root, with some GiB of free memory
#   LONGEST=5 (for a million): limit of the recovery in seconds;  CAPACITY="16 GiB" of the store;
#   PER_DIRECTORY=1000000: all in one directory;  OPTIONS=rw|daemon-io
set -uo pipefail
COUNT=${2:-1000000}
PER_DIRECTORY=${PER_DIRECTORY:-1000000}
CAPACITY=${CAPACITY:-16 GiB}
LONGEST=${LONGEST:-$(((5 * COUNT + 999999) / 1000000))}
. "$(dirname "$0")/../cli/lib.sh" "${1:-build/bin}"

fresh soak 'resources: [ [ path: input ] ]' 'outputs: [ [ path: "**", flags: temporary ] ]'
check 'start' "$EFS" start "$JOB" -o "${OPTIONS:-rw}"
worker=$(field "$("$EFS" status --json soak)" 'd["worker_pid"]')
supervisor=$(field "$("$EFS" status --json soak)" 'd["supervisor_pid"]')
[ -n "$worker" ] || { echo 'no instance'; exit 1; }

rss() { sed -n 's/^VmRSS:[[:space:]]*\([0-9]*\) kB/\1/p' "/proc/$1/status"; }   # KiB
descriptors() { ls "/proc/$1/fd" | wc -l; }
maps() { wc -l <"/proc/$1/maps"; }
used() { field "$("$EFS" status --json soak)" 'd["used"]'; }
figures() { echo "   $1: worker $(rss "$worker") KiB, $(descriptors "$worker") descriptors, $(maps "$worker") mappings; supervisor $(rss "$supervisor") KiB, $(descriptors "$supervisor") descriptors; store $(($(used) >> 20)) MiB"; }

# One process does the work, so that the time is that of efs. Prints the seconds of every tenth:
# they must not grow.
drive() { python3 - "$1" "$MNT" "$COUNT" "$PER_DIRECTORY" <<'END'
import os, random, sys, time
what, mount, count, per = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
name = lambda i: f"{mount}/d{i // per}/f{i}"
content = lambda i: f"file {i}\n".encode()

def tenths(todo, act):
    seconds, todo = [], list(todo)
    for k in range(10):
        start = time.monotonic()
        for i in todo[len(todo) * k // 10:len(todo) * (k + 1) // 10]: act(i)
        seconds.append(time.monotonic() - start)
    print(f"   {what}: {sum(seconds):.1f} s, {len(todo) / max(sum(seconds), 1e-9):.0f}/s; tenths {' '.join(f'{s:.1f}' for s in seconds)}")
    # Quadratic work would take ten times as long at the end as in the first half.
    if sum(seconds) > 10 and seconds[9] > 3 * sorted(seconds)[4]: sys.exit(f"{what}: the last tenth took {seconds[9]:.1f} s, the median {sorted(seconds)[4]:.1f} s")

def make(i):
    if i % per == 0: os.mkdir(f"{mount}/d{i // per}")
    fd = os.open(name(i), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
    os.write(fd, content(i))
    os.close(fd)

def look(i):
    if os.stat(name(i)).st_size != len(content(i)): sys.exit(f"{name(i)}: wrong size")
    with open(name(i), "rb") as file:
        if file.read() != content(i): sys.exit(f"{name(i)}: wrong content")

if what == "create": tenths(range(count), make)
elif what == "readdir":
    start, seen = time.monotonic(), 0
    for directory in os.scandir(mount):
        if not directory.name.startswith("d"): continue
        names = [entry.name for entry in os.scandir(directory.path)]
        if len(set(names)) != len(names): sys.exit(f"{directory.path}: a name came twice")
        seen += len(names)
    print(f"   readdir: {time.monotonic() - start:.1f} s")
    if seen != count: sys.exit(f"readdir shows {seen} files, not {count}")
elif what == "look": tenths(random.Random(1).sample(range(count), min(count, 50000)), look)
elif what == "remove":
    tenths(range(count), lambda i: os.unlink(name(i)))
    for d in range((count + per - 1) // per): os.rmdir(f"{mount}/d{d}")
END
}

figures 'empty'
rss_before=$(rss "$worker") fds_before=$(descriptors "$worker") supervisor_fds=$(descriptors "$supervisor") used_before=$(used)
# step NAME: runs it, shows its output, counts it.
step() { local text; if text=$(drive "$1" 2>&1); then ok; else fail "$1" "$text"; fi; echo "$text"; figures "after $1"; }
step create
rss_full=$(rss "$worker")
echo "   $(((rss_full - rss_before) * 1024 / COUNT)) bytes of worker memory per file"
check 'a file costs less than 400 bytes of memory, its short name included' test $(((rss_full - rss_before) * 1024 / COUNT)) -lt 400
step readdir
step look
check 'df counts them' test "$(df --output=iused "$MNT" | tail -n 1)" -ge "$COUNT"
check 'descriptors do not follow the file count' test $(($(descriptors "$worker") - fds_before)) -lt 2048
check 'the kernel has a bounded number of backing files' test $(($(descriptors "$supervisor") - supervisor_fds)) -lt 16
check 'mappings do not follow the file count' test "$(maps "$worker")" -lt 4096
# The pause of a program after the worker's death: a lookup of a name unknown to the kernel, from
# the kill to the answer.
since() { python3 -c 'import sys, time; print("%.1f" % (time.monotonic() - float(sys.argv[1])))' "$1"; }
is_in_time() { python3 -c 'import sys; sys.exit(float(sys.argv[1]) > float(sys.argv[2]))' "$1" "$LONGEST"; }
clock() { python3 -c 'import time; print(time.monotonic())'; }
begin=$(clock)
kill -KILL "$worker"
check_exit 'kill -9 of the worker: its successor answers' 2 'No such file' timeout 120 ls -d "$MNT/d0/a name that only the daemon knows of"
took=$(since "$begin")
echo "   takeover: $took s"
check 'kill -9 of the worker: in time' is_in_time "$took"
worker=$(field "$("$EFS" status --json soak)" 'd["worker_pid"]')
check 'kill -9 of the worker: takeovers are counted' json "$("$EFS" status --json soak)" "d['takeovers'] == 1"
step look

kill -KILL "$supervisor"; check 'kill -9 of both' await 20 no_daemon
begin=$(clock)
check 'kill -9 of both: efs start goes on' "$EFS" start "$JOB" -o "${OPTIONS:-rw}"
took=$(since "$begin")
echo "   start on what both left: $took s"
check 'kill -9 of both: in time' is_in_time "$took"
worker=$(field "$("$EFS" status --json soak)" 'd["worker_pid"]')
supervisor=$(field "$("$EFS" status --json soak)" 'd["supervisor_pid"]')
step look
step remove
check 'the space is free again' test $(($(used) - used_before)) -lt $((COUNT * 1024))
check 'status answers' json "$("$EFS" status --json soak)" "d['state'] == 'running'"
check 'stop' "$EFS" stop soak
finish
