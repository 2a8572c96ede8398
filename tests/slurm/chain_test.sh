#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Successive jobs: an instance that one job keeps on the node for the next, and a stage-out that is
# part of the job, so that afterok sees its result.
#   chain_test.sh BIN_DIR
set -uo pipefail
CLUSTER_CONF=WaitTime=2   # of srun: the rest of a step is killed so soon after its first task has ended
. "$(dirname "$0")/scene.sh" "$@"
refused() { [ -z "$job" ] && grep -qE -- "$1" "$W/said"; }
no_run() { [ ! -e "$C/run.$1/$2" ]; }
uid1=$(id -u $USER1)

# --- refused at submission ---
work bad
job=$(submit $USER1 --efs=job.yaml --efs-keep=../x <<<$'#!/bin/bash\ntrue')
check 'under a name that is none' refused 'efs-keep: a name has letters'
job=$(submit $USER1 --efs-attach=x <<<$'#!/bin/bash\ntrue')
check 'to attach to what is not described' refused 'need --efs=JOB.yaml'
job=$(submit $USER1 --efs-intercept <<<$'#!/bin/bash\ntrue')
check 'to intercept without a file system' refused 'need --efs=JOB.yaml'
job=$(submit $USER1 --efs=job.yaml --efs-attach=x --efs-keep=y <<<$'#!/bin/bash\ntrue')
check 'to rename what is kept' refused 'continues under that name'
job=$(submit $USER1 --efs=job.yaml --efs-keep=x --efs-no-stage-out <<<$'#!/bin/bash\ntrue')
check 'to keep what is not back' refused 'excludes'
job=$(submit $USER1 --efs-stage-out=in-job <<<$'#!/bin/bash\ntrue')
check 'a stage-out of nothing' refused 'need --efs=JOB.yaml'

# --- an explicit name ---
work unnamed
job=$(submit $USER1 -w n1 <<<$'#!/bin/bash\n#SBATCH --efs=job.yaml\n#SBATCH --efs-keep\necho first >$EFS_MOUNT/r1; echo "i $EFS_INSTANCE"')
ends "$job" COMPLETED 'a job that keeps without a name'
check 'keeps under its number' says "$job" "^i slurm-kept.$uid1.$job-n1$"
check 'the node is free' quiet "$job"
second=$(submit $USER1 --efs=job.yaml --efs-attach="$job" -w n1 <<<$'#!/bin/bash\ncat $EFS_MOUNT/r1')
ends "$second" COMPLETED 'a job that attaches to that'
check 'has what the first left' says "$second" '^first$'
check 'nothing is left' quiet "$second"
job=$(submit $USER1 -w n1 <<<$'#!/bin/bash\n#SBATCH --efs=job.yaml\n#SBATCH --efs-keep=named\necho "i $EFS_INSTANCE"')
ends "$job" COMPLETED 'a job that names it in its script'
check 'has that name' says "$job" "^i slurm-kept.$uid1.named-n1$"
check 'the node is free' quiet "$job"
EFS_RUNTIME_DIR=$C/run.n1 "$EFS" clean "slurm-kept.$uid1.named-n1" >/dev/null

