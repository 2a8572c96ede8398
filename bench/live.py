#!/usr/bin/env python3
"""What loads and unloads cost a program that reads 4 KiB at random through the mount: alone, and while one goes on after
the other, alternating, median of the rounds. Wants a machine that does nothing else. As root.

usage: live.py BUILD_DIR [ROUNDS]
"""
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading

EFS = os.path.abspath(sys.argv[1] if len(sys.argv) > 1 else "build") + "/bin/efs"
ROUNDS = int(sys.argv[2]) if len(sys.argv) > 2 else 5
SIZE = 256 << 20


def run(*command):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout


def reader(path):
    out = run("fio", "--name=r", f"--filename={path}", "--rw=randread", "--bs=4k", f"--size={SIZE}", "--ioengine=psync", "--time_based", "--runtime=2", "--output-format=json")
    return json.loads(out)["jobs"][0]["read"]["iops"]


def beside(work, path):
    """The reader while `work` is repeated; its rate, and how often the work was done meanwhile."""
    over, times = threading.Event(), [0]

    def again():
        while not over.is_set():
            work()
            times[0] += 1

    thread = threading.Thread(target=again)
    thread.start()
    rate = reader(path)
    over.set()
    thread.join()
    return rate, times[0]


def main():
    scratch = tempfile.mkdtemp(prefix="efs-live-", dir="/dev/shm")
    root, mount, results = f"{scratch}/pfs", f"{scratch}/mnt", f"{scratch}/res"
    os.environ["EFS_RUNTIME_DIR"] = f"{scratch}/run"
    os.makedirs(root)
    with open(f"{scratch}/live.yaml", "w") as out:
        out.write(f"global-settings: [ name: live, root-dir: {root}, mount-dir: {mount}, results-dir: {results} ]\nbackends: [ [ id: mem, type: DRAM, capacity: 2 GiB ] ]\n")
    with open(f"{root}/in", "wb") as file:
        file.write(os.urandom(1 << 20) * (SIZE >> 20))
    run(EFS, "start", f"{scratch}/live.yaml")
    try:
        shutil.copyfile(f"{root}/in", f"{mount}/read")

        def load():
            os.utime(f"{root}/in")  # another version: it is copied again
            run(EFS, "load", "-i", "live", "--wait", "--replace", "in")

        def unload():
            os.utime(f"{mount}/out") if os.path.exists(f"{mount}/out") else shutil.copyfile(f"{root}/in", f"{mount}/out")
            run(EFS, "unload", "-i", "live", "--wait", "out")

        reader(f"{mount}/read")
        for name, work in (("load of 256 MiB", load), ("unload of 256 MiB", unload)):
            ratios, alone, busy, count = [], [], [], 0
            for _ in range(ROUNDS):
                alone.append(reader(f"{mount}/read"))
                rate, times = beside(work, f"{mount}/read")
                busy.append(rate)
                count += times
                ratios.append(rate / alone[-1])
            print(f"4 KiB reads beside {name:20} {statistics.median(busy):10.0f} {statistics.median(alone):10.0f} 1/s  ratio {statistics.median(ratios):.3f} ({min(ratios):.3f}-{max(ratios):.3f}), done {count} times", flush=True)
    finally:
        run(EFS, "stop", "--no-stage-out", "live")
        shutil.rmtree(scratch)


main()
