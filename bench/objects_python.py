# SPDX-License-Identifier: BSD-3-Clause
"""The part of objects.py that measures the Python package efs against plain files, NumPy, HDF5 and
netCDF-4. A peer that Python cannot import is skipped."""
import importlib
import os
import pickle
import random
import shutil
import sys
import tempfile
import time

import numpy as np

import efs
from efs import _library


class Bench:
    def __init__(self, arguments, figures):
        self.show, self.goal, self.skip = figures.show, figures.goal, figures.skip
        self.rounds = arguments.rounds
        self.folder = tempfile.mkdtemp(prefix="efs-bench-", dir=arguments.directory)
        self.store = efs.Store(os.path.join(self.folder, "store"))
        self.data = np.arange(arguments.size << 17, dtype="f8")
        self.arrays = {f"a{i}": np.full(512, float(i)) for i in range(arguments.arrays)}
        self.h5py, self.netcdf = self.peer("h5py"), self.peer("netCDF4")

    def peer(self, name):
        try:
            return importlib.import_module(name)
        except ImportError as error:
            self.skip(name, error)
            return None

    def path(self, name):
        return os.path.join(self.folder, name)

    def measure(self, contenders, repeat=1):
        """The milliseconds of each contender. They alternate, in another order in each round.
        The first round is a rehearsal: memory that is new to a virtual machine costs much more."""
        times = {name: [] for name in contenders}
        order = list(contenders.items())
        for number in range(self.rounds + 1):
            random.Random(number).shuffle(order)
            for name, (prepare, run) in order:
                prepare()
                begin = time.perf_counter()
                for _ in range(repeat):
                    run()
                if number > 0:
                    times[name].append((time.perf_counter() - begin) * 1000 / repeat)
        return times

    def fresh(self):
        """Removes what the contender before has written: its memory is used again."""
        for name in os.listdir(self.folder):
            if name != "store":
                os.unlink(self.path(name))
        self.store.clear()

    # --- one large array ---

    def plain_write(self):
        fd = os.open(self.path("plain.part"), os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o666)
        os.ftruncate(fd, self.data.nbytes)
        view, at = memoryview(self.data).cast("B"), 0
        while at < len(view):
            at += os.pwrite(fd, view[at : at + (1 << 30)], at)
        os.close(fd)
        os.rename(self.path("plain.part"), self.path("plain"))

    def h5_write(self):
        with self.h5py.File(self.path("a.h5"), "w") as file:
            file.create_dataset("a", data=self.data)

    def netcdf_write(self):
        with self.netcdf.Dataset(self.path("a.nc"), "w") as file:
            file.createDimension("n", len(self.data))
            file.createVariable("a", "f8", ("n",))[:] = self.data

    def writers(self):
        yield "plain write", self.plain_write
        yield "efs store", lambda: self.store.store("a", self.data)
        yield "np.save", lambda: np.save(self.path("a.npy"), self.data)
        if self.h5py:
            yield "h5py", self.h5_write
        if self.netcdf:
            yield "netCDF4", self.netcdf_write

    def large_writes(self):
        times = self.measure({name: (self.fresh, run) for name, run in self.writers()})
        found = self.show("store one array", times)
        self.goal("efs store, of a plain write", found["plain write"] / found["efs store"], 0.95)
        self.goal("efs store, of np.save", found["np.save"] / found["efs store"], 1.1)

    def h5_sum(self):
        with self.h5py.File(self.path("a.h5"), "r") as file:
            return file["a"][:].sum()

    def netcdf_sum(self):
        with self.netcdf.Dataset(self.path("a.nc"), "r") as file:
            file.set_auto_mask(False)
            return file["a"][:].sum()

    def large_reads(self):
        def nothing():
            pass

        self.fresh()
        for _, write in self.writers():
            write()
        readers = {
            "efs view": lambda: self.store["a"],
            "efs view and sum": lambda: self.store["a"].sum(),
            "efs load and sum": lambda: self.store.load("a").sum(),
            "np.load and sum": lambda: np.load(self.path("a.npy")).sum(),
            "np.load by mmap and sum": lambda: np.load(self.path("a.npy"), mmap_mode="r").sum(),
        }
        if self.h5py:
            readers["h5py and sum"] = self.h5_sum
        if self.netcdf:
            readers["netCDF4 and sum"] = self.netcdf_sum
        times = self.measure({name: (nothing, run) for name, run in readers.items()})
        found = self.show("read one array", times)
        self.goal("milliseconds of a view", found["efs view"], 1, at_least=False)
        for name in ("h5py and sum", "netCDF4 and sum"):
            if name in found:
                ratio = found[name] / found["efs view and sum"]
                self.goal(f"view and sum, of {name}", ratio, 2.5)

    # --- many small arrays ---

    def bundle_write(self):
        with self.store.bundle("many") as bundle:
            for name, array in self.arrays.items():
                bundle[name] = array

    def bundle_read(self):
        with self.store.open_bundle("many") as bundle:
            return sum(array[1] for array in bundle.arrays().values())

    def bundle_read_by_name(self):
        with self.store.open_bundle("many") as bundle:
            return sum(bundle[name][1] for name in self.arrays)

    def h5_write_many(self):
        with self.h5py.File(self.path("many.h5"), "w") as file:
            for name, array in self.arrays.items():
                file.create_dataset(name, data=array)

    def h5_read_many(self):
        with self.h5py.File(self.path("many.h5"), "r") as file:
            return sum(file[name][:][1] for name in self.arrays)

    def savez_read(self):
        with np.load(self.path("many.npz")) as file:
            return sum(file[name][1] for name in self.arrays)

    def bundles(self):
        writers = {"np.savez": lambda: np.savez(self.path("many.npz"), **self.arrays)}
        readers = {"np.load": self.savez_read}
        if self.h5py:
            writers["h5py"], readers["h5py"] = self.h5_write_many, self.h5_read_many
        if _library.has("eo_begin_bundle"):
            writers["efs bundle"], readers["efs bundle"] = self.bundle_write, self.bundle_read
            readers["efs bundle, one by one"] = self.bundle_read_by_name
        else:
            self.skip("bundles", "the library has no eo_begin_bundle")
        for title, contenders, goal in (("write", writers, 3.5), ("read", readers, 20)):
            times = self.measure({name: (lambda: None, run) for name, run in contenders.items()})
            found = self.show(f"{title} {len(self.arrays)} arrays of 4 KiB", times)
            if "efs bundle" in found and "h5py" in found:
                self.goal(f"bundle {title}, of h5py", found["h5py"] / found["efs bundle"], goal)

    # --- one small array, and an object ---

    def small(self):
        array = np.arange(128.0)
        self.store["small"] = array
        np.save(self.path("small.npy"), array)
        runs = {
            "efs view": lambda: self.store["small"],
            "np.load": lambda: np.load(self.path("small.npy")),
            "np.load by mmap": lambda: np.load(self.path("small.npy"), mmap_mode="r"),
            "efs store": lambda: self.store.store("small", array),
            "np.save": lambda: np.save(self.path("small.npy"), array),
        }
        times = self.measure({name: (lambda: None, run) for name, run in runs.items()}, 1000)
        found = self.show("one array of 1 KiB", times)
        self.goal("efs view, of np.load", found["efs view"] / found["np.load"], 1.5, at_least=False)

    def pickle_write(self, value):
        with open(self.path("object.pickle"), "wb") as file:
            pickle.dump(value, file, 4)

    def pickle_read(self):
        with open(self.path("object.pickle"), "rb") as file:
            return pickle.load(file)

    def objects(self):
        value = {"parts": np.array_split(self.data, 16), "name": "model"}
        writers = {
            "efs dump": lambda: self.store.dump("object", value),
            "pickle, protocol 4": lambda: self.pickle_write(value),
        }
        readers = {
            "efs load_object": lambda: self.store.load_object("object"),
            "pickle": self.pickle_read,
        }

        def remove():
            for path in (self.path("object.pickle"), self.path("store/object.pkl.npz")):
                if os.path.exists(path):
                    os.unlink(path)

        times = self.measure({name: (remove, run) for name, run in writers.items()})
        self.show("dump an object with the array", times)
        for write in writers.values():
            write()
        times = self.measure({name: (lambda: None, run) for name, run in readers.items()})
        self.show("load the object and read nothing", times)

    def run(self):
        print(f"{self.data.nbytes >> 20} MiB in {self.folder}, {self.rounds} rounds, "
              f"Python {sys.version.split()[0]}, NumPy {np.__version__}, {os.cpu_count()} CPUs")
        try:
            self.large_writes()
            self.large_reads()
            self.fresh()
            self.bundles()
            self.small()
            self.fresh()
            self.objects()
        finally:
            shutil.rmtree(self.folder)