# --- keep and attach ---
work chain
kept=slurm-kept.$uid1.chain-n1
job=$(submit $USER1 --efs=job.yaml --efs-keep=chain -w n1 <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a; echo first >$EFS_MOUNT/r1; echo "i $EFS_INSTANCE"')
ends "$job" COMPLETED 'a job that keeps its files'
check 'its result is back' await 20 test -e "$W/results/r1"
check 'and the node is free' quiet "$job"
check 'it knows its instance' says "$job" "^i $kept$"
check 'what it kept is there' json "$(status_on n1 "$kept")" 'd["state"] == "kept"'
check_exit 'efs status --job says so' 0 "kept: .*files stay on n1" "$EFS" status --job "$job" --shared "$C/shared"
chain=$W
work stranger; chown -R $USER2 "$W"
job=$(submit $USER2 --efs=job.yaml --efs-attach=chain -w n1 <<<$'#!/bin/bash\necho ran')
ends "$job" FAILED 'a job of another user that would attach to it'
check 'is told that nothing of his is there' says "$job" 'you have nothing on n1 that was kept as chain'
W=$chain
await 30 all_idle
job=$(submit $USER1 --efs=job.yaml --efs-keep=chain -w n1 <<<$'#!/bin/bash\necho ran')
ends "$job" FAILED 'a job that would keep under a name that is taken'
check 'says what to do' says "$job" 'already that are kept as chain.*--efs-attach=chain'
check_not 'and did not run' says "$job" '^ran$'
check 'what was kept is there still' json "$(status_on n1 "$kept")" 'd["state"] == "kept"'
await 30 all_idle
job=$(submit $USER1 --efs=job.yaml --efs-attach=chain -w n2 <<<$'#!/bin/bash\necho ran')
ends "$job" FAILED 'a job that attaches on another node'
check 'says why, and the way out' says "$job" 'you have nothing on n2 that was kept as chain.*same node'
await 30 all_idle
job=$(submit $USER1 --efs=job.yaml --efs-attach=nosuch -w n1 <<<$'#!/bin/bash\necho ran')
ends "$job" FAILED 'a job that attaches to what was never kept'
check 'says so' says "$job" 'kept as nosuch'
await 30 all_idle

sed 's/^resources:.*/resources: [ [ path: in ], [ path: nowhere ] ]/' "$W/job.yaml" >"$W/missing.yaml"
job=$(submit $USER1 --efs=missing.yaml --efs-attach=chain -w n1 <<<$'#!/bin/bash\necho ran')
[ -z "$job" ] || fail 'the input is missing' "$job"
touch "$W/nowhere"
job=$(submit $USER1 --efs=missing.yaml --efs-attach=chain -w n1 --hold <<<$'#!/bin/bash\necho ran')
rm "$W/nowhere"; scontrol release "$job"
ends "$job" FAILED 'a job that attaches and whose input is gone when it starts'
check 'says so' says "$job" 'stage-in failed on n1: .*nowhere'
await 30 all_idle
check 'what was kept is kept still' json "$(status_on n1 "$kept")" 'd["state"] == "kept"'

echo changed >"$W/in/a"; echo gamma >"$W/in/c"; chown $USER1 "$W/in/a" "$W/in/c"
job=$(submit $USER1 --efs=job.yaml --efs-attach=chain --efs-keep -w n1 <<<$'#!/bin/bash
cat $EFS_MOUNT/r1 $EFS_MOUNT/in/a $EFS_MOUNT/in/c $EFS_MOUNT/in/sub/b
EFS_RUNTIME_DIR=$EFS_RUNTIME_DIR '"$EFS"$' status $EFS_INSTANCE | sed -n "s/^  log  *//p" | xargs cat
echo second >$EFS_MOUNT/r2; touch '"$W/second"$'; until [ -e '"$W/go"$' ]; do sleep 0.2; done')
check 'a job that attaches runs' await 40 test -e "$W/second"
second=$job
job=$(submit $USER1 --efs=job.yaml --efs-attach=chain -w n1 -o "$W/out.third" <<<$'#!/bin/bash\necho ran')
await 60 has_ended "$job"
check 'meanwhile nobody else attaches' grep -q 'chain on n1 is in use by another job of yours' "$W/out.third"
check 'and the one that runs goes on' json "$(status_on n1 "$kept")" 'd["state"] == "running"'
touch "$W/go"
ends "$second" COMPLETED 'the job that attached'
check 'finds what the first wrote, and the inputs of now' test "$(grep -cE '^(first|changed|gamma|beta)$' "$W/out.$second")" = 4
check 'staged in what was missing or had changed, and no more' says "$second" 'event=resume_plan missing_files=2 .*kept_files=1'
check 'the node is free' quiet "$second"
check 'its result is back' test "$(cat "$W/results/r2")" = second
check 'and all is kept once more' json "$(status_on n1 "$kept")" 'd["state"] == "kept"'
job=$(submit $USER1 --efs=job.yaml --efs-attach=chain -w n1 <<<$'#!/bin/bash\ncat $EFS_MOUNT/r2')
ends "$job" COMPLETED 'the last job of the chain'
check 'finds what the second wrote' says "$job" '^second$'
check 'the node is free' quiet "$job"
check 'and nothing is kept any more' no_run n1 "$kept"

work words
job=$(submit $USER1 --efs=job.yaml --efs-keep=no-stage-out -w n1 <<<$'#!/bin/bash\necho precious >$EFS_MOUNT/result')
ends "$job" COMPLETED 'a job that keeps under a name that is another flag'
check 'the node is free' quiet "$job"
check 'its result is back' test "$(cat "$W/results/result")" = precious
check 'efs clean by name' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" clean "slurm-kept.$uid1.no-stage-out-n1"
job=$(submit $USER1 --export=ALL,_SLURM_SPANK_OPTION_efs_efs-keep=../x,_SLURM_SPANK_OPTION_spank_efs_efs_keep=../x,_SLURM_SPANK_OPTION_efs_efs_keep=../x -w n1 <<<$'#!/bin/bash\nenv | grep SPANK_OPTION')
await 60 has_ended "$job"
check 'no environment of a user drains a node' not_drained

work early
kept=slurm-kept.$uid1.early-n1
first=$(submit $USER1 --efs=job.yaml --efs-keep=early -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/r; '"$EFS"$' stop --keep $EFS_INSTANCE; touch '"$W/stopped"$'; until [ -e '"$W/go"$' ]; do sleep 0.2; done')
check 'a job that stops and keeps before it ends' await 40 test -e "$W/stopped"
job=$(submit $USER1 --efs=job.yaml --efs-attach=early -w n1 <<<$'#!/bin/bash\necho ran')
ends "$job" FAILED 'one that attaches before its epilog, which would stop it'
check 'is told that it is in use' says "$job" 'in use by another job of yours'
touch -d '2 days ago' "$C/state.n1/kept.$uid1.early-n1"   # as if of an earlier job
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\ntrue')
ends "$job" COMPLETED 'a job whose prolog sweeps'
check 'leaves it to the job that has it' json "$(status_on n1 "$kept")" 'd["state"] == "kept"'
touch "$W/go"
ends "$first" COMPLETED 'that job'
check 'the node is free' quiet "$first"
check 'it is kept' json "$(status_on n1 "$kept")" 'd["state"] == "kept"'
check 'efs clean by name' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" clean "$kept"

# --- kept instances are removed ---
work sweep
kept=slurm-kept.$uid1.old-n1
job=$(submit $USER1 --efs=job.yaml --efs-keep=old -w n1 <<<$'#!/bin/bash\ntrue')
ends "$job" COMPLETED 'a job that keeps its files'
check 'the node is free' quiet "$job"
check 'a record of it is root'"'"'s' test "$(stat -c %u "$C/state.n1/kept.$uid1.old-n1")" = 0
check 'clean without a name leaves it' bash -c "EFS_RUNTIME_DIR='$C/run.n1' '$EFS' clean; test -d '$C/run.n1/$kept'"
touch -d '2 days ago' "$C/state.n1/kept.$uid1.old-n1"
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\ntrue')
ends "$job" COMPLETED 'another job on the node'
check 'the time is over: it is removed' no_run n1 "$kept"
check 'with its record' test ! -e "$C/state.n1/kept.$uid1.old-n1"
check 'the node is free' quiet "$job"
job=$(submit $USER1 --efs=job.yaml --efs-keep=old -w n1 <<<$'#!/bin/bash\ntrue')
ends "$job" COMPLETED 'a job that keeps its files'
check 'the node is free' quiet "$job"
check 'efs clean by name' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" clean "$kept"
check 'removes it' no_run n1 "$kept"

work twonodes
job=$(submit $USER1 --efs=job.yaml --efs-keep=two -N2 -w n1,n2 <<<$'#!/bin/bash\nsrun bash -c \'echo "first $SLURM_NODEID" >$EFS_MOUNT/of.$SLURM_NODEID; echo "first $SLURM_NODEID" >$EFS_MOUNT/in/new.$SLURM_NODEID\'')
ends "$job" COMPLETED 'a job on two nodes that keeps'
check 'the nodes are free' quiet "$job"
job=$(submit $USER1 --efs=job.yaml --efs-attach=two -N2 -w n1,n2 <<<$'#!/bin/bash\nsrun bash -c \'cat $EFS_MOUNT/of.$SLURM_NODEID; echo "second $SLURM_NODEID" >$EFS_MOUNT/of.$SLURM_NODEID\'')
ends "$job" COMPLETED 'one that attaches on both'
check 'finds on each what is its own' test "$(output_of "$job" | sort)" = $'first 0\nfirst 1'
check 'the nodes are free' quiet "$job"
check 'what it changed takes the place of what was back' test "$(cat "$W/results/of.0" "$W/results/of.1")" = $'second 0\nsecond 1'

work again
kept=slurm-kept.$uid1.again-n1
job=$(submit $USER1 --efs=job.yaml --efs-keep=again --requeue -w n1 <<'SCRIPT'
#!/bin/bash
[ -n "$SLURM_RESTART_COUNT" ] || { echo first >$EFS_MOUNT/first; sleep 600; }
cat $EFS_MOUNT/first
SCRIPT
)
check 'a job that keeps runs' await 40 has_written "$job" first
check 'and is requeued' scontrol requeue "$job"
runs_again() { has_ended "$job" && [ "$(job_field "$job" Restarts)" = 1 ]; }
check 'it runs again' await 150 runs_again
ends "$job" COMPLETED 'a job that kept and was requeued'
check 'goes on with its own' says "$job" '^first$'
check 'the node is free' quiet "$job"
check 'efs clean by name' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" clean "$kept"

# --- the stage-out in the job ---
work injob
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job --hold <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a; echo r >$EFS_MOUNT/result; cd $EFS_MOUNT; ps -o pgid= $$ $PPID | sort -u | wc -l | sed "s/^/groups /"')
after=$(submit $USER1 -d "afterok:$job" -o "$W/after" <<<$'#!/bin/bash\ncat '"$W/results/result")
scontrol release "$job"
ends "$job" COMPLETED 'a job with its stage-out in it'
check 'had its input' says "$job" '^alpha$'
check 'tells of the stage-out in its output' says "$job" '^receipt: '
check 'script and task are one process group' says "$job" '^groups 1$'
check 'nothing is left' quiet "$job"
ends "$after" COMPLETED 'the job that waits for it'
check 'finds the result' grep -qx r "$W/after"

work injobturn
hold_slot out
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job -N2 -w n1,n2 <<<$'#!/bin/bash\nsrun bash -c \'echo "node $SLURM_NODEID" >$EFS_MOUNT/out.$SLURM_NODEID\'')
both_wait() { json "$("$EFS" queue --json "$C/queue")" 'len(d["out"]["waiters"]) == 2'; }
check 'a stage-out in a job waits for its turn, on both nodes' await 60 both_wait
# Earlier stage-outs have measured the rate of one slot: here, as much as the first one moves in a
# minute and a half.
rate=$(field "$("$EFS" queue --json "$C/queue")" 'd["out"]["waiters"][0]["bytes"] / 90.5')
sed -i "s/ out .*/ out $rate/" "$C/queue/state"
tells_of() { "$EFS" status --job "$job" --shared "$C/shared" | grep -E "$1"; }
check 'efs status --job says so of one node' tells_of '^job [0-9]+ on n[12]: running: waits to stage out, 0 ahead, about 0.0 s$'
check 'and of the other' tells_of '^job [0-9]+ on n[12]: running: waits to stage out, 1 ahead, about 1m30s$'
check 'the job runs' is_running "$job"
release_slot
ends "$job" COMPLETED 'the job'
check 'nothing is left' quiet "$job"

work injobfails
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job --hold -w n1 <<<$'#!/bin/bash\necho precious >$EFS_MOUNT/result\nchmod 555 '"$W/results")
after=$(submit $USER1 -d "afterok:$job" --kill-on-invalid-dep=yes <<<$'#!/bin/bash\ntrue')
scontrol release "$job"
ends "$job" FAILED 'a job whose results cannot be written'
check 'has the exit code of efs run' test "$(job_field "$job" ExitCode)" = 125:0
check 'says so in its output' says "$job" 'not all results are exported'
check 'the job that waits for it' await 40 has_ended "$after"
check 'does not run' test "$(state_of "$after")" = CANCELLED
check 'the node is free' await 30 all_idle
chmod 755 "$W/results"
check 'the results can still be saved' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" stop "slurm-$job.0-n1"
rm -rf "$C/state.n1/$job.0"; rmdir "$C/mnt.n1/$job" 2>/dev/null

work injobcode
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result; exit 7')
ends "$job" FAILED 'a script that fails'
check 'has its own code' test "$(job_field "$job" ExitCode)" = 7:0
check 'and its results' test "$(cat "$W/results/result")" = r
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job <<<$'#!/bin/bash\nkill -SEGV $$')
ends "$job" FAILED 'a script that is killed'
check 'has its own signal' test "$(job_field "$job" ExitCode)" = 0:11
check 'the node is free' quiet "$job"
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job <<<$'#!/bin/bash\necho own >$EFS_MOUNT/own; '"$EFS"$' stop $EFS_INSTANCE')
ends "$job" COMPLETED 'a script that stops its file system itself'
check 'result' test "$(cat "$W/results/own")" = own
check 'the node is free' quiet "$job"

