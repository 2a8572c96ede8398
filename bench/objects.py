#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Measures libefs-objects and its Python package, each figure beside its goal.

usage: objects.py DIRECTORY [--build DIR] [--size MIB] [--arrays N] [--rounds N] [--parts PART,...]

DIRECTORY is on a mount of efs or on a tmpfs; it needs six times the size (1 GiB of doubles). The
contenders alternate in one run; a figure is the median of the rounds. The parts:

    python        the package efs against plain files, NumPy, h5py and netCDF4
    peers         the library against plain files, MPI-IO, PnetCDF, HDF5, NetCDF-4 and ADIOS2 in C,
                  with 1 and 2 ranks; compiles them by mpicc
    checkpoints   the strategies of eo_checkpoint, with a store at a quarter of the rate of DRAM
    applications  the programs of examples/ with each kind of checkpoint
    talk          the length of the program of pMEMCPY's talk

A peer that is not installed is listed as skipped. To have all (Debian 12; MPI is Open MPI):

    apt-get install libopenmpi-dev libpnetcdf-dev libhdf5-openmpi-dev libnetcdf-mpi-dev libpmem-dev
    python3 -m venv venv && venv/bin/pip install numpy h5py netCDF4 adios2
    venv/bin/python bench/objects.py /dev/shm
"""
import argparse
import os
import sys

from figures import Figures
from objects_native import ROOT, Native

PARTS = ("python", "peers", "checkpoints", "applications", "talk")


def options():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("directory")
    parser.add_argument("--build", default=os.path.join(ROOT, "build"), metavar="DIR")
    parser.add_argument("--size", type=int, default=1024, metavar="MIB", help="of the large array")
    parser.add_argument("--arrays", type=int, default=10000, metavar="N", help="of 4 KiB")
    parser.add_argument("--rounds", type=int, default=3, metavar="N")
    parser.add_argument("--parts", default=",".join(PARTS), metavar="PART,...")
    arguments = parser.parse_args()
    arguments.build = os.path.abspath(arguments.build)
    arguments.parts = arguments.parts.split(",")
    unknown = set(arguments.parts) - set(PARTS)
    if unknown:
        parser.error(f"no part {', '.join(unknown)}: the parts are {', '.join(PARTS)}")
    return arguments


def measure_python(arguments, figures):
    library = os.path.join(arguments.build, "lib/libefs-objects.so.1")
    os.environ.setdefault("EFS_OBJECTS_LIBRARY", library)
    sys.path.insert(0, os.path.join(ROOT, "python"))
    try:
        from objects_python import Bench
    except ImportError as error:
        figures.skip("the Python package", error)
        return
    Bench(arguments, figures).run()


def main():
    arguments, figures = options(), Figures()
    sys.stdout.reconfigure(line_buffering=True)
    if "python" in arguments.parts:
        measure_python(arguments, figures)
    native = Native(arguments, figures)
    try:
        for part in PARTS[1:]:
            if part in arguments.parts:
                getattr(native, part)()
    finally:
        native.close()
    print(f"\n{figures.met} goals met, {figures.missed} missed")


main()
