# SPDX-License-Identifier: BSD-3-Clause
# A client of the door (src/base/intercept_door.hpp), without the library.
#   door.py EFS NAME MOUNT passthrough|daemon
import errno, fcntl, json, mmap, os, signal, stat, struct, subprocess, sys, threading, time

efs, name, mount, io = sys.argv[1:]
passthrough = io == "passthrough"
failed = 0
DOOR = ".efs-door"
TABLE = 4096 + 8 * 8192
FILE = struct.Struct("=6QII")
COUNTS = struct.Struct("=6Q")
def code(direction, number, size): return direction << 30 | size << 16 | 0xEF << 8 | number
ASK, REPORT = code(3, 1, FILE.size), code(1, 2, COUNTS.size)

def check(what, good):
    global failed
    if not good: failed += 1; print("FAIL", io, what)

def refused(what, wanted, call, *arguments, **options):
    try: call(*arguments, **options)
    except OSError as problem:
        check(f"{what}: {errno.errorcode.get(problem.errno)}", problem.errno in (wanted if isinstance(wanted, tuple) else (wanted,)))
    else: check(f"{what} succeeded", False)

def slot(ino): return (ino * 0x9E3779B97F4A7C15 & (1 << 64) - 1) >> (64 - 13)
def status(): return json.loads(subprocess.run([efs, "status", "--json", name], capture_output=True, check=True).stdout)

class Client:
    def __init__(self, path):
        self.fd = os.open(path, os.O_RDONLY)
        self.map = mmap.mmap(self.fd, TABLE, mmap.MAP_SHARED, mmap.PROT_READ)
    def epoch(self, ino): return struct.unpack_from("=Q", self.map, 4096 + 8 * slot(ino))[0]
    def all(self): return struct.unpack_from("=8192Q", self.map, 4096)
    def report(self, *counts): fcntl.ioctl(self.fd, REPORT, COUNTS.pack(*counts))

def ask(fd, offset=0):
    _, magic, ino, size, begin, end, mode, flags = FILE.unpack(fcntl.ioctl(fd, ASK, FILE.pack(offset, *[0] * 7)))
    check("the answer's magic", magic == 0x31304F4F44464544 or struct.pack("=Q", magic) == b"EFDOOR01")
    return ino, size, begin, end, mode, flags

def door_is_its_own():
    door = mount + "/" + DOOR
    os.mkdir(mount + "/d")
    for where in (mount, mount + "/d"):
        st = os.stat(where + "/" + DOOR)
        check("attributes", (st.st_mode, st.st_size, st.st_ino) == (stat.S_IFREG | 0o444, TABLE, 0xEF5D000000000001))
        check("no listing shows it", DOOR not in os.listdir(where))
    refused("open for writing", errno.EACCES, os.open, door, os.O_RDWR)
    refused("create", errno.EEXIST, os.open, door, os.O_CREAT | os.O_EXCL | os.O_RDWR)
    refused("mkdir", errno.EEXIST, os.mkdir, door)
    refused("symlink", errno.EEXIST, os.symlink, "x", door)
    refused("unlink", errno.EPERM, os.unlink, door)
    refused("rename", errno.EPERM, os.rename, door, mount + "/other")
    with open(mount + "/file", "w"): pass
    refused("rename to it", errno.EPERM, os.rename, mount + "/file", mount + "/d/" + DOOR)
    refused("link to it", errno.EEXIST, os.link, mount + "/file", door)
    refused("link from it", errno.EPERM, os.link, door, mount + "/other")
    refused("chmod", errno.EPERM, os.chmod, door, 0o777)
    refused("truncate", (errno.EPERM, errno.EACCES), os.truncate, door, 0)
    refused("setxattr", errno.EPERM, os.setxattr, door, "user.x", b"x")
    refused("getxattr", errno.ENODATA, os.getxattr, door, "user.x")
    check("statfs", os.statvfs(door).f_blocks > 0)
    with open(door, "rb") as plain: check("read", plain.read(8) == b"EFDOOR01" and len(plain.read()) == TABLE - 8)
    fd = os.open(door, os.O_RDONLY)
    refused("writable mapping", errno.EACCES, mmap.mmap, fd, TABLE, mmap.MAP_SHARED, mmap.PROT_READ | mmap.PROT_WRITE)
    os.close(fd)
    os.rmdir(mount + "/d")

def answers():
    client = Client(mount + "/" + DOOR)
    fd = os.open(mount + "/file", os.O_RDWR)
    os.pwrite(fd, b"x" * 10000, 0); os.pwrite(fd, b"y", 100000)
    ino, size, begin, end, mode, flags = ask(fd, 5)
    check("inode, size, mode", (ino, size, mode) == (os.fstat(fd).st_ino, 100001, os.fstat(fd).st_mode))
    check(f"the run {begin}-{end}", begin <= 5 and (end == 12288 if passthrough else end == size))
    if passthrough: check("a hole", ask(fd, 50000)[3] <= 50000)
    check("beyond the end", ask(fd, 200000)[3] <= 200000)
    check(f"flags {flags}", flags == (3 if passthrough else 1))
    refused("another ioctl", errno.ENOTTY, fcntl.ioctl, fd, code(2, 9, 8), bytes(8))
    refused("TCGETS", errno.ENOTTY, fcntl.ioctl, fd, 0x5401, bytes(64))
    directory = os.open(mount, os.O_RDONLY)
    refused("a directory", errno.ENOTTY, fcntl.ioctl, directory, ASK, bytes(FILE.size))
    refused("the door is no file", errno.ENOTTY, fcntl.ioctl, client.fd, ASK, bytes(FILE.size))
    refused("a file is no door", errno.ENOTTY, fcntl.ioctl, fd, REPORT, bytes(COUNTS.size))
    os.close(directory)
    return client, fd, ino

