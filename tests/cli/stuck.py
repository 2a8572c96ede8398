#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""stuck.py MOUNT WORKER: stops the worker of a mount when it has a request in its hands: who waits for that one cannot be killed.

Prints the process that waits, its child, and waits for it, in vain or not. Exits with 1 where no round leaves such a one."""
import itertools, os, signal, sys, time

mount, worker = sys.argv[1], int(sys.argv[2])


def use(directory):  # of its own, for the kernel lets in one at a time
    os.makedirs(directory, exist_ok=True)
    name = directory + "/f"
    while True:
        os.close(os.open(name, os.O_CREAT | os.O_WRONLY))
        os.unlink(name)


def start(number):
    pid = os.fork()
    if pid == 0:
        try:
            use(f"{mount}/stuck.{number}")
        finally:
            os._exit(1)
    return pid


def survivors(pids, seconds):
    end = time.monotonic() + seconds
    while pids and time.monotonic() < end:
        pids = [pid for pid in pids if os.waitpid(pid, os.WNOHANG)[0] == 0]
        time.sleep(0.01)
    return pids


for wait in itertools.islice(itertools.cycle((0.02, 0.031, 0.043)), 300):
    pids = [start(number) for number in range(8)]
    time.sleep(wait)
    os.kill(worker, signal.SIGSTOP)
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    left = survivors(pids, 0.5)
    if left:
        print(left[0], flush=True)
        for pid in left:
            os.waitpid(pid, 0)
        sys.exit(0)
    os.kill(worker, signal.SIGCONT)
sys.exit(1)
