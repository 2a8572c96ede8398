#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The ways in which a job can end: its time expires, it is cancelled or requeued, its node fails, or
# a daemon of Slurm dies; in its prolog, while it runs, and in its epilog. Nothing is left behind,
# the results are right, and no node is drained.
#   ends_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/scene.sh" "$@"
waiting_out() { [ "$("$EFS" queue --json "$C/queue" | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["out"]["waiters"]))')" = "$1" ]; }
others_idle() { [ -z "$(sinfo -h -N -o '%N %t' | grep -vE "idle|$timed_node")" ]; }   # while the first job runs
timed_node='n3|n4'
# no_trace JOB: there is no mount, no process and no instance.
no_trace() {
  local left
  left=$(grep -E "$C/mnt\.[^ /]*/$1[ /]" /proc/self/mounts; grep -laF "$C/run" $(grep -laF "slurm-$1." /proc/[0-9]*/cmdline 2>/dev/null) /dev/null 2>/dev/null; compgen -G "$C/run.*/slurm-$1.*")
  [ -z "$left" ] || { echo "$left"; return 1; }
}
leaves_nothing() { check "$1: the state on the node goes" await 60 job_is_gone "$2"; check "$1: the node is free" await 300 others_idle; await 10 no_trace "$2"; check "$1: nothing is left" no_trace "$2"; check "$1: no node is drained" not_drained; }
result_is() { check "$1: its result is back" test "$(cat "$W/results/result" 2>/dev/null)" = "$2"; }
stepd_of() { grep -laE "slurmstepd: \[$1\.batch\]" /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3; }
# A job that writes `result` and runs until it is ended.
sleeper=$'#!/bin/bash\necho r >$EFS_MOUNT/result; exec sleep 600'
runs() { check "$1: it runs" await 60 has_written "$2" result; }
again_now() { scontrol update jobid="$1" StartTime=now; }   # a requeued job waits for two minutes else
# A run that Slurm started without a prolog requeues itself once more. For a second or two, slurmd
# rejects a job that it has just killed, and the job then fails. Only this test starts a job again
# so soon.
asked_for=
again_soon() {
  local restarts
  [ "$(state_of "$1")" = PENDING ] && restarts=$1.$(job_field "$1" Restarts) && [ "$restarts" != "$asked_for" ] || return 0
  scontrol update jobid="$1" StartTime=now+5 2>/dev/null && asked_for=$restarts
}
runs_again() { again_soon "$1"; has_ended "$1" && [ "$(job_field "$1" Restarts)" -ge "$2" ]; }

# --- its time expires: checked at the end, because Slurm's shortest time limit is a minute ---
work timeout
timed=$(submit $USER1 --efs=job.yaml -w n3 -t 1 <<<"$sleeper")
timed_work=$W

# --- slurmd gives a prolog and an epilog less time than they need: on a separate node, checked
#     later ---
short_time() {  # its stagings take no turns, for they would hold up the others
  sed "s,^PlugStackConfig=.*,PlugStackConfig=$C/plugstack.n4,; \$ a PrologEpilogTimeout=$1" "$C/slurm.conf" >"$C/slurm.n4.conf"
  sed 's, queue=[^ ]*,,' "$C/plugstack.conf" >"$C/plugstack.n4"
  cluster_kill "$C/slurmd.n4.pid" slurmd TERM
  SLURM_CONF=$C/slurm.n4.conf SLURMD_NODENAME=n4 slurmd -f "$C/slurm.n4.conf" -N n4 -b
}
slowly() { sed -i '2i\  max-rate: 64 KiB/s' "$W/job.yaml"; }
short_time 45
work slowin
slowly
head -c 4M /dev/urandom >"$W/in/large"; chown $USER1 "$W/in/large"
slow_in=$(submit $USER1 --efs=job.yaml -w n4 <<<$'#!/bin/bash\necho ran')
work slowout
slowly
slow_out=$(submit $USER1 --efs=job.yaml -w n4 <<<$'#!/bin/bash\nfor i in 1 2 3 4 5 6 7 8; do head -c 512K /dev/urandom >$EFS_MOUNT/r$i; done; cat $EFS_MOUNT/r? | cksum >'"$W/sum")

# --- cancelled in the epilog: too late ---
hold_slot out
work late
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result')
check 'a job whose stage-out waits for its turn' await 60 waiting_out 1
scancel "$job" 2>/dev/null
read -rt 3 <> <(:) || :
check 'is not to be cancelled any more' waiting_out 1
release_slot
leaves_nothing 'cancelled in the epilog' "$job"
result_is 'cancelled in the epilog' r
check 'it is called completed' test "$(state_of "$job")" = COMPLETED

