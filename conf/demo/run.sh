#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# The demo: a real job through efs. usage: conf/demo/run.sh DIRECTORY_OF_efs
# LAMMPS melts copper: it reads a potential that was staged in and writes a trajectory and restart files on the mount;
# the HDF5 tools write and repack some hundred MiB there. The same runs on plain disk; the results must be equal.
set -euo pipefail
efs=$(cd "$1" && pwd)/efs
here=$(cd "$(dirname "$0")" && pwd)
scratch=$(mktemp -d)
export EFS_RUNTIME_DIR=$scratch/run
cleanup() {
  [ -z "$("$efs" status --json | tr -d '[]\n ')" ] || "$efs" stop --no-stage-out demo || true
  rm -rf "$scratch"
}
trap cleanup EXIT
say() { printf '\n\033[1m%s\033[0m\n' "$*"; }
# As root, Open MPI (under LAMMPS) wants to be told that this is meant.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_btl_base_warn_component_unused=0

potentials=$(dirname "$(dpkg -L lammps-data | grep -m1 '/Cu_u3.eam$')")
mkdir -p "$scratch/pfs/out"
cp -r "$potentials" "$scratch/pfs/potentials"
cp "$here/copper.in" "$scratch/pfs/"
head -c 67108864 /dev/urandom > "$scratch/pfs/field.raw"   # 4096 x 4096 numbers
cat > "$scratch/pfs/field.conf" <<'CONF'
PATH field
INPUT-CLASS UIN
INPUT-SIZE 32
RANK 2
DIMENSION-SIZES 4096 4096
OUTPUT-CLASS UIN
OUTPUT-SIZE 32
CONF
cat > "$scratch/demo.yaml" <<YAML
global-settings:
  name: demo
  root-dir: $scratch/pfs
  mount-dir: $scratch/mount
  results-dir: $scratch/results
resources:
  - { path: potentials }
  - { path: copper.in }
  - { path: field.raw }
  - { path: field.conf }
  - { path: out, flags: persistent }
YAML
cat > "$scratch/job.sh" <<'JOB'
set -eu
cd "$1"
lmp -in copper.in -var dir . -log none -screen none
h5import field.raw -c field.conf -o out/field.h5
h5repack -l CHUNK=512x512 out/field.h5 out/field-chunked.h5
JOB

say "1. The plan: what would move, does it fit (nothing is moved yet)"
"$efs" plan "$scratch/demo.yaml"

say "2. The job: mount, stage in, run, stage out, unmount"
time "$efs" run "$scratch/demo.yaml" -- sh -c 'sh '"$scratch"'/job.sh "$EFS_MOUNT"; df -h "$EFS_MOUNT"; '"$efs"' status'

say "3. The same on plain disk"
cp -r "$scratch/pfs" "$scratch/plain"
time sh "$scratch/job.sh" "$scratch/plain"

say "4. The receipt"
python3 - "$scratch/results/efs-receipt-demo.json" <<'PY'
import json, sys
receipt = json.load(open(sys.argv[1]))
for e in receipt["entries"]:
    if e["action"] == "staged-out":
        print("%-28s %12d bytes  %s" % (e["path"], e["bytes"], e.get("checksum", "")))
print("verdict:", receipt["verdict"], receipt["totals"])
sys.exit(receipt["verdict"] != "complete")
PY

say "5. Are the results the same?"
same=0
for file in $(cd "$scratch/plain/out" && ls); do
  # A restart file holds the time of day nowhere, an HDF5 file may: that one is compared by its data.
  case $file in
    *.h5) h5diff "$scratch/plain/out/$file" "$scratch/results/out/$file" ;;
    *) cmp "$scratch/plain/out/$file" "$scratch/results/out/$file" ;;
  esac
  same=$((same + 1))
done
[ "$same" -ge 8 ]
if grep -q "$scratch" /proc/mounts; then echo "a mount was left behind"; exit 1; fi
echo "yes: $same result files, equal to those of the run on plain disk"
