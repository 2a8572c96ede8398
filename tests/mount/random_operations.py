#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Random system calls in two directories, one on a native file system and one on the mount: each must do the same in both.

usage: random_operations.py NATIVE MOUNTED SEED OPERATIONS

Files stay open over many operations. At the end all descriptors are closed and both trees compared: names, types, modes, links,
sizes, contents, extended attributes, targets, and times that were set. The first difference ends the run with exit code 1
and the last operations.
"""
import collections
import ctypes
import errno
import hashlib
import mmap
import os
import random
import stat
import sys

NAMES = ["a", "b", "c", "d", "e", "f"]
LARGEST = 300_000  # bytes of a file
KEEP_SIZE, PUNCH_HOLE, ZERO_RANGE = 1, 2, 16
NOREPLACE, EXCHANGE = 1, 2
libc = ctypes.CDLL(None, use_errno=True)
libc.fallocate.argtypes = [ctypes.c_int, ctypes.c_int, ctypes.c_int64, ctypes.c_int64]


def checked(result):
    if result != 0:
        raise OSError(ctypes.get_errno(), "")


def renameat2(old, new, flags):
    checked(libc.renameat2(-100, os.fsencode(old), -100, os.fsencode(new), flags))


class Pair:
    """One open file on each side."""

    def __init__(self, fds, flags):
        self.fds, self.flags = fds, flags


class Run:
    def __init__(self, native, mounted, seed):
        self.tops = (native, mounted)
        self.random = random.Random(seed)
        self.open = []
        self.history = collections.deque(maxlen=12)

    # --- selection ---
    def path(self):
        depth = self.random.choice((1, 1, 1, 2, 2, 3))
        return "/".join(self.random.choice(NAMES) for _ in range(depth))

    def offset(self):
        return self.random.choice((0, 1, 4095, 4096, 65536, self.random.randrange(LARGEST)))

    def data(self):
        size = self.random.choice((1, 17, 4096, 5000, 70_000))
        return self.random.randbytes(size)

    # --- execution ---
    def both(self, what, call):
        """call(top, side) on both sides; the same result or the same errno."""
        self.history.append(what)
        results = []
        for side, top in enumerate(self.tops):
            try:
                results.append(call(top, side))
            except OSError as error:
                results.append(error)
        shown = [errno.errorcode.get(r.errno, r.errno) if isinstance(r, OSError) else r for r in results]
        failed = [isinstance(r, OSError) for r in results]
        if failed[0] != failed[1] or (failed[0] and shown[0] != shown[1]):
            self.differ(f"{what}: natively {shown[0]!r}, on the mount {shown[1]!r}"[:400])
        return None if failed[0] else results

    def same(self, what, call):
        results = self.both(what, call)
        if results and results[0] != results[1]:
            self.differ(f"{what}: natively {str(results[0])[:200]}, on the mount {str(results[1])[:200]}")

    def differ(self, what):
        print(f"DIFFERENT {what}\nthe operations before, the last one last:")
        for line in self.history:
            print(f"  {line}")
        sys.exit(1)

    # --- operations on names ---
    def do_open(self):
        path = self.path()
        flags = self.random.choice((os.O_RDONLY, os.O_RDWR, os.O_RDWR, os.O_WRONLY))
        for flag, chance in ((os.O_CREAT, 0.8), (os.O_EXCL, 0.15), (os.O_TRUNC, 0.15), (os.O_APPEND, 0.15), (os.O_NOFOLLOW, 0.1)):
            if self.random.random() < chance and (flag != os.O_EXCL or flags & os.O_CREAT):
                flags |= flag
        fds = self.both(f"open {path} {flags:#o}", lambda top, _: os.open(f"{top}/{path}", flags | os.O_NONBLOCK, 0o640))
        if fds:
            self.open.append(Pair(fds, flags))
            if len(self.open) > 10:
                self.do_close()

    def do_tmpfile(self):
        path = self.path()
        fds = self.both("open O_TMPFILE", lambda top, _: os.open(top, os.O_TMPFILE | os.O_RDWR, 0o600))
        if not fds:
            return
        for side in (0, 1):
            os.write(fds[side], b"made without a name")
        self.both(f"linkat to {path}", lambda top, side: os.link(f"/proc/self/fd/{fds[side]}", f"{top}/{path}", follow_symlinks=True))
        for fd in fds:
            os.close(fd)

    def do_mkdir(self):
        path, mode = self.path(), self.random.choice((0o755, 0o700, 0o2775))
        self.both(f"mkdir {path}", lambda top, _: os.mkdir(f"{top}/{path}", mode))

    def do_remove(self):
        path = self.path()
        call = self.random.choice((os.unlink, os.unlink, os.rmdir))
        self.both(f"{call.__name__} {path}", lambda top, _: call(f"{top}/{path}"))

    def do_rename(self):
        old, new, flags = self.path(), self.path(), self.random.choice((0, 0, 0, NOREPLACE, EXCHANGE))
        self.both(f"rename {old} {new} {flags}", lambda top, _: renameat2(f"{top}/{old}", f"{top}/{new}", flags))

    def do_link(self):
        old, new = self.path(), self.path()
        self.both(f"link {old} {new}", lambda top, _: os.link(f"{top}/{old}", f"{top}/{new}", follow_symlinks=False))

    def do_symlink(self):
        target, path = self.random.choice(NAMES), self.path()
        self.both(f"symlink {target} {path}", lambda top, _: os.symlink(target, f"{top}/{path}"))

    def do_chmod(self):
        path, mode = self.path(), self.random.choice((0o600, 0o644, 0o755))
        self.both(f"chmod {path} {mode:o}", lambda top, _: os.chmod(f"{top}/{path}", mode))

    def do_times(self):
        path, when = self.path(), self.random.randrange(1, 2**33) * 10**9 + self.random.randrange(10**9)
        self.both(f"utimens {path}", lambda top, _: os.utime(f"{top}/{path}", ns=(when, when)))
        self.same(f"times of {path}", lambda top, _: os.stat(f"{top}/{path}").st_mtime_ns)

    def do_truncate(self):
        path, size = self.path(), self.offset()
        self.both(f"truncate {path} {size}", lambda top, _: os.truncate(f"{top}/{path}", size))

    def do_xattr(self):
        path, name = self.path(), f"user.{self.random.choice(NAMES)}"
        if self.random.random() < 0.3:
            return self.both(f"removexattr {path} {name}", lambda top, _: os.removexattr(f"{top}/{path}", name))
        value = self.random.randbytes(self.random.choice((0, 5, 300)))
        return self.both(f"setxattr {path} {name}", lambda top, _: os.setxattr(f"{top}/{path}", name, value))

    def do_look(self):
        path = self.path()
        self.same(f"stat {path}", lambda top, _: facts(f"{top}/{path}"))
        self.same(f"list {path}", lambda top, _: sorted(os.listdir(f"{top}/{path}")))
        self.same(f"readlink {path}", lambda top, _: os.readlink(f"{top}/{path}"))

    # --- operations on open files ---
    def pair(self):
        return self.random.choice(self.open) if self.open else None

    def do_close(self):
        if self.open:
            for fd in self.open.pop(self.random.randrange(len(self.open))).fds:
                os.close(fd)

    def do_write(self):
        if not (pair := self.pair()):
            return
        data, offset = self.data(), self.offset()
        self.same(f"pwrite {len(data)} at {offset}", lambda _, side: os.pwrite(pair.fds[side], data, offset))

    def do_read(self):
        if not (pair := self.pair()):
            return
        offset = self.offset()
        self.same(f"pread at {offset}", lambda _, side: os.pread(pair.fds[side], 100_000, offset))
        self.same("fstat", lambda _, side: facts_of(os.fstat(pair.fds[side])))

    def do_allocate(self):
        if not (pair := self.pair()):
            return
        mode, offset = self.random.choice((0, KEEP_SIZE, KEEP_SIZE | PUNCH_HOLE)), self.offset()
        self.both(f"fallocate {mode} at {offset}", lambda _, side: checked(libc.fallocate(pair.fds[side], mode, offset, 10_000)))

    def do_sync(self):
        if pair := self.pair():
            self.both("fsync", lambda _, side: os.fsync(pair.fds[side]))

    def do_map(self):
        pair = self.pair()
        if not pair or (pair.flags & os.O_ACCMODE) != os.O_RDWR or os.fstat(pair.fds[0]).st_size < 4096:
            return
        data = self.random.randbytes(100)

        def store(_, side):
            with mmap.mmap(pair.fds[side], 4096) as mapped:
                mapped[1000:1100] = data
                mapped.flush()
        self.both("store through a mapping", store)

    def do_copy(self):
        source, target = self.pair(), self.pair()
        if not source or source is target:
            return
        offsets = self.offset(), self.offset()
        self.both(f"copy_file_range {offsets}", lambda _, side: os.copy_file_range(source.fds[side], target.fds[side], 50_000, *offsets))

    OPERATIONS = ((do_open, 20), (do_write, 20), (do_read, 10), (do_look, 10), (do_rename, 8), (do_remove, 8), (do_mkdir, 5), (do_close, 6), (do_link, 4), (do_truncate, 4),
                  (do_symlink, 2), (do_chmod, 3), (do_times, 3), (do_xattr, 4), (do_tmpfile, 1), (do_allocate, 3), (do_sync, 1), (do_map, 2), (do_copy, 2))

    def go(self, count):
        calls, weights = zip(*self.OPERATIONS)
        for call in self.random.choices(calls, weights, k=count):
            call(self)
        while self.open:
            self.do_close()
        self.compare()

    def compare(self):
        trees = [tree(top) for top in self.tops]
        for path in sorted(set(trees[0]) | set(trees[1])):
            if trees[0].get(path) != trees[1].get(path):
                self.differ(f"{path} at the end: natively {trees[0].get(path)}, on the mount {trees[1].get(path)}")


def facts_of(st):
    """What must be the same; the size of a directory is each file system's own affair."""
    return stat.S_IFMT(st.st_mode), stat.S_IMODE(st.st_mode), st.st_nlink, st.st_uid, st.st_gid, 0 if stat.S_ISDIR(st.st_mode) else st.st_size


def facts(path):
    return facts_of(os.lstat(path))


def tree(top):
    found = {}
    for where, directories, files in os.walk(top):
        for name in directories + files:
            path = os.path.join(where, name)
            what = facts(path)
            if stat.S_ISLNK(what[0]):
                what += (os.readlink(path),)
            else:
                what += tuple((key, os.getxattr(path, key)) for key in sorted(os.listxattr(path)) if key.startswith("user."))
            if stat.S_ISREG(what[0]):
                with open(path, "rb") as file:
                    what += (hashlib.sha1(file.read()).hexdigest(),)
            found[os.path.relpath(path, top)] = what
    return found


def without_links_to_links(found):
    """As a stage-out leaves it: a symbolic link with several names becomes several."""
    return {path: (*what[:2], 1, *what[3:]) if stat.S_ISLNK(what[0]) else what for path, what in found.items()}


if __name__ == "__main__":
    if len(sys.argv) != 5:
        sys.exit(__doc__)
    Run(sys.argv[1], sys.argv[2], sys.argv[3]).go(int(sys.argv[4]))
