#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Three one-node jobs and a shared file server: when is the last output complete?

usage: interleaving.py BUILD_DIR [--rate MBIT] [--mib N] [--compute S] [--rounds N] [--iterations N] [--svg FILE] [--pfs DIR] [--contention PCT]

(a) direct         the jobs read from and write to the PFS
(b) uncoordinated  each job has an efs, all stage at the same time
(c) interleaved    the same, in turns (--interleaving)
(d) kept           with --iterations N: each job runs N times on one buffer that stays on the node (efs stop --keep) and
                   brings its results out after the last; against N times (a)

The PFS is a GlusterFS (package glusterfs-server) behind a link of MBIT per second and direction, in namespaces of network,
mounts and processes of its own: nothing of it is left. --pfs DIR takes a directory instead, as it is. A fair link has a
price for nobody's concurrency; disks that seek do: --contention PCT takes PCT per cent of the rate away for each further
transfer at a time. Needs root.
"""
import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time

ADDRESS, OUTSIDE = "10.99.0.1", "10.99.0.2"
JOBS = 3
COLOURS = {"wait": "#cccccc", "in": "#4e79a7", "compute": "#59a14f", "out": "#e15759"}


def options():
    parser = argparse.ArgumentParser(usage=__doc__.split("\n\n")[1][7:])
    parser.add_argument("build")
    parser.add_argument("--rate", type=int, default=400)
    parser.add_argument("--mib", type=int, default=512)
    parser.add_argument("--compute", type=float, default=1)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--iterations", type=int, default=0)
    parser.add_argument("--contention", type=int, default=0)
    parser.add_argument("--svg")
    parser.add_argument("--pfs")
    return parser.parse_args()


def run(*words, **more):
    return subprocess.run(words, check=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **more).stdout


def await_true(seconds, what, condition):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            sys.exit(f"FAIL {what}")
        time.sleep(0.05)


# --- the file server ---
def shape(link, rate, netns=()):
    run(*netns, "tc", "qdisc", "replace", "dev", link, "root", "tbf", "rate", f"{rate}mbit", "burst", "256kb", "latency", "10ms")


class Pfs:
    """In namespaces of our own (see main): what is mounted and started here goes with us."""

    def __init__(self, scratch, rate):
        self.rate = rate
        for directory in ("/run", "/var/lib/glusterd", "/var/log/glusterfs"):
            os.makedirs(directory, exist_ok=True)
            run("mount", "-t", "tmpfs", "none", directory)
        os.makedirs("/run/gluster", exist_ok=True)
        os.makedirs("/var/lib/glusterd/groups", exist_ok=True)
        server = subprocess.Popen(["unshare", "--net", "sleep", "infinity"])
        await_true(5, "a network for the server", lambda: os.readlink(f"/proc/{server.pid}/ns/net") != os.readlink("/proc/self/ns/net"))
        self.inside = ("nsenter", f"--net=/proc/{server.pid}/ns/net")
        run("ip", "link", "set", "lo", "up")
        run("ip", "link", "add", "vpfs0", "type", "veth", "peer", "name", "vpfs1")
        run("ip", "link", "set", "vpfs1", "netns", str(server.pid))
        run("ip", "addr", "add", f"{OUTSIDE}/24", "dev", "vpfs0")
        run("ip", "link", "set", "vpfs0", "up")
        for words in (f"addr add {ADDRESS}/24 dev vpfs1", "link set vpfs1 up", "link set lo up"):
            run(*self.inside, "ip", *words.split())
        self.start_server(scratch)
        # Each node has its own mount, and so its own connection: on a shared connection, reads
        # would wait behind the writes of other nodes.
        self.mounts = [f"{scratch}/node{number}" for number in range(JOBS)]
        for mount in self.mounts:
            os.mkdir(mount)
            run("mount", "-t", "glusterfs", f"{ADDRESS}:/pfs", mount)
        self.set_streams(1, 0)

    def start_server(self, scratch):
        volume = f"{scratch}/glusterd.vol"
        with open(volume, "w") as file:
            file.write("volume management\n type mgmt/glusterd\n option working-directory /var/lib/glusterd\n option transport-type socket\n"
                       f" option transport.socket.bind-address {ADDRESS}\n option transport.socket.listen-port 24007\n option ping-timeout 0\n"
                       " option event-threads 1\n option base-port 49152\n option max-port 60999\nend-volume\n")
        run(*self.inside, "glusterd", "-f", volume, "-l", f"{scratch}/glusterd.log", f"--pid-file={scratch}/glusterd.pid")
        os.mkdir(f"{scratch}/brick")
        run("mount", "-t", "tmpfs", "brick", f"{scratch}/brick")
        await_true(20, "glusterd answers", lambda: self.gluster("pool", "list"))
        if not self.gluster("volume", "create", "pfs", "transport", "tcp", f"{ADDRESS}:{scratch}/brick/b", "force") or not self.gluster("volume", "start", "pfs"):
            sys.exit("FAIL the volume: " + open(f"{scratch}/glusterd.log").read()[-2000:])

    def gluster(self, *words):
        return subprocess.run([*self.inside, "gluster", "--mode=script", *words], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL).returncode == 0

    def set_streams(self, streams, contention):
        """The rate that `streams` transfers at a time get together."""
        rate = max(1, int(self.rate * max(0.1, 1 - contention / 100 * max(0, streams - 1))))
        shape("vpfs0", rate)
        shape("vpfs1", rate, self.inside)


# --- the jobs ---
PROGRAM = """
import os, sys, time
source, target, compute, mib, marks = sys.argv[1], sys.argv[2], float(sys.argv[3]), int(sys.argv[4]), sys.argv[5]
def mark(what):
    with open(marks, "a") as file: file.write("%s %f\\n" % (what, time.time()))
