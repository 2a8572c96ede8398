# SPDX-License-Identifier: BSD-3-Clause
"""The part `builds`: another build of efs and this one, by turns in one run."""
import argparse
import contextlib
import copy
import os
import shutil
import statistics

import common
import mount_io
from common import Job, row, timed, tree

META = ("stat", "create", "open", "chmod", "rename", "unlink", "mkdir")
SMALL_FILES, SMALL = 20_000, 4096
LARGE = 2 << 30


def of_other_build(bench):
    """The same run with the programs of --old."""
    other = copy.copy(bench)
    other.arguments = argparse.Namespace(**{**vars(bench.arguments), "build": bench.arguments.old})
    return other


def by_turns(turn, pair):
    return pair if turn % 2 == 0 else pair[::-1]


def io_rows(bench, options):
    """Both builds are mounted at once; efs-bench-io of this build alternates between them."""
    with contextlib.ExitStack() as stack:
        jobs = {}
        for name, build in (("new", bench), ("old", of_other_build(bench))):
            jobs[name] = Job(build, bench.scratch, f"{name}-io", options)
            jobs[name].start()
            stack.callback(jobs[name].stop, "--no-stage-out")
        print(f"\n-- builds: I/O, mode {jobs['new'].status()['io']}")
        mount_io.io_rows(bench, new=jobs["new"].mount, old=jobs["old"].mount)
        rates = {"new": [], "old": []}
        for turn in range(4 * bench.rounds):
            for name in by_turns(turn, ["new", "old"]):
                rates[name].append(mount_io.meta(bench, jobs[name].mount, 1000))
    for name in META:
        row(name, *([one[name] for one in rates[build]] for build in ("new", "old")), "op/s")


def large(path):
    with open(f"{path}/large", "wb") as out:
        for _ in range(LARGE // 2**24):
            out.write(os.urandom(2**24))


class Staging:
    """Start and stop of a job with the same inputs, all of which go back. The first round does not
    count: a virtual machine gets its memory from the host then."""

    def __init__(self, bench, name):
        pfs = f"{bench.store}/builds"
        os.makedirs(pfs, exist_ok=True)
        self.name, self.seconds = name, {"new": ([], []), "old": ([], [])}
        # One name and one directory: both builds find the same things.
        self.jobs = {"new": Job(bench, pfs, name, resources=("data",)),
                     "old": Job(of_other_build(bench), pfs, name, resources=("data",))}
        self.data = f"{self.jobs['new'].root}/data"
        os.makedirs(self.data)

    def once(self, build):
        job, (ins, outs) = self.jobs[build], self.seconds[build]
        ins.append(timed(job.start))
        for parent, _, files in os.walk(f"{job.mount}/data"):
            for file in files:
                os.close(os.open(f"{parent}/{file}", os.O_WRONLY))
        outs.append(timed(job.stop))
        common.wait_for_end(self.name)
        shutil.rmtree(job.results)

    def rows(self):
        for part, index in (("stage-in", 0), ("stage-out", 1)):
            counted = [self.seconds[build][index][1:] for build in ("new", "old")]
            new, old = ([1 / second for second in seconds] for seconds in counted)
            row(f"{part} {self.name}", new, old, "1/s")
            print("   seconds: new {:.2f}, old {:.2f}".format(*map(statistics.median, counted)))


def staging(bench, name, fill):
    one = Staging(bench, name)
    fill(one.data)
    for turn in range(1 + bench.rounds):
        for build in by_turns(turn, ["new", "old"]):
            one.once(build)
    one.rows()
    shutil.rmtree(one.jobs["new"].root)


def builds(bench):
    if bench.arguments.old is None:
        raise common.Failed("it needs --old BUILD_DIR")
    if not os.access(f"{bench.arguments.old}/bin/efs", os.X_OK):
        raise common.Failed(f"there is no efs in {bench.arguments.old}/bin")
    io_rows(bench, "rw")
    io_rows(bench, "daemon-io")
    print("\n-- builds: staging between two memories, whole commands")
    staging(bench, "small", lambda path: tree(path, SMALL_FILES, SMALL))
    staging(bench, "large", large)


PARTS = {"builds": builds}
