# SPDX-License-Identifier: BSD-3-Clause
# A program on the mount, and the check of its remaining files. Its operations are the same each
# time.
#   operations.py                   works for ever; ACK N on the console: operation N is durable,
#                                   as far as the manual promises
#   operations.py DIRECTORY COUNT   checks that DIRECTORY is in the state after some operation,
#                                   not before COUNT, except for parts of the next operation
import hashlib
import os
import random
import sys

SEED = 7


def content(number):
    return (hashlib.md5(b"%d" % number).hexdigest() * (number % 40 * 20 + 1)).encode()


def operations():
    """(number, removed or None, made or None) for ever; both: a rename of a file that was written anew under its old name."""
    draw, live, number = random.Random(SEED), [], 0
    while True:
        number += 1
        kind = draw.random()
        old = None if kind < 0.6 or len(live) < 5 else live.pop(draw.randrange(len(live)))
        made = number if old is None or kind >= 0.8 else None
        if made:
            live.append(made)
        yield number, old, made


def store(path, flags, number):
    file = os.open(path, flags | os.O_WRONLY | os.O_TRUNC, 0o644)
    os.write(file, content(number))
    os.fsync(file)
    os.close(file)


def work(mount):
    for number, old, made in operations():
        if old is None:
            store(f"{mount}/new", os.O_CREAT, made)
            os.rename(f"{mount}/new", f"{mount}/f{made}")
        elif made is None:
            os.unlink(f"{mount}/f{old}")
        else:
            store(f"{mount}/f{old}", 0, made)
            os.rename(f"{mount}/f{old}", f"{mount}/f{made}")
        print("ACK", number, flush=True)


def judge(directory, least):
    there = {}
    for name in os.listdir(directory):
        if name[0] == "f" and name[1:].isdigit():
            with open(f"{directory}/{name}", "rb") as file:
                there[int(name[1:])] = file.read()
    wrong = [number for number in there if there[number] != content(number)]
    state, done = set(), 0
    for number, old, made in operations():
        if done >= least and state == set(there) and wrong in ([], [old]):
            return f"as operation {done} has left it, {least} were durable; {len(there)} files", 0
        if number > least + 20000:
            return f"as no operation has left it: {least} were durable; {len(there)} files, wrong {wrong[:5]}", 1
        state.discard(old)
        state |= {made} - {None}
        done = number


if len(sys.argv) == 1:
    work("/mnt/efs")
text, code = judge(sys.argv[1], int(sys.argv[2]))
print(text)
sys.exit(code)
