#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
# The programs of full_table_test.sh: full_table.py PART MOUNT FILES [ARG...]
import ctypes
import mmap
import os
import random
import sys

mount, files = sys.argv[2], int(sys.argv[3])


def name(number):
    return "%s/f%04d" % (mount, number)


# Far from each other, so that registering neighbours does not pay.
def scattered(seed):
    order = list(range(files))
    random.Random(seed).shuffle(order)
    return order


def expect(path, text, expected):
    if text != expected:
        sys.exit("%s is %r, not %r" % (path, text[:40], expected[:40]))


def check(path, expected):
    with open(path) as file:
        expect(path, file.read(), expected)


# Write-only: a file that was open read-write may be mapped, and is passed through from then on.
def write(path, text, flags=0):
    file = os.open(path, os.O_WRONLY | os.O_CREAT | flags)
    os.write(file, text.encode())
    os.close(file)


def make():
    for i in range(files):
        write(name(i), "old %04d" % i)


def read():
    for i in scattered(5):
        check(name(i), "old %04d" % i)


# The daemon has read all files. Now most are written with passthrough, and those of a reader by the
# daemon. Each read that follows at once takes the path of the write; the last reads, of files whose
# ids went to others, take the daemon's.
def alternate():
    expected = {}

    def put(path, text, flags=0):
        write(path, text, flags)
        before = expected.get(path, "old " + path[-4:])
        appended = flags & os.O_APPEND
        expected[path] = before + text if appended else text + before[len(text):]

    for n, i in enumerate(scattered(6)):
        path = name(i)
        reader = open(path) if n % 4 == 0 else None
        if reader:
            reader.read()
        put(path, "new %d" % i)
        check(path, expected[path])
        if n % 3 == 0:
            put(path, "x" * 9000, os.O_APPEND)
            check(path, expected[path])
        if reader:
            reader.seek(0)
            expect(path, reader.read(), expected[path])
            os.truncate(path, 3)
            expected[path] = "new"
            check(path, "new")
            reader.close()
            check(path, "new")
            put(path, "NEW")
            check(path, "NEW")
    for i in scattered(8):
        check(name(i), expected[name(i)])
    for i in range(files):
        write(name(i), "old %04d" % i, os.O_TRUNC)
    for i in scattered(9):
        check(name(i), "old %04d" % i)


# mmap.mmap() would keep a descriptor of its own.
def map_shared(file, size):
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = (ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long)
    at = libc.mmap(None, size, mmap.PROT_READ | mmap.PROT_WRITE, mmap.MAP_SHARED, file, 0)
    if at == ctypes.c_void_p(-1).value:
        sys.exit("mmap: " + os.strerror(ctypes.get_errno()))
    return (ctypes.c_char * size).from_address(at)


# The mapping stays when the file is closed, and when its id is closed. The files are not neighbours.
def map():
    mapped = {}
    for i in range(0, files, 50):
        path = name(i)
        write(path, "before", os.O_TRUNC)
        file = os.open(path, os.O_RDWR)
        mapped[path] = map_shared(file, 6)
        os.close(file)
    take_ids()
    for path, memory in mapped.items():
        file = os.open(path, os.O_RDONLY)
        expect(path, os.read(file, 6), b"before")
        memory[:] = b"behind"
        expect(path, os.pread(file, 6, 0), b"behind")
        os.close(file)
        check(path, "behind")


# Registers other files.
def take_ids():
    for i in range(700):
        write("%s/other%04d" % (mount, i), "")


def make_large():
    for i in range(50):
        write("%s/large%02d" % (mount, i), "x" * 200_000)


def read_large():
    for i in range(50):
        check("%s/large%02d" % (mount, i), "x" * 200_000)


def append():
    for i in range(50):
        write(name(i), "more", os.O_APPEND)


def hold():
    paths = [name(i) for i in scattered(10)[:100]]
    readers = [open(path) for path in paths]
    before = [reader.read() for reader in readers]
    open(sys.argv[5], "w").close()
    with open(sys.argv[4]) as go:
        go.read()
    for path, reader, text in zip(paths, readers, before):
        write(path, "more", os.O_APPEND)
        expect(path, reader.read(), "more")
        check(path, text + "more")


globals()[sys.argv[1]]()
