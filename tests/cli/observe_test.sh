#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Observation of an instance: trace, access log, counters, status file, top.
#   observe_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

operations() { grep -v '^#' "$1" | cut -d: -f2 | sort -u | tr '\n' ' '; }

# --- the trace ---
fresh trace
T=$S/trace/t begun=$(date +%s%6N)
check 'start --trace' "$EFS" start --trace "$T" "$JOB"
check 'status says that all I/O is the daemon'\''s, and why' json "$(status_of trace)" "d['io'] == 'daemon' and 'traced' in d['io_reason'] and d['trace'] == {'file': '$T'}"
python3 - "$MNT" <<'EOF'
import mmap, os, sys
os.chdir(sys.argv[1])
fd = os.open('f', os.O_CREAT | os.O_RDWR, 0o644)
os.pwrite(fd, b'x' * 3000, 100)
os.ftruncate(fd, 77)
os.close(fd)
fd = os.open('input/a', os.O_RDONLY); os.read(fd, 3); os.close(fd)
fd = os.open('input/sub/b', os.O_RDONLY)
for _ in range(3): os.pread(fd, 2, 1)
os.pread(fd, 1, 0)
m = mmap.mmap(fd, 0, prot=mmap.PROT_READ); assert m[:1] == os.pread(fd, 1, 0); m.close()
os.close(fd)
os.listdir('input')
os.mkdir('d'); os.rename('f', 'd/g:h'); os.stat('d/g:h')
fd = os.open('d/g:h', os.O_RDONLY); os.close(fd)
os.symlink('target', 'l'); os.link('d/g:h', 'd/i')
os.setxattr('d/i', 'user.k', b'v')
os.unlink('d/i')
os.path.exists('nosuch')
EOF
uncached=$(grep -c 'event=mounted .*uncached=true' "$EFS_RUNTIME_DIR/trace/efsd.log")
check 'stop' "$EFS" stop trace
is_header() { [ "$(head -n 1 "$1")" = '# epoch_microseconds:operation:pid:tid:path[:offset:size]' ]; }
check 'the header says the format' is_header "$T"
check 'every line has the form' bash -c "! grep -v '^#' $T | grep -vE '^[0-9]{16}:[a-z_]+:[0-9]+:[0-9]+:[/#][^:]*(:[^:]+){0,2}\$'"
for operation in close closedir create open opendir read readdir stat truncate unlink write mkdir rename symlink link setxattr; do
  check "operation $operation" grep -q "^[0-9]*:$operation:" "$T"
done
check 'a write has offset and size' grep -qE ':write:[0-9]+:[0-9]+:/f:100:3000$' "$T"
check 'a truncation has its size' grep -qE ':truncate:[0-9]+:[0-9]+:/f:0:77$' "$T"
check 'an input is known by its path' grep -qE ':read:[0-9]+:[0-9]+:/input/a:0:[0-9]+$' "$T"
# With a page cache, the second read would not reach the daemon, and the first would be a whole
# page.
if [ "$uncached" = 1 ]; then
  check 'each read of a program is a line, with its offset and size' test "$(grep -cE ':read:[1-9][0-9]*:[0-9]+:/input/sub/b:1:2$' "$T"):$(grep -cE ':read:[1-9][0-9]*:[0-9]+:/input/sub/b:0:1$' "$T")" = 3:2
else
  skip 'each read of a program is a line' 'needs Linux 6.6'
fi
check 'a rename has both paths, colons escaped' grep -qE ':rename:[0-9]+:[0-9]+:/f:/d/g\\072h$' "$T"
check 'the name is the new one from then on' grep -qE ':open:[0-9]+:[0-9]+:/d/g\\072h$' "$T"
check 'what fails is not in it' bash -c "! grep -n ':/nosuch' $T"
check 'times are of the time in between, and calls one after another are in order' python3 - "$T" "$begun" "$(date +%s%6N)" <<'END'
import sys
lines = [line.split(":") for line in open(sys.argv[1]) if not line.startswith("#")]
times = [int(line[0]) for line in lines]
assert times and all(int(sys.argv[2]) <= time <= int(sys.argv[3]) for time in times), (sys.argv, times)
of = {}
for line in lines: of.setdefault(line[1], int(line[0]))
order = ["create", "truncate", "mkdir", "rename", "symlink", "link", "setxattr", "unlink"]
assert [of[name] for name in order] == sorted(of[name] for name in order), of
END
check 'pid is a process, tid one of its threads' bash -c "grep ':create:' $T | cut -d: -f3,4 | grep -qE '^([1-9][0-9]*):\1\$'"
check 'start with a trace that cannot be written' test "$("$EFS" start --trace "$S/nosuch/t" "$JOB" >/dev/null 2>&1; echo $?)" = 1
check_exit 'says which' 1 "trace $S/nosuch/t: No such file" "$EFS" start --trace "$S/nosuch/t" "$JOB"
check 'a second trace is appended' bash -c "$EFS start --trace $T $JOB && $EFS stop trace && [ \$(grep -c '^#' $T) = 2 ]"