def epochs(client, fd, ino):
    def moves(what, change, *arguments):
        before = client.epoch(ino); change(*arguments)
        check("epoch after " + what, client.epoch(ino) > before)
    moves("ftruncate", os.ftruncate, fd, 50)
    check("the size of now", ask(fd)[1] == 50)
    moves("a larger size", os.ftruncate, fd, 60000)
    moves("truncate", os.truncate, mount + "/file", 3)
    moves("O_TRUNC", lambda: os.close(os.open(mount + "/file", os.O_WRONLY | os.O_TRUNC)))
    os.pwrite(fd, b"z" * 20000, 0)
    moves("a punched hole", lambda: subprocess.run(["fallocate", "-p", "-o", "4096", "-l", "4096", mount + "/file"], check=True))
    moves("a set-ID bit", os.chmod, mount + "/file", 0o6755)
    check("no more mapped writes", ask(fd)[5] == 1)
    os.chmod(mount + "/file", 0o644)
    moves("a capability", os.setxattr, mount + "/file", "security.capability", bytes.fromhex("0100000200200000000000000000000000000000"))
    check("no more mapped writes with it", ask(fd)[5] == 1)
    os.removexattr(mount + "/file", "security.capability")
    before = client.epoch(ino); os.pwrite(fd, b"q", 30000)
    check("none after a write", client.epoch(ino) == before)

# Threads truncate files of their own, and each sees its epoch at once.
def many(client):
    problems = []
    def work(number):
        own = os.open(f"{mount}/many{number}", os.O_RDWR | os.O_CREAT)
        ino = os.fstat(own).st_ino
        for size in range(50):
            before = client.epoch(ino); os.ftruncate(own, size)
            if client.epoch(ino) <= before: problems.append((number, size))
        os.close(own)
    threads = [threading.Thread(target=work, args=(n,)) for n in range(40)]
    for t in threads: t.start()
    for t in threads: t.join()
    check(f"stale after truncations: {problems[:5]}", not problems)

def seen(client):
    client.report(5, 500, 2, 200, 7, 1)
    client.report(1, 2**64 - 1, 0, 0, 0, 4)
    now = status()["intercept"]
    mine = [c for c in now["clients"] if c["pid"] == os.getpid()]
    check(f"the client in status {now}", len(mine) == 1 and mine[0]["program"].startswith("python") and (mine[0]["reads"], mine[0]["read_bytes"], mine[0]["mapped_files"]) == (6, 2**64 - 1, 4))
    check("totals", now["totals"]["reads"] == 6 and now["totals"]["written_bytes"] == 200 and now["totals"]["clients"] >= 1)
    line = subprocess.run([efs, "status", name], capture_output=True, text=True).stdout
    check("a line in status", "intercept 1 programs now" in line)

def kill_worker():
    pid = status()["worker_pid"]
    os.kill(pid, signal.SIGKILL)
    return pid

def worker_after(pid):
    until = time.monotonic() + 20
    while time.monotonic() < until:
        try: now = status()
        except subprocess.CalledProcessError: continue
        if now.get("worker_pid") not in (None, pid) and now["state"] == "running": return now
    check("a successor", False)

def taken_over(client, fd, ino):
    for round_ in range(3):
        before = client.all()
        dead = kill_worker()
        os.ftruncate(fd, 100 + round_)      # served by the successor
        after = client.all()
        check("the epoch of the file", after[slot(ino)] > before[slot(ino)])
        check("all epochs", all(a > b for a, b in zip(after, before)))
        now = worker_after(dead)
        before = client.epoch(ino); os.ftruncate(fd, 10)
        check("later ones, too", client.epoch(ino) > before)
        check("asked again", ask(fd)[1] == 10)
    check("totals are kept", now["intercept"]["totals"]["reads"] == 6)
    second = Client(mount + "/" + DOOR)
    client.report(1, 1, 1, 1, 1, 1)
    now = status()["intercept"]
    check("an old handle's report", now["clients_now"] == 2 and now["totals"]["reads"] == 7)
    second.map.close(); os.close(second.fd)
    client.map.close(); os.close(client.fd)
    until = time.monotonic() + 10            # RELEASE follows the close
    while status()["intercept"]["clients_now"] != 0 and time.monotonic() < until: pass
    check("all are gone", status()["intercept"]["clients_now"] == 0)
    client = Client(mount + "/" + DOOR)
    before = client.epoch(ino); os.ftruncate(fd, 5)
    check("a new client", client.epoch(ino) > before)
    return client

def both_dead(client, fd, ino):
    now = status(); before = client.epoch(ino)
    os.kill(now["supervisor_pid"], signal.SIGKILL)
    try: os.kill(now["worker_pid"], signal.SIGKILL)
    except ProcessLookupError: pass
    def dead():
        try: ask(fd)
        except OSError as problem: return problem.errno
    until = time.monotonic() + 20
    while dead() is None and time.monotonic() < until: pass
    check(f"ioctl on a dead mount: {dead()}", dead() == errno.ENOTCONN)
    refused("report on a dead mount", errno.ENOTCONN, client.report, 1, 1, 1, 1, 1, 1)
    check("the mapping stays", client.epoch(ino) == before)

door_is_its_own()
client, fd, ino = answers()
seen(client)
epochs(client, fd, ino)
many(client)
if status()["takeover"]: client = taken_over(client, fd, ino)
both_dead(client, fd, ino)
sys.exit(1 if failed else 0)
