# SPDX-License-Identifier: BSD-3-Clause
"""The part `intercept`: libefs-intercept, against a tmpfs and against the mount without it."""
import contextlib
import dataclasses
import os
import shutil
import statistics
import subprocess
import sys
import time

import common
from common import against_goal

# The goals by the case of efs-bench-intercept: speed to tmpfs, and to the mount.
GOALS = {
    **{f"{call}-{size}{hot}": (5, 6) for call in ("pread", "pwrite") for size in (8, 512)
       for hot in ("", "-hot")},
    "pread-4096": (2.2, 2.4), "pread-4096-hot": (4.5, 5.5),
    "pwrite-4096": (2.2, 2.4), "pwrite-4096-hot": (4.5, 5.5),
    "pread-65536": (1.3, 1.3), "pwrite-65536": (1.1, 1.1),
    "pread-1048576": (1.15, 1.15), "pread-1048576-hot": (1.4, 1.4), "pwrite-1048576": (0.95, 0.95),
    "read-4096-own": (3.0, 3.6), "write-4096-own": (3.0, 3.6),
    "read-4096-shared": (1.5, 1.9), "write-4096-shared": (1.5, 1.9),
    "append-4096": (1.5, 1.7),
    "pass-read-4096": (3.0, None), "pass-write-4096": (3.5, None),
    "pass-read-65536": (0.95, None), "pass-write-65536": (0.95, None),
    "open-read-close": (None, 0.97),
}
MOST_EXEC_US = 100


def library_of(bench):
    for path in (f"{bench.build}/lib/libefs-intercept.so",
                 f"{bench.build}/../lib/efs/libefs-intercept.so"):
        if os.path.exists(path):
            return os.path.realpath(path)
    return None


def calls(bench, job, library):
    """Returns the rounds: {case: [(tmpfs, mount, library)]}, in ns of CPU time for a call."""
    out = common.run(f"{bench.build}/bin/efs-bench-intercept", str(bench.rounds), bench.store,
                     job.mount, env={**os.environ, **({"LD_PRELOAD": library} if library else {})})
    found = {}
    for line in out.splitlines():
        name, *figures = line.split()
        found.setdefault(name, []).append([float(figure) for figure in figures])
    return found


def goal_text(value, goal):
    return f"{value:6.2f} {against_goal(value, goal):12}"


def print_calls(found):
    print(f"{'CPU time of a call':24}{'tmpfs':>10}{'mount':>10}{'library':>10} ns   "
          f"{'to tmpfs, goal':21}to mount, goal")
    for name, rounds in found.items():
        tmpfs, mount, library = (statistics.median(column) for column in zip(*rounds))
        if name == "exec":
            slower = (library - mount) / 1000
            text = f"{slower:+.0f} us longer, goal {MOST_EXEC_US}"
            print(f"{name:24}{'':10}{mount:10.0f}{library:10.0f} ns   {text}")
            continue
        ratios = [statistics.median(one[i] / one[2] for one in rounds) for i in (0, 1)]
        goals = GOALS.get(name, (None, None))
        print(f"{name:24}{tmpfs:10.0f}{mount:10.0f}{library:10.0f} ns   "
              f"{goal_text(ratios[0], goals[0])}  {goal_text(ratios[1], goals[1])}".rstrip(),
              flush=True)


# --- programs ---


@dataclasses.dataclass
class Program:
    """A shell command in a directory with the files `data` (64 MiB) and `text` (8 MiB)."""

    name: str
    command: str
    goal: float = 0.97
    needs: str | None = None


READ_WRITE = ("import os; f = os.open('data', os.O_RDWR)\n"
              "for i in range(60000): os.lseek(f, i % 16000 * 4096, 0); b = os.read(f, 4096);"
              " os.lseek(f, (i * 7) % 16000 * 4096, 0); os.write(f, b)")
