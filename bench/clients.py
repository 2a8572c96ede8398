# SPDX-License-Identifier: BSD-3-Clause
"""The part `clients`: two clients, each bound to a CPU of its own, beside one of them alone."""
import contextlib
import os
import statistics
import subprocess
import tempfile

import common
import names

OPERATIONS = ("create", "open", "unlink", "mkdir", "null")
GOAL = 1.5  # of create

# As efs-bench-names takes them: two threads that are bound to the CPUs of the clients, and two
# that are not, each with a descriptor of its own.
SERVERS = ("threads", "cloned")


def speeds(bench, place, cpus):
    """Operations a second by operation, of a client on each of the CPUs at the same time."""
    meta, count = f"{bench.build}/bin/efs-bench-meta", str(bench.arguments.files)
    where = [tempfile.mkdtemp(dir=place.path) for _ in cpus]
    clients = [subprocess.Popen(("taskset", "-c", str(cpu), meta, directory, count),
                                stdout=subprocess.PIPE, text=True)
               for cpu, directory in zip(cpus, where)]
    said = [client.communicate()[0] for client in clients]
    for client, directory in zip(clients, where):
        if client.returncode != 0:
            raise common.Failed(f"{meta} {directory}: exit status {client.returncode}")
        os.rmdir(directory)
    return [{line.split()[0]: float(line.split()[1]) for line in text.splitlines()}
            for text in said]


def one_and_two(bench, place, cpus):
    """Operations a second of one of them alone, and of two together, by operation."""
    alone = [speeds(bench, place, [cpu])[0] for cpu in cpus]
    together = speeds(bench, place, cpus)
    return {name: (statistics.mean(one[name] for one in alone), sum(one[name] for one in together))
            for name in OPERATIONS}


def print_table(seen):
    """`seen`: the rounds by the name of the place."""
    print(f"{'':25}" + "".join(f"{name:>9}" for name in OPERATIONS)
          + f"{'creates/s, one, two':>24}")
    for place, rounds in seen.items():
        gains = {name: statistics.median(one[name][1] / one[name][0] for one in rounds)
                 for name in OPERATIONS}
        creates = [statistics.median(one["create"][count] for one in rounds) for count in (0, 1)]
        goal = f"  goal of create {common.against_goal(gains['create'], GOAL)}"
        print(f"{place:25}" + "".join(f"{gains[name]:9.2f}" for name in OPERATIONS)
              + f"{creates[0]:12.0f}{creates[1]:12.0f}" + (goal if place.startswith("efs") else ""),
              flush=True)


def clients(bench):
    cpus = sorted(os.sched_getaffinity(0))[:2]
    if len(cpus) < 2:
        print("\n-- clients: skipped: this machine has one CPU")
        return
    print(f"\n-- clients: two, bound to CPU {cpus[0]} and {cpus[1]}, to one;"
          f" {bench.arguments.files} names each, {bench.rounds} rounds")
    with contextlib.ExitStack() as stack:
        found = stack.enter_context(common.places(bench, with_ext4=False))
        # these bind their threads to CPU 0 and 1
        for mode in SERVERS if cpus == [0, 1] else ():
            found = found + stack.enter_context(
                names.server_that_answers(bench, f"bound, {mode}", mode))
        seen = {place.name: [] for place in found}
        for turn in range(bench.rounds):
            for place in common.rotated(found, turn):
                seen[place.name].append(one_and_two(bench, place, cpus))
    print_table(seen)


PARTS = {"clients": clients}
