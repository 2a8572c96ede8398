# SPDX-License-Identifier: BSD-3-Clause
# Removals of each kind, followed at once by writes that need their space: no write may fail.
#   usage: DIRECTORY, on a store without other users
import ctypes, errno, os, sys, traceback

d, MiB = sys.argv[1], 1 << 20
block = b"x" * MiB
libc = ctypes.CDLL(None, use_errno=True)


def available():
    v = os.statvfs(d)
    return v.f_bavail * v.f_frsize


def store(fd, size):
    while size > 0:
        size -= os.write(fd, block[: min(MiB, size)])


def make(name, size, flags=os.O_CREAT | os.O_WRONLY):
    fd = os.open(f"{d}/{name}", flags)
    try:
        store(fd, size)
    finally:
        os.close(fd)


def remove(name):
    os.unlink(f"{d}/{name}")


def fill(name):
    """As much as there is."""
    fd = os.open(f"{d}/{name}", os.O_CREAT | os.O_WRONLY)
    try:
        while True:
            os.write(fd, block)
    except OSError as problem:
        if problem.errno != errno.ENOSPC:
            raise
    finally:
        os.close(fd)


most = available() * 9 // 10 // MiB * MiB
fd = os.open(f"{d}/open", os.O_CREAT | os.O_RDWR)


def to_new_file():
    make("a", most)
    remove("a")
    make("b", most)


def to_open_file():
    make("a", most)
    remove("a")
    store(fd, most)


def more_than_half():
    make("a", most * 6 // 10)
    remove("a")
    store(fd, most)


def full():
    fill("a")
    remove("a")
    store(fd, most)


def replaced():
    for _ in range(3):
        make("new", most // 2)
        os.rename(f"{d}/new", f"{d}/a")
    make("b", most // 2)


def replaced_by_smaller():
    make("a", most * 2 // 3)
    make("new", most // 4)
    os.rename(f"{d}/new", f"{d}/a")
    store(fd, most * 2 // 3)


def truncated():
    make("a", most)
    os.truncate(f"{d}/a", MiB)
    make("b", most - 2 * MiB)


def opened_with_trunc():
    for _ in range(3):
        make("a", most, os.O_CREAT | os.O_WRONLY | os.O_TRUNC)


def punched():
    make("a", most)
    hole = os.open(f"{d}/a", os.O_WRONLY)
    keep_size_and_punch = 3
    if libc.fallocate(hole, keep_size_and_punch, ctypes.c_long(0), ctypes.c_long(most - MiB)) != 0:
        raise OSError(ctypes.get_errno(), "fallocate")
    os.close(hole)
    make("b", most - 2 * MiB)


def allocated():
    make("a", most)
    remove("a")
    os.posix_fallocate(fd, 0, most)


def removed_while_open():
    other = os.open(f"{d}/a", os.O_CREAT | os.O_RDWR)
    store(other, most)
    remove("a")
    if os.pread(other, 1, most - 1) != b"x":
        raise OSError(0, "it is gone, and open")
    os.close(other)
    make("b", most)


def small_files():
    for i in range(400):
        make(f"s{i}", most // 400)
    for i in range(400):
        remove(f"s{i}")
    store(fd, most * 98 // 100)


def shown():
    make("a", most)
    remove("a")
    free = available()
    if free < most:
        raise OSError(0, f"{free} bytes are shown to be available, and not {most}")


def holders():
    """Who holds removed containers: descriptors, and mappings."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        for kind in ("fd", "map_files"):
            try:
                links = [os.readlink(f"/proc/{process}/{kind}/{n}") for n in os.listdir(f"/proc/{process}/{kind}")]
            except OSError:
                continue
            for link in sorted(set(links)):
                if "/data/" in link and link.endswith("(deleted)"):
                    print(f"  {process} holds {links.count(link)} {kind} of {link}")


wrong = 0
for case in (to_new_file, to_open_file, more_than_half, full, replaced, replaced_by_smaller, truncated, opened_with_trunc, punched, allocated, removed_while_open, small_files, shown):
    for _ in range(3):
        try:
            case()
        except OSError as problem:
            steps = [f"{at.name} {at.lineno}" for at in traceback.extract_tb(problem.__traceback__)]
            print(f"{case.__name__}: {problem}; at {', '.join(steps[1:])};")
            holders()
            print(f"  {available()} bytes of {most} are available; the file has", os.fstat(fd).st_size)
            wrong += 1
        os.ftruncate(fd, 0)
        os.lseek(fd, 0, os.SEEK_SET)
        for name in os.listdir(d):
            if name != "open":
                remove(name)
sys.exit(wrong != 0)