work injobsignal
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job <<<$'#!/bin/bash\nn=0; trap "n=\$((n + 1))" USR1; touch '"$W/ready"$'; until [ -e '"$W/go"$' ]; do sleep 0.2; done; echo "usr1 $n" >$EFS_MOUNT/n')
check 'a script that waits for a signal' await 40 test -e "$W/ready"
scancel --batch -s USR1 "$job"
read -rt 1.5 <> <(:) || :
touch "$W/go"
ends "$job" COMPLETED 'a script that gets a signal'
check 'gets it once' test "$(cat "$W/results/n")" = 'usr1 1'
rm "$W/ready" "$W/go"
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job <<<$'#!/bin/bash\necho late >$EFS_MOUNT/late; touch '"$W/ready"$'; sleep 600')
check 'a script that is cancelled' await 40 test -e "$W/ready"
scancel "$job"
ends "$job" CANCELLED 'it ends'
check 'the node is free' quiet "$job"
check 'its results are back' test "$(cat "$W/results/late")" = late

# Another process's namespace, which outlives the job, replaces that of job_container/tmpfs here.
work injobcopy
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result; until [ -e '"$W/go"$' ]; do sleep 0.2; done')
check 'a job runs' await 40 has_written "$job" result
"$SOURCE/tests/own_mounts.py" --keep "$C/mnt.n1/$job" sleep 600 & viewer=$!; pids+=($viewer)
own_namespace() { [ "$(readlink "/proc/$viewer/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ] && grep -qF " $C/mnt.n1/$job " "/proc/$viewer/mounts" && [ "$(cat "/proc/$viewer/comm")" = sleep ]; }
check 'another mount namespace has a copy of its mount' await 20 own_namespace
touch "$W/go"
ends "$job" COMPLETED 'a job whose stage-out is in it'
check 'its result is back' grep -qx r "$W/results/result"
check_not 'while that namespace is there still' gone "$viewer"
check 'the node is free' quiet "$job"
kill $viewer; wait $viewer 2>/dev/null

