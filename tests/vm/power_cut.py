#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Cuts the power of a machine with persistent memory while a job writes, and looks what is left.

usage: power_cut.py IMAGES BIN_DIR [CUTS [SEED]]       IMAGES: as build.sh made them

A guest of QEMU has a store on ext4 with DAX on an emulated NVDIMM. At random moments it is stopped, its NVDIMM is copied, and it goes on: each
copy is what a cut of the power would have left. Each is then booted: check-image, salvage, start and stop there must
bring out what some operation of the program has left, none of those lost whose word had come out.
QEMU keeps all that a processor has stored: a flush that is missing is not found here, but by the crash enumeration (tests/crash).
"""
import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import time

GUEST = os.path.join(os.path.dirname(os.path.abspath(__file__)), "guest")
BOOT, LOOK = 600, 900  # seconds that a guest may take until the program writes, and to look; it is emulated, beside others
NAMES = ["inputs", "check-image", "salvage", "salvaged", "start", "resumed", "stop", "out", "gone"]


def job_disk(scratch, bin_dir, script, texts=()):
    directory, image = tempfile.mkdtemp(dir=scratch), f"{scratch}/{script}.img"
    for program in ("efs", "efsd"):
        shutil.copy(f"{bin_dir}/{program}", directory)
    shutil.copy(f"{GUEST}/operations.py", directory)
    shutil.copy(f"{GUEST}/{script}", f"{directory}/job.sh")
    for name, text in texts:
        with open(f"{directory}/{name}", "w") as out:
            out.write(text)
    if os.path.exists(image):
        os.unlink(image)
    subprocess.run(["mke2fs", "-q", "-t", "ext4", "-d", directory, image, "256M"], check=True, stderr=subprocess.DEVNULL)
    shutil.rmtree(directory)
    return image


def boot(images, job, nvdimm, console, *more):
    return subprocess.Popen([
        "qemu-system-x86_64", "-accel", "tcg,thread=multi,tb-size=512", "-machine", "q35,nvdimm=on,nvdimm-persistence=mem-ctrl", "-cpu", "max", "-smp", "2",
        "-m", "2G,slots=3,maxmem=8G", "-display", "none", "-monitor", "none", "-nodefaults", "-no-reboot",
        "-object", f"memory-backend-file,id=mem1,share=on,mem-path={nvdimm},size=1G,align=2M", "-device", "nvdimm,id=nv1,memdev=mem1",
        "-drive", f"file={images}/root.img,format=raw,if=none,id=root,snapshot=on", "-device", "virtio-blk-pci,drive=root",
        "-drive", f"file={job},format=raw,if=none,id=job,snapshot=on", "-device", "virtio-blk-pci,drive=job", "-serial", f"file:{console}",
        "-kernel", f"{images}/vmlinuz", "-initrd", f"{images}/initrd.img",
        "-append", "console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable random.trust_cpu=on", *more])


def lines(console, word):
    """Whole lines that begin with `word`, without it."""
    if not os.path.exists(console):
        return []
    with open(console, errors="replace") as text:
        return [line[len(word):].strip() for line in text.read().split("\n")[:-1] if line.startswith(word)]


class Monitor:
    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(path)
        self.file = self.socket.makefile("rw")
        self.file.readline()
        self.ask("qmp_capabilities")

    def ask(self, command):
        self.file.write(json.dumps({"execute": command}) + "\n")
        self.file.flush()
        while "return" not in json.loads(self.file.readline()):
            pass


class Count:
    passed = failed = 0

    def check(self, name, good, why=""):
        if good:
            self.passed += 1
        else:
            self.failed += 1
            print(f"FAIL {name}\n     {why}", flush=True)


def wait_for_work(machine, console):
    deadline = time.monotonic() + BOOT
    while machine.poll() is None and time.monotonic() < deadline:
        if lines(console, "ACK "):
            return True
        time.sleep(0.2)
    return False


def check_doctor(console, count):
    """Before the namespace was made: raw. After it: fsdax with real DAX."""
    said = [json.loads(line) for line in lines(console, "DOCTOR ")]
    found = [[(one["mode"], mount["durability"]) for region in document["pmem"]["regions"] for one in region["namespaces"]
              for mount in one["mounts"] or [{"durability": None}]] for document in said]
    count.check("efs doctor --pmem shows the namespace and its mount", found == [[("raw", None)], [("fsdax", "persistent memory")]], json.dumps(said))
    advice = [[check.get("advice", "") for check in document["checks"] if check["what"] == "namespace0.0"] for document in said]
    count.check("and the next step", len(advice) == 2 and "--reconfig=namespace0.0 --mode=fsdax" in advice[0][0] and "daxfs" in advice[1][0], str(advice))


def cut(images, scratch, bin_dir, cuts, draw, count):
    """[(copy of the NVDIMM, operations that were durable)]"""
    nvdimm, console, monitor = f"{scratch}/nvdimm", f"{scratch}/console", f"{scratch}/monitor"
    with open(nvdimm, "wb") as file:
        file.truncate(1 << 30)
    machine = boot(images, job_disk(scratch, bin_dir, "work.sh"), nvdimm, console, "-qmp", f"unix:{monitor},server=on,wait=off")
    left = []
    try:
        working = wait_for_work(machine, console)
        count.check("the job works", working, "\n".join(lines(console, ""))[-2000:])
        if not working:
            return left
        status = json.loads((lines(console, "STATUS ") or ["{}"])[0])
        count.check("in persistent memory", status.get("durability") == "persistent memory", str(status))
        check_doctor(console, count)
        talk = Monitor(monitor)
        for number in range(cuts):
            time.sleep(draw.uniform(0.2, 3))  # the moment is what is drawn
            talk.ask("stop")
            durable = int((lines(console, "ACK ") or ["0"])[-1])
            copy = f"{scratch}/cut{number}"
            subprocess.run(["cp", "--sparse=always", nvdimm, copy], check=True)
            talk.ask("cont")
            left.append((copy, durable))
    finally:
        machine.kill()
        machine.wait()
        os.unlink(nvdimm)
    return left


def look(images, scratch, bin_dir, copy, durable, count):
    console = f"{copy}.console"
    machine = boot(images, job_disk(scratch, bin_dir, "look.sh", [("durable", f"{durable}\n")]), copy, console)
    try:
        machine.wait(LOOK)
    except subprocess.TimeoutExpired:
        machine.kill()
        machine.wait()
    results = dict(line.rsplit(" ", 1) for line in lines(console, "RESULT "))
    said = "\n     ".join(line for line in lines(console, "") if not line.startswith("["))
    for name in NAMES:
        count.check(f"{os.path.basename(copy)}, {durable} operations durable: {name}", results.get(name) == "0", said)
    os.unlink(copy)


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    images, bin_dir = (os.path.abspath(path) for path in sys.argv[1:3])
    cuts, seed = int((sys.argv[3:4] or ["6"])[0]), int((sys.argv[4:5] or [str(random.randrange(32768))])[0])
    print(f"seed {seed}, {cuts} cuts", flush=True)
    count, scratch = Count(), tempfile.mkdtemp(prefix="efs-vm-")
    try:
        for copy, durable in cut(images, scratch, bin_dir, cuts, random.Random(seed), count):
            look(images, scratch, bin_dir, copy, durable, count)
    finally:
        shutil.rmtree(scratch)
    print(f"{count.passed} passed, {count.failed} failed, 0 skipped")
    sys.exit(count.failed > 0)


main()
