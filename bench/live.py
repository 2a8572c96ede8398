#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What loads and unloads cost a program that reads 4 KiB at random through the mount: alone, and while one goes on after
the other, alternating, median of the rounds. The PFS is a tmpfs: two rows at the speed of memory, which no PFS has, with
what a plain cp of the same bytes costs the same reader for comparison; two at a rate that a node gets from a PFS.
Wants a machine that does nothing else. As root.

usage: live.py BUILD_DIR [ROUNDS]
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading

if "-h" in sys.argv or "--help" in sys.argv:
    sys.exit(print(__doc__))
EFS = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build") + "/bin/efs"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
SIZE = 256 << 20
RATE = "512 MiB"  # per second, where there is a cap


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def reader(path):
    out = run("fio", "--name=r", f"--filename={path}", "--rw=randread", "--bs=4k", f"--size={SIZE}", "--ioengine=psync", "--time_based", "--runtime=2", "--output-format=json")
    return json.loads(out)["jobs"][0]["read"]["iops"]


def beside(work, path):
    """The reader while `work` is repeated; its rate, and how often the work was done meanwhile."""
    over, times = threading.Event(), [0]

    def again():
        while not over.is_set():
            work()
            times[0] += 1

    thread = threading.Thread(target=again)
    thread.start()
    rate = reader(path)
    over.set()
    thread.join()
    return rate, times[0]


class Job:
    """An instance on memory with a file to read, and one beside it to load or unload again and again."""

    def __init__(self, scratch, name, cap):
        self.name, self.root, self.mount = name, f"{scratch}/{name}-pfs", f"{scratch}/{name}"
        os.makedirs(self.root)
        with open(f"{scratch}/{name}.yaml", "w") as out:
            out.write(f"global-settings: {{name: {name}, root-dir: {self.root}, mount-dir: {self.mount}, results-dir: {scratch}/{name}-res{cap}}}\n"
                      "backends: [ {id: mem, type: DRAM, capacity: 2 GiB} ]\n")
        with open(f"{self.root}/in", "wb") as file:
            file.write(os.urandom(1 << 20) * (SIZE >> 20))
        run(EFS, "start", f"{scratch}/{name}.yaml")
        shutil.copyfile(f"{self.root}/in", f"{self.mount}/read")
        shutil.copyfile(f"{self.root}/in", f"{self.mount}/out")
        reader(f"{self.mount}/read")

    def load(self):
        os.utime(f"{self.root}/in")  # another version: it is copied again
        run(EFS, "load", "-i", self.name, "--wait", "--replace", "in")

    def unload(self):
        os.utime(f"{self.mount}/out")
        run(EFS, "unload", "-i", self.name, "--wait", "out")

    def copy(self):
        """What a load moves, by cp: of the nice value of efs's loads."""
        run("nice", "-n", "15", "cp", "--reflink=never", f"{self.root}/in", f"{self.root}/copy")
        os.unlink(f"{self.root}/copy")

    def compare(self, name, work):
        ratios, alone, busy, count = [], [], [], 0
        for _ in range(ROUNDS):
            alone.append(reader(f"{self.mount}/read"))
            rate, times = beside(work, f"{self.mount}/read")
            busy.append(rate)
            count += times
            ratios.append(rate / alone[-1])
        print(f"4 KiB reads beside {name:34} {statistics.median(busy):10.0f} {statistics.median(alone):10.0f} 1/s  ratio {statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f}), done {count} times", flush=True)


def main():
    scratch = tempfile.mkdtemp(prefix="efs-live-", dir="/dev/shm")
    os.environ["EFS_RUNTIME_DIR"] = f"{scratch}/run"
    try:
        job = Job(scratch, "live", "")
        job.compare("cp of 256 MiB", job.copy)
        job.compare("load of 256 MiB", job.load)
        job.compare("unload of 256 MiB", job.unload)
        capped = Job(scratch, "capped", f", max-rate: {RATE}/s")
        capped.compare(f"load of 256 MiB at {RATE}/s", capped.load)
        capped.compare(f"unload of 256 MiB at {RATE}/s", capped.unload)
    finally:
        for instance in json.loads(run(EFS, "status", "--json")):
            run(EFS, "stop", "--no-stage-out", instance["name"])
        shutil.rmtree(scratch)


main()
