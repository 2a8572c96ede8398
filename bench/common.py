# SPDX-License-Identifier: BSD-3-Clause
"""What the parts of bench.py share: commands, instances of efs, places to measure in, tables."""
import collections
import contextlib
import dataclasses
import json
import os
import shutil
import signal
import socket
import statistics
import subprocess
import sys
import tempfile
import time

LONGEST = 1800  # seconds that a command may take


class Failed(Exception):
    """A program that is measured failed, or its effect is wrong."""


@dataclasses.dataclass
class Bench:
    """One run: its arguments and its directories.

    scratch: a directory on the disk. store: a tmpfs with the options of the store behind efs.
    plain: a tmpfs with the defaults.
    """

    arguments: object
    scratch: str
    store: str
    plain: str
    failures: list = dataclasses.field(default_factory=list)

    @property
    def build(self):
        return self.arguments.build

    @property
    def efs(self):
        return f"{self.build}/bin/efs"

    @property
    def rounds(self):
        return self.arguments.rounds

    def failed(self, what, problem):
        """Reports the failure. The run goes on, and exits with 1 at its end."""
        self.failures.append(what)
        print(f"{what}: FAILED: {problem}", flush=True)


def run(*command, **options):
    """Returns the output. Throws CalledProcessError."""
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


def finished(process):
    """The output of the process. An exception on the way kills the process and its children."""
    try:
        output, errors = process.communicate(timeout=LONGEST)
    except BaseException:
        kill(process)
        raise
    if process.returncode != 0:
        lines = errors.strip().splitlines()[-2:]
        words = process.args if isinstance(process.args, str) else " ".join(process.args)
        raise Failed(f"{words[:200]}: exit status {process.returncode}: {'; '.join(lines)}")
    return output


def kill(process):
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def program(*command, output=subprocess.PIPE, directory=None, environment=None):
    """Runs a measured program. Throws Failed."""
    process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, text=True,
                               stderr=subprocess.PIPE, start_new_session=True, cwd=directory,
                               env={**os.environ, **(environment or {}), "LC_ALL": "C"})
    return finished(process)


def stepped(*command):
    """Runs a program that waits for a line on its input after each line of its output, and yields
    these lines."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                               stderr=subprocess.PIPE, start_new_session=True, bufsize=1)
    try:
        for line in iter(process.stdout.readline, ""):
            yield line
            process.stdin.write("\n")
        finished(process)
    finally:
        kill(process)


def timed(function):
    start = time.monotonic()
    function()
    return time.monotonic() - start


# --- mounts and instances ---


def unmount(directory):
    """Unmounts. Processes that were killed may hold the mount for a moment."""
    deadline = time.monotonic() + 10
    while subprocess.run(["umount", directory], stderr=subprocess.DEVNULL).returncode != 0:
        if time.monotonic() > deadline:
            run("umount", "-l", directory)
            return
        time.sleep(0.05)


@contextlib.contextmanager
def tmpfs(directory, options):
    os.mkdir(directory)
    run("mount", "-t", "tmpfs", "-o", options, "bench", directory)
    try:
        yield directory
    finally:
        unmount(directory)
        os.rmdir(directory)


@contextlib.contextmanager
def ext4(scratch, size):
    """An ext4 in a loop image in the scratch directory. The loop device ends with the mount."""
    image, directory = f"{scratch}/ext4.img", f"{scratch}/ext4"
    with open(image, "wb") as file:
        file.truncate(size)
    os.mkdir(directory)
    try:
        run("mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", image)
        run("mount", "-o", "loop", image, directory)
        try:
            yield directory
        finally:
            unmount(directory)
    finally:
        os.rmdir(directory)
        os.remove(image)


class Job:
    """An instance of efs on memory."""

    def __init__(self, bench, scratch, name, options="rw", resources=(), keys=(), mount=None,
                 capacity="8 GiB"):
        """options: of the mount. keys: lines of the job file's global settings."""
        self.bench, self.name, self.options = bench, name, options
        self.root, self.mount, self.results = (
            f"{scratch}/{name}-{part}" for part in ("pfs", "mnt", "res"))
        self.mount = mount or self.mount
        self.file = f"{scratch}/{name}.yaml"
        os.makedirs(self.root, exist_ok=True)
        settings = [f"name: {name}", f"root-dir: {self.root}", f"mount-dir: {self.mount}",
                    f"results-dir: {self.results}", *keys]
        lines = [f"global-settings: [ {', '.join(settings)} ]",
                 f"backends: [ [ id: mem, type: DRAM, capacity: {capacity} ] ]"]
        if resources:
            paths = ", ".join(f"[ path: {path}, flags: persistent ]" for path in resources)
            lines.append(f"resources: [ {paths} ]")
        with open(self.file, "w") as out:
            out.write("\n".join(lines) + "\n")

    def start(self, env=None):
        run(self.bench.efs, "start", self.file, "-o", self.options, env=env)

    def stop(self, *options):
        run(self.bench.efs, "stop", self.name, *options)

    def status(self):
        """As efs status --json shows it, by the control socket: no process starts."""
        with socket.socket(socket.AF_UNIX) as control:
            control.connect(f"{os.environ['EFS_RUNTIME_DIR']}/{self.name}/control.sock")
            control.sendall(b'{"verb": "status"}\n')
            return json.loads(control.makefile().readline())