# --- the access log ---
fresh access
A=$S/access/log
check 'start with an access log' "$EFS" start "$JOB" --set access-log="$A" --set access-log-size=64KiB -o daemon-io
echo 12345 >"$MNT/f"; cat "$MNT/f" >/dev/null; ls "$MNT/nosuch" 2>/dev/null; python3 -c "import os; os.getxattr('$MNT/f', 'user.no')" 2>/dev/null
flushed() { grep -q ' getxattr (.*user\.no' "$A" && grep -q ' lookup (/nosuch' "$A"; }
check 'it can be followed' await 10 flushed
check 'a write' grep -qE '^[0-9]{4}\.[0-9]{2}\.[0-9]{2} [0-9:]{8}\.[0-9]{6} \[uid:[0-9]+,gid:[0-9]+,pid:[0-9]+\] write \(/f,6,0\): OK \(6\) <[0-9]+\.[0-9]{6}>$' "$A"
check 'who it was' grep -q "\[uid:$(id -u),gid:$(id -g),pid:[1-9]" "$A"
check 'an error with its text' grep -qE 'getxattr \(/f,user\.no\): No data available <' "$A"
check 'a name that is not there' grep -qE 'lookup \(/nosuch\): No such file or directory <' "$A"
for i in $(seq 1 400); do : >"$MNT/some-file-with-a-long-name-$i"; done
check 'stop ' "$EFS" stop access
check 'its size is bounded' test "$(cat "$A" "$A.1" | wc -c)" -le 65536
check 'the newest lines are kept' grep -q 'some-file-with-a-long-name-400' "$A"

