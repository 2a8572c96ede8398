#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""The figures of efs as ratios to a yardstick in the same run, alternating, median of the rounds.

micro: I/O and metadata through the mount (passthrough, and the daemon's path) against three
       yardsticks: a tmpfs with the options of the store behind it (huge pages), a tmpfs with the
       defaults, and a server that does nothing but hand the same store-like tmpfs to the kernel
       (efs-bench-passthrough): no FUSE server can do more. efs-bench-io alternates between all of
       them within one process; fio, one process per figure, is the independent check.
macro: stage-in and stage-out against cp and sync -f between the same places.
many:  the part of macro with many files, alone. For these also what the bare system calls reach on
       all CPUs (efs-bench-files): with files, nothing can do more.
small-files: the same with 100,000 files of 4 KiB (EFS_BENCH_FILES), against cp -a.
latency: the same with a millisecond (EFS_SLOW_US) added to every call on the PFS, of cp and of
       efs, and a tenth of the files; with the number of those calls.
opens: many small inputs are opened, read and closed through the mount, for the first time and
       again, against efs-bench-passthrough.
walks: du, ls -lR and find of many small inputs, for the first time and again, against a tmpfs.
workloads: tar, cp, rm, grep, find, ls, du, git, sqlite, python, make and dbench, against a tmpfs
       and an ext4 in a loop image, with the goals, the requests that reached the daemon for each
       file or transaction, and the data path.
names: single operations on names, likewise, by efs-bench-meta, and the bound of each: what a server
       reaches that does nothing but answer (efs-bench-names).
clients: the same of two clients, each bound to a CPU of its own, against one of them alone.
intercept: calls and programs with libefs-intercept, against a tmpfs and the mount without it.
growth: creates, opens, stats and unlinks of 10^3 to 10^5 files (--most for more), against a tmpfs.
builds: I/O, names and staging, against another build of efs (--old).
buffer: contents on access against staging before the start, stops of drained jobs, and a reader
       beside files that move between backends, each with its goal.
contained: fio with its engines psync, mmap and libpmem on the mount and on memory, in and outside a
       container of bubblewrap.

Needs root. The exit status is 1 if a workload failed, and 0 whether a goal is met or missed.
"""
import argparse
import contextlib
import os
import shutil
import signal
import sys
import tempfile

sys.dont_write_bytecode = True  # the source may be read-only

import buffer  # noqa: E402
import builds  # noqa: E402
import clients  # noqa: E402
import common  # noqa: E402
import contained  # noqa: E402
import growth  # noqa: E402
import intercept  # noqa: E402
import mount_io  # noqa: E402
import names  # noqa: E402
import staging  # noqa: E402
import workloads  # noqa: E402

# In the order in which they run.
PARTS = {**mount_io.PARTS, **staging.PARTS, **workloads.PARTS, **names.PARTS, **clients.PARTS,
         **growth.PARTS, **intercept.PARTS, **builds.PARTS, **buffer.PARTS,
         **contained.PARTS}


def arguments():
    parser = argparse.ArgumentParser(
        usage="bench.py [OPTION...] [BUILD_DIR [ROUNDS [PART...]]]", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build", nargs="?", default="build", metavar="BUILD_DIR")
    parser.add_argument("rounds", nargs="?", default=5, type=int, metavar="ROUNDS")
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: micro macro")
    parser.add_argument("-o", dest="modes", action="append", metavar="OPTIONS",
                        help="of workloads, names and growth: mount options, and keys of the job"
                        " file, such as -o 'daemon-io,xattr: off'; several -o give several mounts"
                        " in the same run")
    parser.add_argument("--files", type=int, default=5000, metavar="N",
                        help="size of workloads, names and clients, default 5000")
    parser.add_argument("--bound", action="store_true",
                        help="of names: the client is bound to one CPU, as batch systems bind tasks")
    parser.add_argument("--busy", action="store_true",
                        help="of names: another program keeps each CPU busy meanwhile")
    parser.add_argument("--only", action="append", choices=workloads.NAMES, metavar="WORKLOAD",
                        help="of workloads: one of " + ", ".join(workloads.NAMES))
    parser.add_argument("--layout", action="append", choices=growth.LAYOUTS,
                        help="of growth: one of flat, nested; default both")
    parser.add_argument("--most", type=int, default=100_000, metavar="N",
                        help="of growth: the most files, default 100000")
    parser.add_argument("--old", metavar="BUILD_DIR", type=os.path.abspath,
                        help="of builds: the build to compare with")
    found = parser.parse_intermixed_args()
    found.build = os.path.abspath(found.build)
    found.parts = found.parts or ["micro", "macro"]
    for part in found.parts:
        if part not in PARTS:
            parser.error(f"no part {part}; parts are {', '.join(PARTS)}")
    if found.rounds < 1 or found.files < 1 or found.most < 1:
        parser.error("numbers must be at least 1")
    return found


def stop(number, _):
    """Ends the run, so that `finally` is carried out. A second signal does not interrupt that."""
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, signal.SIG_IGN)
    sys.exit(128 + number)


def run_parts(bench):
    chosen = [part for part in PARTS if part in bench.arguments.parts]
    print(f"kernel {os.uname().release}, {os.cpu_count()} CPUs;"
          " left: efs, right: yardstick; medians")
    staged = False
    for part in chosen:
        if part in staging.PARTS and not staged:
            staged = True
            print("\n-- staging, whole commands (efs start, efs stop),"
                  " against cp and sync -f between the same places")
        try:
            PARTS[part](bench)
        except common.Failed as problem:
            bench.failed(part, problem)


def main():
    found = arguments()
    for one in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(one, stop)
    with contextlib.ExitStack() as stack:
        scratch = tempfile.mkdtemp(prefix="efs-bench-")
        stack.callback(shutil.rmtree, scratch)
        os.environ["EFS_RUNTIME_DIR"] = f"{scratch}/run"
        bench = common.Bench(found, scratch, f"{scratch}/tmpfs", f"{scratch}/plain")
        stack.enter_context(
            common.tmpfs(bench.store, "size=8g,huge=within_size,nosuid,nodev"))
        stack.enter_context(common.tmpfs(bench.plain, "size=1g"))
        stack.callback(common.stop_all, bench)
        run_parts(bench)
    if bench.failures:
        sys.exit(f"failed: {', '.join(bench.failures)}")


main()