def stop_all(bench):
    """Stops the instances that an exception left."""
    status = subprocess.run([bench.efs, "status", "--json"], stdout=subprocess.PIPE, text=True)
    for instance in json.loads(status.stdout or "[]"):
        subprocess.run([bench.efs, "stop", "--no-stage-out", instance["name"]])


def wait_for_end(name):
    """Returns when the daemon is gone, which is a moment after the answer of efs stop."""
    while os.path.exists(f"{os.environ['EFS_RUNTIME_DIR']}/{name}"):
        time.sleep(0.001)


@contextlib.contextmanager
def bare_server(bench, mode="passthrough"):
    """A mount of a server that hands all to the kernel, by name; nothing if libfuse is too old.
    `served`, `collected`: it reads and writes itself, see micro/passthrough.cpp."""
    server = f"{bench.build}/bin/efs-bench-passthrough"
    backing, mount = f"{bench.store}/bare", f"{bench.scratch}/bare"
    if not os.path.exists(server):
        yield {}
        return
    os.mkdir(backing)
    os.mkdir(mount)
    command = [server, backing, mount] + [mode] * (mode != "passthrough")
    with subprocess.Popen(command, stdout=subprocess.PIPE) as process:
        if not process.stdout.readline():
            sys.exit(f"{server} does not mount")
        try:
            yield {"bare": mount}
        finally:
            run("umount", mount)
    os.rmdir(mount)
    os.rmdir(backing)


def tree(path, files, size):
    for i in range(files):
        directory = f"{path}/d{i // 500}"
        os.makedirs(directory, exist_ok=True)
        with open(f"{directory}/f{i}", "wb") as out:
            out.write(os.urandom(size))


# --- the requests of a measurement ---


@dataclasses.dataclass
class Served:
    """The requests that reached a daemon, from its counters, for a number of units."""

    kinds: collections.Counter
    opens: int = 0
    passthrough: int = 0
    moved: int = 0
    units: float = 0

    def since(self, before, units):
        return Served(self.kinds - before.kinds, self.opens - before.opens,
                      self.passthrough - before.passthrough, self.moved - before.moved, units)

    def requests(self):
        return sum(self.kinds.values()) / self.units

    def path(self):
        """The path that served the data."""
        if self.opens == 0:
            return "daemon" if self.moved else "-"
        if self.passthrough < self.opens:
            share = self.passthrough / self.opens
            return f"passthrough {share:.0%}" if share else "daemon"
        return "passthrough"

    def text(self):
        """The kinds, most frequent first, that every tenth unit asks for at least."""
        each = [(count / self.units, kind) for kind, count in self.kinds.most_common()]
        return ", ".join(f"{kind} {rate:.1f}" for rate, kind in each if rate >= 0.1)


def mean_served(all_served):
    total = Served(collections.Counter())
    for one in all_served:
        total = Served(total.kinds + one.kinds, total.opens + one.opens,
                       total.passthrough + one.passthrough, total.moved + one.moved,
                       total.units + one.units)
    return total


class Place:
    """A directory to measure in."""

    def __init__(self, name, path, job=None):
        self.name, self.path, self.job = name, path, job

    def counters(self):
        """The daemon's counters, when the kernel has sent all that it keeps back, such as the
        releases of closed files; None without a daemon."""
        if self.job is None:
            return None
        last = None
        while True:
            found = self.job.status()["counters"]
            kinds = collections.Counter(
                {kind: figures["count"] for kind, figures in found["operations"].items()})
            if kinds == last:
                return Served(kinds, found["opens"], found["passthrough_opens"],
                              found["read_bytes"] + found["written_bytes"])
            last = kinds
            time.sleep(0.01)


