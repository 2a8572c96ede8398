# SPDX-License-Identifier: BSD-3-Clause
"""Keeps files open until standard input ends: NUMBER each for reading, for writing, and without a name for both. Those without a
name have 1 MiB. Says "open" when all are, and checks them at the end.
usage: opens.py DIRECTORY NUMBER"""
import os
import sys

directory, number = sys.argv[1], int(sys.argv[2])
content = os.urandom(1 << 20)
files = []


def opened(name, flags):
    files.append(os.open(directory + "/" + name, flags, 0o600))
    return files[-1]


for i in range(number):
    os.close(opened("read%d" % i, os.O_WRONLY | os.O_CREAT))
    files.pop()
    opened("read%d" % i, os.O_RDONLY)
    os.write(opened("written%d" % i, os.O_WRONLY | os.O_CREAT), b"x")
    os.write(opened("unlinked%d" % i, os.O_RDWR | os.O_CREAT), content)
    os.unlink(directory + "/unlinked%d" % i)
print("open", flush=True)
sys.stdin.read()
for i in range(number):
    os.write(files[3 * i + 1], b"y")
    assert os.pread(files[3 * i + 2], len(content) + 1, 0) == content
