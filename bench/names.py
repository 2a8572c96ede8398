# SPDX-License-Identifier: BSD-3-Clause
"""The part `names`: single operations on names by efs-bench-meta, one client in one directory."""
import contextlib
import os
import statistics
import subprocess
import tempfile

import common

# As efs-bench-meta prints them, as a user reads them, and the goal against tmpfs.
OPERATIONS = {
    "create": ("create and close", 0.18),
    "fresh-stat": ("stat, just created", 0.5),
    "stat": ("stat", None),
    "open": ("open and close", 0.18),
    "chmod": ("chmod", 0.12),
    "rename": ("rename", 0.18),
    "negative": ("stat of no file", 0.2),
    "unlink": ("unlink", 0.2),
    "mkdir": ("mkdir", 0.2),
    "rmdir": ("rmdir", None),
    "null": ("null request", None),
}


def steps(command, place):
    """The lines of a program that measures and waits between its operations, as (words, Served
    for no units yet)."""
    before = place.counters()
    for line in common.stepped(*command):
        after = place.counters()
        yield line.split(), None if before is None else after.since(before, 0)
        before = after


def client_prefix(bench):
    first = min(os.sched_getaffinity(0))
    return ("taskset", "-c", str(first)) if bench.arguments.bound else ()


@contextlib.contextmanager
def busy_cpus(bench):
    """Keeps each CPU busy if that is wanted."""
    loops = []
    try:
        for cpu in os.sched_getaffinity(0) if bench.arguments.busy else ():
            loops.append(subprocess.Popen(
                ("taskset", "-c", str(cpu), "sh", "-c", "while :; do :; done")))
        yield
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


@contextlib.contextmanager
def server_that_answers(bench, name, *mode, prefix=()):
    """Yields a list with the mount of a server that does nothing but answer, as a Place of this
    name; an empty one if libfuse has not what it needs. `mode`: as it takes it. `prefix`: a command
    that runs it."""
    server = f"{bench.build}/bin/efs-bench-names"
    if not os.path.exists(server):
        print(f"   {name}: skipped: libfuse is too old for efs-bench-names")
        yield []
        return
    mount = tempfile.mkdtemp(dir=bench.scratch)
    with subprocess.Popen((*prefix, server, mount, *mode), stdout=subprocess.PIPE) as process:
        if not process.stdout.readline():
            raise common.Failed(f"{server} does not mount")
        try:
            yield [common.Place(name, mount)]
        finally:
            common.unmount(mount)
            process.terminate()
            os.rmdir(mount)


def bound_place(bench):
    """It shares the CPU of a bound client, and never sleeps beside another."""
    mode = () if bench.arguments.bound else ("poll",)
    return server_that_answers(bench, "bound", *mode, prefix=client_prefix(bench))


def print_bounds(rows, found):
    print(f"\n{'a server without work':25}{'op/s':>9}{'to tmpfs':>10}{'goal':>6}{'efs to it':>11}")
    for row in rows.values():
        ratio = statistics.median(row.ratios("bound", "tmpfs"))
        goal = f"{row.goal:.2f}" if row.goal else ""
        ours = "  ".join(f"{statistics.median(row.ratios(place.name, 'bound')):11.2f}"
                         for place in found if place.job is not None)
        print(f"{row.name:25}{statistics.median(row.speeds['bound']):9.0f}{ratio:10.2f}{goal:>6}{ours}",
              flush=True)


def measure(bench, place, rows):
    """Throws Failed."""
    count = bench.arguments.files
    where = tempfile.mkdtemp(dir=place.path)
    command = (*client_prefix(bench), f"{bench.build}/bin/efs-bench-meta", where, str(count), "wait")
    for (name, speed, units), served in steps(command, place):
        if served is not None:
            served.units = float(units)
        if name in rows:
            rows[name].add(place, float(speed), served)
    os.rmdir(where)


def names(bench):
    print(f"\n-- names: {bench.arguments.files} in one directory, {bench.rounds} rounds")
    rows = {name: common.Row(text, "op/s", goal) for name, (text, goal) in OPERATIONS.items()}
    with common.places(bench) as found, bound_place(bench) as bound, busy_cpus(bench):
        for turn in range(bench.rounds):
            for place in common.rotated(found + bound, turn):
                measure(bench, place, rows)
        print(common.HEADER)
        for row in rows.values():
            common.print_row(row, found)
        if bound:
            print_bounds(rows, found)


PARTS = {"names": names}
