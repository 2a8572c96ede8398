# SPDX-License-Identifier: BSD-3-Clause
"""What is held, waited for or under way on the mount when workers die, until standard input ends: a file without a name, locks and who
waits for them, an inotify watch, a mapping that is stored through, splice, sendfile, copy_file_range, fallocate and holes.
usage: held.py DIRECTORY"""
import ctypes
import fcntl
import mmap
import os
import select
import struct
import subprocess
import sys
import threading

directory = sys.argv[1]
content = os.urandom(1 << 20)
libc = ctypes.CDLL(None, use_errno=True)


def path(name):
    return directory + "/" + name


def made(name, flags=0):
    return os.open(path(name), os.O_RDWR | os.O_CREAT | flags, 0o600)


def whole(name):
    with open(path(name), "rb") as file:
        assert file.read() == content, name


def waiter(name, call):
    """A process that waits for a lock: it says a line before, and one when it has it."""
    child = subprocess.Popen([sys.executable, "-c", "import fcntl, os, sys\nfd = os.open(sys.argv[1], os.O_RDWR)\nprint('asks', flush=True)\nfcntl.%s(fd, fcntl.LOCK_EX)\nprint('has it', flush=True)" % call, path(name)], stdout=subprocess.PIPE)
    child.stdout.readline()
    return child


def copied(name, step):
    source, target = os.open(path("source"), os.O_RDONLY), made(name, os.O_TRUNC)
    done = 0
    while done < len(content):
        moved = step(source, target, len(content) - done, done)
        assert moved > 0, name
        done += moved
    os.close(source)
    os.close(target)
    whole(name)


def through_a_pipe(source, target, left, _):
    out, into = os.pipe()
    moved = os.splice(source, into, min(left, 65536))
    done = 0
    while done < moved:
        done += os.splice(out, target, moved - done)
    os.close(out)
    os.close(into)
    return moved


def holes():
    fd = made("holes", os.O_TRUNC)
    os.posix_fallocate(fd, 0, 1 << 20)
    assert os.fstat(fd).st_size == 1 << 20
    os.pwrite(fd, b"q" * 8192, 4096)
    assert libc.fallocate(fd, 3, ctypes.c_long(4096), ctypes.c_long(4096)) == 0  # punch a hole, keep the size
    assert os.pread(fd, 8192, 4096) == b"\0" * 4096 + b"q" * 4096
    os.close(fd)


os.mkdir(directory) if not os.path.isdir(directory) else None
with open(path("source"), "wb") as file:
    file.write(content)
nameless = os.open(directory, os.O_TMPFILE | os.O_RDWR, 0o600)
os.write(nameless, b"before ")
posix, flock = made("posix"), made("flock")
fcntl.lockf(posix, fcntl.LOCK_EX)
fcntl.flock(flock, fcntl.LOCK_EX)
waiters = [waiter("posix", "lockf"), waiter("flock", "flock")]
inotify = libc.inotify_init1(os.O_NONBLOCK)
assert libc.inotify_add_watch(inotify, directory.encode(), 0x100) >= 0  # creations
mapped = made("mapped")
os.ftruncate(mapped, 1 << 20)
memory = mmap.mmap(mapped, 1 << 20)
stop, wrong, rounds = threading.Event(), [], {}


def again_and_again(name, work):
    try:
        while not stop.is_set():
            work()
            rounds[name] = rounds.get(name, 0) + 1
    except Exception as problem:  # told at the end, with its name
        wrong.append("%s: %r" % (name, problem))


def store():
    n = rounds.get("mapping", 0)
    at = n * 4096 % (1 << 20)
    memory[at:at + 8] = struct.pack("Q", n)
    stop.wait(0.0002)
    assert memory[at:at + 8] == struct.pack("Q", n)


work = {
    "mapping": store,
    "holes": holes,
    "sendfile": lambda: copied("sent", lambda source, target, left, at: os.sendfile(target, source, at, left)),
    "copy_file_range": lambda: copied("ranged", lambda source, target, left, at: os.copy_file_range(source, target, left)),
    "splice": lambda: copied("spliced", through_a_pipe),
}
threads = [threading.Thread(target=again_and_again, args=one, daemon=True) for one in work.items()]
for thread in threads:
    thread.start()
select.select([sys.stdin], [], [])
stop.set()
for thread in threads:
    thread.join(60)
assert not wrong and not any(thread.is_alive() for thread in threads), wrong
assert rounds.keys() == work.keys(), rounds  # each at least once
assert not select.select([child.stdout for child in waiters], [], [], 0)[0], "a lock was lost"
fcntl.lockf(posix, fcntl.LOCK_UN)
fcntl.flock(flock, fcntl.LOCK_UN)
for child in waiters:
    assert child.stdout.readline() == b"has it\n"
    child.wait()
os.write(nameless, b"after")
assert libc.linkat(-100, ("/proc/self/fd/%d" % nameless).encode(), -100, path("named").encode(), 0x400) == 0, os.strerror(ctypes.get_errno())
with open(path("named"), "rb") as file:
    assert file.read() == b"before after"
made("seen")
assert b"seen" in os.read(inotify, 1 << 20)
memory.flush()
with open(path("mapped"), "rb") as file:
    assert file.read() == bytes(memory)
print(" ".join("%s %d" % one for one in sorted(rounds.items())))
