# SPDX-License-Identifier: BSD-3-Clause
"""The part `buffer`: contents that come when they are wanted, go home while the job runs, and move
between backends. Seconds; each ratio is to the other way of the same run, alternating."""
import json
import os
import shutil
import statistics
import subprocess
import threading
import time

import common
from common import run, timed

FILES, SIZE = 64, 32 << 20
READ_SECONDS = 2


def settings(bench, name, extra=""):
    return (f"global-settings: {{name: {name}, root-dir: {bench.store}/{name}-pfs,"
            f" results-dir: {bench.store}/{name}-res, mount-dir: {bench.scratch}/{name}}}\n{extra}")


class Job:
    """An instance with a job file of its own."""

    def __init__(self, bench, name, text):
        self.bench, self.name, self.mount = bench, name, f"{bench.scratch}/{name}"
        self.root, self.results = f"{bench.store}/{name}-pfs", f"{bench.store}/{name}-res"
        self.file = f"{bench.scratch}/{name}.yaml"
        os.makedirs(self.root, exist_ok=True)
        with open(self.file, "w") as out:
            out.write(settings(bench, name, text))

    def start(self):
        run(self.bench.efs, "start", self.file, stderr=subprocess.DEVNULL)

    def stop(self, *options):
        run(self.bench.efs, "stop", self.name, *options, stderr=subprocess.DEVNULL)
        common.wait_for_end(self.name)

    def status(self):
        return json.loads(run(self.bench.efs, "status", "--json", self.name))

    def remove(self):
        shutil.rmtree(self.root, ignore_errors=True)
        shutil.rmtree(self.results, ignore_errors=True)


def ratio(name, ours, yardstick, goal, more_is_better=False):
    ratios = sorted(a / b for a, b in zip(ours, yardstick))
    middle = statistics.median(ratios)
    met = middle >= goal if more_is_better else middle <= goal
    print(f"{name:44} {statistics.median(ours):8.3f} {statistics.median(yardstick):8.3f}"
          f"   ratio {middle:5.2f}  ({ratios[0]:.2f}-{ratios[-1]:.2f})"
          f"   goal {goal:.2f} {'met' if met else 'missed'}", flush=True)


def fill(directory):
    os.makedirs(directory, exist_ok=True)
    block = os.urandom(1 << 20)
    for i in range(FILES):
        with open(f"{directory}/{i:02}", "wb") as out:
            for _ in range(SIZE >> 20):
                out.write(block)


def read_all(directory, compute=0.0):
    """Reads each file in order of its name, and keeps the CPU busy after each."""
    for i in range(FILES):
        with open(f"{directory}/{i:02}", "rb", buffering=0) as file:
            while file.read(1 << 20):
                pass
        end = time.perf_counter() + compute
        while time.perf_counter() < end:
            pass


def on_access(bench):
    """Start and one reading of all inputs: staged before the start, or fetched behind the reader."""
    jobs = {how: Job(bench, f"buf-{how}", f"resources: [ {{path: in, stage: {how}}} ]\n")
            for how in ("now", "on-access", "background")}
    for job in jobs.values():
        fill(f"{job.root}/in")
    starts, alls, computing = ({how: [] for how in jobs} for _ in range(3))
    compute = 0.0
    for turn in range(2 * bench.rounds + 1):
        for how, job in jobs.items():
            start = timed(job.start)
            reading = timed(lambda job=job: read_all(f"{job.mount}/in", compute))
            job.stop("--no-stage-out")
            if turn == 0:
                continue  # a virtual machine gets its memory from the host then
            if compute == 0:
                starts[how].append(start)
                alls[how].append(start + reading)
            else:
                computing[how].append(start + reading)
        if turn == bench.rounds:  # computes as long as staging and reading take
            compute = statistics.median(alls["now"]) / FILES
    for job in jobs.values():
        job.remove()
    ratio("start, on-access to now", starts["on-access"], starts["now"], 0.1)
    for how in ("on-access", "background"):
        ratio(f"start and one reading, {how}", alls[how], alls["now"], 1.15)
        ratio("the same, computing as long", computing[how], computing["now"], 0.75)


def drained(bench):
    """A stop whose results went home while the job ran, and one whose results are all due."""
    seconds = {"drain": [], "plain": []}
    for turn in range(1 + bench.rounds):
        for how in seconds:
            rule = ", drain: on-close" if how == "drain" else ""
            job = Job(bench, f"buf-{how}", f"outputs: [ {{path: out{rule}}} ]\n")
            job.start()
            fill(f"{job.mount}/out")
            while how == "drain" and job.status()["drain"]["due"] > 0:
                time.sleep(0.05)
            took = timed(job.stop)
            if turn > 0:
                seconds[how].append(took)
            job.remove()
    ratio("stop, drained to undrained", seconds["drain"], seconds["plain"], 0.15)


def reader(path):
    out = run("fio", "--name=r", f"--filename={path}", "--rw=randread", "--bs=4k",
              f"--size={SIZE}", "--ioengine=psync", "--time_based", f"--runtime={READ_SECONDS}",
              "--output-format=json")
    return json.loads(out)["jobs"][0]["read"]["iops"]


def beside(work, path):
    over = threading.Event()

    def again():
        while not over.is_set():
            work()
    thread = threading.Thread(target=again)
    thread.start()
    try:
        return reader(path)
    finally:
        over.set()
        thread.join()


def migration(bench):
    """A program that reads 4 KiB at random from a file that stays, alone and while others move."""
    os.makedirs(f"{bench.store}/buf-second", exist_ok=True)
    job = Job(bench, "buf-move",
              "backends:\n  - {id: one, type: DRAM, capacity: 4 GiB}\n"
              f"  - {{id: two, type: NVRAM-NVML, daxfs: {bench.store}/buf-second}}\n"
              "outputs: [ {path: none} ]\n")
    job.start()
    fill(f"{job.mount}/moving")
    with open(f"{job.mount}/stays", "wb") as out:
        out.write(os.urandom(SIZE))
    turn = [0]

    def move():
        turn[0] += 1
        run(bench.efs, "move", "-i", job.name, "moving", "--to", ("two", "one")[turn[0] % 2],
            stderr=subprocess.DEVNULL)
    alone, moving = [], []
    for _ in range(bench.rounds):
        alone.append(reader(f"{job.mount}/stays"))
        moving.append(beside(move, f"{job.mount}/stays"))
    job.stop("--no-stage-out")
    job.remove()
    ratio(f"4 KiB reads beside {turn[0]} moves of 2 GiB", moving, alone, 0.9, more_is_better=True)


def buffer(bench):
    print(f"\n-- buffer: {FILES} files of {SIZE >> 20} MiB; seconds, or reads per second")
    on_access(bench)
    drained(bench)
    migration(bench)


PARTS = {"buffer": buffer}
