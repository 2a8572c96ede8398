# SPDX-License-Identifier: BSD-3-Clause
"""The part `workloads`: programs that users run, on efs, on a tmpfs and on an ext4.

In each round each place gets a new tree, and the workloads work on it one after the other. For each
workload the places take turns, and another place begins in each round. Nothing syncs between the
workloads but the programs themselves.
"""
import contextlib
import dataclasses
import os
import random
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable

import common
from common import Failed, program

SEED = 44


@dataclasses.dataclass
class Material:
    """What the workloads start from, in a tmpfs that no place is in."""

    path: str
    files: int      # of the tree
    needles: int    # lines of the tree with this word
    modules: int    # of Python
    sources: int    # of C
    transactions: int
    seconds: int    # of dbench


@dataclasses.dataclass(frozen=True)
class Workload:
    """run() is measured. It does units(), or measures itself and returns its speed and the units
    that the counters are divided by. before() is not measured. Each is called with the Material
    and the directory of the round in a place; the tree is in its directory tree."""

    name: str
    unit: str
    run: Callable
    units: Callable
    before: Callable = lambda made, where: None
    goal: float | None = None
    needs: tuple = ()          # programs, and how a user gets them
    tree: bool = True          # wants the tree


# --- material ---


def make_tree(path, files, seed):
    """Text files of 16 bytes to 32 KiB, 20 in a directory. Returns the number of lines that have
    the word `needle`."""
    chance = random.Random(seed)
    words = ["".join(chance.choices("abcdfghiklmnoprstu", k=chance.randint(2, 9)))
             for _ in range(500)]
    text = "\n".join(" ".join(chance.choices(words, k=9)) for _ in range(2000))
    needles = 0
    for i in range(files):
        directory = f"{path}/d{i // 400}/e{i // 20}"
        os.makedirs(directory, exist_ok=True)
        size = int(2 ** chance.uniform(4, 15))
        start = chance.randrange(len(text) - size)
        with open(f"{directory}/f{i}.txt", "w") as out:
            out.write(text[start:start + size])
            if i % 50 == 0:
                out.write("\na needle\n")
                needles += 1
    return needles


def make_modules(path, modules):
    """Packages of 50 modules; everything.py imports them all."""
    names = []
    for i in range(modules):
        package = f"p{i // 50}"
        os.makedirs(f"{path}/{package}", exist_ok=True)
        with open(f"{path}/{package}/m{i}.py", "w") as out:
            out.write("".join(f"def f{k}(x):\n    return x + {k}\n" for k in range(20)))
        names.append(f"{package}.m{i}")
    for package in {name.split(".")[0] for name in names}:
        open(f"{path}/{package}/__init__.py", "w").close()
    with open(f"{path}/everything.py", "w") as out:
        out.write("".join(f"import {name}\n" for name in names))


def make_sources(path, sources):
    """A program of several C files, each with headers of its own and of the system."""
    os.makedirs(f"{path}/include")
    for i in range(20):
        with open(f"{path}/include/h{i}.h", "w") as out:
            out.write(f"#pragma once\nstatic inline int h{i}(int x) {{ return x + {i}; }}\n")
    includes = "".join(f'#include "h{i}.h"\n' for i in range(20))
    for i in range(sources):
        with open(f"{path}/c{i}.c", "w") as out:
            out.write(f"{includes}int c{i}(int x) {{ return h{i % 20}(x); }}\n")
    with open(f"{path}/main.c", "w") as out:
        out.write("#include <stdio.h>\n")
        out.write("".join(f"int c{i}(int);\n" for i in range(sources)))
        out.write('int main(void) {\n  int sum = 0;\n')
        out.write("".join(f"  sum += c{i}(0);\n" for i in range(sources)))
        out.write('  printf("%d\\n", sum);\n}\n')
    with open(f"{path}/Makefile", "w") as out:
        out.write("objects := $(patsubst %.c,%.o,$(wildcard *.c))\nCFLAGS := -Iinclude -MMD\n"
                  "CC := cc\nprogram: $(objects)\n\t$(CC) -o $@ $(objects)\n")


def git(made, *words, **options):
    """git without the settings of this user and machine."""
    environment = {"GIT_CONFIG_GLOBAL": "/dev/null", "GIT_CONFIG_NOSYSTEM": "1",
                   "GIT_OPTIONAL_LOCKS": "0", "HOME": made.path}
    for role in ("AUTHOR", "COMMITTER"):
        environment |= {f"GIT_{role}_NAME": "bench", f"GIT_{role}_EMAIL": "bench@localhost"}
    return program("git", "-c", "gc.auto=0", *words, environment=environment, **options)


