# SPDX-License-Identifier: BSD-3-Clause
"""Random calls on a few files by a process with libefs-intercept, and by its child without it, until standard input ends. Every byte
that either reads must be that of a model.
usage: both_doors.py DIRECTORY SEED"""
import os
import random
import select
import subprocess
import sys
import zlib

FILES, LONGEST, SIZE = 3, 6000, 400_000


def outsider(directory):
    """The child: a line is a call; it answers with a number."""
    for line in sys.stdin:
        call, name, *numbers = line.split()
        fd = os.open(f"{directory}/{name}", os.O_RDWR)
        if call == "write":
            offset, length, byte = map(int, numbers)
            print(os.pwrite(fd, bytes([byte]) * length, offset), flush=True)
        elif call == "truncate":
            os.ftruncate(fd, int(numbers[0]))
            print(os.fstat(fd).st_size, flush=True)
        else:
            print(zlib.crc32(os.pread(fd, 2 * SIZE, 0)), flush=True)
        os.close(fd)


class File:
    def __init__(self, directory, name, child):
        self.path, self.name, self.child, self.model = f"{directory}/{name}", name, child, bytearray()
        self.fd = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o600)
        self.write(0, random.randbytes(SIZE // 2))

    def require(self, good, what):
        if not good:
            sys.exit(f"{self.name}: {what}")

    def write(self, offset, data):
        self.require(os.pwrite(self.fd, data, offset) == len(data), f"a short write at {offset}")
        self.wrote(offset, data)

    def wrote(self, offset, data):
        self.model.extend(bytes(max(0, offset - len(self.model))))
        self.model[offset:offset + len(data)] = data

    def read(self, offset, length):
        self.require(os.pread(self.fd, length, offset) == self.model[offset:offset + length], f"{length} bytes at {offset} differ")

    def read_on(self, offset, length):
        os.lseek(self.fd, offset, os.SEEK_SET)
        for at in range(offset, offset + 4 * length, length):
            self.require(os.read(self.fd, length) == self.model[at:at + length], f"{length} bytes at offset {at} differ")

    def write_on(self, offset, length):
        os.lseek(self.fd, offset, os.SEEK_SET)
        for at in range(offset, offset + 4 * length, length):
            data = random.randbytes(length)
            self.require(os.write(self.fd, data) == length, f"a short write at offset {at}")
            self.wrote(at, data)

    def truncate(self, size):
        os.ftruncate(self.fd, size)
        self.truncated(size)

    def truncated(self, size):
        del self.model[size:]
        self.model.extend(bytes(size - len(self.model)))

    def reopen(self):
        os.close(self.fd)
        self.fd = os.open(self.path, os.O_RDWR)

    def ask(self, *words):
        print(words[0], self.name, *words[1:], file=self.child.stdin, flush=True)
        return int(self.child.stdout.readline() or -1)

    def written_outside(self, offset, length):
        byte = random.randrange(256)
        self.require(self.ask("write", offset, length, byte) == length, f"a short write of the outsider at {offset}")
        self.wrote(offset, bytes([byte]) * length)

    def truncated_outside(self, size):
        self.require(self.ask("truncate", size) == size, "the outsider sees another size")
        self.truncated(size)

    def check(self):
        self.require(os.fstat(self.fd).st_size == len(self.model), "another size")
        self.require(self.ask("sum") == zlib.crc32(self.model), "the outsider sees other bytes")
        self.read(0, 2 * SIZE)

    def step(self):
        offset, length = random.randrange(len(self.model) + 1), random.choice((1, 100, 512, 4096, LONGEST))
        kind = random.random()
        if kind < 0.4:
            self.read(offset, length)
        elif kind < 0.8:
            offset = min(offset, SIZE)
            self.write(offset, random.randbytes(length))
        elif kind < 0.86:
            self.read_on(offset, length)
        elif kind < 0.92:
            self.write_on(min(offset, SIZE), length)
        elif kind < 0.96:
            self.written_outside(min(offset, SIZE), length)
        elif kind < 0.97:
            random.choice((self.truncate, self.truncated_outside))(random.randrange(SIZE // 2, SIZE))
        elif kind < 0.975:
            self.reopen()
        elif kind < 0.98:
            self.check()


def main():
    directory = sys.argv[1]
    os.mkdir(directory)
    random.seed(int(sys.argv[2]))
    environment = {name: value for name, value in os.environ.items() if name != "LD_PRELOAD"}
    child = subprocess.Popen([sys.executable, "-SE", __file__, directory], env=environment, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    files = [File(directory, f"f{i}", child) for i in range(FILES)]
    steps = 0
    while not select.select([sys.stdin], [], [], 0)[0]:
        for _ in range(100):
            random.choice(files).step()
        steps += 100
    for file in files:
        file.check()
    child.stdin.close()
    print(f"{steps} steps")
    sys.exit(child.wait())


if len(sys.argv) == 2:
    outsider(sys.argv[1])
else:
    main()
