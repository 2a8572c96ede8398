#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The failures of efs' ancestor, each of which killed it, lost data or reported success for a
# failure: efs has none of them. The numbers are those of its list (1-9, 11-14). Each test runs with
# passthrough and again on the daemon's own path.
#   ancestor_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

cat >"$S/calls.py" <<'PY'
import ctypes, errno, fcntl, os, stat, struct, sys, time
case, root = sys.argv[1], sys.argv[2]
os.chdir(root)
def write(name, data, flags=os.O_CREAT | os.O_WRONLY, mode=0o644):
    fd = os.open(name, flags, mode)
    try: os.write(fd, data)
    finally: os.close(fd)
def read(name):
    with open(name, "rb") as f: return f.read()
def raises(code, call, *args):
    try: call(*args)
    except OSError as e: assert e.errno == code, (errno.errorcode[e.errno], errno.errorcode[code]); return
    raise AssertionError("no error; wanted " + errno.errorcode[code])
def same(a, b): assert a == b, (a, b)

def checkpoint():
    for step in range(20):
        data = bytes([65 + step]) * (100000 + step)
        write("c.tmp", data, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.rename("c.tmp", "c")
        write("c", b"+tail", os.O_WRONLY | os.O_APPEND)
        assert read("c") == data + b"+tail", step
        assert not os.path.exists("c.tmp")
        # A reader of the old file keeps it.
        old = os.open("c", os.O_RDONLY)
        write("c.tmp", b"new", os.O_CREAT | os.O_WRONLY | os.O_TRUNC)
        os.rename("c.tmp", "c")
        assert os.pread(old, 10, 0) == data[:10] and os.fstat(old).st_nlink == 0
        os.close(old)
def fill():
    capacity = int(sys.argv[3])
    v = os.statvfs(".")
    assert capacity * 3 // 4 <= v.f_blocks * v.f_frsize <= capacity, v
    promised = v.f_bavail * v.f_frsize
    fd, written, block = os.open("big", os.O_CREAT | os.O_WRONLY), 0, os.urandom(1 << 16)
    try:
        while True: written += os.write(fd, block)
    except OSError as e: assert e.errno == errno.ENOSPC, e
    assert promised * 9 // 10 <= written <= capacity, ("statfs promised", promised, "got", written)
    same(os.fstat(fd).st_size, written)
    v = os.statvfs(".")
    assert v.f_bavail * v.f_frsize < 1 << 20, ("full, and statfs says", v)
    raises(errno.ENOSPC, os.pwrite, fd, block * 32, written)
    same(os.pwrite(fd, block, 0), len(block))  # what has its place can be written over
    os.close(fd)
    back = os.open("big", os.O_RDONLY)
    for at in (0, written // 2 & ~0xffff, (written - 1) & ~0xffff): assert os.pread(back, 1 << 16, at) == block[:max(0, min(1 << 16, written - at))]
    os.close(back)
    # Creating names without content continues, or ends with ENOSPC as well; no process dies.
    try:
        for i in range(20000): write("n%d" % i, b"")
    except OSError as e: assert e.errno == errno.ENOSPC, e
    raises(errno.ENOSPC, write, "last", block)
def unlink_when_full():
    for name in os.listdir("."):
        if name[0] in "nl": os.unlink(name)
    os.unlink("big")
    deadline = time.monotonic() + 10
    while True:
        v = os.statvfs(".")
        if v.f_bavail > v.f_blocks * 3 // 4: break
        assert time.monotonic() < deadline, ("the space does not come back", v)
        time.sleep(0.02)
    write("again", b"x" * (32 << 20))
    os.unlink("again")
def many():
    for i in range(65347):
        if i % 1000 == 0: os.mkdir("m%d" % (i // 1000))
        write("m%d/f%d" % (i // 1000, i), bytes([i & 255]))
def many_there():
    for i in range(65347): assert read("m%d/f%d" % (i // 1000, i)) == bytes([i & 255]), i
    same(sum(len(f) for _, _, f in os.walk(".")), 65347)
def holes():
    fd = os.open("holes", os.O_CREAT | os.O_RDWR)
    os.write(fd, b"S" * 4096)
    os.pwrite(fd, b"M" * 4096, 200 << 20)
    os.ftruncate(fd, 300 << 20)
    same(os.pread(fd, 4096, 100 << 20), bytes(4096))
    same(os.lseek(fd, 8192, os.SEEK_DATA), 200 << 20)
    same(os.fstat(fd).st_size, 300 << 20)
    assert os.fstat(fd).st_blocks * 512 < 32 << 20
    os.close(fd)
def holes_there():
    st = os.stat("holes")
    same(st.st_size, 300 << 20)
    assert st.st_blocks * 512 < 32 << 20, st.st_blocks
    fd = os.open("holes", os.O_RDONLY)
    same(os.pread(fd, 4097, 0), b"S" * 4096 + b"\0")
    same(os.pread(fd, 4098, (200 << 20) - 1), b"\0" + b"M" * 4096 + b"\0")
    same(os.pread(fd, 10, (300 << 20) - 5), bytes(5))
    os.close(fd)
def attributes():
    write("attributes", b"data"); os.chmod("attributes", 0o4751); os.utime("attributes", ns=(1, 1234567890123456789))
    os.mkdir("empty"); os.chmod("empty", 0o710); os.symlink("attributes", "link"); write("replaced", b"new")
    os.utime("empty", ns=(1, 1234567890000000001))
def attributes_there():
    st = os.stat("attributes")
    same((stat.S_IMODE(st.st_mode) & 0o777, st.st_mtime_ns, read("attributes")), (0o751, 1234567890123456789, b"data"))
    st = os.stat("empty")
    same((stat.S_ISDIR(st.st_mode), stat.S_IMODE(st.st_mode), os.listdir("empty")), (True, 0o710, []))
    same((os.readlink("link"), read("replaced")), ("attributes", b"new"))
def truncation():
    write("t", b"0123456789"); write("t", b"ab", os.O_WRONLY | os.O_TRUNC); same(read("t"), b"ab")
    write("t", b"", os.O_WRONLY | os.O_TRUNC); same((read("t"), os.stat("t").st_size), (b"", 0))
    write("t", b"X" * 10000); os.truncate("t", 5000); same(os.stat("t").st_size, 5000)
    os.truncate("t", 10000); same(read("t"), b"X" * 5000 + bytes(5000))
    fd = os.open("t", os.O_RDWR); os.ftruncate(fd, 3); os.pwrite(fd, b"Y", 20); same(os.pread(fd, 100, 0), b"XXX" + bytes(17) + b"Y"); os.close(fd)
    raises(errno.EINVAL, os.truncate, "t", -1)
def times():
    write("t", b"1"); os.utime("t", ns=(5, 5)); same(os.stat("t").st_mtime_ns, 5)
    before = time.time_ns() - 20_000_000
    write("t", b"2", os.O_WRONLY); st = os.stat("t"); assert before < st.st_mtime_ns <= time.time_ns(), ("write does not move mtime", st)
    os.utime("t", ns=(5, 5)); fd = os.open("t", os.O_WRONLY); os.write(fd, b"3")
    assert os.fstat(fd).st_mtime_ns > before and os.stat("t").st_mtime_ns > before, "while it is open"
    os.close(fd)
    os.utime("t", ns=(5, 5)); os.truncate("t", 0); assert os.stat("t").st_mtime_ns > before, "truncate"
    os.utime("t", ns=(5, 5)); os.utime("t"); st = os.stat("t"); assert abs(st.st_mtime_ns - time.time_ns()) < 10**10 and abs(st.st_atime_ns - time.time_ns()) < 10**10, "touch"
    os.utime("t", ns=(111222333444, 555666777888)); st = os.stat("t"); same((st.st_atime_ns, st.st_mtime_ns), (111222333444, 555666777888))
def owners():
    write("o", b""); os.chown("o", 12, 34); os.chown("o", 56, -1); st = os.stat("o"); same((st.st_uid, st.st_gid), (56, 34))
    os.chown("o", -1, 78); st = os.stat("o"); same((st.st_uid, st.st_gid), (56, 78))
    os.chown("o", -1, -1); st = os.stat("o"); same((st.st_uid, st.st_gid), (56, 78))
def directories():
    os.makedirs("d1/sub/deep"); write("d1/sub/deep/f", b"deep"); write("d1/g", b"g")
    os.rename("d1", "d2"); same(read("d2/sub/deep/f"), b"deep"); same(read("d2/g"), b"g"); raises(errno.ENOENT, os.stat, "d1/g")
    os.mkdir("d3"); os.rename("d2", "d3/d4"); same(sorted(os.listdir("d3/d4")), ["g", "sub"]); same(read("d3/d4/sub/deep/f"), b"deep")
    raises(errno.EINVAL, os.rename, "d3", "d3/d4/inside"); os.mkdir("full"); write("full/x", b""); raises(errno.ENOTEMPTY, os.rename, "d3", "full")
    os.mkdir("void"); os.rename("d3", "void"); same(read("void/d4/g"), b"g")
def links():
    write("l", b"linked"); os.symlink("l", "s"); same((os.readlink("s"), read("s")), ("l", b"linked")); os.symlink("nowhere", "dangling"); raises(errno.ENOENT, read, "dangling")
    os.link("l", "h"); same((os.stat("l").st_nlink, os.stat("l").st_ino), (2, os.stat("h").st_ino)); write("h", b"LINKED", os.O_WRONLY); same(read("l"), b"LINKED")
    os.unlink("l"); same((read("h"), os.stat("h").st_nlink), (b"LINKED", 1))
    os.mkfifo("p", 0o600); assert stat.S_ISFIFO(os.stat("p").st_mode)
    r = os.open("p", os.O_RDONLY | os.O_NONBLOCK); w = os.open("p", os.O_WRONLY); os.write(w, b"piped"); same(os.read(r, 10), b"piped")
    os.close(r); os.close(w); os.unlink("p")
def xattrs():
    write("x", b""); os.setxattr("x", "user.name", b"value"); same((os.getxattr("x", "user.name"), os.listxattr("x")), (b"value", ["user.name"]))
    raises(errno.EEXIST, os.setxattr, "x", "user.name", b"2", os.XATTR_CREATE); raises(errno.ENODATA, os.setxattr, "x", "user.other", b"2", os.XATTR_REPLACE)
    os.removexattr("x", "user.name"); raises(errno.ENODATA, os.getxattr, "x", "user.name")
def locks():
    write("k", b"0123456789"); a = os.open("k", os.O_RDWR); b = os.open("k", os.O_RDWR)
    fcntl.flock(a, fcntl.LOCK_EX); raises(errno.EWOULDBLOCK, fcntl.flock, b, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.flock(a, fcntl.LOCK_UN); fcntl.flock(b, fcntl.LOCK_EX | fcntl.LOCK_NB); fcntl.flock(b, fcntl.LOCK_UN)
    fcntl.lockf(a, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 0)
    pid = os.fork()
    if pid == 0:
        c = os.open("k", os.O_RDWR)
        try: fcntl.lockf(c, fcntl.LOCK_EX | fcntl.LOCK_NB, 5, 5)
        except OSError: os._exit(2)
        try: fcntl.lockf(c, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2)
        except OSError as e: os._exit(0 if e.errno in (errno.EAGAIN, errno.EACCES) else 3)
        os._exit(4)
    same(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), 0)
def names():
    write("n" * 255, b"long"); same(read("n" * 255), b"long"); same(os.statvfs(".").f_namemax, 255)
    for call in (lambda: write("n" * 256, b""), lambda: os.mkdir("n" * 256), lambda: os.stat("n" * 256), lambda: os.rename("n" * 255, "n" * 256), lambda: os.symlink("x", "n" * 256)): raises(errno.ENAMETOOLONG, call)
    write("ä" * 127, b"utf8"); assert "ä" * 127 in os.listdir("."); raises(errno.ENAMETOOLONG, write, "ä" * 128, b"")
def statfs():
    libc = ctypes.CDLL(None, use_errno=True); buffer = ctypes.create_string_buffer(256)
    same(libc.statfs(b".", buffer), 0); same(hex(struct.unpack_from("l", buffer)[0]), "0x65735546")  # FUSE, and not what lies below
    v, capacity = os.statvfs("."), int(sys.argv[3])
    assert capacity * 3 // 4 <= v.f_blocks * v.f_frsize <= capacity and 0 < v.f_bavail <= v.f_blocks, v
def syncs():
    fd = os.open("synced", os.O_CREAT | os.O_WRONLY); os.write(fd, b"survivor of the daemon" * 1000); os.fsync(fd); os.fdatasync(fd); os.close(fd)
    fd = os.open(".", os.O_RDONLY); os.fsync(fd); os.close(fd); os.sync()
def read_all():
    fd, total, goal = os.open("big", os.O_RDONLY), 0, 2 << 30
    size = os.fstat(fd).st_size
    while total < goal:
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        at = 0
        while at < size:
            got = len(os.pread(fd, 1 << 20, at)); assert got > 0; at += got
        total += at
    os.close(fd)
def make_big():
    block = os.urandom(1 << 20)
    with open("big", "wb") as f:
        for _ in range(512): f.write(block)
    write("small", b"x")
def stat_storm():
    for i in range(100): write("s%d" % i, b"x")
    for i in range(100): os.stat("s%d" % i)
def stats():
    for _ in range(300):
        for i in range(100): os.stat("s%d" % i)
globals()[case]()
PY
calls() { timeout 300 python3 "$S/calls.py" "$@"; }
runs() { json "$(status_of "$NAME")" "d['state'] == 'running'"; }
# begin NAME [LINE...]: starts an instance in the mode; checks its figures.
begin() {
  fresh "$@"
  local text; text=$("$EFS" start "$JOB" "${options[@]}" 2>&1) || { fail "$mode: start of $NAME" "$text"; return; }
  check "$mode: it is the mode" json "$(status_of "$NAME")" "d['io'] == '$mode'"
}
stop() { check "$mode: stop of $NAME" "$EFS" stop "$@" "$NAME"; }
rss() { local pid; pid=$(field "$(status_of "$NAME")" 'd["worker_pid"]'); awk '/^VmRSS/ {print $2}' "/proc/$pid/status"; }
requests() { field "$(status_of "$NAME")" 'd["counters"]["requests"]'; }
at_most() { [ "$1" -le "$2" ] || { echo "$1 is more than $2"; return 1; }; }

for mode in passthrough daemon; do
  options=(); [ $mode = passthrough ] || options=(-o daemon-io)
  short=${mode:0:1}

  begin "${short}a"
  check "$mode: 1 checkpoints: write, rename over, append" calls checkpoint "$MNT"
  check "$mode: 8 O_TRUNC, truncate, shrink and extend" calls truncation "$MNT"
  check "$mode: 8 mtime moves on write, touch sets now" calls times "$MNT"
  check "$mode: 8 chown(uid, -1)" calls owners "$MNT"
  check "$mode: 9 a renamed directory keeps its children" calls directories "$MNT"
  check "$mode: 9 symlink, link, mkfifo" calls links "$MNT"
  check "$mode: 9 extended attributes" calls xattrs "$MNT"
  check "$mode: 9 flock and fcntl locks" calls locks "$MNT"
  check "$mode: 9 names to 255 and no longer" calls names "$MNT"
  check "$mode: 9 statfs tells of this file system" calls statfs "$MNT" $((128 << 20))
  check "$mode: 1 the daemon lives" runs
  stop --no-stage-out

  CAPACITY='64 MiB' begin "${short}b"
  check "$mode: 2 a full buffer is ENOSPC, statfs tells the truth" calls fill "$MNT" $((64 << 20))
  check "$mode: 2 the daemon lives" runs
  check "$mode: 2 unlink works when it is full" calls unlink_when_full "$MNT"
  check "$mode: 2 inputs are as they were" cmp "$PFS/input/a" "$MNT/input/a"
  stop --no-stage-out

  CAPACITY='1 GiB' begin "${short}c"
  mount -t tmpfs -o size=1g results "$OUT"
  check "$mode: 3 65,347 files of one byte" calls many "$MNT"
  check "$mode: 3 are all there" bash -c "cd $MNT && rm -r input && python3 $S/calls.py many_there $MNT"
  check "$mode: 3 the daemon lives" runs
  stop
  rm "$OUT"/efs-re*
  check "$mode: 3 and all come back" calls many_there "$OUT"
  umount "$OUT"

  fresh "${short}d" 'resources: [ [ path: missing ] ]'
  check_exit "$mode: 4 a missing input is an error" 1 "$PFS/missing: does not exist" "$EFS" start "$JOB" "${options[@]}"
  check "$mode: 4 and leaves no mount" bash -c "! grep -F $S/$NAME /proc/self/mounts && test ! -e $MNT"

  CAPACITY='1 GiB' begin "${short}e"
  check "$mode: 5 a file with holes" calls holes "$MNT"
  echo new >"$MNT/new"; mkdir -p "$MNT/deep/er"; echo new >"$MNT/deep/er/new"
  echo old >"$OUT/replaced"
  check "$mode: 7 attributes" calls attributes "$MNT"
  stop
  check "$mode: 5 comes back whole, and with its holes" calls holes_there "$OUT"
  check "$mode: 6 new files are results" bash -c "grep -qx new $OUT/new && grep -qx new $OUT/deep/er/new"
  check "$mode: 7 all is back when stop returns: modes, times, links, empty directories" calls attributes_there "$OUT"
  check "$mode: 7 no partial file" bash -c "! find $OUT -name '*efs-partial*' | grep ."

  begin "${short}f"
  mount -t tmpfs -o size=64k results "$OUT"
  head -c 1M /dev/urandom >"$MNT/f"
  check_not "$mode: 7 an error of the results file system is an error of stop" "$EFS" stop "$NAME"
  mount -o remount,size=8m "$OUT"
  stop
  check "$mode: 7 nothing was lost by it" test "$(stat -c %s "$OUT/f" 2>/dev/null)" = 1048576
  umount "$OUT"

  begin "${short}g"
  check "$mode: 11 fsync, fdatasync and fsync of a directory" calls syncs "$MNT"
  worker=$(field "$(status_of "$NAME")" 'd["worker_pid"]'); supervisor=$(field "$(status_of "$NAME")" 'd["supervisor_pid"]')
  kill -KILL "$supervisor"; await 20 gone "$worker" || fail "$mode: 11 the worker ends"
  ! mounted "$MNT" || umount "$MNT"
  check "$mode: 11 what was synced survives the daemon" grep -rqF 'survivor of the daemon' "$EFS_RUNTIME_DIR/$NAME/store"
  check "$mode: 11 so does its name" grep -rqaF 'synced' "$EFS_RUNTIME_DIR/$NAME/store/meta"
  check "$mode: 11 the store can be dropped" drop_store "$NAME"

  CAPACITY='1 GiB' begin "${short}h"
  calls make_big "$MNT" || fail "$mode: 12 a file of 512 MiB"
  cat "$MNT/small" >/dev/null; before=$(rss)
  check "$mode: 12 2 GiB are read" calls read_all "$MNT"
  check "$mode: 12 reading does not grow the daemon (KiB)" at_most $(($(rss) - before)) 65536
  calls stat_storm "$MNT"; before=$(requests)
  check "$mode: 14 30,000 stats" calls stats "$MNT"
  check "$mode: 14 stats do not reach the daemon (requests)" at_most $(($(requests) - before)) 1000
  stop --no-stage-out

  # Several threads send large requests to the PFS.
  CAPACITY='2 GiB' fresh "${short}i" 'resources: [ [ path: input ] ]'
  mount -t tmpfs -o size=1g inputs "$PFS/input"
  for i in $(seq 32); do head -c 16M /dev/zero | tr '\0' "$((i % 10))" >"$PFS/input/f$i"; done
  cat >"$S/watch.py" <<'PY'
import glob, json, subprocess, sys, threading
efs, job, runtime, *options = sys.argv[1:]
start = subprocess.Popen([efs, "start", job, *options], stdout=subprocess.DEVNULL)
busy = {}
while start.poll() is None:
    for path in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            words = open(path, "rb").read().split(b"\0")
            if runtime.encode() not in words or not words[0].endswith(b"efsd"): continue
        except OSError: continue
        # This process or its child: watch all its threads until start has returned.
        while start.poll() is None:
            seen = 0
            for io in glob.glob(path[:-7] + "task/*/io"):
                try: fields = dict(line.split(": ") for line in open(io)); seen += 1
                except (OSError, ValueError): continue
                busy[io] = (int(fields["rchar"]), int(fields["syscr"]))
            if seen < 2: break
movers = {k: v for k, v in busy.items() if v[0] > 4 << 20}
sys.exit(start.wait() or print(json.dumps(movers)))
PY
  text=$(python3 "$S/watch.py" "$EFS" "$JOB" "$EFS_RUNTIME_DIR" "${options[@]}"); code=$?
  check "$mode: 13 stage-in of 512 MiB" test $code -eq 0
  pid=$(field "$(status_of "$NAME")" 'd["worker_pid"]')
  check "$mode: 13 in requests of more than 128 KiB (their number)" at_most "$(awk '/^syscr/ {print $2}' "/proc/$pid/io")" 4096
  check "$mode: 13 brings all" diff -r "$PFS/input" "$MNT/input"
  check "$mode: 13 by several threads" json "${text:-null}" 'len(d) >= 2'
  stop --no-stage-out
  umount "$PFS/input"
done

finish