def make_repository(made):
    """A repository with the tree in one pack."""
    repository = f"{made.path}/repository"
    shutil.copytree(f"{made.path}/tree", repository)
    git(made, "init", "-q", directory=repository)
    git(made, "add", ".", directory=repository)
    git(made, "commit", "-q", "-m", "all", directory=repository)
    git(made, "repack", "-q", "-a", "-d", directory=repository)


def make_material(path, files):
    made = Material(path, files, 0, modules=max(2, files // 10), sources=max(2, files // 100),
                    transactions=max(5, files // 20), seconds=max(2, min(5, files // 1000)))
    made.needles = make_tree(f"{path}/tree", files, SEED)
    program("tar", "-C", path, "-cf", f"{path}/tree.tar", "tree")
    make_modules(f"{path}/modules", made.modules)
    make_sources(f"{path}/sources", made.sources)
    if shutil.which("git"):
        make_repository(made)
    return made


# --- workloads ---


def expect(found, expected, what):
    if found != expected:
        raise Failed(f"{what}: {found}, not {expected}")


def tar_x(made, where):
    program("tar", "-C", where, "-xf", f"{made.path}/tree.tar")


def ls(_, where):
    program("ls", "-lR", f"{where}/tree", output=subprocess.DEVNULL)


def find(made, where):
    found = program("find", f"{where}/tree", "-type", "f")
    expect(found.count("\n"), made.files, "files that find prints")


def du(_, where):
    program("du", "-s", f"{where}/tree")


def grep(made, where):
    found = program("grep", "-r", "needle", f"{where}/tree")
    expect(found.count("\n"), made.needles, "lines that grep prints")


def tar_c(made, where):
    # GNU tar does not read files if the archive is /dev/null.
    program("tar", "-C", where, "-cf", f"{made.path}/out.tar", "tree")


def cp(_, where):
    program("cp", "-a", f"{where}/tree", f"{where}/copy")


def rm(_, where):
    program("rm", "-rf", f"{where}/copy")


def copy_tree(made, where):
    if not os.path.exists(f"{where}/copy"):
        program("cp", "-a", f"{made.path}/tree", f"{where}/copy")


def git_clone(made, where):
    git(made, "clone", "-q", "--no-hardlinks", f"{made.path}/repository", f"{where}/clone")


def git_status(made, where):
    found = git(made, "status", "--porcelain", directory=f"{where}/clone")
    expect(found, "", "output of git status")


def clone_once(made, where):
    if not os.path.exists(f"{where}/clone"):
        git_clone(made, where)


# Both print the seconds that they took, without the start of the interpreter.
TRANSACTIONS = """
import sqlite3, sys, time
path, mode, synchronous, count = sys.argv[1], sys.argv[2], sys.argv[3], int(sys.argv[4])
base = sqlite3.connect(path, isolation_level=None)
assert base.execute(f"pragma journal_mode={mode}").fetchone()[0] == mode
base.execute(f"pragma synchronous={synchronous}")
base.execute("create table t (id integer primary key, text)")
start = time.monotonic()
for i in range(count):
    base.execute("begin immediate")
    base.execute("insert into t (text) values (?)", (f"{i:100}",))
    base.execute("commit")
print(time.monotonic() - start)
assert base.execute("select count(*) from t").fetchone()[0] == count
"""
IMPORTS = """
import sys, time
sys.path.insert(0, sys.argv[1])
start = time.monotonic()
import everything
print(time.monotonic() - start)
assert sum(".m" in name for name in sys.modules) == int(sys.argv[2])
"""


def sqlite(mode, synchronous):
    def transactions(made, where):
        count = made.transactions
        seconds = program(sys.executable, "-c", TRANSACTIONS, f"{where}/{mode}.db", mode,
                          synchronous, str(count))
        return count / float(seconds), count
    return transactions


def compile_modules(made, where):
    shutil.copytree(f"{made.path}/modules", f"{where}/modules")
    program(sys.executable, "-m", "compileall", "-q", f"{where}/modules")


def imports(made, where):
    seconds = program(sys.executable, "-c", IMPORTS, f"{where}/modules", str(made.modules))
    return made.modules / float(seconds), made.modules


def copy_sources(made, where):
    shutil.copytree(f"{made.path}/sources", f"{where}/sources")


def make(made, where):
    program("make", "-s", "-C", f"{where}/sources")
    expect(int(program(f"{where}/sources/program")),
           sum(i % 20 for i in range(made.sources)), "output of the program")


def dbench(made, where):
    """Measures itself: MB/s of the time after the warm-up. The units are its operations."""
    os.mkdir(f"{where}/dbench")
    load = f"{os.path.dirname(shutil.which('dbench'))}/../share/dbench/client.txt"
    found = program("dbench", "-D", f"{where}/dbench", "-c", load, "-t", str(made.seconds), "1")
    speed = re.search(r"^Throughput ([0-9.]+) MB/sec", found, re.M)
    operations = sum(int(count) for count in re.findall(r"^ [A-Z]\w+ +(\d+) ", found, re.M))
    if speed is None or float(speed.group(1)) == 0 or operations == 0:
        raise Failed(f"dbench has measured nothing: {found[-500:]}")
    return float(speed.group(1)), operations


def files(made):
    return made.files


def transactions(made):
    return made.transactions


GIT, SQLITE = ("git", "apt-get install git"), ("sqlite", "a python3 with the module sqlite3")
WORKLOADS = (
    Workload("tar x", "file/s", tar_x, files, goal=0.25, tree=False),
    Workload("ls -lR", "file/s", ls, files, goal=0.7),
    Workload("find", "file/s", find, files),
    Workload("du", "file/s", du, files),
    Workload("grep -r", "file/s", grep, files, goal=0.35),
    Workload("grep -r again", "file/s", grep, files),
    Workload("tar c", "file/s", tar_c, files),
    Workload("cp -a", "file/s", cp, files, goal=0.2),
    Workload("rm -rf", "file/s", rm, files, before=copy_tree, tree=False),
    Workload("git clone", "file/s", git_clone, files, goal=0.3, needs=GIT, tree=False),
    Workload("git status", "file/s", git_status, files, before=clone_once, needs=GIT, tree=False),
    Workload("sqlite delete, FULL", "tr/s", sqlite("delete", "full"), transactions, goal=0.35,
             needs=SQLITE, tree=False),
    Workload("sqlite wal", "tr/s", sqlite("wal", "normal"), transactions, needs=SQLITE, tree=False),
    Workload("python imports", "file/s", imports, lambda made: made.modules,
             before=compile_modules, tree=False),
    Workload("make", "file/s", make, lambda made: made.sources, before=copy_sources,
             needs=("make", "apt-get install make gcc"), tree=False),
    Workload("dbench", "MB/s", dbench, lambda made: made.seconds, goal=0.55,
             needs=("dbench", "apt-get install dbench"), tree=False),
)
NAMES = tuple(workload.name for workload in WORKLOADS)


# --- the part ---


def installed(name):
    if name == "sqlite":
        with contextlib.suppress(ImportError):
            import sqlite3  # noqa: F401
            return True
        return False
    return shutil.which(name) is not None


def chosen(bench):
    """The workloads to run. Prints those that cannot."""
    for workload in WORKLOADS:
        if bench.arguments.only and workload.name not in bench.arguments.only:
            continue
        if workload.needs and not installed(workload.needs[0]):
            name, how = workload.needs
            print(f"   {workload.name}: skipped: {name} is not installed ({how})")
            continue
        yield workload


def measure(workload, made, place, where, row):
    """One workload in one place. Throws Failed."""
    if workload.tree and not os.path.exists(f"{where}/tree"):
        tar_x(made, where)
    workload.before(made, where)
    before = place.counters()
    start = time.monotonic()
    own = workload.run(made, where)
    took = time.monotonic() - start
    after = place.counters()
    units = workload.units(made)
    speed, units = own or (units / took, units)
    row.add(place, speed, None if before is None else after.since(before, units))


def one_round(bench, turn, rows, made, found):
    """All workloads, each in all places. A workload that failed is left out from then on."""
    for place in found:
        os.mkdir(f"{place.path}/round")
    for workload, row in list(rows.items()):
        for place in common.rotated(found, turn):
            try:
                measure(workload, made, place, f"{place.path}/round", row)
            except (Failed, OSError, subprocess.SubprocessError) as problem:
                bench.failed(f"{workload.name} on {place.name}", problem)
                rows.pop(workload)
                break
    for place in found:
        # What ext4 still has to write does not slow the next round.
        if place.name == "ext4":
            common.run("sync", "-f", place.path)
        common.remove(f"{place.path}/round")


def workloads(bench):
    files_of_tree = bench.arguments.files
    print(f"\n-- workloads: {files_of_tree} files, {bench.rounds} rounds, seed {SEED}")
    rows = {workload: common.Row(workload.name, workload.unit, workload.goal)
            for workload in chosen(bench)}
    material = f"{bench.plain}/material"
    os.mkdir(material)
    try:
        made = make_material(material, files_of_tree)
        with common.places(bench) as found:
            for turn in range(bench.rounds):
                one_round(bench, turn, rows, made, found)
            print(common.HEADER)
            for row in rows.values():
                common.print_row(row, found)
    finally:
        common.remove(material)


PARTS = {"workloads": workloads}
