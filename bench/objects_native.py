# SPDX-License-Identifier: BSD-3-Clause
"""The parts of objects.py that measure programs: the peers in C with 1 and 2 ranks, the strategies
of checkpoints, the example applications, the length of pMEMCPY's program."""
import importlib.util
import os
import random
import re
import shlex
import shutil
import subprocess
import tempfile

ROOT = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
OPTIMISED = ["-O3", "-march=native"]
# As root, and with more ranks than processors.
RANKS = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "PRTE_MCA_rmaps_default_mapping_policy": ":oversubscribe",
}
# The names of each peer in pkg-config: a build for the MPI of mpicc comes first.
PACKAGES = {
    "plain": [],
    "mpiio": [],
    "hdf5": ["hdf5-openmpi", "hdf5-mpich", "hdf5"],
    "netcdf": ["netcdf-mpi", "netcdf"],
    "pnetcdf": ["pnetcdf"],
}


class CannotBuild(Exception):
    pass


def output_of(command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def compiled(command):
    try:
        run = subprocess.run(command, capture_output=True, text=True)
    except OSError as error:
        raise CannotBuild(error) from error
    if run.returncode != 0:
        errors = [line for line in run.stderr.splitlines() if "error" in line]
        raise CannotBuild(errors[0] if errors else run.stderr)


def package_flags(names):
    for name in names:
        try:
            flags = shlex.split(output_of(["pkg-config", "--cflags", "--libs", name]))
            # Debian's netcdf-mpi does not name the directory of its headers.
            folder = output_of(["pkg-config", "--variable=libdir", name]).strip()
            return [*flags, f"-I{folder}/{name.replace('-', '/')}/include"]
        except (OSError, subprocess.CalledProcessError):
            continue
    raise CannotBuild(f"pkg-config knows none of {', '.join(names)}")


def adios2_flags():
    """The headers and libraries in the wheel of PyPI."""
    found = importlib.util.find_spec("adios2")
    if found is None:
        raise CannotBuild("Python has no adios2: pip install adios2")
    folder = found.submodule_search_locations[0]
    return [f"-I{folder}/include", f"-L{folder}", f"-Wl,-rpath,{folder}", "-ladios2_c", "-ladios2_core"]


def objects_flags(build):
    library = os.path.join(build, "lib")
    return [f"-I{ROOT}/objects", f"-L{library}", f"-Wl,-rpath,{library}", "-lefs-objects"]


class Native:
    """Programs are compiled into a directory that is removed at the end."""

    def __init__(self, arguments, figures):
        self.options = arguments
        self.figures = figures
        self.scratch = tempfile.TemporaryDirectory(prefix="efs-bench-")
        self.folder = tempfile.TemporaryDirectory(prefix="efs-bench-", dir=arguments.directory)

    def close(self):
        self.scratch.cleanup()
        self.folder.cleanup()

    def made(self, name):
        return os.path.join(self.scratch.name, name)

    # --- the peers in C ---

    def peer(self, name):
        """The path of the compiled peer; none if its library is missing."""
        try:
            if name == "objects":
                flags = objects_flags(self.options.build)
            elif name == "adios2":
                flags = adios2_flags()
            else:
                flags = package_flags(PACKAGES[name]) if PACKAGES[name] else []
            path = self.made(f"{name}.so")
            source = f"{ROOT}/bench/peers/{name}.c"
            compiled(["mpicc", *OPTIMISED, "-shared", "-fPIC", source, "-o", path, *flags])
            return path
        except CannotBuild as error:
            self.figures.skip(name, error)
            return None

    def peers(self):
        try:
            main = f"{ROOT}/bench/peers/main.c"
            compiled(["mpicc", *OPTIMISED, main, "-o", self.made("peers"), "-ldl"])
        except CannotBuild as error:
            self.figures.skip("the peers in C", error)
            return
        found = [path for path in map(self.peer, [*PACKAGES, "adios2", "objects"]) if path]
        for ranks in (1, 2):
            self.long_runs(ranks, found)
        self.short_runs(found)

    def measured(self, ranks, mode, found):
        """The milliseconds of each operation and contender."""
        options = [self.folder.name, str(self.options.size), str(self.options.rounds), mode]
        command = ["mpirun", "-n", str(ranks), self.made("peers"), *options, *found]
        run = subprocess.run(command, stdout=subprocess.PIPE, text=True, env={**os.environ, **RANKS})
        if run.returncode != 0:
            self.figures.skip(f"{mode} runs of {ranks} ranks", f"mpirun ended with {run.returncode}")
        times = {"write": {}, "read": {}}
        for line in run.stdout.splitlines():
            operation, name, figure = line.split("\t")
            times[operation].setdefault(name, []).append(float(figure))
        return times

    def long_runs(self, ranks, found):
        times = self.measured(ranks, "long", found)
        if not times["read"]:
            return
        ours = "libefs-objects"
        goal = self.figures.goal
        of = f"{self.options.size} MiB, {ranks} rank{'s' if ranks > 1 else ''}"
        written = self.figures.show(f"write one array of {of}", times["write"])
        goal("store, of plain write", written["plain"] / written[ours], 0.95)
        for name, wanted in (("HDF5", 1), ("NetCDF-4", 1), ("PnetCDF", 2), ("ADIOS2", 2)):
            if name in written:
                goal(f"write, of {name}", written[name] / written[ours], wanted)
        goal("computed in place, of computed and then stored",
             written["computed, then stored"] / written["computed in place"], 2.5)
        readers = {name: found for name, found in times["read"].items() if "computed" not in name}
        got = self.figures.show(f"sum over one array of {of}: ours by a view", readers)
        for name, wanted in (("HDF5", 2.5), ("NetCDF-4", 2.5), ("ADIOS2", 8)):
            if name in got:
                goal(f"sum by a view, of {name}", got[name] / got[ours], wanted)

    def short_runs(self, found):
        times = self.measured(2, "short", found)
        for operation, wanted in (("write", 5), ("read", 3.5)):
            if not times[operation]:
                continue
            title = f"{operation} {self.options.size} MiB in runs of 2 KiB, 2 ranks"
            got = self.figures.show(title, times[operation])
            peers = {name: got[name] for name in ("HDF5", "NetCDF-4", "PnetCDF") if name in got}
            if peers:
                best = min(peers, key=peers.get)
                ratio = peers[best] / got["libefs-objects"]
                self.figures.goal(f"{operation} in short runs, of {best}", ratio, wanted)

    # --- checkpoints of memory ---

    def checkpoints(self):
        """The store is paced to a quarter of the rate of DRAM, as NVRAM."""
        program = os.path.join(self.options.build, "bin/efs-bench-checkpoint")
        if not os.access(program, os.X_OK):
            self.figures.skip("the strategies of checkpoints", f"no {program}")
            return
        size, pace = max(4, self.options.size // 2), 1500
        text = output_of([program, self.folder.name, str(size), str(pace), str(self.options.rounds)])
        print(f"\ncheckpoints of {size} MiB to a store of {pace} MB/s; {text.rstrip()}")
        waits = {fields[0]: float(fields[1]) for fields in map(str.split, text.splitlines()[2:])}
        for name, wanted in (("split", 0.3), ("stage", 0.25), ("snapshot", 0.05)):
            if name in waits:
                self.figures.goal(f"{name} waits, of copy", waits[name] / waits["copy"], wanted, at_least=False)

    # --- the example applications ---

    def application(self, name, ranks):
        """Compiles an example. Returns the command that runs it, and the kinds it has."""
        kinds = ["values", "file", "objects", "shared"]
        sources = [f"{ROOT}/examples/{name}.cpp", f"{ROOT}/examples/checkpoint.cpp"]
        flags = ["-std=c++17", *OPTIMISED, *(["-DUSE_MPI"] if ranks > 1 else [])]
        path = self.made(f"{name}-{ranks}")
        command = ["mpicxx" if ranks > 1 else "c++", *flags, *sources, "-o", path, *objects_flags(self.options.build)]
        try:
            compiled([*command, "-DUSE_PMEM", "-lpmem"])
            kinds.append("pmem")
        except CannotBuild as error:
            self.figures.skip("checkpoints by libpmem", error)
            compiled(command)
        return (["mpirun", "-n", str(ranks)] if ranks > 1 else []) + [path], kinds

    def run_application(self, command, kind, options):
        """The milliseconds of a checkpoint."""
        directory = os.path.join(self.folder.name, "checkpoints")
        run = subprocess.run([*command, *options, "--checkpoint", kind, "--directory", directory],
                             check=True, stdout=subprocess.PIPE, text=True, env={**os.environ, **RANKS})
        shutil.rmtree(directory)
        return float(re.search(r"^(\S+) ms for each checkpoint$", run.stdout, re.MULTILINE)[1])

    def applications(self):
        for name, size in (("stencil", 200), ("particles", 12)):
            for ranks in (1, 2):
                try:
                    command, kinds = self.application(name, ranks)
                except CannotBuild as error:
                    self.figures.skip(f"{name} with {ranks} ranks", error)
                    continue
                options = ["--size", str(size), "--steps", "20", "--every", "4"]
                times = {kind: [] for kind in kinds}
                for number in range(self.options.rounds + 1):
                    for kind in random.Random(number).sample(kinds, len(kinds)):
                        spent = self.run_application(command, kind, options)
                        if number > 0:
                            times[kind].append(spent)
                self.figures.show(f"a checkpoint of {name}, size {size}, ranks: {ranks}", times)

    # --- the program of pMEMCPY's talk ---

    def talk(self):
        with open(f"{ROOT}/tests/cli/objects_pmemcpy_talk.cpp", encoding="utf-8") as file:
            lines = [line for line in file.read().splitlines() if line.strip() and not line.startswith("//")]
        tokens = re.findall(r'(?<=include )<.*>|"[^"]*"|\w+|::|[^\w\s]', "\n".join(lines))
        print("\nthe program of pMEMCPY's talk, which compiles unchanged")
        self.figures.goal("lines", len(lines), 16, at_least=False)
        self.figures.goal("tokens", len(tokens), 132, at_least=False)
