# SPDX-License-Identifier: BSD-3-Clause
"""The part `micro`: I/O and metadata through the mount, by both data paths."""
import json
import os
import statistics
import tempfile

import common
from common import row, run


def fio(path, pattern, block):
    """MiB/s of one process with pread/pwrite on an existing file of 256 MiB, for 1.5 s."""
    out = run("fio", "--name=b", f"--filename={path}/fio.dat", f"--rw={pattern}", f"--bs={block}",
              "--size=256m", "--ioengine=psync", "--time_based", "--runtime=1.5",
              "--output-format=json", "--fallocate=none")
    job = json.loads(out)["jobs"][0]
    return job["read" if "read" in pattern else "write"]["bw_bytes"] / 2**20


def meta(bench, path, count=5000):
    where = tempfile.mkdtemp(dir=path)
    lines = run(f"{bench.build}/bin/efs-bench-meta", where, str(count)).split("\n")
    os.rmdir(where)
    return {name: float(rate) for name, rate in (line.split() for line in lines if line)}


def io(bench, seconds, targets):
    """Median ns per operation: {operation: {target: ns}}."""
    out = run(f"{bench.build}/bin/efs-bench-io", str(seconds),
              *(f"{name}={path}" for name, path in targets.items()))
    figures = {}
    for operation, target, ns in (line.split() for line in out.splitlines()):
        figures.setdefault(operation, {})[target] = float(ns)
    return figures


def io_rows(bench, **directories):
    """Of the first directory, and how fast it is beside each of the others."""
    names = list(directories)
    # Another one begins in each round: the first is up to a quarter slower for cached reads.
    rounds = [io(bench, 1.0, {name: directories[name] for name in common.rotated(names, turn)})
              for turn in range(bench.rounds)]
    print(f"{'':16}" + "".join(f"{name:>12}" for name in names)
          + " ns     speed of the first, to " + ", to ".join(names[1:]))
    for operation in rounds[0]:
        median = [statistics.median(r[operation][name] for r in rounds) for name in names]
        ratios = [sorted(r[operation][name] / r[operation][names[0]] for r in rounds)
                  for name in names[1:]]
        text = "   ".join(f"{statistics.median(r):5.2f} ({r[0]:.2f}-{r[-1]:.2f})" for r in ratios)
        print(f"{operation:16}" + "".join(f"{value:12.0f}" for value in median)
              + f" ns     {text}", flush=True)


def one_path(bench, mode, options):
    job = common.Job(bench, bench.scratch, mode, options)
    job.start()
    print(f"\n-- through the mount, mode {job.status()['io']}, one process that alternates"
          f" ({bench.rounds} rounds)")
    served = {"daemon": "served", "writeback": "collected"}.get(mode, mode)
    with common.bare_server(bench, served) as bare:
        io_rows(bench, efs=job.mount, store=bench.store, tmpfs=bench.plain, **bare)
    print("-- the same by fio and by efs-bench-meta,"
          " against a tmpfs with the options of the store")
    for path in (job.mount, bench.store):
        run("fio", "--name=lay", f"--filename={path}/fio.dat", "--rw=write", "--bs=1m",
            "--size=256m", "--ioengine=psync", "--fallocate=none")
    for pattern, block in (("randread", "4k"), ("randwrite", "4k"), ("read", "1m"),
                           ("write", "1m")):
        ours, theirs = [], []
        for _ in range(bench.rounds):
            ours.append(fio(job.mount, pattern, block))
            theirs.append(fio(bench.store, pattern, block))
        row(f"{pattern} {block}", ours, theirs, "MiB/s")
    rounds = [(meta(bench, job.mount), meta(bench, bench.store)) for _ in range(bench.rounds)]
    for name in ("stat", "create", "unlink", "mkdir", "rmdir"):
        row(name, [a[name] for a, _ in rounds], [b[name] for _, b in rounds], "op/s")
    for name in ("create", "unlink", "mkdir", "rmdir"):
        row(f"{name} / null round trip", [a[name] for a, _ in rounds],
            [a["null"] for a, _ in rounds], "op/s")
    job.stop("--no-stage-out")


def micro(bench):
    one_path(bench, "passthrough", "rw")
    one_path(bench, "daemon", "daemon-io")
    one_path(bench, "writeback", "writeback")
    os.remove(f"{bench.store}/fio.dat")


PARTS = {"micro": micro}
