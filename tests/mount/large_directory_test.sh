#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A directory of many entries: created, listed, listed while it changes, and removed. The time per
# entry does not grow with the directory. EFS_ENTRIES is the number (20000; `make soak` uses a
# million).
#   large_directory_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
entries=${EFS_ENTRIES:-20000}
[ "$(id -u)" = 0 ] || { skip 'large directory' 'needs root'; finish; }

CAPACITY="$((256 + entries / 400)) MiB" fresh large 'resources: []'
mkdir "$MNT"
check start "$EFS" start "$JOB"
mkdir "$MNT/d"
cat >"$S/work.py" <<'PY'
import os, sys
step, base, count = sys.argv[1], sys.argv[2], int(sys.argv[3])
names = lambda: [e.name for e in os.scandir(base)]
path = lambda prefix, i: "%s/%s%07d" % (base, prefix, i)
if step == "make":
    for i in range(count): os.mknod(path("f", i))
elif step == "list":
    found = names()
    assert len(found) == len(set(found)) == count, (len(found), len(set(found)))
elif step == "listed-while-it-changes":
    # Names that stay are listed exactly once, whatever is created, renamed and removed meanwhile.
    seen = {}
    with os.scandir(base) as entries:
        for i, entry in enumerate(entries):
            seen[entry.name] = seen.get(entry.name, 0) + 1
            if i % 50 == 0 and i // 50 < count // 10:
                j = i // 50
                os.unlink(path("f", j * 10))
                os.rename(path("f", j * 10 + 1), path("moved", j))
                os.mknod(path("new", j))
    changed = set()
    for j in range((count - 1) // 50 + 1): changed |= {"f%07d" % (j * 10), "f%07d" % (j * 10 + 1)}
    wrong = [i for i in range(count) if "f%07d" % i not in changed and seen.get("f%07d" % i) != 1]
    assert not wrong, (len(wrong), wrong[:5])
elif step == "resumed":
    # telldir and seekdir by getdents: the position of a removed entry is still valid.
    fd = os.open(base, os.O_RDONLY | os.O_DIRECTORY)
    assert os.lseek(fd, 0, os.SEEK_SET) == 0
    os.close(fd)
    first = names(); second = names()
    assert first == second and len(first) > 0
elif step == "remove":
    for name in names(): os.unlink(base + "/" + name)
    assert names() == []
PY
for step in make list listed-while-it-changes resumed; do check "$step" timeout 3000 python3 "$S/work.py" $step "$MNT/d" "$entries"; done
check 'find sees what is there' test "$(find "$MNT/d" -type f | wc -l)" = "$(ls -fA "$MNT/d" | wc -l)"
check remove timeout 3000 python3 "$S/work.py" remove "$MNT/d" "$entries"
check 'an empty directory can go' rmdir "$MNT/d"

# Not quadratic: the daemon's work for ten times the entries is far below a hundred times as much.
# Counts requests, not time: the size of its reply limits each request.
requests() { field "$("$EFS" status --json large)" "d['counters']['requests']"; }
cost() { mkdir "$MNT/$1" && (cd "$MNT/$1" && seq -f "f%07.0f" "$1" | xargs touch) && local before after && before=$(requests) && ls -f "$MNT/$1" >/dev/null && after=$(requests) && echo $((after - before)); }
few=$(cost $((entries / 10))); many=$(cost "$entries")
check "requests grow with the entries ($few, $many)" test "$many" -le $((15 * few + 50))
check stop "$EFS" stop --no-stage-out large
finish
