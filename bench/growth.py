# SPDX-License-Identifier: BSD-3-Clause
"""The part `growth`: creates, opens, stats and unlinks of 1,000 to 1,000,000 empty files, by
efs-bench-growth, against a tmpfs. The ratio must not fall with the number of files."""
import collections
import statistics

import common
from names import steps

OPERATIONS = ("create", "open", "stat", "unlink")
LAYOUTS = ("flat", "nested")
# The ratio with the most files, over that with the fewest. Below 1 by the noise of one round.
GOAL = 0.9
# Bytes that a file takes at the most: in the kernel twice (efs and its store), and in the daemon.
PER_FILE = 8 << 10
SEED = 7


def counts(bench):
    """Powers of ten up to the wanted one, as far as there is memory."""
    count = min(1000, bench.arguments.most)
    while count <= bench.arguments.most:
        if count * PER_FILE > common.memory_available():
            print(f"   {count} files: skipped: they take up to {count * PER_FILE >> 20} MiB,"
                  f" available are {common.memory_available() >> 20} MiB")
            return
        yield count
        count *= 10


def rounds_of(bench, count):
    """A small number is measured more often, a large one takes minutes."""
    if count <= 1000:
        return 5 * bench.rounds
    return bench.rounds if count < 100_000 else 1 if count > 100_000 else min(3, bench.rounds)


def measure(bench, place, layout, count, rows):
    """Adds to the rows, by layout, operation and number of files. Throws Failed."""
    where = f"{place.path}/growth"
    command = (f"{bench.build}/bin/efs-bench-growth", where, str(count), layout, str(SEED), "wait")
    for (name, speed, units), served in steps(command, place):
        if served is not None:
            served.units = float(units)
        rows[layout, name, count].add(place, float(speed), served)


def print_operation(rows, layout, operation, place):
    """The ratios to tmpfs by the number of files, speeds and requests below them."""
    found = [rows[key] for key in rows if key[:2] == (layout, operation)]
    ratios = [statistics.median(row.ratios(place.name, "tmpfs")) for row in found]
    kept = ratios[-1] / ratios[0]
    verdict = f"{kept:5.2f} of the first, goal {GOAL:.2f} {'met' if kept >= GOAL else 'missed'}"
    label = f"{layout} {operation}{place.name[3:]}"
    print(f"{label:28}" + "".join(f"{ratio:10.2f}" for ratio in ratios) + f"   {verdict}")
    print(f"{'   op/s':28}" + "".join(
        f"{statistics.median(row.speeds[place.name]):10.0f}" for row in found))
    print(f"{'   requests':28}" + "".join(
        f"{common.mean_served(row.served[place.name]).requests():10.1f}" for row in found),
        flush=True)


def growth(bench):
    print(f"\n-- growth: empty files, ratios to tmpfs, {bench.rounds} rounds, seed {SEED}")
    rows = collections.defaultdict(lambda: common.Row("", "op/s"))
    with common.places(bench, with_ext4=False) as found:
        numbers = list(counts(bench))
        layouts = bench.arguments.layout or LAYOUTS
        for layout in layouts:
            for count in numbers:
                for turn in range(rounds_of(bench, count)):
                    for place in common.rotated(found, turn):
                        measure(bench, place, layout, count, rows)
        print(f"{'files':28}" + "".join(f"{number:10}" for number in numbers))
        for layout in layouts:
            for operation in OPERATIONS:
                for place in (place for place in found if place.job is not None):
                    print_operation(rows, layout, operation, place)


PARTS = {"growth": growth}
