# SPDX-License-Identifier: BSD-3-Clause
"""The part `names`: single operations on names by efs-bench-meta, one client in one directory."""
import os
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


def measure(bench, place, rows):
    """Throws Failed."""
    count = bench.arguments.files
    where = tempfile.mkdtemp(dir=place.path)
    command = (f"{bench.build}/bin/efs-bench-meta", where, str(count), "wait")
    for (name, speed, units), served in steps(command, place):
        if served is not None:
            served.units = float(units)
        if name in rows:
            rows[name].add(place, float(speed), served)
    os.rmdir(where)


def names(bench):
    print(f"\n-- names: {bench.arguments.files} in one directory, {bench.rounds} rounds")
    rows = {name: common.Row(text, "op/s", goal) for name, (text, goal) in OPERATIONS.items()}
    with common.places(bench) as found:
        for turn in range(bench.rounds):
            for place in common.rotated(found, turn):
                measure(bench, place, rows)
        print(common.HEADER)
        for row in rows.values():
            common.print_row(row, found)


PARTS = {"names": names}
