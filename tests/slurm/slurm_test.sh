#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The Slurm plugin on a real cluster of four nodes, which this test starts and ends: requests of
# users and failures. No node is drained.
#   slurm_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/scene.sh" "$@"

exported=$(nm -D --defined-only "$PLUGIN" | awk '{print $3}' | grep -vE '^(slurm_spank_[a-z_]+|plugin_(name|type|version)|spank_plugin_version)$')
check 'the plugin exports what Slurm looks for and nothing else' test -z "$exported"
check 'and needs the C library alone' test "$(objdump -p "$PLUGIN" | awk '$1 == "NEEDED" {print $2}' | grep -v '^ld-linux')" = libc.so.6

# --- requests of users ---
work good
job=$(submit $USER1 --efs=job.yaml -N2 -n4 --ntasks-per-node=2 <<'SCRIPT'
#!/bin/bash
srun bash -c 'cat $EFS_MOUNT/in/a $EFS_MOUNT/in/sub/b; echo "$SLURM_NODEID $(stat -f -c %T $EFS_MOUNT)"; echo "node $SLURM_NODEID" >$EFS_MOUNT/out.$SLURM_NODEID
echo "task $SLURM_NODEID $EFS_NODE of $EFS_NODES $([ "$DW_JOB_PRIVATE" = "$EFS_MOUNT" ] && cat $DW_JOB_PRIVATE/in/a) ${EFS_PARTS-whole}"'
SCRIPT
)
ends "$job" COMPLETED 'a job on two nodes'
check 'inputs are on both nodes before the first line' test "$(grep -c '^alpha$' "$W/out.$job")$(grep -c '^beta$' "$W/out.$job")" = 44
check 'every task knows where its files and which of the nodes it is' test "$(grep '^task' "$W/out.$job" | sort | tr '\n' ';')" = 'task 0 0 of 2 alpha whole;task 0 0 of 2 alpha whole;task 1 1 of 2 alpha whole;task 1 1 of 2 alpha whole;'
check 'what they see is a mount of efs' says "$job" '^0 fuse'
check 'after it nothing is left of it' quiet "$job"
check 'results of both nodes are back' test "$(cat "$W/results/out.0" "$W/results/out.1")" = $'node 0\nnode 1'
check 'they belong to the user' test "$(stat -c %U "$W/results/out.0")" = $USER1
check 'each node has its receipt' test "$(ls "$W/results" | grep -c '^efs-receipt-')" = 2
for receipt in "$W"/results/efs-receipt-*; do
  check 'whose verdict and totals are right' json "$(cat "$receipt")" 'd["verdict"] == "complete" and d["totals"]["staged-out"] == 1 and d["totals"]["bytes_staged_out"] == 7 and d["totals"]["failed"] == d["totals"]["not-saved"] == d["totals"]["conflict"] == d["totals"]["bytes_left"] == 0'
done
check_exit 'efs status --job tells of both nodes' 0 'on n2: done' "$EFS" status --job "$job" --shared "$C/shared"
check_exit 'also to a user who does not know where the nodes write' 0 'on n2: done' as $USER2 "$EFS" status --job "$job"
check 'and tells programs' json "$("$EFS" status --json --job "$job" --shared "$C/shared")" 'd["ok"] and [n["state"] for n in d["nodes"]] == ["done", "done"]'

work before
here=$(hostname -s)   # the submitting host has the program too
install -d "$C/bin.n1" "$C/bin.n2" "$C/bin.$here"
ln -s "$EFS" "$C/bin.n1/efs"; ln -s "$EFS" "$C/bin.$here/efs"
printf '#!/bin/sh\n[ "$1" != start ] || until [ -e %s/go ]; do sleep 0.1; done\nexec %s "$@"\n' "$C" "$EFS" >"$C/bin.n2/efs" && chmod 755 "$C/bin.n2/efs"
cluster_plugstack efs="$C/bin.%n/efs"
job=$(submit $USER1 --efs=job.yaml -w n1,n2 <<<$'#!/bin/bash\ncat '"$C"$'/mnt.n1/$SLURM_JOB_ID/in/a '"$C"$'/mnt.n2/$SLURM_JOB_ID/in/a\ntouch '"$W/began")
check 'a job of which one node has its inputs' await 40 has_written "$job" in/a
check_not 'does not begin' await 5 test -e "$W/began"
touch "$C/go"
ends "$job" COMPLETED 'when the other one has them it'
check 'has them on both nodes at its first line' test "$(output_of "$job")" = $'alpha\nalpha'
check 'nothing is left' quiet "$job"
cluster_plugstack queue="$C/queue" mail="$C/mail.sh"

