# SPDX-License-Identifier: BSD-3-Clause
# Programs on a mount with -o writeback.
#   usage: PART DIRECTORY [ARGUMENT...]; prints what differs, and fails then
import errno, json, mmap, os, random, subprocess, sys, time

part, d = sys.argv[1:3]
PAGE = 4096


def expect(fact, text):
    if not fact:
        sys.exit(f"not so: {text}")


def drop(fd):
    """The next read of the file is the daemon's answer."""
    os.fsync(fd)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)


def contents(path):
    fd = os.open(path, os.O_RDONLY)
    try:
        drop(fd)
        return b"".join(iter(lambda: os.read(fd, 1 << 20), b""))
    finally:
        os.close(fd)


class Model:
    """A file, and the bytes that it must have."""

    def __init__(self, path, chance):
        self.path, self.chance, self.bytes = path, chance, bytearray()
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644))

    def store(self, at, data):
        self.bytes.extend(bytes(max(0, at + len(data) - len(self.bytes))))
        self.bytes[at : at + len(data)] = data

    def data(self, most):
        return self.chance.randbytes(self.chance.randint(1, most))

    def place(self):
        return self.chance.randint(0, len(self.bytes) + PAGE)

    def write(self, flags=os.O_WRONLY):
        fd = os.open(self.path, flags)
        for _ in range(self.chance.randint(1, 20)):
            at, data = self.place(), self.data(3 * PAGE)
            expect(os.pwrite(fd, data, at) == len(data), "a write is whole")
            self.store(at, data)
            expect(os.fstat(fd).st_size == len(self.bytes), "the size follows a write at once")
        if self.chance.random() < 0.3:
            drop(fd)
        os.close(fd)

    def read_write(self):
        self.write(os.O_RDWR)

    def direct(self):
        fd = os.open(self.path, os.O_RDWR | os.O_DIRECT)
        block = mmap.mmap(-1, PAGE)
        block[:] = self.chance.randbytes(PAGE)
        at = self.place() // PAGE * PAGE
        expect(os.pwrite(fd, block, at) == PAGE, "a direct write is whole")
        self.store(at, block[:])
        os.close(fd)

    def append(self):
        fd = os.open(self.path, os.O_WRONLY | os.O_APPEND)
        for _ in range(self.chance.randint(1, 20)):
            data = self.data(PAGE)
            os.write(fd, data)
            self.store(len(self.bytes), data)
        os.close(fd)

    def map(self):
        if not self.bytes:
            return
        fd = os.open(self.path, os.O_RDWR)
        with mmap.mmap(fd, len(self.bytes)) as pages:
            os.close(fd)
            at = self.chance.randrange(len(self.bytes))
            data = self.data(PAGE)[: len(self.bytes) - at]
            pages[at : at + len(data)] = data
        self.store(at, data)

    def truncate(self):
        size = self.place()
        os.truncate(self.path, size)
        self.bytes.extend(bytes(max(0, size - len(self.bytes))))
        del self.bytes[size:]

    def punch(self):
        if not self.bytes:
            return
        at, length = self.chance.randrange(len(self.bytes)), self.chance.randint(1, 3 * PAGE)
        subprocess.run(["fallocate", "-p", "-o", str(at), "-l", str(length), self.path], check=True)
        length = min(length, len(self.bytes) - at)
        self.store(at, bytes(length))

    def step(self):
        how = self.chance.choice([self.write, self.read_write, self.direct, self.append, self.map, self.truncate, self.punch])
        how()
        expect(os.stat(self.path).st_size == len(self.bytes), f"the size after {how.__name__}")
        with open(self.path, "rb") as file:
            at = self.chance.randint(0, len(self.bytes))
            file.seek(at)
            expect(file.read(PAGE) == self.bytes[at : at + PAGE], f"the cache after {how.__name__}")


def random_steps(seed, steps):
    chance = random.Random(int(seed))
    models = [Model(f"{d}/random{i}", chance) for i in range(4)]
    for _ in range(int(steps)):
        chance.choice(models).step()
    for model in models:
        expect(contents(model.path) == model.bytes, f"{model.path}: the daemon has what was written")
        with open(f"{model.path}.expected", "wb") as file:
            file.write(model.bytes)


def requests(name):
    text = subprocess.run([os.environ["EFS"], "status", "--json", name], stdout=subprocess.PIPE, check=True).stdout
    operations = json.loads(text)["counters"]["operations"]
    return {each: operations.get(each, {"count": 0})["count"] for each in ("write", "getattr", "setattr", "read")}


def counts(name):
    """1000 writes of 4 KiB, to a new file and over it."""
    fd = os.open(f"{d}/counted", os.O_CREAT | os.O_RDWR)
    for how in ("new", "old"):
        before = requests(name)
        for i in range(1000):
            os.pwrite(fd, bytes([i % 251]) * PAGE, i * PAGE)
        os.fsync(fd)
        made = {each: count - before[each] for each, count in requests(name).items()}
        print(how, made)
        expect(made["write"] >= 4, "the daemon got the data")
        expect(made["write"] <= 100, "the kernel collects writes")
        expect(made["getattr"] <= 20 and made["read"] <= 20, "no request precedes a write")
    os.close(fd)


