# SPDX-License-Identifier: BSD-3-Clause
"""A program with libefs-intercept that keeps a file mapped and obeys lines of standard input.

intercept.py FILE
  more:  says byte 0 of the file, then adds one to it by the library
  close: closes the file, says so, and stays
  dead:  the daemon is gone; says when the library has unmapped the file
"""
import os
import sys


def mapped(path):
    with open("/proc/self/maps") as maps:
        return any(line.rstrip("\n").endswith(path) for line in maps)


def say(text):
    print(text, flush=True)


def main():
    path = sys.argv[1]
    fd = os.open(path, os.O_RDWR)
    for _ in range(300):
        os.pread(fd, 1, 100)
    if not mapped(path):
        sys.exit("the library has not mapped the file")
    say("mapped")
    for line in sys.stdin:
        if line == "more\n":
            byte = os.pread(fd, 1, 0)[0]
            for _ in range(3):  # the first of a tick is the kernel's
                os.pwrite(fd, bytes([byte + 1]), 0)
            say(byte)
        elif line == "close\n":
            os.close(fd)
            say("closed")
        elif line == "dead\n":
            # the library learns it at one of its reports, each some milliseconds after the last
            for _ in range(10_000_000):
                try:
                    os.pread(fd, 1, 100)
                except OSError:
                    pass
                if not mapped(path):
                    break
            say("still mapped" if mapped(path) else "unmapped")


main()