work options/job
mkdir "$S/options/far"; echo far >"$S/options/far/f"; chown -R $USER1 "$S/options/far"
job=$(submit $USER1 --efs-stage-in=in/a --efs-stage-in=in/sub --efs-stage-in="$S/options/far/f:data/f" --efs-stage-out='*.txt':"$W/results" --efs-stage-out="in/sub:$W/results" --efs-stage-out="deep/r.h5:$W/results/final.h5" --efs-capacity=32MiB <<'SCRIPT'
#!/bin/bash
cat $EFS_MOUNT/in/a $EFS_MOUNT/in/sub/b $EFS_MOUNT/data/f
echo changed >$EFS_MOUNT/in/a
echo changed >$EFS_MOUNT/in/sub/b
echo kept >$EFS_MOUNT/r.txt
mkdir $EFS_MOUNT/deep; echo final >$EFS_MOUNT/deep/r.h5
echo dropped >$EFS_MOUNT/r.tmp
df -B1M --output=size $EFS_MOUNT
SCRIPT
)
ends "$job" COMPLETED 'a job that asks by options'
check 'has both inputs' says "$job" '^beta$'
check 'and one from elsewhere, where it wants it' says "$job" '^far$'
check 'has the capacity it asked for' says "$job" ' 3[0-2]$'
check 'has what it named and no more' quiet "$job"
check 'results are what it named' test "$(cd "$W/results" && find . -type f | grep -v 'efs-re' | sort | tr '\n' ' ')" = './final.h5 ./in/sub/b ./r.txt '
check 'also one that has another name there' test "$(cat "$W/results/final.h5")" = final
check 'also an input that it has changed' test "$(cat "$W/results/in/sub/b" "$W/in/sub/b" "$W/in/a")" = $'changed\nbeta\nalpha'

work script
job=$(submit $USER1 <<'SCRIPT'
#!/bin/bash
#SBATCH --efs=job.yaml
#SBATCH --efs-no-stage-out
cat $EFS_MOUNT/in/a
echo x >$EFS_MOUNT/result
SCRIPT
)
ends "$job" COMPLETED 'a job that asks in its script, without stage-out'
check 'has its input' says "$job" '^alpha$'
check 'and leaves nothing' quiet "$job"
check 'nothing was brought back' test -z "$(ls "$W/results")"

work salloc
check 'srun without a script' test "$(cd "$W" && as $USER1 srun -Q --efs=job.yaml sh -c 'cat $EFS_MOUNT/in/a')" = alpha
check 'salloc, and srun in it' test "$(cd "$W" && as $USER1 salloc -Q --efs=job.yaml srun -Q sh -c 'cat $EFS_MOUNT/in/a')" = alpha
await 30 all_idle

work injob
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result\nEFS_RUNTIME_DIR='"$C/run.n1 $EFS"$' stop && cat '"$W"$'/results/result && exit 7')
ends "$job" FAILED 'a job that stages out in its script, and has its exit code'
check 'sees its results itself' says "$job" '^r$'
check 'the epilog finds nothing to do' quiet "$job"
check_exit 'and efs status --job says so' 0 'has stopped it itself' "$EFS" status --job "$job" --shared "$C/shared"

work plain
job=$(submit $USER1 --hold <<<$'#!/bin/bash\necho "mount:$EFS_MOUNT:"; srun --efs=job.yaml echo ran')
check_exit 'of a job that waits in the queue of Slurm efs status --job says why' 0 "^job $job waits for its nodes .JobHeldUser.*; its inputs are staged in when it has them" "$EFS" status --job "$job"
scontrol release "$job"
ends "$job" FAILED 'a job without efs, of which a step asks for it'
check 'is left alone' says "$job" '^mount::$'
check 'the step is told who can ask' says "$job" 'efs: this job was submitted without a file system; give --efs'
check_not 'and does not run' says "$job" '^ran$'
check_exit 'efs status --job says what it knows of such a job' 1 'Slurm has it as FAILED' "$EFS" status --job "$job"