# --- slurmd is killed in the epilog ---
hold_slot out
work epilog
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result')
await 60 waiting_out 1
cluster_kill "$C/slurmd.n1.pid" slurmd KILL
cluster_slurmd n1
check 'slurmd killed in the epilog: the stage-out goes on' waiting_out 1
release_slot
leaves_nothing 'slurmd killed in the epilog' "$job"
result_is 'slurmd killed in the epilog' r

# --- the stage-out exceeds the site's limit ---
cluster_plugstack queue="$C/queue" mail="$C/mail.sh" stage-out=20
work slow
sed -i '2i\  max-rate: 64 KiB/s' "$W/job.yaml"
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\nfor i in 1 2 3 4 5 6 7 8; do head -c 512K /dev/urandom >$EFS_MOUNT/r$i; done; cat $EFS_MOUNT/r? | cksum >'"$W/sum")
ends "$job" COMPLETED 'a job with more results than there is time for'
check 'no time: the node is free' await 100 others_idle
check_exit 'no time: efs status --job says so' 3 'unsaved: results are not exported: time was up' "$EFS" status --job "$job" --shared "$C/shared"
back() { find "$W/results" -name 'r[1-8]' | wc -l; }  # which of them is up to the threads that copy
check 'no time: some are back' test "$(back)" -ge 1
check 'no time: not all' test "$(back)" -le 7
check 'no time: the mail hook was called' grep -q "^$job " "$C/mail.log"
check 'no time: the rest can be brought out' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" salvage "slurm-$job.0-n1"
check 'no time: whole' test "$(cat "$W"/results/r? | cksum)" = "$(cat "$W/sum")"
check 'no time: and then it can go' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" clean "slurm-$job.0-n1"
rm -rf "$C/state.n1/$job.0"; rmdir "$C/mnt.n1/$job" 2>/dev/null
leaves_nothing 'no time' "$job"
cluster_plugstack queue="$C/queue" mail="$C/mail.sh"

# --- slurmd is killed in the prolog ---
hold_slot
work prolog
job=$(submit $USER1 --efs=job.yaml -w n1 --no-requeue <<<$'#!/bin/bash\necho ran')
check 'a job in its prolog' await 60 waiters_are 1
cluster_kill "$C/slurmd.n1.pid" slurmd KILL
cluster_slurmd n1
scancel "$job"
check 'whose slurmd was killed is cancelled' await 60 waiters_are 0
leaves_nothing 'slurmd killed in the prolog' "$job"

