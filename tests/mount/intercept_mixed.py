# SPDX-License-Identifier: BSD-3-Clause
"""Processes that write records of one file, half of them with libefs-intercept.

intercept_mixed.py FILE LIBRARY
In each round every process writes its own records, and after a barrier of pipes reads all of them.
"""
import os
import subprocess
import sys

PROCESSES, ROUNDS, RECORDS = 6, 4, 1800
SIZE = 120  # records cross pages


def record(number, turn):
    return (b"%d/%d;" % (number, turn)).ljust(SIZE, b"%d" % ((number + turn) % 10))


def barrier():
    os.write(1, b"x")
    if os.read(0, 1) != b"g":
        sys.exit("the barrier is gone")


def worker(path, me):
    fd = os.open(path, os.O_RDWR)
    for turn in range(ROUNDS):
        for number in range(me, RECORDS, PROCESSES):
            os.pwrite(fd, record(number, turn), number * SIZE)
        barrier()
        for number in range(RECORDS):
            found = os.pread(fd, SIZE, number * SIZE)
            if found != record(number, turn):
                sys.exit(f"process {me}, round {turn}: record {number} is {found!r}")
        barrier()


def main():
    path, library = sys.argv[1:3]
    with open(path, "wb") as file:
        file.truncate(RECORDS * SIZE)
    children = []
    for me in range(PROCESSES):
        environment = {**os.environ, **({"LD_PRELOAD": library} if me % 2 else {})}
        children.append(subprocess.Popen(
            [sys.executable, "-SE", __file__, path, "--worker", str(me)], env=environment,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0))
    for _ in range(2 * ROUNDS):
        for child in children:
            if child.stdout.read(1) != b"x":
                sys.exit("a process failed")
        for child in children:
            child.stdin.write(b"g")
    if any([child.wait() for child in children]):
        sys.exit("a process failed")


if sys.argv[2] == "--worker":
    worker(sys.argv[1], int(sys.argv[3]))
else:
    main()