SQL = ("pragma synchronous=off; create table t(a integer primary key, b);"
       " with recursive n(x) as (select 1 union all select x+1 from n where x<60000)"
       " insert into t select x, hex(x*x) from n; update t set b=b||a where a%3=0;"
       " select count(*) from t where b like '%77%'")
PROGRAMS = [
    Program("python read-write", f'python3 -SE -c "{READ_WRITE}"', 2.0),
    Program("dd overwrite 4k", "for i in 1 2 3 4; do"
            " dd if=/dev/zero of=data bs=4k count=16384 conv=notrunc; done", 1.5),
    Program("dd read 4k", "for i in 1 2 3 4; do dd if=data of=/dev/null bs=4k; done"),
    Program("fio psync 4k", "fio --name=x --filename=data --size=64m --io_size=256m --bs=4k"
            " --rw=randrw --ioengine=psync --fallocate=none", 1.4, "fio"),
    Program("cat", "for i in 1 2 3 4 5 6 7 8; do cat data; done >/dev/null"),
    Program("gzip", "gzip -1 -c text >text.gz"),
    Program("sqlite", f'rm -f db; sqlite3 db "{SQL}"', needs="sqlite3"),
]


def spent(command, directory, environment):
    """Seconds of the command: CPU time of its processes, and wall time."""
    begin = time.monotonic()
    process = subprocess.Popen(["/bin/sh", "-c", command], cwd=directory, env=environment,
                               stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                               stderr=subprocess.PIPE)
    with process.stderr:
        errors = process.stderr.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if status != 0:
        raise common.Failed(f"{command[:60]}: {errors.decode(errors='replace').strip()[-200:]}")
    return usage.ru_utime + usage.ru_stime, time.monotonic() - begin


def lay(directory):
    os.makedirs(directory)
    with open(f"{directory}/data", "wb") as file:
        for _ in range(64):
            file.write(os.urandom(1 << 20))
    with open(f"{directory}/text", "w") as file:
        for number in range(1_000_000):
            file.write(f"{number:07}\n")


def programs(bench, job, library):
    print(f"\n{'programs':24}{'mount':>9}{'library':>9} s CPU   {'to mount, goal':21}wall to mount")
    directory = f"{job.mount}/programs"
    lay(directory)
    with_library = {**os.environ, "LD_PRELOAD": library}
    for one in PROGRAMS:
        if one.needs and shutil.which(one.needs) is None:
            print(f"{one.name:24} skipped: {one.needs} is not installed")
            continue
        found = []
        try:
            for turn in range(bench.rounds):
                pair = {}
                for environment in (os.environ, with_library)[::-1 if turn % 2 else 1]:
                    pair[environment is with_library] = spent(one.command, directory, environment)
                found.append((*pair[False], *pair[True]))
        except common.Failed as problem:
            bench.failed(one.name, problem)
            continue
        cpu, _, cpu_with, _ = (statistics.median(column) for column in zip(*found))
        to_mount = statistics.median(row[0] / row[2] for row in found)
        wall = statistics.median(row[1] / row[3] for row in found)
        print(f"{one.name:24}{cpu:9.2f}{cpu_with:9.2f}         "
              f"{goal_text(to_mount, one.goal)}  {wall:6.2f}", flush=True)
    shutil.rmtree(directory)


def intercept(bench):
    library = library_of(bench)
    job = common.Job(bench, bench.scratch, "intercept", capacity="2 GiB")
    job.start()
    with contextlib.ExitStack() as stack:
        stack.callback(common.wait_for_end, job.name)
        stack.callback(job.stop, "--no-stage-out")
        print(f"\n-- interception on a mount with {job.status()['io']}, {bench.rounds} rounds;"
              " ratios are speeds of the library")
        if library is None:
            print("   libefs-intercept.so IS MISSING in the build: the column library is the mount",
                  file=sys.stderr)
        print_calls(calls(bench, job, library))
        if library is not None:
            programs(bench, job, library)


PARTS = {"intercept": intercept}