# --- requeued in the prolog ---
work requeue
job=$(submit $USER1 --efs=job.yaml -w n1 --requeue <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a; echo "run $SLURM_RESTART_COUNT"')
check 'a job in its prolog' await 60 waiters_are 1
check 'is requeued' scontrol requeue "$job"
check 'its stage-in is given up' await 40 waiters_are 0
release_slot
check 'and it runs again' await 150 runs_again "$job" 1
check 'with its input' await 10 says "$job" '^alpha$'
says "$job" '^alpha$' || { scontrol -o show job "$job"; cat "$W/out.$job"; grep -h "$job" "$C"/slurmd.n1.log | tail -n 15; }
leaves_nothing 'requeued in the prolog' "$job"

# --- requeued while it runs, from another node ---
work moves
job=$(submit $USER1 --efs=job.yaml --requeue -w n1 <<<$'#!/bin/bash\necho "on $SLURMD_NODENAME" >$EFS_MOUNT/result\n[ -n "$SLURM_RESTART_COUNT" ] || exec sleep 600')
runs 'requeued to another node' "$job"
scontrol requeuehold "$job"
await 40 job_is_gone "$job"
scontrol update jobid="$job" NodeList= ReqNodeList=n2 2>/dev/null || scontrol update jobid="$job" ReqNodeList=n2
scontrol release "$job"; again_now "$job"
check 'it runs again elsewhere' await 150 runs_again "$job" 1
leaves_nothing 'requeued to another node' "$job"
result_is 'requeued to another node' "on n2"

# --- the node fails ---
work nodefail
job=$(submit $USER1 --efs=job.yaml -w n2 --no-requeue <<<"$sleeper")
runs 'the node fails' "$job"
scontrol update nodename=n2 state=down reason=test
check 'the node fails: so does the job' await 60 has_ended "$job"
check 'the node fails: as such' test "$(state_of "$job")" = NODE_FAIL
await 30 job_is_gone "$job"
scontrol update nodename=n2 state=resume 2>/dev/null   # it may have come back by itself
leaves_nothing 'the node fails' "$job"
result_is 'the node fails' r

work nodedies
job=$(submit $USER1 --efs=job.yaml -w n2 --no-requeue <<<"$sleeper")
runs 'the node dies' "$job"
name=slurm-$job.0-n2
members=$(field "$(status_on n2 "$name")" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')
cluster_kill "$C/slurmd.n2.pid" slurmd KILL
kill -KILL $(stepd_of "$job") $members
kill -KILL $(grep -laF 'sleep600' /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3) 2>/dev/null
scontrol update nodename=n2 state=down reason=test
check 'the node dies: so does the job' await 60 has_ended "$job"
cluster_slurmd n2
scontrol update nodename=n2 state=resume 2>/dev/null   # it may have come back by itself
tells_unsaved() { grep -q '"state":"unsaved"' "$C/shared/jobs/$job.0/n2"; }
check 'the node dies: when it is back it is told that results are not' await 60 tells_unsaved
check 'the node dies: it takes jobs again' await 60 others_idle
check 'the node dies: what was written can be brought out' env EFS_RUNTIME_DIR="$C/run.n2" "$EFS" salvage "$name"
result_is 'the node dies' r
env EFS_RUNTIME_DIR="$C/run.n2" "$EFS" clean "$name" >/dev/null; rm -rf "$C/state.n2/$job.0"; umount -l "$C/mnt.n2/$job" 2>/dev/null; rmdir "$C/mnt.n2/$job" 2>/dev/null
check 'the node dies: and then nothing is left' await 10 no_trace "$job"
check 'the node dies: no node is drained' not_drained

# --- a user stops the user's own daemons ---
work stopped
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result; for p in $(pgrep -u $(id -u) efsd); do ! tr "\\0" " " <"/proc/$p/cmdline" | grep -q " $EFS_INSTANCE " || kill -STOP $p; done; touch '"$W/stopped")
check 'a job that stops its own daemons' await 60 test -e "$W/stopped"
leaves_nothing 'the daemons are stopped' "$job"
result_is 'the daemons are stopped' r

# --- slurmd gives a prolog and an epilog less time than they need: the results ---
W=$S/slowin
ends "$slow_in" FAILED 'a job whose stage-in takes longer than slurmd lets its prolog'
check 'its output says why' says "$slow_in" 'efs: stage-in failed on n4: .*PrologEpilogTimeout, 45 s'
check_not 'its script did not run' says "$slow_in" '^ran$'
W=$S/slowout
ends "$slow_out" COMPLETED 'one whose stage-out takes longer than slurmd lets its epilog'
on_n4_is() { [ "$(sinfo -h -n n4 -o %t)" = "$1" ]; }
check 'the node is free' await 100 on_n4_is idle
check_exit 'efs status --job says so' 3 'unsaved: results are not exported: time was up' "$EFS" status --job "$slow_out" --shared "$C/shared"
check 'some are back' test "$(back)" -ge 1
check 'not all' test "$(back)" -le 7
salvaged() { EFS_RUNTIME_DIR=$C/run.n4 "$EFS" "$1" "slurm-$slow_out.0-n4"; }
check 'the rest can be brought out' salvaged salvage
check 'whole' test "$(cat "$W"/results/r? | cksum)" = "$(cat "$W/sum")"
check 'and then it can go' salvaged clean
rm -rf "$C/state.n4/$slow_out.0"; rmdir "$C/mnt.n4/$slow_out" 2>/dev/null
check 'nothing is left of the one' no_trace "$slow_in"
check 'nor of the other' no_trace "$slow_out"
check 'no node is drained' not_drained

# --- slurmd kills them all the same ---
hook_of() {  # hook_of JOB prolog|epilog: slurmd's process for it
  local pid
  for pid in $(grep -lzxF "$2" $(grep -lzxF spank /proc/[0-9]*/cmdline 2>/dev/null) /dev/null 2>/dev/null | cut -d/ -f3); do ! grep -qzxF "SLURM_JOB_ID=$1" "/proc/$pid/environ" || echo "$pid"; done
}
stages() { json "$(status_on n4 "slurm-$1.0-n4")" "d['state'] == '$2' and d['bytes_done'] > 0"; }
as_slurmd_kills() { kill -KILL -- "-$(hook_of "$1" "$2")"; }
drained_for() { sinfo -h -n n4 -o '%t %E' | grep -qiE "^dr[a-z]* .*$1"; }
n4_again() { scontrol update nodename=n4 state=resume; await 30 on_n4_is idle; }
work killedin
slowly
head -c 4M /dev/urandom >"$W/in/large"; chown $USER1 "$W/in/large"
job=$(submit $USER1 --efs=job.yaml -w n4 <<<$'#!/bin/bash\necho ran')
check 'a job in its prolog' await 40 stages "$job" staging-in
check 'which slurmd kills' as_slurmd_kills "$job" prolog
check 'drains the node, for Slurm will have it so' await 40 drained_for 'prolog'
is_pending() { [ "$(state_of "$job")" = PENDING ]; }
check 'its job waits, held' await 40 is_pending
check 'its file system goes' await 40 no_trace "$job"
scancel "$job"
check 'nothing is left' await 40 job_is_gone "$job"
check 'the node can be resumed' n4_again
work killedout
slowly
job=$(submit $USER1 --efs=job.yaml -w n4 <<<$'#!/bin/bash\nfor i in 1 2 3 4; do head -c 256K /dev/urandom >$EFS_MOUNT/r$i; done; cat $EFS_MOUNT/r? | cksum >'"$W/sum")
check 'a job in its epilog' await 60 stages "$job" staging-out
check 'which slurmd kills' as_slurmd_kills "$job" epilog
check 'drains the node, too' await 40 drained_for 'epilog'
check 'its results come back' await 60 no_trace "$job"
check 'whole' test "$(cat "$W"/results/r? | cksum)" = "$(cat "$W/sum")"
check 'the node can be resumed' n4_again
short_time 45   # what that job was is forgotten when slurmd starts
check 'nothing is left' await 40 job_is_gone "$job"
check_exit 'and efs status --job says what became of it' 0 'done' "$EFS" status --job "$job" --shared "$C/shared"

# --- the step daemon is killed ---
work stepd
job=$(submit $USER1 --efs=job.yaml -w n1 --no-requeue <<<"$sleeper")
runs 'the step daemon is killed' "$job"
kill -KILL $(stepd_of "$job")
scancel "$job"   # Slurm itself notices after BatchStartTimeout
check 'the step daemon is killed: the job ends' await 60 has_ended "$job"
leaves_nothing 'the step daemon is killed' "$job"
result_is 'the step daemon is killed' r

# --- slurmctld is killed ---
ctld_again() { slurmctld -f "$C/slurm.conf"; }
hold_slot
work ctld
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a; echo r >$EFS_MOUNT/result')
check 'a job in its prolog' await 60 waiters_are 1
read -rt 8 <> <(:) || :   # until slurmctld has saved that it runs
cluster_kill "$C/ctld.pid" slurmctld KILL
read -rt 4 <> <(:) || :
check 'waits on when slurmctld is killed' waiters_are 1
ctld_again
check 'and when it is back' waiters_are 1
scancel "$job"   # Slurm itself would start it again after BatchStartTimeout: it has forgotten that a prolog runs
check 'can be cancelled' await 60 waiters_are 0
leaves_nothing 'slurmctld killed in the prolog' "$job"
release_slot
# A killed slurmctld forgets unsaved state: then the node may stay COMPLETING for long.
if [ -n "${EFS_SLURMCTLD_KILLS:-}" ]; then
  hold_slot out
  work ctldout
  job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result')
  await 60 waiting_out 1
  cluster_kill "$C/ctld.pid" slurmctld KILL
  release_slot
  check 'a stage-out does not need slurmctld' await 60 test -s "$W/results/result"
  ctld_again
  leaves_nothing 'slurmctld killed in the epilog' "$job"
  result_is 'slurmctld killed in the epilog' r
else
  skip 'slurmctld killed in the epilog' 'whether it forgets the job is chance; EFS_SLURMCTLD_KILLS=1 runs it'
fi

# --- the time limit expires in the prolog, and the time limit of the first job ---
hold_slot
work timein
job=$(submit $USER1 --efs=job.yaml -w n1 -t 1 <<<$'#!/bin/bash\necho ran')
check 'a job in its prolog' await 60 waiters_are 1
W=$timed_work
check 'a job whose time is over' await 150 has_ended "$timed"
check 'ends as such' test "$(state_of "$timed")" = TIMEOUT
result_is 'its time is over' r
check 'in its prolog, too' await 150 waiters_are 0
W=$S/timein timed_node=none
ends "$job" TIMEOUT 'a job whose time is over in its prolog'
release_slot
leaves_nothing 'its time is over' "$timed"
leaves_nothing 'its time is over in the prolog' "$job"
cluster_finish
