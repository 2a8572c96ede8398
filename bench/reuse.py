#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""What the cache of inputs saves: the stage-in of 2 GiB by a first job, and by the next one that finds them in the cache,
alternating, median of the rounds. The PFS is a directory on the disk, its file in the page cache, which is faster than
any PFS: the least that the cache saves. As root.

usage: reuse.py BUILD_DIR [ROUNDS]

in place: the cache is on the file system of the store.   copied: the store is a tmpfs of the instance's own (DRAM).
"""
import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time

if "-h" in sys.argv or "--help" in sys.argv:
    sys.exit(print(__doc__))
EFS = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build") + "/bin/efs"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 3
SIZE = 2 << 30


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


class Job:
    def __init__(self, scratch, name, backend):
        self.name, self.file, self.run = name, f"{scratch}/{name}.yaml", f"{scratch}/run/{name}"
        self.cache = f"{scratch}/memory"
        with open(self.file, "w") as out:
            out.write(f"global-settings: {{root-dir: {scratch}/pfs, mount-dir: {scratch}/{name}, results-dir: {scratch}/results, cache: {self.cache}, cache-capacity: 4 GiB}}\n"
                      f"backends: [ {{id: b, {backend}}} ]\nresources: [ {{path: data, reusable: true}} ]\n")

    def once(self):
        """Seconds of the stage-in, of the whole `efs start`, and bytes that it read from the PFS."""
        begin = time.monotonic()
        run(EFS, "start", self.file)
        whole = time.monotonic() - begin
        read = json.loads(run(EFS, "status", "--json", self.name))["staged_in"]["bytes_read"]
        with open(f"{self.run}/efsd.log") as log:
            staged = max(0.001, float(re.search(r"event=staged_in .* seconds=([0-9.]+)", log.read()).group(1)))  # as fine as the log is
        run(EFS, "stop", self.name)
        return staged, whole, read

    def compare(self, what):
        first, second = [], []
        for _ in range(ROUNDS):
            run(EFS, "cache", "clean", "--all", "--cache", self.cache)
            first.append(self.once())
            second.append(self.once())
        for i, figure in enumerate(("stage-in", "efs start")):
            ratios = sorted(a[i] / b[i] for a, b in zip(first, second))
            print(f"{what:9} {figure:10} first {statistics.median(a[i] for a in first):8.3f} s, second {statistics.median(b[i] for b in second):8.4f} s  ratio {statistics.median(ratios):8.1f} ({ratios[0]:.1f}-{ratios[-1]:.1f})")
        print(f"{what:9} bytes read  first {first[0][2]}, second {max(b[2] for b in second)}", flush=True)


def main():
    scratch = tempfile.mkdtemp(prefix="efs-reuse-")
    os.environ["EFS_RUNTIME_DIR"] = f"{scratch}/run"
    memory = f"{scratch}/memory"
    for name in ("pfs", "results", "memory"):
        os.mkdir(f"{scratch}/{name}")
    run("mount", "-t", "tmpfs", "-o", "size=6g,huge=within_size,mode=1777", "reuse", memory)
    try:
        with open(f"{scratch}/pfs/data", "wb") as out:
            for _ in range(SIZE >> 24):
                out.write(os.urandom(1 << 24))
            os.fsync(out.fileno())
        time.sleep(2.1)  # the cache does not take what has just changed
        os.mkdir(f"{memory}/store")
        place = Job(scratch, "place", f"type: NVRAM-NVML, daxfs: {memory}/store, capacity: all")
        place.once()  # which makes the cache, and reads the file into the page cache
        place.compare("in place")
        Job(scratch, "copy", "type: DRAM, capacity: 3 GiB").compare("copied")
    finally:
        for instance in json.loads(subprocess.run([EFS, "status", "--json"], stdout=subprocess.PIPE, text=True).stdout or "[]"):
            if instance["name"] in ("place", "copy"):
                subprocess.run([EFS, "stop", "--no-stage-out", instance["name"]])
        run("umount", memory)
        shutil.rmtree(scratch)


main()
