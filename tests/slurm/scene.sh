# SPDX-License-Identifier: BSD-3-Clause
# Sourced by the tests of the plugin, with the directory of the programs: a cluster of four nodes,
# and checks of jobs. Without Slurm, reports this and ends the test.
. "$(dirname "${BASH_SOURCE[0]}")/../cli/lib.sh" "$@"
PLUGIN=$BIN/../lib/spank_efs.so
USER1=games USER2=news   # ordinary users that every Debian has

missing=
for program in slurmctld slurmd munged sbatch srun scontrol; do command -v $program >/dev/null || missing+=" $program"; done
[ -e "$PLUGIN" ] || missing+=" spank_efs.so"
[ "$(id -u)" = 0 ] || missing+=" root"
[ -c /dev/fuse ] || missing+=" /dev/fuse"
for user in $USER1 $USER2; do id "$user" >/dev/null 2>&1 || missing+=" the user $user"; done
if [ -n "$missing" ]; then
  echo "############ THE SLURM PLUGIN IS NOT TESTED HERE: missing:$missing (make slurm-deps) ############"
  skip 'everything about Slurm' "missing:$missing"
  finish
fi
. "$(dirname "${BASH_SOURCE[0]}")/cluster.sh"
trap 'cluster_stop; clean; exit 130' INT TERM
trap 'cluster_stop; clean' EXIT

mkdir -p "$C"
cluster_plugstack queue="$C/queue" mail="$C/mail.sh"
printf '#!/bin/sh\necho "$@" >>%s/mail.log\n' "$C" >"$C/mail.sh" && chmod 755 "$C/mail.sh"
cluster_start 4 || { cat "$C"/*.log | tail -n 40; fail 'a cluster of four nodes comes up'; finish; }
check 'a cluster of four nodes comes up' all_idle

# work NAME [LINE...]: a directory on the PFS for a job of USER1, with inputs and job.yaml; in W.
# Lines replace the resources.
work() {
  W=$S/$1; shift
  mkdir -p "$W/in/sub" "$W/results"
  echo alpha >"$W/in/a"; echo beta >"$W/in/sub/b"
  { printf 'global-settings:\n  root-dir: %s\n  mount-dir: /efs\n  results-dir: %s/results\nbackends: [ [ id: ram, type: DRAM, capacity: 64 MiB ] ]\n' "$W" "$W"
    if [ $# -gt 0 ]; then printf '%s\n' "$@"; else echo 'resources: [ [ path: in ] ]'; fi; } >"$W/job.yaml"
  chown -R $USER1 "$W"
}
# ends JOB STATE [NAME]: the job must end in that state; on failure its output is shown.
ends() {
  await 60 has_ended "$1"
  check "${3:-job $1 ends} as $2" test "$(state_of "$1")" = "$2" || :
  [ "$(state_of "$1")" = "$2" ] || { cat "$W/out.$1" "$W/said" 2>/dev/null | head -n 20; grep -h efs "$C"/slurmd.*.log | tail -n 5; }
}
job_is_gone() { [ -z "$(ls -d "$C"/state.*/"$1".* 2>/dev/null)" ] && [ -z "$(ls -d "$C"/mnt.*/"$1" 2>/dev/null)" ]; }
quiet() { await 30 all_idle && await 10 job_is_gone "$1"; }
has_written() { compgen -G "$C/mnt.*/$1/$2" >/dev/null; }   # has_written JOB FILE: in its mount
output_of() { grep -v '^efs on ' "$W/out.$1"; }   # without the line of the epilog's
says() { grep -qE -- "$2" "$W/out.$1"; }
hold_slot() {  # hold_slot [out]: another stage-in, or stage-out, is on and does not end, until release_slot
  python3 -c '
import fcntl, os, signal, struct, sys
locks = os.open(sys.argv[1] + "/locks", os.O_RDWR | os.O_CREAT, 0o600)
fcntl.fcntl(locks, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 1 << (21 if sys.argv[2] == "out" else 20), 1, 0))
open(sys.argv[1] + "/../held", "w").close()
signal.pause()' "$C/queue" "${1:-in}" &
  holder=$!
  await 10 test -e "$C/held"
}
release_slot() { kill "$holder" 2>/dev/null; wait "$holder" 2>/dev/null; rm -f "$C/held"; }
waiters() { "$EFS" queue --json "$C/queue" | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["in"]["waiters"]))'; }
waiters_are() { [ "$(waiters)" = "$1" ]; }
# instance_of JOB NODE [RESTART]: prints its status; for a kept instance, by its name.
status_on() { EFS_RUNTIME_DIR=$C/run.$1 "$EFS" status --json "$2"; }
cluster_finish() {
  check 'no node was drained in any of it' not_drained
  cluster_stop
  unset SLURM_CONF
  check 'no daemon of the cluster is left' cluster_gone
  finish
}