work injobnodes
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job -N2 -w n1,n2 <<<$'#!/bin/bash\nsrun bash -c \'echo "node $SLURM_NODEID" >$EFS_MOUNT/out.$SLURM_NODEID\'')
ends "$job" COMPLETED 'a job on two nodes'
check 'both stage out within it' test "$(grep -c '^receipt: ' "$W/out.$job")" = 2
check 'results of both' test "$(cat "$W/results/out.0" "$W/results/out.1")" = $'node 0\nnode 1'
check 'nothing is left' quiet "$job"
work injobslow
sed -i '2i\  max-rate: 1 MiB/s' "$W/job.yaml"
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job -N2 -w n1,n2 <<<$'#!/bin/bash\nsrun bash -c \'[ $SLURM_NODEID = 0 ] || head -c 7M /dev/urandom >$EFS_MOUNT/large\'')
ends "$job" COMPLETED 'a job of which one node takes longer than WaitTime'
check 'its result is back' test "$(stat -c %s "$W/results/large")" = 7340032
check 'nothing is left' quiet "$job"
work injobnodefails
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job -N2 -w n1,n2 <<<$'#!/bin/bash\nsrun bash -c \'echo "node $SLURM_NODEID" >$EFS_MOUNT/log\'')
ends "$job" FAILED 'a job of which one node cannot bring its results back'
check 'has the exit code of efs run' test "$(job_field "$job" ExitCode)" = 125:0
check 'the nodes are free' await 30 all_idle
for node in n1 n2; do [ ! -d "$C/state.$node/$job.0" ] || EFS_RUNTIME_DIR="$C/run.$node" "$EFS" stop --no-stage-out "slurm-$job.0-$node"; rm -rf "$C/state.$node/$job.0"; rmdir "$C/mnt.$node/$job" 2>/dev/null; done

