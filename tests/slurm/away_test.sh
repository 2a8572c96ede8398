#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# slurmctld does not answer, or hangs, while a prolog needs it; directories on the PFS hang. No node
# is drained, no job is lost, and no process waits for ever.
#   away_test.sh BIN_DIR
set -uo pipefail
CLUSTER_FILES=$(cd "$(dirname "$0")/../.." && pwd)/conf/slurm/job_submit.lua
CLUSTER_CONF='JobSubmitPlugins=lua'
. "$(dirname "$0")/scene.sh" "$@"

# The programs by which the plugin queries slurmctld: `slurmctld_is away`, hanging, mute (to
# queries), or back.
mkdir "$C/fake"
for program in scontrol squeue sinfo srun; do
  cat >"$C/fake/$program" <<FAKE
#!/bin/sh
case \$(cat $C/slurmctld-is) in
  away) echo "$program: error: Unable to contact slurm controller (connect failure)" >&2; exit 1 ;;
  mute) [ $program != squeue ] || { echo "slurm_load_jobs error: Socket timed out on send/recv operation" >&2; exit 1; } ;;
  hanging) touch $C/asked; exec sleep 600 ;;
esac
exec $(command -v $program) "\$@"
FAKE
done
chmod 755 "$C"/fake/*
slurmctld_is() { echo "$1" >"$C/slurmctld-is"; }
slurmctld_is there
site() { cluster_plugstack scontrol="$C/fake/scontrol" queue="$C/queue" mail="$C/mail.sh" "$@"; }
site
runs_again() { has_ended "$1" && [ "$(job_field "$1" Restarts)" = "$2" ]; }

# --- slurmctld is away, or hangs, during the prolog ---
work parts 'resources: [ [ path: in, distribute: partition ] ]'
for i in 1 2 3 4 5 6; do head -c 100000 /dev/urandom >"$W/in/p$i"; done
rm -r "$W/in/a" "$W/in/sub"
slurmctld_is away
job=$(submit $USER1 --efs=job.yaml -N2 <<<$'#!/bin/bash\nsrun bash -c \'ls $EFS_MOUNT/in; echo $SLURM_NODEID >$EFS_MOUNT/own.$SLURM_NODEID\'')
ends "$job" COMPLETED 'a job on two nodes, whose prologs cannot ask slurmctld'
check 'each has its part of the inputs, and all are there' test "$(grep '^p' "$W/out.$job" | sort | tr '\n' ' ')" = 'p1 p2 p3 p4 p5 p6 '
check 'nothing is left' quiet "$job"
check 'results of both are back' test "$(cat "$W"/results/own.*)" = $'0\n1'
check 'no node is drained' not_drained

slurmctld_is there
hold_slot
work waits
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a')
check 'a stage-in waits for its turn' await 30 waiters_are 1
slurmctld_is hanging

check 'its prolog asks slurmctld, which hangs' await 20 test -e "$C/asked"
release_slot
check 'the job' await 150 has_ended "$job"
check 'runs' test "$(state_of "$job")" = COMPLETED
check 'and has its input' says "$job" '^alpha$'
slurmctld_is there
check 'nothing is left' quiet "$job"
check 'no node is drained' not_drained

# --- data that only slurmctld has ---
site directives=yes
work directives
slurmctld_is mute
job=$(submit $USER1 --requeue -w n1 <<SCRIPT
#!/bin/bash
#EFS jobdw capacity=64MiB
#EFS stage_in type=directory source=$W/in destination=\$EFS_MOUNT/in
cat \$EFS_MOUNT/in/a
echo "run \$SLURM_RESTART_COUNT"
SCRIPT
)
plain=$(submit $USER1 -w n2 <<<$'#!/bin/bash\necho plain')
was_put_off() { [ "$(job_field "$job" Restarts)" = 1 ]; }
check 'a job with directives that cannot be read back is requeued' await 150 was_put_off
slurmctld_is there
check 'its output says why' says "$job" 'efs: nothing was staged on n1: slurmctld does not say .*directives'
check 'no node is drained' not_drained
ends "$plain" COMPLETED 'a job without directives'
check 'is left alone' says "$plain" '^plain$'
check 'it runs again when slurmctld is there' await 150 runs_again "$job" 1
check 'to its end' test "$(state_of "$job")" = COMPLETED
check 'with its input' says "$job" '^alpha$'
check 'nothing is left' quiet "$job"
check 'nor of the other' quiet "$plain"
slurmctld_is away
job=$(submit $USER1 --no-requeue -w n1 <<SCRIPT
#!/bin/bash
#EFS stage_in type=directory source=$W/in destination=\$EFS_MOUNT/in
echo ran
SCRIPT
)
check 'one that may not be requeued' await 150 has_ended "$job"
slurmctld_is there
check 'fails' test "$(state_of "$job")" = FAILED
check 'and says why' says "$job" 'efs: nothing was staged on n1: .*slurmctld does not say'
check_not 'its script did not run' says "$job" '^ran$'
check 'nothing is left' quiet "$job"
site

# --- a job whose name imitates a running job ---
hold_slot
work name
job=$(submit $USER1 --efs=job.yaml -J $'x JobState=RUNNING BatchHost=n3 NodeList=n[1-9] AdminComment=efs: directives' <<<$'#!/bin/bash\necho ran')
check 'a job with a name that looks like what scontrol says waits' await 30 waiters_are 1
scancel "$job"
check 'scancel ends the waiting all the same' await 20 waiters_are 0
check 'nothing is left' quiet "$job"
job=$(submit $USER1 --efs=job.yaml -J $'x\n99999|RUNNING|1|n1|n1' <<<$'#!/bin/bash\necho ran')
check 'one with a line in its name, too' await 30 waiters_are 1
scancel "$job"
check 'scancel ends the waiting' await 20 waiters_are 0
check 'nothing is left' quiet "$job"
release_slot

# --- directories on the PFS that hang: a separate efs whose processes are stopped ---
of_pfs() { EFS_RUNTIME_DIR=$S/p timeout 60 "$EFS" "$@"; }
mkdir -p "$S/p" "$S/pfs/root" "$S/pfs/out"
printf 'global-settings:\n  root-dir: %s\n  mount-dir: %s\n  results-dir: %s\nbackends: [ [ id: ram, type: DRAM, capacity: 64 MiB ] ]\nresources: []\n' "$S/pfs/root" "$S/pfs/mnt" "$S/pfs/out" >"$S/pfs.yaml"
check 'a file system' of_pfs start --name pfs "$S/pfs.yaml"
mkdir "$S/pfs/mnt/queue" "$S/pfs/mnt/shared"; chmod 755 "$S/pfs/mnt" "$S"/pfs/mnt/*
members=$(field "$(of_pfs status --json pfs)" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')
resume() { kill -CONT $members 2>/dev/null; }
end_pfs() { resume; of_pfs stop --no-stage-out pfs >/dev/null 2>&1; cluster_stop; clean; }
trap end_pfs EXIT
trap 'end_pfs; exit 130' INT TERM
echo 'longest-wait: 5' >"$S/pfs/mnt/queue/settings"
cluster_plugstack queue="$S/pfs/mnt/queue" shared="$S/pfs/mnt/shared"
work hangs
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a; echo r >$EFS_MOUNT/result; touch '"$W/started"$'; until [ -e '"$W/go"$' ]; do sleep 0.2; done')
check 'a job runs that had its turn' await 60 test -e "$W/started"
check 'while' json "$(status_on n1 "slurm-$job.0-n1")" 'd["state"] == "running"'
stall $members
touch "$W/go"
is_over() { [ ! -e "$C/state.n1/$job.0" ] && all_idle; }
check 'a job whose queue and shared directory hang at its end: the node is free after the longest waits' await 240 is_over
ends "$job" COMPLETED 'the job'
check 'its result is back' grep -qx r "$W/results/result"
check 'no node is drained' not_drained
check 'nothing is left' quiet "$job"
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a')
in_prolog() { compgen -G "$C/run.n1/slurm-$job.0-n1" >/dev/null; }
check 'a prolog that finds them hanging waits' await 90 in_prolog
scancel "$job"
check 'can be cancelled' await 150 all_idle
check 'no node is drained' not_drained
check 'nothing is left' quiet "$job"
resume
check 'the file system ends, as soon as those who hung have gone' await 30 of_pfs stop --no-stage-out pfs
cluster_finish
