# SPDX-License-Identifier: BSD-3-Clause
"""The parts `macro`, `many`, `opens`, `small-files` and `latency`: whole commands, efs start and
efs stop, against cp and sync -f between the same places."""
import os
import shutil
import statistics

import common
from common import Job, row, run, timed, tree

FILES = int(os.environ.get("EFS_BENCH_FILES", "100000"))
CP, CP_ALL = ("cp", "-r", "--reflink=never"), ("cp", "-a")


def big(path, size):
    with open(f"{path}/big.dat", "wb") as out:
        for _ in range(size // 2**24):
            out.write(os.urandom(2**24))


def touch_all(directory):
    """Opens every file to write, so that the stage-out must export all of them."""
    for parent, _, files in os.walk(directory):
        for file in files:
            os.close(os.open(f"{parent}/{file}", os.O_WRONLY))


class Staging:
    """Stage-in of a data set and stage-out of the same, dirty, between pfs and memory.

    Where there are many files all copies stay until the end: ext4 searches for free inodes among
    those that were removed within the last minutes, one by one, so that a command after a removal
    would pay for it.
    """

    def __init__(self, bench, pfs, name, fill, copy):
        self.bench, self.pfs, self.name, self.copy = bench, pfs, name, copy
        self.job = Job(bench, pfs, name, resources=("data",))
        self.data = f"{self.job.root}/data"
        os.makedirs(self.data)
        fill(self.data)
        run("sync", "-f", self.job.root)
        self.many = len(os.listdir(self.data)) > 1
        self.ins, self.cp_ins, self.outs, self.cp_outs = [], [], [], []
        self.bare_ins, self.bare_outs, self.later = [], [], []

    def copied(self, source, target):
        return timed(lambda: (run(*self.copy, source, target), run("sync", "-f", target)))

    def bare(self, direction, source, target, times):
        if not self.many:
            return
        program = f"{self.bench.build}/bin/efs-bench-files"
        times.append(timed(lambda: run(program, direction, source, target)))
        self.remove(target)

    def remove(self, directory):
        if self.many:
            self.later.append(directory)
        else:
            shutil.rmtree(directory)

    def round(self, turn):
        """efs or cp is the first, in turn."""
        target, back = f"{self.bench.store}/copy{turn}", f"{self.pfs}/{self.name}-back{turn}"
        if turn % 2 == 0:
            self.cp_ins.append(self.copied(self.data, target))
        self.bare("in", self.data, f"{self.bench.store}/bare{turn}", self.bare_ins)
        self.ins.append(timed(self.job.start))
        if turn % 2 == 1:
            self.cp_ins.append(self.copied(self.data, target))
        touch_all(f"{self.job.mount}/data")
        if turn % 2 == 0:
            self.cp_outs.append(self.copied(target, back))
            self.remove(back)
        self.bare("out", target, f"{self.pfs}/{self.name}-bare{turn}", self.bare_outs)
        self.outs.append(timed(self.job.stop))
        os.rename(self.job.results, f"{self.job.results}{turn}")
        self.remove(f"{self.job.results}{turn}")
        if turn % 2 == 1:
            self.cp_outs.append(self.copied(target, back))
            self.remove(back)
        shutil.rmtree(target)
        run("sync", "-f", self.pfs)

    def rows(self):
        def each_second(times):
            return [1 / t for t in times]

        ins, outs = each_second(self.cp_ins), each_second(self.cp_outs)
        row(f"stage-in {self.name}", each_second(self.ins), ins, "1/s")
        row(f"stage-out {self.name}", each_second(self.outs), outs, "1/s")
        if self.many:
            row(f"bare calls in {self.name}", each_second(self.bare_ins), ins, "1/s")
            row(f"bare calls out {self.name}", each_second(self.bare_outs), outs, "1/s")
        print(seconds_of(self.ins, self.cp_ins, self.outs, self.cp_outs), flush=True)


def seconds_of(ins, cp_ins, outs, cp_outs):
    ins, cp_ins, outs, cp_outs = (statistics.median(t) for t in (ins, cp_ins, outs, cp_outs))
    return f"   seconds: in {ins:.2f}, cp {cp_ins:.2f}; out {outs:.2f}, cp {cp_outs:.2f}"


def staging(bench, pfs, name, fill, copy):
    one = Staging(bench, pfs, name, fill, copy)
    for turn in range(max(3, bench.rounds - 2)):
        one.round(turn)
    one.rows()
    for directory in [one.job.root, *one.later]:
        shutil.rmtree(directory)


def memory_pfs(bench):
    path = f"{bench.store}/pfs"
    os.makedirs(path, exist_ok=True)
    return path


def many(bench):
    for pfs, where in ((bench.scratch, "disk"), (memory_pfs(bench), "tmpfs")):
        staging(bench, pfs, f"20000x8-KiB-{where}", lambda p: tree(p, 20000, 8192), CP_ALL)


def macro(bench):
    for pfs, where in ((bench.scratch, "disk"), (memory_pfs(bench), "tmpfs")):
        staging(bench, pfs, f"2-GiB-{where}", lambda p: big(p, 2**31), CP)
    many(bench)


def small_files(bench):
    for pfs, where in ((bench.scratch, "disk"), (memory_pfs(bench), "tmpfs")):
        staging(bench, pfs, f"{FILES}x4-KiB-{where}", lambda p: tree(p, FILES, 4096), CP_ALL)


def slow_calls(report):
    """How many calls were slowed since the last time, and by whom."""
    lines = open(report).read().split("\n")[:-1] if os.path.exists(report) else []
    if lines:
        os.remove(report)
    counts = {}
    for line in lines:
        _, program, calls = line.split()
        counts[program] = counts.get(program, 0) + int(calls)
    return counts


def latency(bench):
    """As staging(), from and to a PFS of which every call takes a millisecond more."""
    files = max(1, FILES // 10)
    name = f"{files}x4-KiB-1ms"
    pfs = f"{bench.scratch}/far"
    os.mkdir(pfs)
    report = f"{bench.scratch}/slow-calls"
    env = dict(os.environ, LD_PRELOAD=f"{bench.build}/lib/libefs-slow-pfs.so", EFS_SLOW_PFS=pfs,
               EFS_SLOW_REPORT=report)
    job = Job(bench, pfs, "far", resources=("data",), mount=f"{bench.scratch}/far-mnt")
    data = f"{job.root}/data"
    os.makedirs(data)
    tree(data, files, 4096)
    ins, cp_ins, outs, cp_outs, calls = [], [], [], [], {}

    def timed_cp(what, source, to):
        took = timed(lambda: (run("cp", "-a", source, to, env=env),
                              run("sync", "-f", to, env=env)))
        calls[what] = sum(slow_calls(report).values())
        return took

    # As in staging(): the files on the disk stay until the end.
    for turn in range(max(1, bench.rounds - 2)):
        target, back = f"{bench.store}/copy", f"{pfs}/back{turn}"
        cp_ins.append(timed_cp("cp in", data, target))
        ins.append(timed(lambda: job.start(env)))
        slow_calls(report)
        touch_all(f"{job.mount}/data")
        cp_outs.append(timed_cp("cp out", target, back))
        outs.append(timed(lambda: (job.stop(), common.wait_for_end("far"))))
        calls["efs in and out"] = sum(slow_calls(report).values())
        os.rename(job.results, f"{job.results}{turn}")
        shutil.rmtree(target)
    row(f"stage-in {name}", [1 / t for t in ins], [1 / t for t in cp_ins], "1/s")
    row(f"stage-out {name}", [1 / t for t in outs], [1 / t for t in cp_outs], "1/s")
    print(f"{seconds_of(ins, cp_ins, outs, cp_outs)};"
          f" calls: {', '.join(f'{who} {count}' for who, count in calls.items())}", flush=True)


def read_all(path, names):
    for name in names:
        file = os.open(f"{path}/{name}", os.O_RDONLY)
        os.read(file, 65536)
        os.close(file)


def opens(bench):
    """Many small inputs, opened, read and closed one after the other, for the first time and
    again; beside the bare server, which needs no privileged process for an id."""
    files = 20000
    job = Job(bench, bench.scratch, "opens", resources=("data",))
    tree(f"{job.root}/data", files, 8192)
    names = [os.path.relpath(f"{directory}/{name}", job.root)
             for directory, _, found in os.walk(job.root) for name in sorted(found)]
    first, again, bare_first, bare_again = [], [], [], []
    for _ in range(max(3, bench.rounds - 2)):
        job.start()
        first.append(files / timed(lambda: read_all(job.mount, names)))
        again.append(files / timed(lambda: read_all(job.mount, names)))
        job.stop("--no-stage-out")
        with common.bare_server(bench) as bare:
            for mount in bare.values():
                tree(f"{bench.store}/bare/data", files, 8192)
                bare_first.append(files / timed(lambda: read_all(mount, names)))
                bare_again.append(files / timed(lambda: read_all(mount, names)))
                shutil.rmtree(f"{bench.store}/bare/data")
    print(f"\n-- {files} inputs of 8 KiB: open, read, close;"
          " against a server that does nothing but hand files to the kernel")
    if bare_first:
        row("for the first time", first, bare_first, "1/s")
        row("again", again, bare_again, "1/s")
    else:
        print("   no such server here (libfuse is too old); 1/s: for the first time"
              f" {statistics.median(first):.0f}, again {statistics.median(again):.0f}")
    shutil.rmtree(job.root)


def walks(bench):
    """Walks of inputs that the kernel does not know yet, and again, beside a tmpfs."""
    files = 20000
    job = Job(bench, bench.scratch, "walks", resources=("data",))
    tree(f"{job.root}/data", files, 64)
    theirs = f"{bench.store}/walks"
    shutil.copytree(f"{job.root}/data", theirs)
    print(f"\n-- walks of {files} inputs; against a tmpfs")
    for command in (("du", "-s"), ("ls", "-lR"), ("find",)):
        def speed(where, command=command):
            return files / timed(lambda: run(*command, where))
        first, again, plain = [], [], []
        for _ in range(max(3, bench.rounds - 2)):
            job.start()
            first.append(speed(job.mount))
            again.append(speed(job.mount))
            plain.append(speed(theirs))
            job.stop("--no-stage-out")
        row(f"{' '.join(command)}, first", first, plain, "1/s")
        row(f"{' '.join(command)}, again", again, plain, "1/s")
    shutil.rmtree(theirs)
    shutil.rmtree(job.root)


PARTS = {"macro": macro, "many": many, "opens": opens, "walks": walks,
         "small-files": small_files, "latency": latency}