work array
job=$(submit $USER1 --efs=job.yaml --array=1-2 -o "$W/out.%A_%a" <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a; echo $SLURM_ARRAY_TASK_ID >$EFS_MOUNT/r.$SLURM_ARRAY_TASK_ID')
array_done() { [ "$(ls "$W/results" | grep -c '^r\.')" = 2 ] && all_idle; }
check 'an array: every task has its own file system' await 60 array_done
check_exit 'efs status --job knows a task as squeue writes it' 0 'done: all results are exported' "$EFS" status --job "${job}_1"

work patterns 'resources: [ [ path: "$PART/%x.%a" ] ]'
sed -i 's|/results$|/results/%x.%A.%a.%N.%t|' "$W/job.yaml"
for i in 1 2; do echo "input $i" >"$W/in/heat.$i"; done
export PART=in
job=$(submit $USER1 --efs=job.yaml --array=1-2 -J heat -o "$W/out.%A_%a" <<<$'#!/bin/bash\ncp $EFS_MOUNT/in/heat.* $EFS_MOUNT/r')
unset PART
array_done() { [ "$(cat "$W"/results/heat."$job".[12].n[123].0/r 2>/dev/null | sort | tr '\n' ' ')" = 'input 1 input 2 ' ] && all_idle; }
check 'an array with patterns: every task has its own inputs and results' await 60 array_done || cat "$W"/out.*

work snapshot
job=$(submit $USER1 --hold --efs=job.yaml <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a; ls $EFS_MOUNT/in/sub; touch $EFS_MOUNT/r')
printf 'global-settings: [ root-dir: %s, mount-dir: /efs, results-dir: %s/elsewhere ]\nresources: [ [ path: in/a ] ]\n' "$W" "$W" >"$W/job.yaml"
scontrol release "$job"
ends "$job" COMPLETED 'a job whose file was changed while it waited'
check 'has what was submitted' says "$job" '^b$'
check 'nothing is left' quiet "$job"
check 'its results are where they were meant to be' test -e "$W/results/r" -a ! -e "$W/elsewhere"

# --- refused at submission ---
refused() { [ -z "$job" ] && grep -qE -- "$1" "$W/said"; }
work bad
echo 'resorces: []' >>"$W/job.yaml"
job=$(submit $USER1 --efs=job.yaml <<<$'#!/bin/bash\ntrue')
check 'a job file with a misspelt key is refused, with its line' refused 'job.yaml:[0-9]+:.*resorces'
work missing 'resources: [ [ path: nowhere ] ]'
job=$(submit $USER1 --efs=job.yaml <<<$'#!/bin/bash\ntrue')
check 'a missing input is refused' refused nowhere
job=$(submit $USER1 --efs=none.yaml <<<$'#!/bin/bash\ntrue')
check 'a missing job file is refused' refused none.yaml
job=$(submit $USER1 --efs-no-stage-out <<<$'#!/bin/bash\ntrue')
check 'options that mean nothing alone are refused' refused 'need --efs'

work capacity
job=$(submit $USER1 --efs=job.yaml --mem=32M <<<$'#!/bin/bash\ntrue')
check 'more capacity than memory is refused, with both numbers' refused 'job.yaml:5: capacity 64 MiB of backend ram, which is in memory, is more than the memory of the job on a node, 32 MiB \(--mem\)'
check 'and the way out' refused 'Ask for more memory \(--mem\), or lower the capacity'
job=$(submit $USER1 --efs=job.yaml <<<$'#!/bin/bash\n#SBATCH --mem 33M\ntrue')
check 'also in the script' refused 'on a node, 33 MiB'
job=$(submit $USER1 --efs-stage-in=in/a --efs-capacity=3GiB --mem=0 <<<$'#!/bin/bash\ntrue')
check 'more than any node has, too' refused 'capacity 3 GiB.* is more than any node has, 1.953 GiB'
scontrol update PartitionName=all Hidden=YES
job=$(submit $USER1 --efs-stage-in=in/a --efs-capacity=3GiB --mem=0 <<<$'#!/bin/bash\ntrue')
check 'nodes of hidden partitions count' refused 'is more than any node has, 1.953 GiB'
scontrol update PartitionName=all Hidden=NO
check 'srun refuses, too' test -z "$(cd "$W" && as $USER1 srun -Q --mem=32M --efs=job.yaml echo ran 2>/dev/null)"
job=$(submit $USER1 --efs=job.yaml --mem-per-cpu=20M -n3 <<<$'#!/bin/bash\ntrue')
check 'more than the memory of its CPUs, too' refused 'on a node, 60 MiB \(--mem-per-cpu, for at most 3 CPUs\)'
job=$(submit $USER1 --efs-stage-in=in/a --efs-capacity=301MiB <<<$'#!/bin/bash\ntrue')
check "more than the cluster's default, where it asks for none" refused 'on a node, 300 MiB \(DefMemPerNode\)'
job=$(submit $USER1 --efs=job.yaml --mem=64M <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a')
ends "$job" COMPLETED 'a job with just enough memory'
await 30 all_idle
job=$(submit $USER1 --efs=job.yaml --mem-per-cpu=32M -N2 -n2 --hold <<<$'#!/bin/bash\necho ran')
job2=$(submit $USER1 --efs=job.yaml --mem-per-cpu=32M -N2 -n3 --distribution=cyclic --hold <<<$'#!/bin/bash\necho ran')
await 20 scontrol release "$job"
ends "$job" FAILED 'a job whose tasks, and so its memory, are spread over nodes'
check 'says how little it has there' says "$job" 'stage-in failed on n[12]: .*capacity 64 MiB.*job on a node, 32 MiB \(what Slurm has given the job\).*Ask for more memory'
check_not 'and does not run' says "$job" '^ran$'
check 'nothing is left' quiet "$job"
scontrol release "$job2"
ends "$job2" FAILED 'one where that is so on one node alone'
check 'says on which' says "$job2" 'stage-in failed on n2: .*job on a node, 32 MiB'
check 'nothing is left' quiet "$job2"

work awaited 'resources: [ [ path: in/a, from-job: true ] ]'
rm "$W/in/a"
job=$(submit $USER1 --hold --efs=job.yaml <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a')
check 'a missing input that an earlier job makes is a warning' grep -q 'awaited from an earlier job' "$W/said"
echo made >"$W/in/a"; chown $USER1 "$W/in/a"
scontrol release "$job"
ends "$job" COMPLETED 'the job'
check 'finds it when it starts' says "$job" '^made$'
check 'nothing is left' quiet "$job"

# --- failures ---
work vanishing
job=$(submit $USER1 --hold --efs=job.yaml -N2 <<<$'#!/bin/bash\necho ran')
rm -r "$W/in"
scontrol release "$job"
ends "$job" FAILED 'a job whose input vanished while it waited'
check 'its output says why' says "$job" 'efs: stage-in failed on n[12]: .*'"$W/in"
check_not 'its script did not run' says "$job" '^ran$'
check 'no node is drained' not_drained
check_exit 'efs status --job says so' 1 'failed: ' "$EFS" status --job "$job" --shared "$C/shared"
check 'nothing is left' quiet "$job"

work onenode
mv "$C/mnt.n2" "$C/mnt.n2.aside"; ln -s /tmp "$C/mnt.n2"
job=$(submit $USER1 --efs=job.yaml -w n1,n2 <<<$'#!/bin/bash\necho ran')
ends "$job" FAILED 'a job of which one node cannot stage'
check 'the other node knows' says "$job" 'efs: stage-in failed on n2'
check 'no node is drained' not_drained
await 30 all_idle
rm "$C/mnt.n2"; mv "$C/mnt.n2.aside" "$C/mnt.n2"
check 'nothing is left' quiet "$job"

hold_slot
work cancel
job=$(submit $USER1 --efs=job.yaml <<<$'#!/bin/bash\necho ran')
check 'a stage-in waits for its turn' await 30 waiters_are 1
comment_says() { comment_of "$job" | grep -q 'waits to stage in'; }
check 'the admin comment says what it waits for' await 20 comment_says
check_exit 'efs status --job, too' 0 'waits to stage in' "$EFS" status --job "$job" --shared "$C/shared"
scancel "$job"
check 'scancel ends the waiting' await 20 waiters_are 0
check 'and the job' await 20 has_ended "$job"
check 'it is cancelled' test "$(state_of "$job")" = CANCELLED
check 'nothing is left' quiet "$job"
check 'no node is drained' not_drained
release_slot

work moving
sed -i 's,^global-settings:,&\n  max-rate: 64 KiB/s,' "$W/job.yaml"
head -c 4M /dev/urandom >"$W/in/large"
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho ran')
moves() { json "$(status_on n1 "slurm-$job.0-n1")" 'd["state"] == "staging-in" and 0 < d["bytes_done"] < d["bytes_total"]'; }
check 'the bytes of a stage-in move' await 40 moves
comment_moves() { comment_of "$job" | grep -qE '^efs on n1: staging in, [0-9]+% moved, about [0-9ms ]+ left ?$'; }
check 'the admin comment says how many, and for how long still' await 30 comment_moves
scancel "$job"
check 'scancel ends it before they are all there' await 20 job_is_gone "$job"
ends "$job" CANCELLED 'the job'
check 'no instance of it is left' test ! -e "$C/run.n1/slurm-$job.0-n1"
check_not 'and its script has not run' says "$job" '^ran$'
check 'the node is free' await 30 all_idle

# --- the queue ---
work turns
hold_slot
first=$(submit $USER1 --efs=job.yaml -w n1,n2 -t 10 <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a')
check 'the first waits, on both its nodes' await 30 waiters_are 2
second=$(submit $USER1 --efs=job.yaml -w n3 <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a')
check 'the second waits' await 30 waiters_are 3
(cd "$W" && as $USER1 salloc -Q -w n4 -t 10 --efs=job.yaml sh -c 'echo $SLURM_JOB_ID' >"$W/alloc" 2>&1) &
alloc=$!
check 'so does an allocation without a script' await 30 waiters_are 4
check 'in their order' json "$("$EFS" queue --json "$C/queue")" "sorted(w['node'] for w in d['in']['waiters'][:2]) == ['n1', 'n2'] and d['in']['waiters'][2]['node'] == 'n3' and d['in']['waiters'][0]['uid'] == $(id -u $USER1)"
check 'a user sees the queue' as $USER2 "$EFS" queue "$C/queue"
check_exit 'and need not know where it is' 0 "^queue $C/queue, fifo" as $USER2 "$EFS" queue
check_not 'and cannot take its lock' as $USER2 cat "$C/queue/locks"
waited_long() { json "$("$EFS" queue --json "$C/queue")" 'all(__import__("time").time() - w["since"] > 12 for w in d["in"]["waiters"])'; }
await 30 waited_long
release_slot
ends "$first" COMPLETED 'the first'
ends "$second" COMPLETED 'the second'
check 'both had their inputs' test "$(output_of "$first"; output_of "$second")" = $'alpha\nalpha'
check 'the time that it waited is given back, once for both nodes' test "$(job_field "$first" TimeLimit)" = 00:11:00
wait "$alloc"
check 'to the allocation, too' test "$(job_field "$(cat "$W/alloc")" TimeLimit)" = 00:11:00
check 'nothing is left of the first' quiet "$first"
check 'the queue is empty' test -z "$(ls "$C/queue/in" "$C/queue/out" | grep '^[wh]')"

# --- stage-outs that fail ---
work unsaved
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho precious >$EFS_MOUNT/result\nchmod 555 '"$W/results")
ends "$job" COMPLETED 'a job whose results cannot be written'
check 'the node is free for others' await 30 all_idle
check_exit 'efs status --job gives 3' 3 'unsaved: results are not exported' "$EFS" status --job "$job" --shared "$C/shared"
check 'the mail hook was called' grep -q "^$job " "$C/mail.log"
chmod 755 "$W/results"
check 'the results can still be saved' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" stop "slurm-$job.0-n1"
check 'and are' test "$(cat "$W/results/result")" = precious
rm -rf "$C/state.n1/$job.0"; rmdir "$C/mnt.n1/$job" 2>/dev/null

work holder
job=$(submit $USER1 --efs=job.yaml <<'SCRIPT'
#!/bin/bash
cd $EFS_MOUNT && echo r >result && exec 0</dev/null && { setsid sleep 300 >/dev/null 2>&1 & disown; }
SCRIPT
)
ends "$job" COMPLETED 'a job that leaves a process on the mount'
check 'the process goes and the results come' quiet "$job"
check 'result' test "$(cat "$W/results/result")" = r

# --- life of a job ---
work requeue
job=$(submit $USER1 --efs=job.yaml --requeue <<'SCRIPT'
#!/bin/bash
echo "run $SLURM_RESTART_COUNT" >$EFS_MOUNT/run.${SLURM_RESTART_COUNT:-0}
[ -n "$SLURM_RESTART_COUNT" ] || sleep 600
SCRIPT
)
check 'a job runs' await 30 is_running "$job"
await 20 has_written "$job" run.0
check 'requeue' scontrol requeue "$job"
runs_again() { has_ended "$job" && [ "$(job_field "$job" Restarts)" = 1 ]; }
check 'it runs again' await 150 runs_again
check 'nothing is left' quiet "$job"
check 'what the first run wrote is saved' test -e "$W/results/run.0"
check 'and what the second wrote' test -e "$W/results/run.1"

work kept
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result\nEFS_RUNTIME_DIR='"$C"'/run.n1 '"$EFS"$' stop --keep slurm-$SLURM_JOB_ID.0-n1')
ends "$job" COMPLETED 'a job that stops its file system with --keep'
check 'nothing is left' quiet "$job"
check 'not the store either' test ! -e "$C/run.n1/slurm-$job.0-n1"
check 'its result is back' test "$(cat "$W/results/result")" = r
check_exit 'and it is called done' 0 'done: ' "$EFS" status --job "$job" --shared "$C/shared"
check_not 'without a mail' grep -q "^$job " "$C/mail.log"

work killed
job=$(submit $USER1 --efs=job.yaml --requeue -w n1 <<'SCRIPT'
#!/bin/bash
if [ -z "$SLURM_RESTART_COUNT" ]; then echo precious >$EFS_MOUNT/first; sleep 600; fi
cat $EFS_MOUNT/in/a
SCRIPT
)
check 'a job runs' await 30 is_running "$job"
await 20 has_written "$job" first
text=$(EFS_RUNTIME_DIR=$C/run.n1 "$EFS" status --json "slurm-$job.0-n1")
kill -KILL "$(field "$text" 'd["supervisor_pid"]')" "$(field "$text" 'd["worker_pid"]')"
check 'requeue of a job whose efs was killed' scontrol requeue "$job"
runs_again() { has_ended "$job" && [ "$(job_field "$job" Restarts)" = 1 ]; }
check 'it runs again' await 150 runs_again
check 'with its inputs, where the dead mount was' says "$job" '^alpha$'
check 'the node is free' await 30 all_idle
check_exit 'clean refuses what the first run left' 1 'no other copy' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" clean "slurm-$job.0-n1"
check 'salvage brings it out' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" salvage "slurm-$job.0-n1"
check 'whole' test "$(cat "$W/results/first")" = precious
check 'and then it can go' env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" clean "slurm-$job.0-n1"
rm -rf "$C/state.n1/$job.0"; rmdir "$C/mnt.n1/$job" 2>/dev/null

work timeout
job=$(submit $USER1 --efs=job.yaml <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result; sleep 600')
check 'a job runs' await 30 is_running "$job"
await 20 has_written "$job" result
scancel "$job"
ends "$job" CANCELLED 'a job that is cancelled while it runs'
check 'nothing is left' quiet "$job"
check 'its results are back' test "$(cat "$W/results/result")" = r

work users
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\nsleep 600')
check 'a job runs' await 30 is_running "$job"
check 'and is mounted' await 30 mounted "$C/mnt.n1/$job"   # it is called running before its prolog is over
check_exit 'another user sees nothing of its mount, whatever the modes within' 2 'Permission denied' as $USER2 ls "$C/mnt.n1/$job"
check_exit 'nor what he knows the name of' 1 'Permission denied' as $USER2 cat "$C/mnt.n1/$job/in/a"
check 'the user himself does' as $USER1 cat "$C/mnt.n1/$job/in/a"
check_exit 'nor can he read its job file' 1 'Permission denied' as $USER2 cat "$C/state.n1/$job.0/job.yaml"
check 'which the user himself can' grep -q root-dir <(as $USER1 cat "$C/state.n1/$job.0/job.yaml")
stage=$W
install -d -o $USER2 "$S/stranger"; W=$S/stranger
stranger=$(submit $USER2 -w n1 <<SCRIPT
#!/bin/bash
echo "mount:\$EFS_MOUNT:"
for path in $C/mnt.n1 $C/mnt.n1/$job $C/mnt.n1/$job/in $C/run.n1/slurm-$job.0-n1 $C/run.n1/slurm-$job.0-n1/store; do
  ls "\$path" >list 2>why && echo "lists \$path: \$(tr '\n' ' ' <list)" || grep -o 'Permission denied' why
done
for path in $C/mnt.n1/$job/in/a $C/state.n1/$job.0/job.yaml $C/run.n1/slurm-$job.0-n1/job.yaml $C/run.n1/slurm-$job.0-n1/control.sock; do
  cat "\$path" 2>why && echo "reads \$path" || grep -o 'Permission denied' why
done
echo x >$C/mnt.n1/$job/x && echo writes
$EFS stop --no-stage-out $C/mnt.n1/$job; EFS_RUNTIME_DIR=$C/run.n1 $EFS stop --no-stage-out slurm-$job.0-n1 && echo stops
echo looked
SCRIPT
)
ends "$stranger" COMPLETED "another user's job on the node, without efs"
check 'has looked' says "$stranger" '^looked$'
check 'has none' says "$stranger" '^mount::$'
check_not 'sees no file and no name of the other, and can end nothing' says "$stranger" '^(lists|reads|writes|stops|alpha)'
check 'for nothing lets it in' test "$(grep -c '^Permission denied$' "$W/out.$stranger")" = 9
W=$stage
check 'the job whose files they are has them still' as $USER1 cat "$C/mnt.n1/$job/in/a"
scancel "$job"
check 'nothing is left' quiet "$job"

# --- several nodes ---
work parts 'resources: [ [ path: in, distribute: partition ] ]'
for i in 1 2 3 4 5 6; do head -c 100000 /dev/urandom >"$W/in/p$i"; done
rm -r "$W/in/a" "$W/in/sub"
job=$(submit $USER1 --efs=job.yaml -N3 <<'SCRIPT'
#!/bin/bash
srun bash -c 'ls $EFS_MOUNT/in | sed "s/^/part /"; echo same >$EFS_MOUNT/same; echo $SLURM_NODEID >$EFS_MOUNT/own.$SLURM_NODEID; cp $EFS_PARTS parts.$EFS_NODE; ls $EFS_MOUNT/in | sed "s,^,$EFS_NODE in/," >has.$EFS_NODE'
SCRIPT
)
ends "$job" COMPLETED 'a partitioned input'
check 'every file is on one node' test "$(grep '^part' "$W/out.$job" | sort | uniq -c | awk '{print $1}' | sort -u)" = 1
check 'every node knows which node has which' test "$(sort "$W"/has.[012])" = "$(sort "$W/parts.0")"
check 'and they agree' cmp "$W/parts.0" "$W/parts.2"
check 'and all are there' test "$(grep -c '^part' "$W/out.$job")" = 6
check 'nothing is left' quiet "$job"
check 'the same result of all nodes is no conflict' test "$(cat "$W/results/same" "$W"/results/own.*)" = $'same\n0\n1\n2'

work conflict
echo before >"$W/results/log"; chown $USER1 "$W/results/log"
job=$(submit $USER1 --efs=job.yaml -N2 <<<$'#!/bin/bash\nsrun bash -c \'echo node $SLURM_NODEID >$EFS_MOUNT/log\'')
ends "$job" COMPLETED 'two nodes that write one name'
check 'the nodes are free' await 30 all_idle
check_exit 'is a conflict that is reported' 3 'unsaved: .*' "$EFS" status --job "$job" --shared "$C/shared"
check 'one of them is there, whole' grep -qE '^node [01]$' "$W/results/log"
check 'exactly one was not saved' test "$("$EFS" status --job "$job" --shared "$C/shared" | grep -c unsaved)" = 1
check 'its receipt says why' grep -q 'another node or run of the job' "$W"/results/efs-receipt-*.json
for node in n1 n2 n3; do [ ! -d "$C/state.$node/$job.0" ] || EFS_RUNTIME_DIR="$C/run.$node" "$EFS" stop --no-stage-out "slurm-$job.0-$node"; rm -rf "$C/state.$node/$job.0"; rmdir "$C/mnt.$node/$job" 2>/dev/null; done

# --- slurmd dies ---
work sweep
mkdir -p "$C/state.n1/4000000.0" && install -d -o $USER1 -m 700 "$C/mnt.n1/4000000"
EFS_RUNTIME_DIR=$C/run.n1 "$EFS" start --user "$(id -u $USER1)" --name slurm-4000000.0-n1 --mount-dir "$C/mnt.n1/4000000" "$W/job.yaml" >/dev/null
as $USER1 sh -c "echo late >$C/mnt.n1/4000000/result"
install -o $USER1 -m 400 "$W/job.yaml" "$C/state.n1/4000000.0/job.yaml"; echo "running $C/mnt.n1/4000000" >"$C/state.n1/4000000.0/result"
cluster_kill "$C/slurmd.n1.pid" slurmd KILL
cluster_slurmd n1
check 'a slurmd that starts stops what no job owns' await 30 job_is_gone 4000000
check 'and brings the results back' test "$(cat "$W/results/result")" = late

work restart
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\ntouch '"$W/started"$'; until [ -e '"$W/go"$' ]; do sleep 0.2; done; cat $EFS_MOUNT/in/a; echo r >$EFS_MOUNT/result')
check 'a job runs' await 40 test -e "$W/started"
cluster_kill "$C/slurmd.n1.pid" slurmd KILL
cluster_slurmd n1
touch "$W/go"
ends "$job" COMPLETED 'a job under a slurmd that was killed and came back'
check 'kept its files' says "$job" '^alpha$'
check 'nothing is left' quiet "$job"
check 'its result is back' test "$(cat "$W/results/result")" = r

# --- a private view ---
install -d "$C/view"
cluster_plugstack view="$C/view"
work other
chown -R $USER2 "$W"
other=$(submit $USER2 --efs=job.yaml -w n1 <<<$'#!/bin/bash\nls $EFS_MOUNT; until [ -e '"$W/go"$' ]; do sleep 0.2; done')
check 'another user has a job on the node' await 40 has_written "$other" in/a
others=$W
work view
job=$(submit $USER1 --efs=job.yaml -w n1,n2 <<SCRIPT
#!/bin/bash
srun bash -c 'echo "at \$EFS_MOUNT"; cat \$EFS_MOUNT/in/a; echo r >\$EFS_MOUNT/r.\$SLURM_NODEID'
cat $C/mnt.n1/$other/in/a && echo sees a file of the other
grep -F $C/mnt.n1/$other /proc/self/mountinfo && echo sees the mount of the other
echo looked
SCRIPT
)
ends "$job" COMPLETED 'a job with a private view'
check 'sees its files at the same place on all nodes' test "$(grep -c "^at $C/view$" "$W/out.$job")$(grep -c '^alpha$' "$W/out.$job")" = 22
check 'nothing is left' await 30 job_is_gone "$job"
check 'results are back' test -e "$W/results/r.1"
check 'it has looked for the job of another user on its node' says "$job" '^looked$'
check_not 'and sees nothing of it' says "$job" '^sees '
check 'which is there all the time, outside of jobs' mounted "$C/mnt.n1/$other"
touch "$others/go"; W=$others
ends "$other" COMPLETED 'that job'
check 'and saw its own files' says "$other" '^in$'

cluster_finish
