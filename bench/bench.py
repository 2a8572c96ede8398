#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The figures of efs as ratios to a yardstick in the same run, alternating, median of the rounds.

usage: bench.py BUILD_DIR [ROUNDS [PART...]]     parts: micro, macro (these two are the default), many, opens, small-files, latency

micro: I/O and metadata through the mount (passthrough, and the daemon's path) against three yardsticks: a tmpfs with
       the options of the store behind it (huge pages), a tmpfs with the defaults, and a server that does nothing but hand
       the same store-like tmpfs to the kernel (efs-bench-passthrough): more nobody can who serves by FUSE. efs-bench-io alternates between
       all of them within one process; fio, one process per figure, is the independent check.
macro: stage-in and stage-out against cp and sync -f between the same places.
       many: the part of it with many files, alone. For these also what the bare system calls reach on all CPUs (efs-bench-files): more nobody can, with files.
small-files: the same with 100,000 files of 4 KiB (EFS_BENCH_FILES), against cp -a.
latency: the same with a millisecond (EFS_SLOW_US) added to every call on the PFS, of cp and of efs, and a tenth of the
       files; with the number of those calls.
opens: many small inputs are opened, read and closed through the mount, for the first time and again, against efs-bench-passthrough.
"""
import contextlib
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time

if "-h" in sys.argv or "--help" in sys.argv:
    sys.exit(print(__doc__))
BUILD = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build")
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
PARTS = sys.argv[3:] or ["micro", "macro"]
FILES = int(os.environ.get("EFS_BENCH_FILES", "100000"))
EFS = f"{BUILD}/bin/efs"


def run(*command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def fio(path, pattern, block):
    """MiB/s of one process with pread/pwrite on a file of 256 MiB that is there already, for 1.5 s."""
    out = run("fio", "--name=b", f"--filename={path}/fio.dat", f"--rw={pattern}", f"--bs={block}", "--size=256m",
              "--ioengine=psync", "--time_based", "--runtime=1.5", "--output-format=json", "--fallocate=none")
    job = json.loads(out)["jobs"][0]
    return job["read" if "read" in pattern else "write"]["bw_bytes"] / 2**20


def meta(path):
    where = tempfile.mkdtemp(dir=path)
    lines = run(f"{BUILD}/bin/efs-bench-meta", where, "5000").split("\n")
    os.rmdir(where)
    return {name: float(rate) for name, rate in (line.split() for line in lines if line)}


def io(seconds, **targets):
    """Median ns per operation: {operation: {target: ns}}."""
    out = run(f"{BUILD}/bin/efs-bench-io", str(seconds), *(f"{name}={path}" for name, path in targets.items()))
    figures = {}
    for operation, target, ns in (line.split() for line in out.splitlines()):
        figures.setdefault(operation, {})[target] = float(ns)
    return figures


def io_rows(**directories):
    """Of the first directory, and how fast it is beside each of the others."""
    rounds = [io(1.0, **directories) for _ in range(ROUNDS)]
    names = list(directories)
    print(f"{'':14}" + "".join(f"{name:>12}" for name in names) + " ns     speed of the first, to " + ", to ".join(names[1:]))
    for operation in rounds[0]:
        median = [statistics.median(r[operation][name] for r in rounds) for name in names]
        ratios = [sorted(r[operation][name] / r[operation][names[0]] for r in rounds) for name in names[1:]]
        text = "   ".join(f"{statistics.median(r):5.2f} ({r[0]:.2f}-{r[-1]:.2f})" for r in ratios)
        print(f"{operation:14}" + "".join(f"{value:12.0f}" for value in median) + f" ns     {text}", flush=True)


@contextlib.contextmanager
def bare_passthrough(scratch, tmpfs):
    """A mount of a server that hands all to the kernel, by name; nothing where libfuse is too old for it."""
    program, backing, mount = f"{BUILD}/bin/efs-bench-passthrough", f"{tmpfs}/bare", f"{scratch}/bare"
    if not os.path.exists(program):
        yield {}
        return
    os.mkdir(backing)
    os.mkdir(mount)
    with subprocess.Popen([program, backing, mount], stdout=subprocess.PIPE) as server:
        if not server.stdout.readline():
            sys.exit(f"{program} does not mount")
        try:
            yield {"bare": mount}
        finally:
            run("umount", mount)
    os.rmdir(mount)
    os.rmdir(backing)


def row(name, ours, yardstick, unit):
    ratios = sorted(a / b for a, b in zip(ours, yardstick))
    print(f"{name:34} {statistics.median(ours):12.0f} {statistics.median(yardstick):12.0f} {unit:6}"
          f" ratio {statistics.median(ratios):5.2f}  ({ratios[0]:.2f}-{ratios[-1]:.2f})", flush=True)


class Job:
    """An instance of efs on memory."""

    def __init__(self, scratch, name, options="rw", resources=(), capacity="8 GiB", mount=None):
        self.root, self.mount, self.results = (f"{scratch}/{name}-{part}" for part in ("pfs", "mnt", "res"))
        self.mount = mount or self.mount
        os.makedirs(self.root, exist_ok=True)
        self.name, self.options, self.file = name, options, f"{scratch}/{name}.yaml"
        lines = [f"global-settings: [ name: {name}, root-dir: {self.root}, mount-dir: {self.mount}, results-dir: {self.results} ]",
                 f"backends: [ [ id: mem, type: DRAM, capacity: {capacity} ] ]"]
        if resources:
            lines.append("resources: [ " + ", ".join(f"[ path: {r}, flags: persistent ]" for r in resources) + " ]")
        with open(self.file, "w") as out:
            out.write("\n".join(lines) + "\n")

    def start(self, env=None):
        run(EFS, "start", self.file, "-o", self.options, env=env)

    def stop(self, *options):
        run(EFS, "stop", self.name, *options)


def micro(scratch, tmpfs, plain, mode, options):
    job = Job(scratch, mode, options)
    job.start()
    path = json.loads(run(EFS, "status", "--json", mode))["io"]
    print(f"\n-- through the mount, mode {path}, one process that alternates ({ROUNDS} rounds)")
    with bare_passthrough(scratch, tmpfs) as bare:
        io_rows(efs=job.mount, store=tmpfs, tmpfs=plain, **bare)
    print("-- the same by fio and by efs-bench-meta, against a tmpfs with the options of the store")
    for path in (job.mount, tmpfs):
        run("fio", "--name=lay", f"--filename={path}/fio.dat", "--rw=write", "--bs=1m", "--size=256m", "--ioengine=psync", "--fallocate=none")
    for pattern, block in (("randread", "4k"), ("randwrite", "4k"), ("read", "1m"), ("write", "1m")):
        ours, theirs = [], []
        for _ in range(ROUNDS):
            ours.append(fio(job.mount, pattern, block))
            theirs.append(fio(tmpfs, pattern, block))
        row(f"{pattern} {block}", ours, theirs, "MiB/s")
    rounds = [(meta(job.mount), meta(tmpfs)) for _ in range(ROUNDS)]
    for name in ("stat", "create", "unlink", "mkdir", "rmdir"):
        row(name, [a[name] for a, _ in rounds], [b[name] for _, b in rounds], "op/s")
    for name in ("create", "unlink", "mkdir", "rmdir"):
        row(f"{name} / null round trip", [a[name] for a, _ in rounds], [a["null"] for a, _ in rounds], "op/s")
    job.stop("--no-stage-out")


def timed(function):
    start = time.monotonic()
    function()
    return time.monotonic() - start


def tree(path, files, size):
    for i in range(files):
        directory = f"{path}/d{i // 500}"
        os.makedirs(directory, exist_ok=True)
        with open(f"{directory}/f{i}", "wb") as out:
            out.write(os.urandom(size))


def big(path, size):
    with open(f"{path}/big.dat", "wb") as out:
        for _ in range(size // 2**24):
            out.write(os.urandom(2**24))


def staging(scratch, tmpfs, pfs_parent, name, fill, copy, rounds):
    """Stage-in of a data set and stage-out of the same, dirty, between pfs_parent and memory. Who goes first changes from round to
    round. Where there are many files all copies stay until the end: ext4 searches for free inodes among those that were removed within the last
    minutes, one by one, so that whoever comes after a removal would pay for it."""
    job = Job(pfs_parent, name, resources=("data",))
    data = f"{job.root}/data"
    os.makedirs(data)
    fill(data)
    run("sync", "-f", job.root)
    many = len(os.listdir(data)) > 1
    ins, cp_ins, outs, cp_outs, bare_ins, bare_outs, later = [], [], [], [], [], [], []

    def copied(source, target):
        return timed(lambda: (run(*copy, source, target), run("sync", "-f", target)))

    def bare(direction, source, target, times):
        if not many:
            return
        times.append(timed(lambda: run(f"{BUILD}/bin/efs-bench-files", direction, source, target)))
        remove(target)

    def remove(*directories):
        later.extend(directories) if many else [shutil.rmtree(directory) for directory in directories]

    for turn in range(rounds):
        target, back = f"{tmpfs}/copy{turn}", f"{pfs_parent}/{name}-back{turn}"
        if turn % 2 == 0:
            cp_ins.append(copied(data, target))
        bare("in", data, f"{tmpfs}/bare{turn}", bare_ins)
        ins.append(timed(job.start))
        if turn % 2 == 1:
            cp_ins.append(copied(data, target))
        # Writes every file again in place, so that the stage-out must export all of them.
        for directory, _, files in os.walk(f"{job.mount}/data"):
            for file in files:
                os.close(os.open(f"{directory}/{file}", os.O_WRONLY))
        if turn % 2 == 0:
            cp_outs.append(copied(target, back))
            remove(back)
        bare("out", target, f"{pfs_parent}/{name}-bare{turn}", bare_outs)
        outs.append(timed(job.stop))
        os.rename(job.results, f"{job.results}{turn}")
        remove(f"{job.results}{turn}")
        if turn % 2 == 1:
            cp_outs.append(copied(target, back))
            remove(back)
        shutil.rmtree(target)
        run("sync", "-f", pfs_parent)
    row(f"stage-in {name}", [1 / t for t in ins], [1 / t for t in cp_ins], "1/s")
    row(f"stage-out {name}", [1 / t for t in outs], [1 / t for t in cp_outs], "1/s")
    if many:
        row(f"bare calls in {name}", [1 / t for t in bare_ins], [1 / t for t in cp_ins], "1/s")
        row(f"bare calls out {name}", [1 / t for t in bare_outs], [1 / t for t in cp_outs], "1/s")
    print(f"   seconds: in {statistics.median(ins):.2f}, cp {statistics.median(cp_ins):.2f}; out {statistics.median(outs):.2f}, cp {statistics.median(cp_outs):.2f}", flush=True)
    for directory in [job.root, *later]:
        shutil.rmtree(directory)


def macro(scratch, tmpfs, memory_pfs, rounds):
    staging(scratch, tmpfs, scratch, "2-GiB-disk", lambda p: big(p, 2**31), ("cp", "-r", "--reflink=never"), rounds)
    staging(scratch, tmpfs, memory_pfs, "2-GiB-tmpfs", lambda p: big(p, 2**31), ("cp", "-r", "--reflink=never"), rounds)
    many(scratch, tmpfs, memory_pfs, rounds)


def many(scratch, tmpfs, memory_pfs, rounds):
    staging(scratch, tmpfs, scratch, "20000x8-KiB-disk", lambda p: tree(p, 20000, 8192), ("cp", "-a"), rounds)
    staging(scratch, tmpfs, memory_pfs, "20000x8-KiB-tmpfs", lambda p: tree(p, 20000, 8192), ("cp", "-a"), rounds)


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


def far_away(scratch, tmpfs, files):
    """As staging(), from and to a PFS of which every call takes a millisecond more."""
    name = f"{files}x4-KiB-1ms"
    pfs = f"{scratch}/far"
    os.mkdir(pfs)
    report = f"{scratch}/slow-calls"
    env = dict(os.environ, LD_PRELOAD=f"{BUILD}/lib/libefs-slow-pfs.so", EFS_SLOW_PFS=pfs, EFS_SLOW_REPORT=report)
    job = Job(pfs, "far", resources=("data",), mount=f"{scratch}/far-mnt")
    data = f"{job.root}/data"
    os.makedirs(data)
    tree(data, files, 4096)
    ins, cp_ins, outs, cp_outs, calls = [], [], [], [], {}

    def timed_cp(what, source, to):
        took = timed(lambda: (run("cp", "-a", source, to, env=env), run("sync", "-f", to, env=env)))
        calls[what] = sum(slow_calls(report).values())
        return took

    # As in staging(): the files on the disk stay until the end.
    for turn in range(max(1, ROUNDS - 2)):
        target, back = f"{tmpfs}/copy", f"{pfs}/back{turn}"
        cp_ins.append(timed_cp("cp in", data, target))
        ins.append(timed(lambda: job.start(env)))
        slow_calls(report)
        for directory, _, names in os.walk(f"{job.mount}/data"):
            for one in names:
                os.close(os.open(f"{directory}/{one}", os.O_WRONLY))
        cp_outs.append(timed_cp("cp out", target, back))
        outs.append(timed(lambda: (job.stop(), wait_for_end("far"))))
        calls["efs in and out"] = sum(slow_calls(report).values())
        os.rename(job.results, f"{job.results}{turn}")
        shutil.rmtree(target)
    row(f"stage-in {name}", [1 / t for t in ins], [1 / t for t in cp_ins], "1/s")
    row(f"stage-out {name}", [1 / t for t in outs], [1 / t for t in cp_outs], "1/s")
    print(f"   seconds: in {statistics.median(ins):.2f}, cp {statistics.median(cp_ins):.2f}; out {statistics.median(outs):.2f}, cp {statistics.median(cp_outs):.2f};"
          f" calls: {', '.join(f'{who} {count}' for who, count in calls.items())}", flush=True)


def read_all(path, names):
    for name in names:
        file = os.open(f"{path}/{name}", os.O_RDONLY)
        os.read(file, 65536)
        os.close(file)


def opens(scratch, tmpfs, rounds):
    """Many small inputs, opened, read and closed one after the other, for the first time and again; beside the bare server, which asks nobody for
    an id."""
    files = 20000
    job = Job(scratch, "opens", resources=("data",))
    tree(f"{job.root}/data", files, 8192)
    names = [os.path.relpath(f"{directory}/{name}", job.root) for directory, _, found in os.walk(job.root) for name in sorted(found)]
    first, again, bare_first, bare_again = [], [], [], []
    for _ in range(rounds):
        job.start()
        first.append(files / timed(lambda: read_all(job.mount, names)))
        again.append(files / timed(lambda: read_all(job.mount, names)))
        job.stop("--no-stage-out")
        with bare_passthrough(scratch, tmpfs) as bare:
            for mount in bare.values():
                tree(f"{tmpfs}/bare/data", files, 8192)
                bare_first.append(files / timed(lambda: read_all(mount, names)))
                bare_again.append(files / timed(lambda: read_all(mount, names)))
                shutil.rmtree(f"{tmpfs}/bare/data")
    print(f"\n-- {files} inputs of 8 KiB: open, read, close; against a server that does nothing but hand files to the kernel")
    if bare_first:
        row("for the first time", first, bare_first, "1/s")
        row("again", again, bare_again, "1/s")
    else:
        print(f"   no such server here (libfuse is too old); 1/s: for the first time {statistics.median(first):.0f}, again {statistics.median(again):.0f}")
    shutil.rmtree(job.root)


def wait_for_end(name):
    """Until the daemon is gone; it is still there for a moment after the answer of efs stop."""
    while os.path.exists(f"{os.environ['EFS_RUNTIME_DIR']}/{name}"):
        time.sleep(0.001)


def main():
    scratch = tempfile.mkdtemp(prefix="efs-bench-")
    tmpfs = f"{scratch}/tmpfs"
    os.environ["EFS_RUNTIME_DIR"] = f"{scratch}/run"
    plain = f"{scratch}/plain"
    os.mkdir(tmpfs)
    os.mkdir(plain)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that what is below `finally` is done
    try:
        run("mount", "-t", "tmpfs", "-o", "size=8g,huge=within_size,nosuid,nodev", "bench", tmpfs)
        run("mount", "-t", "tmpfs", "-o", "size=1g", "bench", plain)
        print(f"kernel {os.uname().release}, {os.cpu_count()} CPUs; left: efs, right: yardstick; medians")
        if "micro" in PARTS:
            micro(scratch, tmpfs, plain, "passthrough", "rw")
            micro(scratch, tmpfs, plain, "daemon", "daemon-io")
            os.remove(f"{tmpfs}/fio.dat")
        print("\n-- staging, whole commands (efs start, efs stop), against cp and sync -f between the same places")
        rounds = max(3, ROUNDS - 2)
        memory_pfs = f"{tmpfs}/pfs"
        os.mkdir(memory_pfs)
        if "macro" in PARTS:
            macro(scratch, tmpfs, memory_pfs, rounds)
        if "many" in PARTS:
            many(scratch, tmpfs, memory_pfs, rounds)
        if "opens" in PARTS:
            opens(scratch, tmpfs, rounds)
        if "small-files" in PARTS:
            for where, name in ((scratch, "disk"), (memory_pfs, "tmpfs")):
                staging(scratch, tmpfs, where, f"{FILES}x4-KiB-{name}", lambda p: tree(p, FILES, 4096), ("cp", "-a"), rounds)
        if "latency" in PARTS:
            far_away(scratch, tmpfs, max(1, FILES // 10))
    finally:
        for instance in json.loads(subprocess.run([EFS, "status", "--json"], stdout=subprocess.PIPE, text=True).stdout or "[]"):
            subprocess.run([EFS, "stop", "--no-stage-out", instance["name"]])
        for mount in (tmpfs, plain):
            if os.path.ismount(mount):
                run("umount", mount)
        shutil.rmtree(scratch)


main()