def times():
    path = f"{d}/times"
    before = time.time_ns() - 20_000_000  # a file's clock ticks
    fd = os.open(path, os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"x" * 10000)
    now = os.fstat(fd)
    expect(now.st_size == 10000 and before <= now.st_mtime_ns <= time.time_ns(), "size and mtime at once")
    expect(now.st_blocks > 0, "a file with data does not look like a hole")
    os.close(fd)
    expect(os.stat(path).st_mtime_ns == now.st_mtime_ns, "mtime after close")
    os.utime(path, ns=(1, 1_500_000_000_123_456_789))
    expect(os.stat(path).st_mtime_ns == 1_500_000_000_123_456_789, "mtime as set")
    fd = os.open(path, os.O_WRONLY)
    os.write(fd, b"y")
    os.utime(path, ns=(1, 1_600_000_000_123_456_789))
    os.close(fd)
    expect(os.stat(path).st_mtime_ns == 1_600_000_000_123_456_789, "a time set after a write stays")
    os.mkdir(f"{d}/moved")
    os.rename(path, f"{d}/moved/times")
    os.sync()
    expect(os.stat(f"{d}/moved/times").st_mtime_ns == 1_600_000_000_123_456_789, "mtime after a rename and a sync")


def blocks():
    """st_blocks of an empty file is 0 again when no program has it open for writing."""
    fd = os.open(f"{d}/empty", os.O_CREAT | os.O_WRONLY)
    os.close(fd)
    end = time.monotonic() + 10
    while os.stat(f"{d}/empty").st_blocks != 0:
        expect(time.monotonic() < end, "an empty file has no blocks")
    fd = os.open(f"{d}/empty", os.O_WRONLY)
    os.write(fd, b"x" * PAGE)
    expect(os.stat(f"{d}/empty").st_blocks > 0, "an empty file that gets data has blocks")
    expect(os.lseek(fd, 0, os.SEEK_DATA) == 0 and os.lseek(fd, 0, os.SEEK_HOLE) == PAGE, "its data are no hole")
    os.close(fd)


def fails_with_no_space(call, *arguments):
    try:
        call(*arguments)
    except OSError as problem:
        return problem.errno == errno.ENOSPC
    return False


def full():
    """More than the store takes: fsync or close reports it, whichever is first."""
    for last in (os.fsync, os.close):
        fd = os.open(f"{d}/full", os.O_CREAT | os.O_TRUNC | os.O_WRONLY)
        try:
            for _ in range(24):
                os.write(fd, b"x" * (1 << 20))
            reported = fails_with_no_space(last, fd)
        except OSError as problem:
            reported = problem.errno == errno.ENOSPC
        expect(reported, f"{last.__name__} reports that the store is full")
        if last == os.fsync:
            fails_with_no_space(os.close, fd)
        os.unlink(f"{d}/full")
    fd = os.open(f"{d}/full", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"x" * (1 << 20))
    os.fsync(fd)
    os.close(fd)
    os.unlink(f"{d}/full")


def lose():
    """A file that is whole, and one of which the store takes only a part. The program misses the error."""
    with open(f"{d}/whole", "w") as file:
        file.write("whole\n")
    fd = os.open(f"{d}/holed", os.O_CREAT | os.O_WRONLY)
    try:
        for _ in range(24):
            os.write(fd, b"x" * (1 << 20))
    except OSError:
        pass
    fails_with_no_space(os.close, fd)
    expect(os.stat(f"{d}/holed").st_size > 12 << 20, "most of it was accepted")


def hold():
    """Writes, and keeps the file open. The command on the standard input ends it."""
    fd = os.open(f"{d}/held", os.O_CREAT | os.O_WRONLY)
    os.write(fd, b"first" * 2000)
    print("written", flush=True)
    for line in sys.stdin:
        if line == "more\n":
            os.write(fd, b"second" * 2000)
            print("written", flush=True)
    os.close(fd)


def work(seed, rounds):
    """Writes while workers die."""
    chance = random.Random(int(seed))
    model = Model(f"{d}/worked", chance)
    fd = os.open(model.path, os.O_RDWR)
    for _ in range(int(rounds)):
        at, data = min(model.place(), 1 << 22), model.data(2 * PAGE)
        os.pwrite(fd, data, at)
        model.store(at, data)
        if chance.random() < 0.02:
            drop(fd)
    os.close(fd)
    expect(contents(model.path) == model.bytes, "no byte is lost")


{"random": random_steps, "counts": counts, "times": times, "blocks": blocks, "full": full, "lose": lose, "hold": hold, "work": work}[part](*sys.argv[3:])