# --- counters ---
fresh count
check 'start ' "$EFS" start "$JOB" -o daemon-io
before=$(status_of count)
for i in 1 2 3 4 5; do head -c 10000 /dev/zero >"$MNT/f$i"; done
cat "$MNT"/f? >/dev/null; ls "$MNT/nosuch" 2>/dev/null; rmdir "$MNT/input" 2>/dev/null
after=$(status_of count)
delta() { python3 -c 'import json,sys
a, b = (json.loads(x)["counters"] for x in sys.argv[1:3])
def op(c, name, key="count"): return c["operations"].get(name, {}).get(key, 0)
def d(name, key="count"): return op(b, name, key) - op(a, name, key)
if not eval(sys.argv[3]): sys.exit("not so: %s in %s" % (sys.argv[3], b))' "$before" "$after" "$1"; }
check 'requests by kind' delta 'd("create") == 5 and d("write") >= 5 and d("rmdir") == 1'
check 'errors' delta 'd("rmdir", "errors") == 1 and d("create", "errors") == 0 and b["errors"] >= a["errors"] + 1'
check 'opens by path' delta 'b["daemon_opens"] - a["daemon_opens"] >= 10 and b["passthrough_opens"] == 0 and b["opens"] == b["daemon_opens"]'
check 'bytes on the daemon'\''s path' delta 'b["written_bytes"] - a["written_bytes"] == 50000'
check 'requests is the sum' delta 'b["requests"] == sum(o["count"] for o in b["operations"].values())'
check 'times' delta 'all(0 < o["min_seconds"] <= o["mean_seconds"] <= o["max_seconds"] and sum(o["histogram_us"]) == o["count"] for o in b["operations"].values())'
check 'that passthrough is invisible is said' delta '"passthrough" in b["note"]'
check_exit 'status shows them' 0 'requests [0-9]+ \([0-9]+ errors\), opens [0-9]+ \(0 passthrough\)' "$EFS" status count
check 'stop  ' "$EFS" stop count
fresh pass
check 'start  ' "$EFS" start "$JOB"
if [ "$(id -u)" = 0 ] && kernel_has_it; then
  before=$(status_of pass); head -c 100000 /dev/zero >"$MNT/f"; after=$(status_of pass)
  check 'passthrough opens are counted, their bytes are not' delta 'b["passthrough_opens"] - a["passthrough_opens"] == 1 and b["daemon_opens"] == a["daemon_opens"] and b["written_bytes"] == a["written_bytes"]'
else skip 'passthrough opens' 'needs root and Linux 6.9'; fi
check 'stop   ' "$EFS" stop pass

# --- top ---
fresh top
check 'start   ' "$EFS" start "$JOB"
check_exit 'top --once' 0 'NAME.*REQ ' "$EFS" top --once
check 'has the instance' grep -qE '^top +running ' <<<"$said"
echo asked >"$MNT/asked"
check 'top --json' json "$("$EFS" top --json top)" "len(d) == 1 and d[0]['name'] == 'top' and d[0]['counters']['requests'] > 0"
check_exit 'top of an unknown one' 1 nosuch "$EFS" top --once nosuch
script -qec "stty cols 150; exec timeout 5 $EFS top -i 0.2" "$S/top/typescript" >/dev/null 2>&1
check 'on a terminal it is shown again and again' test "$(grep -cE '^.*NAME +STATE' "$S/top/typescript")" -ge 2
check 'with rates' grep -q 'REQ/s' "$S/top/typescript"
check 'stop    ' "$EFS" stop top

# --- the status file ---
fresh file
umask 022
check 'start    ' "$EFS" start "$JOB"
check 'without a word it is in the instance'\''s directory' json "$(cat "$EFS_RUNTIME_DIR/file/status.json")" "d['name'] == 'file' and d['version'] == 1"
running() { json "$(cat "${1:-$EFS_RUNTIME_DIR/file/status.json}")" "d['state'] == 'running' and d['progress'] is None and d['error'] is None and d['files_done'] == d['files_total'] >= 2 and d['bytes_done'] == d['bytes_total'] > 0 and d['updated'] > d['since']"; }
check 'it says running' await 10 running
# modes MODE FILE...: each has it.
modes() { local mode=$1 file; shift; for file; do [ "$(stat -c %a "$file")" = "$mode" ] || { stat -c '%a %n' "$file"; return 1; }; done; }
D=$EFS_RUNTIME_DIR/file
check 'nobody else looks into the instance' modes 700 "$D" "$D/store"
check 'nor at what is in it' modes 600 "$D/control.sock" "$D/efsd.log" "$D/instance.json" "$D/job.yaml" "$D/lock" "$D/status.json"
check 'nor into the image' modes 700 "$D/store/meta" "$D/store/data"
check 'nor at what it says of the job' modes 600 "$D/store/meta/instance.json" "$D/store/meta/job.yaml" "$D/store/meta/journal"
check 'containers: a seal is the only other mode' eval '! find "$D/store/data" -type f ! -perm 600 ! -perm 700 | grep .'
check 'status says whether a worker that dies is replaced' json "$(status_of file)" "d['takeover'] == $(kernel_has_it && echo True || echo False) and d['takeover'] == ('takeover_reason' not in d)"
check 'and so does the plan' json "$("$EFS" plan --json "$JOB")" "d['takeover'] == $(kernel_has_it && echo True || echo False) and d['takeover'] == ('takeover_reason' not in d)"
check_exit 'for people, too' 0 '^takeover: (a worker that dies is replaced|none: Linux )' "$EFS" plan "$JOB"
if setarch "$(uname -m)" --uname-2.6 true 2>/dev/null; then
  check_exit 'of an older kernel it says what the death of a worker means' 0 '^takeover: none: Linux 2[.]6.*(6[.]9 or later does).*the mount ends, and efs start continues' setarch "$(uname -m)" --uname-2.6 "$EFS" plan "$JOB"
else
  skip 'plan on an older kernel' 'setarch does not pretend to be one here'
fi
check 'ls --instances: as status --all' test "$("$EFS" ls --instances | grep -vE 'requests|changed ')" = "$("$EFS" status --all | grep -vE 'requests|changed ')"
check 'in JSON' json "$("$EFS" ls --instances --json)" "[i['name'] for i in d] == ['file'] and d[0]['state'] == 'running'"
check_exit 'it takes no path' 2 'instances' "$EFS" ls --instances "$MNT/input"
check 'stop     ' "$EFS" stop file
check 'ls --instances where there is none' test "$("$EFS" ls --instances --json)" = '[]'
check 'a log of its own' "$EFS" start "$JOB" --set log-file="$S/file/log" --set access-log="$S/file/accesses" --trace "$S/file/trace"
check 'is nobody else'\''s business either, nor a trace' modes 600 "$S/file/log" "$S/file/accesses" "$S/file/trace"
check 'stop      ' "$EFS" stop file
: >"$S/file/open"; chmod 640 "$S/file/open"
check 'one that the user has made' "$EFS" start "$JOB" --set log-file="$S/file/open"
check 'keeps its mode' modes 640 "$S/file/open"
check 'stop      ' "$EFS" stop file
F=$S/file/status
check 'start with a place of its own' "$EFS" start "$JOB" --set status-file="$F"
check 'is there' await 10 running "$F"
check 'a scheduler may read it' modes 644 "$F"
check 'status names it' json "$(status_of file)" "d['status_file'] == '$F'"
check 'stop      ' "$EFS" stop file
check 'the last word stays' json "$(cat "$F")" "d['state'] == 'ended' and d['error'] is None"
rm "$F"
check_not 'a start that fails' "$EFS" start "$JOB" --set status-file="$F" -r "$S/file/nosuch"
check 'leaves its reason' json "$(cat "$F")" "d['state'] == 'failed' and 'nosuch' in d['error']"
check_exit 'a place that cannot be written is refused' 1 "status-file $S/nosuch/s" "$EFS" start "$JOB" --set status-file="$S/nosuch/s"
mount -t tmpfs -o size=1m full "$OUT" 2>/dev/null && {
  "$EFS" start "$JOB" --set status-file="$F" >/dev/null 2>&1; head -c 3000000 /dev/urandom >"$MNT/big"
  check_not 'a stage-out that cannot' "$EFS" stop file
  unsaved() { json "$(cat "$F")" "d['state'] == 'unsaved' and d['error']"; }
  check 'is told' await 10 unsaved
  check 'given up' "$EFS" stop --no-stage-out file
  umount "$OUT"
}
check 'no partial file is left' bash -c "! ls $S/file/*.efs-partial"
finish
