# SPDX-License-Identifier: BSD-3-Clause
"""Workers are killed, every other one within milliseconds of its first answer, while programs write as much by one call as a
request holds: the kernel is then copying into memory that the worker has never used. No call may fail.

usage: young.py MOUNT SUPERVISOR_PID KILLS SEED
"""
import multiprocessing
import os
import random
import signal
import sys
import time

MOUNT, SUPERVISOR, KILLS, SEED = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
BLOCK, BLOCKS, WRITERS = 1 << 20, 8, 3


def write(name, answered, over, failures):
    block, at = os.urandom(BLOCK), 0
    file = os.open(f"{MOUNT}/{name}", os.O_CREAT | os.O_WRONLY, 0o644)
    while not over.value:
        try:
            if os.pwrite(file, block, at % BLOCKS * BLOCK) != BLOCK:
                failures.put(f"{name}: a short write")
        except OSError as error:
            failures.put(f"{name}: {error.strerror}")
        at += 1
        answered.value += 1
    os.close(file)


def worker():
    with open(f"/proc/{SUPERVISOR}/task/{SUPERVISOR}/children") as children:
        return next(iter(children.read().split()), None)


def wait_until(condition):
    end = time.monotonic() + 60
    while not condition():
        if time.monotonic() > end:
            sys.exit("nothing happens for a minute")


def main():
    moments = random.Random(SEED)
    answered, over, failures = multiprocessing.Value("L", 0), multiprocessing.Value("b", 0), multiprocessing.Queue()
    writers = [multiprocessing.Process(target=write, args=(f"young{i}", answered, over, failures), daemon=True) for i in range(WRITERS)]
    for one in writers:
        one.start()
    dead = None
    for kill in range(KILLS):
        wait_until(lambda: worker() not in (None, dead))
        dead, before = worker(), answered.value
        wait_until(lambda: answered.value != before)
        # Every other worker lives longer: the supervisor gives up after two hundred deaths in ten
        # seconds, as it should.
        moment = time.monotonic() + (moments.uniform(0, 0.004) if kill % 2 == 0 else 0.12)
        wait_until(lambda: time.monotonic() >= moment)
        os.kill(int(dead), signal.SIGKILL)
    before = answered.value
    wait_until(lambda: answered.value > before + 10 * WRITERS)
    over.value = 1
    for one in writers:
        one.join()
    told = []
    while not failures.empty():
        told.append(failures.get())
    if told:
        sys.exit(f"{len(told)} calls failed in {KILLS} kills, such as {told[0]}")


main()
