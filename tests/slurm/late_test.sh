#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Late ends: a node returns after another run or job has exported its results; slurmd restarts while
# processes are in their grace period; stores and directories were removed. Newer files stay, and no
# unfinished work is reported as done.
#   late_test.sh BIN_DIR
set -uo pipefail
CLUSTER_KILL_WAIT=20
. "$(dirname "$0")/scene.sh" "$@"
result_is() { check "$1" test "$(cat "$W/results/result" 2>/dev/null)" = "$2"; }
told() { grep -q "\"state\":\"$3\".*$4" "$C/shared/jobs/$1/$2"; }
members_of() { field "$(status_on "$1" "$2")" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])'; }
kill_stepd() { kill -KILL $(grep -laE "slurmstepd: \[$1\.batch\]" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3); }
node_goes() { cluster_kill "$C/slurmd.$1.pid" slurmd KILL; scontrol update nodename="$1" state=down reason=test; }
node_is_back() { cluster_slurmd "$1"; scontrol update nodename="$1" state=resume 2>/dev/null; }
give_up() { EFS_RUNTIME_DIR=$C/run.$1 "$EFS" stop --no-stage-out "$2" >/dev/null 2>&1; EFS_RUNTIME_DIR=$C/run.$1 "$EFS" clean --force "$2" >/dev/null 2>&1; rm -rf "$C/state.$1/${2:6:-3}"; umount -l "$C/mnt.$1/${2:6:-5}" 2>/dev/null; rmdir "$C/mnt.$1/${2:6:-5}" 2>/dev/null; }

# --- another job has exported newer results while the node was away ---
work newer
first=$(submit $USER1 --efs=job.yaml -w n1 --no-requeue <<<$'#!/bin/bash\necho incomplete >$EFS_MOUNT/result; echo only here >$EFS_MOUNT/other; exec sleep 600')
check 'a job whose node goes away' await 60 has_written "$first" other
node_goes n1
check 'has failed' await 60 has_ended "$first"
second=$(submit $USER1 --efs=job.yaml -w n2 <<<$'#!/bin/bash\necho complete >$EFS_MOUNT/result')
ends "$second" COMPLETED 'a later job of its user'
check 'whose results are back' await 30 test -e "$W/results/result"
node_is_back n1
check 'the node is back: what was in the way is told' await 60 told "$first.0" n1 unsaved conflict
result_is 'the newer result stays' complete
check 'what nobody else has is brought out' grep -qx 'only here' "$W/results/other"
give_up n1 "slurm-$first.0-n1"

# --- the same for another run of the job itself, whose script continues and stages out in the job
#     ---
work rerun
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job --exclude=n1,n2 -N1 --requeue <<<$'#!/bin/bash\necho "of run ${SLURM_RESTART_COUNT:-0}" >$EFS_MOUNT/result; [ -n "${SLURM_RESTART_COUNT:-}" ] || { touch '"$W/run0; until [ -e $W/go ]; do sleep 0.2; done; }; true")
check 'a job' await 60 test -e "$W/run0"
node=$(job_field "$job" NodeList)
node_goes "$node"
again() { scontrol update jobid="$job" StartTime=now 2>/dev/null; has_ended "$job"; }
check 'runs again elsewhere' await 90 again
result_is 'with its result back' 'of run 1'
touch "$W/go"
check 'its first run ends, too, and is refused' await 60 says "$job" 'conflict: result'
result_is 'the later result stays' 'of run 1'
node_is_back "$node"
check 'that is told' await 60 told "$job.0" "$node" unsaved conflict
give_up "$node" "slurm-$job.0-$node"

# --- slurmd restarts while a cancelled job writes its last checkpoint ---
work grace
cat >"$W/last" <<'PROGRAM'
import signal, sys, time
def end(*_):
    with open(sys.argv[1], "w") as out:
        for i in range(7): print("piece", i, file=out, flush=True); time.sleep(1)
        print("whole", file=out)
    sys.exit()
signal.signal(signal.SIGTERM, end)
open(sys.argv[2], "w").close()
time.sleep(600)
PROGRAM
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\nsrun -Q python3 '"$W/last"$' $EFS_MOUNT/result '"$W/begun")
check 'a job that takes its time to end' await 60 test -e "$W/begun"
scancel "$job"
cluster_kill "$C/slurmd.n1.pid" slurmd KILL
cluster_slurmd n1
check 'has it, when slurmd is started meanwhile' await 60 job_is_gone "$job"
check 'its checkpoint is whole' grep -qx whole "$W/results/result"

# --- both daemons are dead, and the store is gone ---
# lost NAME COMMAND...: kills the daemons of a job; then COMMAND, with the instance's name, removes
# a part of it.
lost() {
  local what=$1 go=$S/go.$1; shift
  work "$what"
  [ "$what" != containers ] || { mkdir "$W/disk"; chown $USER1 "$W/disk"; sed -i "s,^backends.*,backends: [ [ id: d\, type: NVRAM-NVML\, daxfs: $W/disk\, capacity: 64 MiB ] ]," "$W/job.yaml"; }
  job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result; touch '"$W/begun; until [ -e $go ]; do sleep 0.2; done; true")
  check "$what: a job" await 60 test -e "$W/begun"
  instance=slurm-$job.0-n1
  members=$(members_of n1 "$instance")
  check "$what" "$@"
  touch "$go"
  ends "$job" COMPLETED "$what: the job"
}
killed_and() { kill -KILL $members; await 20 gone "${members% *}" && await 20 gone "${members#* }" && "$@"; }
unmount_store() { umount -l "$C/run.n1/$instance/store"; }
remove_containers() { find "$W/disk" -path '*/data/??/*' -type f -delete; }
lost memory killed_and unmount_store
check 'memory: it is told that nothing is left' await 40 told "$job.0" n1 unsaved 'nothing is left of them .*was gone'
check_exit 'memory: by efs status, too' 3 'unsaved: results are not exported' "$EFS" status --job "$job" --shared "$C/shared"
check 'memory: and the mail hook' grep -q "^$job .*was gone" "$C/mail.log"
check 'memory: the node is free' await 40 all_idle
check 'memory: nothing is left' await 20 job_is_gone "$job"
lost containers killed_and remove_containers
check 'containers: it is told' await 40 told "$job.0" n1 unsaved 'still in the buffer'
give_up n1 "$instance"

# --- the instance's directory is removed ---
remove_directory() { umount -l "$C/run.n1/$instance/store"; rm -rf "$C/run.n1/$instance"; }
lost directory remove_directory
check 'directory: its daemons are ended all the same' await 60 gone "${members#* }"
check 'directory: that is told' await 40 told "$job.0" n1 unsaved 'was removed while it ran: it was stopped'
result_is 'directory: its result is back' r
check 'directory: nothing is mounted' test -z "$(grep -F "$C/mnt.n1/$job " /proc/self/mounts)"
lost both killed_and remove_directory
check 'directory and daemons: that is told' await 40 told "$job.0" n1 unsaved 'was removed while it ran: it is dead'
check 'directory and daemons: nothing is mounted' test -z "$(grep -F "$C/mnt.n1/$job " /proc/self/mounts)"

check 'no node is drained' not_drained
cluster_finish
