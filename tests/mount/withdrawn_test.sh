#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Programs open a name for writing just when an unload or a load removes it: their writes are
# exported, in either order.
#   withdrawn_test.sh BIN_DIR
# EFS_ROUNDS: how many opens of each kind (200).
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
rounds=${EFS_ROUNDS:-200}

# met KIND: writes repeatedly beside `unload --remove` or `load --replace`, until there were enough
# opens.
met() {
  python3 - "$1" "$rounds" "$NAME" "$EFS" "$MNT" "$PFS" <<'PY'
import os, random, subprocess, sys, threading, time
kind, rounds, name, efs, mount, pfs = sys.argv[1], int(sys.argv[2]), *sys.argv[3:]
path, random_ = mount + "/f", random.Random(7)
def ask(*words): return subprocess.run([efs, words[0], "-i", name, "-w", *words[1:], "f"], capture_output=True)

def beside_unloads():
    over = threading.Event()
    def unload():
        while not over.is_set(): ask("unload", "--remove")
    thread = threading.Thread(target=unload); thread.start()
    for n in range(rounds):
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
        os.write(fd, b"version %d\n" % n); links = os.fstat(fd).st_nlink; os.close(fd)
        if links == 0: over.set(); thread.join(); sys.exit(f"write {n} went to a file without a name")
        time.sleep(0.0005 * (n % 9))
    over.set(); thread.join()

def beside_loads():
    for n in range(rounds // 6):
        ask("unload")
        with open(pfs + "/f.new", "w") as new: new.write(f"of the PFS {n}\n")
        os.rename(pfs + "/f.new", pfs + "/f")
        thread = threading.Thread(target=ask, args=("load", "--replace")); thread.start()
        until = time.monotonic() + random_.random() * 0.03
        while time.monotonic() < until: pass
        fd = os.open(path, os.O_WRONLY | os.O_APPEND); os.write(fd, b"of the job %d\n" % n); os.close(fd)
        thread.join()
        if "of the job %d\n" % n not in open(path).read(): sys.exit(f"what was appended in round {n} is gone")

beside_unloads() if kind == "unload" else beside_loads()
PY
}

for mode in '' daemon-io; do
  label=${mode:-kernel}
  fresh "unload-$label" 'resources: []'
  check "$label: start" "$EFS" start ${mode:+-o $mode} "$JOB"
  check "$label: beside unload --remove every write has a name" met unload
  check "$label: stop" "$EFS" stop "$NAME"
  check "$label: the last write is what goes back" grep -qx "version $((rounds - 1))" "$OUT/f"

  fresh "load-$label" 'resources: [ [ path: f, flags: persistent ] ]'
  echo first >"$PFS/f"
  check "$label: start" "$EFS" start ${mode:+-o $mode} "$JOB"
  check "$label: beside load --replace nothing that was appended is lost" met load
  check "$label: stop" "$EFS" stop --no-stage-out "$NAME"

  # A name that a load creates between the kernel's lookup and the create is opened, as on any file
  # system.
  fresh "made-$label" 'resources: []'
  mkdir "$PFS/d"; for i in {1..40}; do echo "$i" >"$PFS/d/$i"; done
  check "$label: start" "$EFS" start ${mode:+-o $mode} "$JOB"
  check "$label: no open with O_CREAT finds that the name exists" python3 - "$rounds" "$NAME" "$EFS" "$MNT" <<'PY'
import os, subprocess, sys, threading
rounds, name, efs, mount = int(sys.argv[1]), *sys.argv[2:]
over = threading.Event()
def load():
    while not over.is_set(): subprocess.run([efs, "load", "-i", name, "-w", "d"], capture_output=True)
thread = threading.Thread(target=load); thread.start()
os.makedirs(mount + "/d", exist_ok=True)
try:
    for _ in range(rounds // 2):
        for i in range(1, 41):
            os.close(os.open(f"{mount}/d/{i}", os.O_RDWR | os.O_CREAT, 0o644))
            try: os.unlink(f"{mount}/d/{i}")
            except FileNotFoundError: pass
finally:
    over.set(); thread.join()
PY
  check "$label: stop" "$EFS" stop --no-stage-out "$NAME"
done
finish
