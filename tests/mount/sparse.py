# SPDX-License-Identifier: BSD-3-Clause
# Sparse files on a private tmpfs with huge pages: what their last close gives back. usage: DIRECTORY CASE
import ctypes, mmap, os, random, sys, threading, time

d, case = sys.argv[1:]
PAGE, EXTENT, EXTENTS = 4096, 2 << 20, 24
SIZE = EXTENTS * EXTENT
libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]


def path(name):
    return f"{d}/{name}"


def sparse(name, flags=os.O_RDWR):
    """A page of data in each extent; open."""
    fd = os.open(path(name), os.O_CREAT | os.O_TRUNC | flags)
    os.ftruncate(fd, SIZE)
    for i in range(EXTENTS):
        os.pwrite(fd, b"x" * PAGE, i * EXTENT)
    return fd


def taken(name):
    return os.stat(path(name)).st_blocks * 512


def surely(what, is_so):
    if not is_so:
        sys.exit(f"{case}: {what}")


def falls(name, to):
    until = time.monotonic() + 60
    while taken(name) != to:
        surely(f"{name} takes {taken(name)} bytes, and not {to}", time.monotonic() < until)


def is_whole(name, more=()):
    data = bytearray(SIZE)
    for i in range(EXTENTS):
        data[i * EXTENT : i * EXTENT + PAGE] = b"x" * PAGE
    for at, bytes_there in more:
        data[at : at + len(bytes_there)] = bytes_there
    with open(path(name), "rb") as file:
        surely(f"{name} has other bytes", file.read() == data)


def another_closes():
    """Behind whatever the daemon does about a close of before."""
    os.close(sparse("other"))
    falls("other", EXTENTS * PAGE)
    os.unlink(path("other"))


def closed():
    for flags in (os.O_RDWR, os.O_WRONLY):
        fd = sparse("f", flags)
        before = os.fstat(fd)
        surely("no huge pages", before.st_blocks * 512 == SIZE)
        os.close(fd)
        falls("f", EXTENTS * PAGE)
        after = os.stat(path("f"))
        surely("size, mtime or ctime moved", all(getattr(before, a) == getattr(after, a) for a in ("st_size", "st_mtime_ns", "st_ctime_ns")))
        is_whole("f")
        fd = os.open(path("f"), os.O_WRONLY)  # and again
        os.pwrite(fd, b"y", EXTENT + PAGE)
        os.close(fd)
        falls("f", (EXTENTS + 1) * PAGE)
        is_whole("f", [(EXTENT + PAGE, b"y")])
        surely("a write did not move the times", os.stat(path("f")).st_mtime_ns > before.st_mtime_ns)


def reserved():
    fd = sparse("f")
    os.posix_fallocate(fd, 0, 4 * EXTENT)
    os.close(fd)
    another_closes()
    surely("its reserved space is gone", taken("f") == SIZE)


def second_descriptor():
    fd = sparse("f")
    second = os.open(path("f"), os.O_WRONLY)
    os.close(fd)
    another_closes()
    surely("space went while it was open", taken("f") == SIZE)
    os.pwrite(second, b"y", PAGE)
    os.close(second)
    falls("f", (EXTENTS + 1) * PAGE)
    is_whole("f", [(PAGE, b"y")])


def mapping():
    """Without a descriptor. Where it ends nobody is told, so the space comes back when it is wanted."""
    fd = sparse("f")
    address = libc.mmap(None, EXTENT, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, fd, 0)
    os.close(fd)
    another_closes()
    surely("space went while it was mapped", taken("f") == SIZE)
    ctypes.memset(address + 5 * PAGE, ord("y"), PAGE)
    libc.munmap(address, EXTENT)
    filler = os.open(path("filler"), os.O_CREAT | os.O_WRONLY)
    v = os.statvfs(d)
    room = v.f_bavail * v.f_frsize
    for _ in range(max(0, room - 16 * EXTENT) // EXTENT):
        os.write(filler, b"z" * EXTENT)
    another_opens = os.open(path("more"), os.O_CREAT | os.O_WRONLY)
    falls("f", (EXTENTS + 1) * PAGE)
    is_whole("f", [(5 * PAGE, b"y" * PAGE)])
    os.close(filler), os.close(another_opens)


def whole():
    data = random.randbytes(SIZE).replace(b"\0", b"1")
    fd = os.open(path("f"), os.O_CREAT | os.O_RDWR)
    os.ftruncate(fd, SIZE)
    os.pwrite(fd, data, 0)
    os.close(fd)
    another_closes()
    surely("a file without zeros lost blocks", taken("f") == SIZE)
    with open(path("f"), "rb") as file:
        surely("a file without zeros has other bytes", file.read() == data)


def race():
    """Writers that open, store what was zero, and close; each close may punch what another is about to store."""
    seed = random.randrange(1 << 32)
    os.close(sparse("f"))
    problems = []

    def write(number):
        chance = random.Random(seed + number)
        for _ in range(300):
            at = (chance.randrange(SIZE // PAGE // 4) * 4 + number) * PAGE
            if at % EXTENT == 0:
                continue
            stored = bytes([chance.randrange(1, 256)]) * PAGE
            fd = os.open(path("f"), os.O_RDWR)
            os.pwrite(fd, stored, at)
            os.close(fd)
            fd = os.open(path("f"), os.O_RDWR)
            if os.pread(fd, PAGE, at) != stored:
                problems.append(at)
            os.pwrite(fd, bytes(PAGE), at)
            os.close(fd)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    surely(f"lost what was stored at {problems[:5]}, seed {seed}", not problems)
    is_whole("f")


def room():
    """What a sparse file gives back is there for the next file, also on a buffer that is full of it."""
    for turn in range(5):
        fd = sparse("f")
        v = os.statvfs(d)
        most = v.f_bavail * v.f_frsize
        os.close(fd)
        filler = os.open(path("filler"), os.O_CREAT | os.O_WRONLY)
        for _ in range((most + SIZE - 4 * EXTENT) // EXTENT):
            surely(f"turn {turn}: a short write", os.write(filler, b"z" * EXTENT) == EXTENT)
        os.close(filler)
        os.unlink(path("filler")), os.unlink(path("f"))


globals()[case]()
for name in os.listdir(d):
    os.unlink(path(name))