work both
kept=slurm-kept.$uid1.both-n1
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job --efs-keep=both -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result')
ends "$job" COMPLETED 'a job that stages out within itself, and keeps'
check 'the node is free' quiet "$job"
check 'its result is back' test "$(cat "$W/results/result")" = r
check 'and kept' json "$(status_on n1 "$kept")" 'd["state"] == "kept"'
check 'efs clean by name' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" clean "$kept"

install -d "$C/view"
cluster_plugstack view="$C/view"
work view
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job -N2 -w n1,n2 --hold <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a; srun bash -c \'echo "node $SLURM_NODEID" >$EFS_MOUNT/out.$SLURM_NODEID\'')
after=$(submit $USER1 -d "afterok:$job" -o "$W/after" <<<$'#!/bin/bash\ncat '"$W/results/out.0 $W/results/out.1")
scontrol release "$job"
ends "$job" COMPLETED 'a job on two nodes with a view, that stages out within it'
check 'sees its input there' says "$job" '^alpha$'
check 'both nodes stage out within it' test "$(grep -c '^receipt: ' "$W/out.$job")" = 2
check 'nothing is left' quiet "$job"
ends "$after" COMPLETED 'the job that waits for it'
check 'finds the results' test "$(cat "$W/after")" = $'node 0\nnode 1'
rm "$W"/results/*
sed "2i\\  log-file: $W/log" "$W/job.yaml" >"$W/logged.yaml"
job=$(submit $USER1 --efs=logged.yaml --efs-stage-out=in-job -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result')
ends "$job" COMPLETED 'one on one node'
check 'stages out' grep -qw event=staged_out "$W/log"
check_not 'as soon as its script has ended, for its view has, too' grep -q event=cut_off "$W/log"   # on one host, nodes have copies of other nodes' mounts
check 'nothing is left' quiet "$job"
rm "$W"/results/*
job=$(submit $USER1 --efs=job.yaml --efs-stage-out=in-job -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result; cd $EFS_MOUNT; setsid sleep 600 </dev/null >/dev/null 2>&1 &')
ends "$job" FAILED 'one that leaves a process in its view'
check 'says what the matter is' says "$job" "mounted at a second place, $C/view"
check 'the end of the job ends that, and its result comes back' quiet "$job"
check 'result' test "$(cat "$W/results/result")" = r
rm "$W"/results/*
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result; '"$EFS"$' stop $EFS_INSTANCE')
ends "$job" FAILED 'a script that stops its file system from its view'
check 'is told why it cannot' says "$job" 'mounted at a second place, '"$C/view"
check 'nothing is left' quiet "$job"
check 'the end of the job brings its result back' test "$(cat "$W/results/result")" = r
cluster_finish