def split_mode(mode):
    """Parts of a mode with a colon are keys of the job file, the others are mount options."""
    parts = [part.strip() for part in mode.split(",")]
    return (",".join(part for part in parts if ":" not in part) or "rw",
            [part for part in parts if ":" in part])


@contextlib.contextmanager
def places(bench, with_ext4=True):
    """Yields a Place for each mode of efs, then tmpfs, then ext4 unless the machine refuses it."""
    with contextlib.ExitStack() as stack:
        found = []
        modes = bench.arguments.modes or ["rw"]
        for number, mode in enumerate(modes):
            options, keys = split_mode(mode)
            job = Job(bench, bench.scratch, f"mode{number}", options, keys=keys)
            job.start()
            stack.callback(wait_for_end, job.name)
            stack.callback(job.stop, "--no-stage-out")
            name = "efs" if len(modes) == 1 else f"efs {mode}"
            found.append(Place(name, job.mount, job))
            print(f"   {name}: options {mode}, data path {job.status()['io']}")
        found.append(Place("tmpfs", stack.enter_context(
            tmpfs(f"{bench.scratch}/yardstick", "size=50%,nr_inodes=4m"))))
        if with_ext4:
            try:
                path = stack.enter_context(ext4(bench.scratch, 4 << 30))
            except (OSError, subprocess.CalledProcessError) as problem:
                print(f"   ext4: skipped: {problem}")
            else:
                found.append(Place("ext4", path))
        for place in found:
            place.path = tempfile.mkdtemp(dir=place.path)
        yield found


def rotated(found, turn):
    """Another place begins in each round."""
    first = turn % len(found)
    return found[first:] + found[:first]


# --- tables ---


def row(name, ours, yardstick, unit):
    ratios = sorted(a / b for a, b in zip(ours, yardstick))
    print(f"{name:34} {statistics.median(ours):12.0f} {statistics.median(yardstick):12.0f}"
          f" {unit:6} ratio {statistics.median(ratios):5.2f}  ({ratios[0]:.2f}-{ratios[-1]:.2f})",
          flush=True)


def against_goal(value, goal):
    if goal is None:
        return ""
    return f"{goal:.2f} {'met' if value >= goal else 'missed'}"


@dataclasses.dataclass
class Row:
    """One workload: speeds by the name of the place, one a round, and the requests by the name of
    the place."""

    name: str
    unit: str
    goal: float | None = None
    speeds: dict = dataclasses.field(default_factory=lambda: collections.defaultdict(list))
    served: dict = dataclasses.field(default_factory=lambda: collections.defaultdict(list))

    def add(self, place, speed, served):
        self.speeds[place.name].append(speed)
        if served is not None:
            self.served[place.name].append(served)

    def ratios(self, ours, yardstick):
        return sorted(a / b for a, b in zip(self.speeds[ours], self.speeds[yardstick]))


HEADER = (f"{'':25}{'efs':>9}{'tmpfs':>9}{'ext4':>9} {'unit':6} {'to tmpfs':>18} {'to ext4':>8}"
          f"  {'goal':11} {'requests':>8}  served by")


def print_row(line, found):
    """A line for each mode of efs; below it the requests of one unit by kind."""
    def middle(place):
        if not line.speeds.get(place):
            return f"{'-':>9}"
        value = statistics.median(line.speeds[place])
        return f"{value:9.0f}" if value >= 100 else f"{value:9.1f}"

    for place in (place for place in found if place.job is not None):
        name = line.name + place.name[3:]
        ratios = line.ratios(place.name, "tmpfs")
        ratio = statistics.median(ratios)
        disk = line.ratios(place.name, "ext4") if "ext4" in line.speeds else None
        served = mean_served(line.served[place.name])
        text = (f"{name:25}{middle(place.name)}{middle('tmpfs')}{middle('ext4')} {line.unit:6}"
                f" {ratio:6.2f} ({ratios[0]:.2f}-{ratios[-1]:.2f})"
                f" {f'{statistics.median(disk):.2f}' if disk else '-':>8}"
                f"  {against_goal(ratio, line.goal):11} {served.requests():8.1f}  {served.path()}")
        print(text.rstrip())
        if served.text():
            print(f"     {served.text()}", flush=True)


def memory_available():
    """Bytes."""
    with open("/proc/meminfo") as file:
        for line in file:
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) << 10
    return 0


def remove(path):
    with contextlib.suppress(FileNotFoundError):
        shutil.rmtree(path)
