# SPDX-License-Identifier: BSD-3-Clause
"""The part `contained`: fio with the engines that the seeds of efs were measured with, on the mount
and on the memory behind it, in and outside a container of bubblewrap that has both bound in.

The memory poses as persistent memory (PMEM_IS_PMEM_FORCE), so the ratios count, and not the rates.
fio's engine pmemblk is left out: PMDK has given its library up. The engine dev-dax needs a device."""
import json
import os
import shutil
import statistics
import subprocess

import common
from common import Job, run

SIZE = 256 << 20
SECONDS = 1
GOAL = 0.97
ENGINES = ("psync", "mmap", "libpmem")
PATTERNS = (("randread", "4k"), ("randwrite", "4k"), ("read", "1m"), ("write", "1m"))


def box(directory):
    """The words before a program that runs in a container with the directory as /data."""
    return ["bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin",
            "--symlink", "usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
            "--ro-bind", "/etc", "/etc", "--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp",
            "--die-with-parent", "--unshare-all", "--chdir", "/tmp", "--bind", directory, "/data"]


def has(*command):
    return subprocess.run(command, stdout=subprocess.DEVNULL,
                          stderr=subprocess.DEVNULL).returncode == 0


def fio(directory, inside, engine, pattern):
    """Operations per second."""
    kind, block = pattern
    words = box(directory) if inside else []
    where = "/data" if inside else directory
    out = run(*words, "fio", "--name=b", f"--filename={where}/fio.dat", f"--rw={kind}",
              f"--bs={block}", f"--size={SIZE}", f"--ioengine={engine}", "--time_based",
              f"--runtime={SECONDS}", "--output-format=json", stderr=subprocess.DEVNULL,
              env={**os.environ, "PMEM_IS_PMEM_FORCE": "1"})
    job = json.loads(out)["jobs"][0]
    return job["write" if "write" in kind else "read"]["iops"]


def lay(directory):
    with open(f"{directory}/fio.dat", "wb") as out:
        for _ in range(SIZE >> 20):
            out.write(os.urandom(1 << 20))


def table(places, rounds):
    print(f"{'engine, pattern':26}" + "".join(f"{place:>11} {'inside':>9} {'in/out':>17}"
                                              for place in places))
    missed = 0
    for engine in ENGINES:
        for pattern in PATTERNS:
            line = f"{engine + ' ' + pattern[0] + ' ' + pattern[1]:26}"
            for directory in places.values():
                outside, inside = [], []
                for _ in range(rounds):
                    outside.append(fio(directory, False, engine, pattern))
                    inside.append(fio(directory, True, engine, pattern))
                ratios = sorted(a / b for a, b in zip(inside, outside))
                middle = statistics.median(ratios)
                missed += middle < GOAL
                line += (f"{statistics.median(outside):11.0f} {statistics.median(inside):9.0f}"
                         f" {middle:5.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})")
            print(line, flush=True)
    print(f"   goal of each in/out: {GOAL}; {missed} missed it")


def contained(bench):
    print("\n-- fio in and outside a container; operations per second, medians")
    if not has("fio", "--version") or not has(*box(bench.scratch), "true"):
        raise common.Failed("it needs fio, and bubblewrap that can make a namespace")
    theirs = f"{bench.store}/contained"
    os.makedirs(theirs)
    with_jobs = {name: Job(bench, bench.scratch, f"box-{name}", options)
                 for name, options in (("mount", "rw"), ("daemon-io", "daemon-io"))}
    places = {"memory": theirs}
    for name, job in with_jobs.items():
        job.start()
        places[name] = job.mount
    for directory in places.values():
        lay(directory)
    table(places, bench.rounds)
    for job in with_jobs.values():
        job.stop("--no-stage-out")
    shutil.rmtree(theirs)


PARTS = {"contained": contained}
