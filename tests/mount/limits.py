#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A program that works on a mount while the daemon is short of something, and knows what must be there.

  limits.py DIRECTORY MODEL work COUNT [ERRNO...]   works; an error must be one of those named. Prints what it met.
  limits.py DIRECTORY MODEL verify                  all that was acknowledged is there, and nothing else
  limits.py DIRECTORY MODEL results                 likewise in results-dir: extended attributes are not looked at
  limits.py DIRECTORY MODEL steady STOP ERRNO...    in a directory of its own, until the file STOP is there; then verifies

MODEL is the file that keeps what must be there between calls. EFS_TEST_SEED replays."""
import collections, errno, hashlib, json, os, random, sys

MOST = 1500  # files, of 50 KB on an average: what works for as long as it takes must not fill the buffer
ENOUGH = 100  # errors after which a limit has been met often enough


def content(key, size):
    return (hashlib.sha256(key.encode()).digest() * (size // 32 + 1))[:size]


class Worker:
    def __init__(self, directory, model, allowed):
        self.directory, self.model_file = directory, model
        self.allowed = {getattr(errno, name) for name in allowed}
        self.errors = collections.Counter()
        self.files, self.doubtful, self.history, self.next = {}, {}, {}, 0
        if os.path.exists(model):
            with open(model) as file: self.files, self.doubtful, self.history, self.next = json.load(file)

    def save(self):
        with open(self.model_file, "w") as file: json.dump([self.files, self.doubtful, self.history, self.next], file)

    def path(self, name): return os.path.join(self.directory, name)

    # Returns True: it was done; False: it met a permitted error.
    def attempt(self, what, action):
        try:
            action()
            return True
        except OSError as problem:
            if problem.errno not in self.allowed: sys.exit(f"{what}: {problem} may not be")
            self.errors[errno.errorcode[problem.errno]] += 1
            self.history[what.split()[-1]] = f"{what.split()[0]} failed: {problem.strerror}"
            return False

    def some(self): return random.choice(list(self.files)) if self.files else None

    def create(self):
        self.next += 1
        name, size = f"{self.next:06d}-".ljust(random.choice([8, 120, 250]), "n"), random.choice([0, 10, 5000, 200000])
        fds = []
        if not self.attempt(f"create {name}", lambda: fds.append(os.open(self.path(name), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o644))): return
        key, data = f"{name} {size}", content(f"{name} {size}", size)

        def write():
            done = 0
            while done < size: done += os.write(fds[0], data[done:])
            if random.random() < 0.2: os.fsync(fds[0])
        good = self.attempt(f"write {name}", write)
        os.close(fds[0])
        (self.files if good else self.doubtful)[name] = {"key": key, "size": size, "xattr": None}

    def set_xattr(self):
        name = self.some()
        if name is None: return
        size = random.choice([10, 3000, 30000, 60000])
        if self.attempt(f"setxattr {name}", lambda: os.setxattr(self.path(name), "user.large", content(name, size))): self.files[name]["xattr"] = [name, size]

    def rename(self):
        name = self.some()
        if name is None: return
        self.next += 1
        new = f"{self.next:06d}-renamed"
        if self.attempt(f"rename {name}", lambda: os.rename(self.path(name), self.path(new))): 
            self.files[new] = self.files.pop(name)
            self.history[name] = f"renamed to {new}"

    def unlink(self):
        name = self.some()
        if name is not None and self.attempt(f"unlink {name}", lambda: os.unlink(self.path(name))):
            del self.files[name]
            self.history[name] = "removed"

    def make_directory(self):
        self.next += 1
        name = self.path(f"{self.next:06d}-directory")
        if self.attempt(f"mkdir {name}", lambda: os.mkdir(name)):
            while not self.attempt(f"rmdir {name}", lambda: os.rmdir(name)):
                if self.errors.total() > 10 * ENOUGH: self.doubtful[os.path.basename(name)] = None; return

    def read(self):
        name = self.some()
        if name is not None: self.attempt(f"read {name}", lambda: self.check(name))

    def list(self):
        def look():
            missing = set(self.files) - set(os.listdir(self.directory))
            if missing: sys.exit(f"a listing lacks {sorted(missing)[:3]}")
        self.attempt("list", look)

    def step(self):
        if len(self.files) > MOST: return self.unlink()
        random.choices([self.create, self.set_xattr, self.rename, self.unlink, self.make_directory, self.read, self.list], [10, 8, 3, 2, 2, 4, 1])[0]()

    # Uses bytes and direct reads, so that pages in the cache are read from the daemon too.
    def check(self, name):
        known = self.files[name]
        fd = os.open(self.path(name), os.O_RDONLY)
        try:
            data = b""
            while part := os.read(fd, 1 << 20): data += part
        finally:
            os.close(fd)
        if data != content(known["key"], known["size"]): sys.exit(f"{name}: {len(data)} bytes, not the {known['size']} that were written")

    def verify(self, with_xattrs=True):
        there = set(os.listdir(self.directory))
        for name in self.files:
            if name not in there: sys.exit(f"{name} is gone")
            self.check(name)
            value = self.files[name]["xattr"]
            if with_xattrs and value and os.getxattr(self.path(name), "user.large") != content(*value): sys.exit(f"{name}: another value of its attribute")
        # A refused name does not exist; a file whose write failed has a prefix of its content.
        for name in there - set(self.files):
            known = self.doubtful.get(name, False)
            if known is False: sys.exit(f"{name} is there; last: {self.history.get(name)}")
            if known is not None and os.path.getsize(self.path(name)) > known["size"]: sys.exit(f"{name}: longer than what was written")


def main():
    directory, model, what, *rest = sys.argv[1:]
    random.seed(os.environ.get("EFS_TEST_SEED") or None)
    seed = random.randrange(1 << 32)
    print(f"seed {seed}", end="; ")
    random.seed(int(os.environ.get("EFS_TEST_SEED", seed)))
    worker = Worker(directory, model, rest[1:])
    os.makedirs(directory, exist_ok=True)
    steps = 0
    if what == "work":
        while steps < int(rest[0]) and worker.errors.total() < ENOUGH: worker.step(); steps += 1
    elif what == "steady":
        while not os.path.exists(rest[0]): worker.step(); steps += 1
        worker.allowed = set()
    if what != "work": worker.verify(what != "results")
    if what != "results": worker.save()
    print(f"{steps} steps, {len(worker.files)} files; errors {dict(worker.errors)}")


main()
