# SPDX-License-Identifier: BSD-3-Clause
"""A worker is killed at its nth system call, again and again, while programs work on the mount. Not in a shell: bash may wait for ever
for a child whose number has been used again, after some thousands of deaths.

usage: points.py EFS_KILL_AT MOUNT SUPERVISOR_PID LOAD_PID KILLS SEED
"""
import os
import random
import subprocess
import sys
import time

KILL_AT, MOUNT, SUPERVISOR, LOAD, KILLS, SEED = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4]), int(sys.argv[5]), int(sys.argv[6])
CALLS = 400  # of a worker: about one round of everything that the programs do
PAUSE = 0.06  # seconds: 200 deaths in ten seconds are given up, as they should be


def worker():
    with open(f"/proc/{SUPERVISOR}/task/{SUPERVISOR}/children") as children:
        return next(iter(children.read().split()), None)


def is_running(pid):
    try:
        os.kill(pid, 0)
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def await_successor(killed, number):
    """One that is at work, since it answers what nobody has asked before."""
    end = time.monotonic() + 20
    while worker() in (None, killed):
        if time.monotonic() > end or not is_running(SUPERVISOR):
            sys.exit(f"no successor after kill {number}")
        time.sleep(0.002)
    if os.path.exists(f"{MOUNT}/.never{number}"):
        sys.exit("what nobody has made is there")


draw = random.Random(SEED)
for number in range(KILLS):
    pid = worker()
    if pid is None:
        sys.exit(f"no worker after {number} kills")
    code = subprocess.run([KILL_AT, pid, str(draw.randint(1, CALLS))], timeout=20).returncode
    if code != 0:
        sys.exit(f"kill {number}: efs-kill-at gave {code}")
    if not is_running(LOAD):
        sys.exit(f"the programs have ended after {number} kills")
    await_successor(pid, number)
    time.sleep(PAUSE)
