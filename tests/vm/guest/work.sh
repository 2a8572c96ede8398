# SPDX-License-Identifier: BSD-3-Clause
# The job whose machine loses power: a store on ext4 with DAX, inputs, and a program that reports
# its durable operations.
doctor() { echo "DOCTOR $(/job/efs doctor --pmem --json)"; }
doctor
ndctl create-namespace -f -e namespace0.0 --mode=fsdax --map=mem >/dev/null 2>&1
for _ in $(seq 600); do [ -b /dev/pmem0 ] && break; sleep 0.1; done
mkfs.ext4 -q -F /dev/pmem0 && mount -o dax=always /dev/pmem0 /pmem || exit 1
mkdir /pmem/store /pmem/in /pmem/out
for i in 1 2 3 4 5 6 7 8; do head -c 200000 /dev/urandom >/pmem/in/i$i; done
(cd /pmem/in && md5sum ./*) >/pmem/in.sum
cat >/pmem/job.yaml <<'Y'
global-settings: [ name: vm, root-dir: /pmem/in, mount-dir: /mnt/efs, results-dir: /pmem/out ]
backends: [ [ id: nv, type: NVRAM-NVML, daxfs: /pmem/store, capacity: 300 MiB ] ]
resources: [ [ path: ".", flags: persistent ] ]
Y
doctor
sync
/job/efs start /pmem/job.yaml || { cat /run/efs/vm/efsd.log; exit 1; }
echo "STATUS $(/job/efs status --json vm)"
exec python3 /job/operations.py