mark("begin")
for name in sorted(os.listdir(source)):
    with open(os.path.join(source, name), "rb") as file:
        while file.read(1 << 20): pass
mark("read")
time.sleep(compute)
mark("computed")
block = os.urandom(1 << 20)
for i in range(4):
    with open(os.path.join(target, "result.%d" % i), "wb") as file:
        for _ in range(mib // 4): file.write(block)
        file.flush(); os.fsync(file.fileno())
mark("written")
"""


class Job:
    def __init__(self, scratch, pfs, number, args):
        self.where, self.number, self.args = f"{scratch}/job{number}", number, args
        self.source, self.results, self.marks = f"{pfs}/in{number}", f"{pfs}/out{number}", f"{self.where}/marks"
        os.makedirs(self.where, exist_ok=True)
        os.makedirs(f"{self.source}/input", exist_ok=True)
        for i in range(4):
            with open(f"{self.source}/input/{i}", "wb") as file:
                for _ in range(args.mib // 4):
                    file.write(os.urandom(1 << 20))

    def prepare(self):
        shutil.rmtree(self.results, ignore_errors=True)
        os.mkdir(self.results)
        for name in ("marks", "efsd.log"):
            if os.path.exists(f"{self.where}/{name}"):
                os.unlink(f"{self.where}/{name}")
        with open(f"{self.where}/job.yaml", "w") as file:
            file.write(f"global-settings:\n  name: job{self.number}\n  root-dir: {self.source}\n  mount-dir: {self.where}/mnt\n  results-dir: {self.results}\n"
                       f"  log-file: {self.where}/efsd.log\nbackends: [ [ id: ram, type: DRAM, capacity: {4 * self.args.mib + 64} MiB ] ]\nresources: [ [ path: input ] ]\n")
        with open(f"{self.where}/program.py", "w") as file:
            file.write(PROGRAM)

    def program(self, source, target):
        return [sys.executable, f"{self.where}/program.py", source, target, str(self.args.compute), str(self.args.mib), self.marks]

    def start(self, efs, queue):
        words = self.program(f"{self.source}/input", self.results)
        if efs:
            turn = ["--interleaving", queue] if queue else []
            words = [efs, "run", *turn, f"{self.where}/job.yaml", "--", *self.program(f"{self.where}/mnt/input", f"{self.where}/mnt")]
        self.began = time.time()
        self.process = subprocess.Popen(words, stdout=open(f"{self.where}/said", "w"), stderr=subprocess.STDOUT)
        self.watch = threading.Thread(target=self.record_end)
        self.watch.start()

    def iterate(self, efs, queue, count):
        """The runs of a chain of jobs, one after the other; on a buffer that is kept, where there is one."""
        self.failure = None
        try:
            for i in range(count):
                if not efs:
                    drop_caches()  # a real input is larger than the client's cache
                    run(*self.program(f"{self.source}/input", self.results))
                    continue
                run(efs, "start", "--interleaving", queue, f"{self.where}/job.yaml")
                run(*self.program(f"{self.where}/mnt/input", f"{self.where}/mnt"))
                run(efs, "stop", *(["--keep", "--no-stage-out"] if i + 1 < count else []), f"job{self.number}")
        except subprocess.CalledProcessError as error:
            self.failure = f"{error}: {error.stdout}"

    def record_end(self):
        self.process.wait()
        self.ended = time.time()

    def wait(self):
        self.watch.join()
        if self.process.returncode != 0:
            sys.exit(f"FAIL job {self.number}: {open(self.where + '/said').read()}")

    def transfers(self, efs):
        """Does it read from the PFS, does it write to it? (What waits for a turn would.)"""
        marks = open(self.marks).read() if os.path.exists(self.marks) else ""
        running = self.process.poll() is None
        return running and ("begin" if efs else "read") not in marks, running and ("written" if efs else "computed") in marks

    def spans(self, efs):
        """[what, from, to] in seconds since the start."""
        marks = dict(line.split() for line in open(self.marks))
        at = {what: float(when) - self.began for what, when in marks.items()}
        end = self.ended - self.began
        if not efs:
            return [["in", 0, at["read"]], ["compute", at["read"], at["computed"]], ["out", at["computed"], at["written"]]]
        return [["in", 0, at["begin"]], ["compute", at["begin"], at["written"]], ["out", at["written"], end]]


def drop_caches():
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w") as file:
        file.write("1\n")


def contend(pfs, jobs, args, stop, mode):
    """Takes the rate down while several jobs transfer at a time."""
    while not stop.wait(0.1):
        ins, outs = (sum(each) for each in zip(*(job.transfers(mode != "direct") for job in jobs)))
        if mode == "interleaved":
            ins, outs = min(ins, 1), min(outs, 1)
        pfs.set_streams(ins + outs, args.contention)


def one_round(mode, jobs, pfs, args, efs, queue):
    for job in jobs:
        job.prepare()
    drop_caches()
    began = time.time()
    for job in jobs:
        job.start(efs if mode != "direct" else None, queue if mode == "interleaved" else None)
    stop = threading.Event()
    if args.contention and pfs:
        threading.Thread(target=contend, args=(pfs, jobs, args, stop, mode), daemon=True).start()
    for job in jobs:
        job.wait()
    stop.set()
    last = max(job.ended for job in jobs) - began
    for job in jobs:
        names = os.listdir(job.results)
        if sum(name.startswith("result.") for name in names) != 4:
            sys.exit(f"FAIL job {job.number} has not brought its results back: {names}")
    return last, statistics.mean(job.ended - began for job in jobs), [job.spans(mode != "direct") for job in jobs]


def start_delay(rounds):
    """Seconds until the inputs of a job were there, the mean of the jobs."""
    return statistics.median(statistics.mean(job[0][2] for job in spans) for _, _, spans in rounds)


def chain(jobs, args, efs, queue):
    """Seconds until the last of the jobs has run `iterations` times and its results are back."""
    for job in jobs:
        job.prepare()
    drop_caches()
    began = time.time()
    threads = [threading.Thread(target=job.iterate, args=(efs, queue, args.iterations)) for job in jobs]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for job in jobs:
        if job.failure or sum(name.startswith("result.") for name in os.listdir(job.results)) != 4:
            sys.exit(f"FAIL job {job.number}, {args.iterations} times: {job.failure or 'its results are not back'}")
    return time.time() - began


# --- the plot ---
def svg(path, lines):
    longest = max(span[2] for _, jobs in lines for job in jobs for span in job)
    left, width, bar = 150, 700, 16
    parts, y = [], 20
    for title, jobs in lines:
        parts.append(f'<text x="10" y="{y + 12}" font-weight="bold">{title}</text>')
        for job in jobs:
            for what, begin, end in job:
                x, w = left + width * begin / longest, max(0.5, width * (end - begin) / longest)
                parts.append(f'<rect x="{x:.1f}" y="{y}" width="{w:.1f}" height="{bar}" fill="{COLOURS[what]}"/>')
            y += bar + 4
        y += 14
    for second in range(0, int(longest) + 1, max(1, int(longest / 10))):
        x = left + width * second / longest
        parts.append(f'<line x1="{x:.1f}" y1="14" x2="{x:.1f}" y2="{y}" stroke="#888" stroke-width="0.5" stroke-dasharray="2,3"/><text x="{x - 4:.1f}" y="{y + 14}">{second}</text>')
    names = {"in": "stage-in, its wait for a turn included (a: reading)", "compute": "the program", "out": "stage-out, its wait included (a: writing)"}
    for i, (what, name) in enumerate(names.items()):
        parts.append(f'<rect x="{left}" y="{y + 24 + 18 * i}" width="12" height="12" fill="{COLOURS[what]}"/><text x="{left + 18}" y="{y + 34 + 18 * i}">{name}</text>')
    height = y + 90
    with open(path, "w") as file:
        file.write(f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 20}" height="{height}" font-family="sans-serif" font-size="11">\n'
                   f'<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + f'\n<text x="{left + width - 60}" y="{height - 8}">seconds</text>\n</svg>\n')


def measure(args, scratch):
    pfs = None if args.pfs else Pfs(scratch, args.rate)
    paths = [tempfile.mkdtemp(dir=args.pfs)] * JOBS if args.pfs else pfs.mounts
    os.environ["EFS_RUNTIME_DIR"] = f"{scratch}/run"
    efs, queue = os.path.abspath(f"{args.build}/bin/efs"), f"{paths[0]}/queue"
    os.mkdir(queue, 0o755)
    jobs = [Job(scratch, paths[number], number, args) for number in range(JOBS)]
    results = {mode: [] for mode in ("direct", "uncoordinated", "interleaved")}
    for _ in range(args.rounds):
        for mode, rounds in results.items():
            time.sleep(1)  # the last one's daemons give their memory back
            rounds.append(one_round(mode, jobs, pfs, args, efs, queue))
    report(args, results)
    if args.iterations:
        if pfs:
            pfs.set_streams(1, 0)
        direct, kept = chain(jobs, args, None, None), chain(jobs, args, efs, queue)
        print(f"{args.iterations} iterations: direct {direct:.1f} s, (d) kept on the node {kept:.1f} s, kept / direct {kept / direct:.2f}")
    if args.pfs:
        shutil.rmtree(paths[0])


def report(args, results):
    print(f"{JOBS} jobs, {args.mib} MiB in and out each, {args.compute:g} s of computing, " + (f"PFS {args.pfs}" if args.pfs else f"link of {args.rate} Mbit/s, {args.contention} % lost per further transfer") + f", median of {args.rounds}")
    last = {mode: statistics.median(r[0] for r in rounds) for mode, rounds in results.items()}
    for letter, (mode, rounds) in zip("abc", results.items()):
        print(f"({letter}) {mode:14} last output after {last[mode]:6.1f} s, mean of the jobs {statistics.median(r[1] for r in rounds):6.1f} s; the last round: "
              + "; ".join(", ".join(f"{what} {begin:.1f}-{end:.1f}" for what, begin, end in job) for job in rounds[-1][2]))
    print(f"interleaved / direct {last['interleaved'] / last['direct']:.3f}, interleaved / uncoordinated {last['interleaved'] / last['uncoordinated']:.3f}, uncoordinated / direct {last['uncoordinated'] / last['direct']:.3f}")
    uncoordinated, interleaved = (start_delay(results[mode]) for mode in ("uncoordinated", "interleaved"))
    print(f"mean start delay: uncoordinated {uncoordinated:.1f} s, interleaved {interleaved:.1f} s, interleaved / uncoordinated {interleaved / uncoordinated:.3f}")
    if args.svg:
        svg(args.svg, [(f"({letter}) {mode}", rounds[-1][2]) for letter, (mode, rounds) in zip("abc", results.items())])
        print(f"timelines: {args.svg}")


def main():
    args = options()
    if not args.pfs and os.environ.get("EFS_BENCH_INSIDE") != "1":
        if not shutil.which("glusterd"):
            sys.exit("no glusterd here: install glusterfs-server, or name a directory with --pfs")
        os.environ["EFS_BENCH_INSIDE"] = "1"
        os.execvp("unshare", ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "--propagation", "private", sys.executable, *sys.argv])
    scratch = tempfile.mkdtemp(prefix="efs-interleaving-")
    try:
        measure(args, scratch)
    finally:
        subprocess.run(["sh", "-c", f"grep -F {scratch} /proc/self/mounts | cut -d' ' -f2 | tac | xargs -r -n1 umount -l"])
        shutil.rmtree(scratch, ignore_errors=True)


if __name__ == "__main__":
    main()
