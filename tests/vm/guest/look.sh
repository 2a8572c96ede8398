# SPDX-License-Identifier: BSD-3-Clause
# After the power is back. Prints RESULT WHAT CODE on the console: 0 is right.
result() { local what=$1; shift; "$@"; echo "RESULT $what $?"; }
for _ in $(seq 600); do [ -b /dev/pmem0 ] && break; sleep 0.1; done
mount -o dax=always /dev/pmem0 /pmem || exit 1
durable=$(cat /job/durable) store=/pmem/store/efs-0-vm
whole() { /job/efs check-image "$store"; case $? in 0 | 3) ;; *) return 1 ;; esac; }
inputs() { (cd /pmem/in && md5sum -c --quiet /pmem/in.sum); }
gone() { ! test -e "$store"; }
mkdir /tmp/to
result inputs inputs
result check-image whole
result salvage /job/efs salvage --to /tmp/to "$store"
result salvaged python3 /job/operations.py /tmp/to "$durable"
result start /job/efs start /pmem/job.yaml
result resumed python3 /job/operations.py /mnt/efs "$durable"
result stop /job/efs stop vm
result out python3 /job/operations.py /pmem/out "$durable"
result gone gone
