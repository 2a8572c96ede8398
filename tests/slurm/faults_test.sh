#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Killed processes of efs in a batch job, steps that share one file system, and the cost of the
# plugin for jobs without efs.
#   faults_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/scene.sh" "$@"

member() { field "$(status_on "$1" "$2")" "d['$3']"; }
has_member() { [ "$(member "$1" "$2" "$3")" = "$4" ]; }
# keeper_of WORKER: prints its child, which holds the slot.
keeper_of() { grep -lE "^PPid:[[:space:]]+$1$" /proc/[0-9]*/status 2>/dev/null | cut -d/ -f3 | head -n 1; }
holders_are() { [ "$("$EFS" queue --json "$C/queue" | python3 -c 'import json,sys; print(len(json.load(sys.stdin)[sys.argv[1]]["holders"]))' "$1")" = "$2" ]; }
waiting_out() { [ "$("$EFS" queue --json "$C/queue" | python3 -c 'import json,sys; print(len(json.load(sys.stdin)["out"]["waiters"]))')" = "$1" ]; }

# --- processes that a job leaves on its mount, and another job of the same user whose number begins
#     with the same digits ---
work number
first=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\ncd $EFS_MOUNT; setsid sleep 600 </dev/null >/dev/null 2>&1 & until [ -e '"$W/go"$' ]; do sleep 0.2; done')
until job=$(submit $USER1 --hold <<<$'#!/bin/bash\ntrue') && [ "$job" -ge "${first}0" ]; do scancel "$job"; done
scancel "$job"
second=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash
exec python3 -c "
import mmap, os, time
with open(os.environ[\'EFS_MOUNT\'] + \'/in/a\') as file: mapped = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
open(\''"$W/mapped"$'\', \'w\').close()
while not os.path.exists(\''"$W/end"$'\'): time.sleep(0.2)
print(mapped[:5].decode())"')
check 'both run' await 40 test -e "$W/mapped"
check 'the number of one begins like that of the other' test "${second#"$first"}" != "$second"
touch "$W/go"
ends "$first" COMPLETED 'a job that leaves a process on its mount'
job_is_quiet() { [ ! -d "$C/state.n1/$first.0" ]; }
check 'the process is ended' await 30 job_is_quiet
touch "$W/end"
ends "$second" COMPLETED 'the other job'
check 'is left alone' says "$second" '^alpha$'
check 'nothing is left' quiet "$second"

# --- the worker, while the job runs ---
work worker
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash
exec 3<$EFS_MOUNT/in/a; echo one >$EFS_MOUNT/result; touch '"$W/started"$'; until [ -e '"$W/go"$' ]; do sleep 0.2; done
cat - $EFS_MOUNT/in/sub/b <&3 && echo two >>$EFS_MOUNT/result')
check 'a job runs' await 40 test -e "$W/started"
name=slurm-$job.0-n1
kill -KILL "$(member n1 "$name" worker_pid)"
check 'its worker is killed and replaced' await 20 has_member n1 "$name" takeovers 1
touch "$W/go"
ends "$job" COMPLETED 'the job'
check 'saw nothing of it' test "$(output_of "$job")" = $'alpha\nbeta'
check 'nothing is left' quiet "$job"
check 'its result is whole' test "$(cat "$W/results/result")" = $'one\ntwo'

# --- the worker, in the epilog ---
work epilog
hold_slot out
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho late >$EFS_MOUNT/result')
check 'a stage-out waits in the epilog' await 40 waiting_out 1
name=slurm-$job.0-n1
kill -KILL "$(member n1 "$name" worker_pid)"
check 'its worker is killed and replaced' await 30 has_member n1 "$name" takeovers 1
release_slot
ends "$job" COMPLETED 'the job'
check 'the node is free' quiet "$job"
check 'its result is back' test "$(cat "$W/results/result")" = late
check_exit 'and efs status --job says so' 0 'done: all results are exported' "$EFS" status --job "$job" --shared "$C/shared"

# --- the holder of the slot ---
work holder
sed -i '2i\  max-rate: 1 MiB/s' "$W/job.yaml"
head -c 20M /dev/urandom >"$W/in/large"; chown $USER1 "$W/in/large"
first=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a')
check 'a slow stage-in has the turn' await 40 holders_are in 1
name=slurm-$first.0-n1 slow=$W
work waiter
second=$(submit $USER1 --efs=job.yaml -w n2 <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a')
check 'another waits for it' await 30 waiters_are 1
worker=$(member n1 "$name" worker_pid)
kill -KILL "$(keeper_of "$worker")"
ends "$second" COMPLETED 'when the holder of the turn is killed, the other'
check 'has its inputs' says "$second" '^alpha$'
check 'while the first still stages, without a turn' json "$(status_on n1 "$name")" 'd["state"] == "staging-in"'
kill -KILL "$worker"
W=$slow
ends "$first" FAILED 'and when its worker is killed, too, the first'
check 'says so' says "$first" 'efs: stage-in failed on n1'
check 'no node is drained' not_drained
check 'nothing is left' quiet "$first"

# --- steps ---
work steps
job=$(submit $USER1 --efs=job.yaml -w n1 -n4 <<'SCRIPT'
#!/bin/bash
srun -Q -n1 bash -c 'echo 1 >$EFS_MOUNT/steps'
srun -Q -n1 bash -c 'cat $EFS_MOUNT/in/a; echo 2 >>$EFS_MOUNT/steps'
srun -Q -n2 bash -c 'echo $SLURM_PROCID >$EFS_MOUNT/task.$SLURM_PROCID'
srun -Q -n1 --overlap bash -c 'echo a >$EFS_MOUNT/side.a' & srun -Q -n1 --overlap bash -c 'echo b >$EFS_MOUNT/side.b' & wait
cat $EFS_MOUNT/steps $EFS_MOUNT/task.? $EFS_MOUNT/side.?
SCRIPT
)
ends "$job" COMPLETED 'steps, one after the other and side by side'
check 'share one file system' test "$(output_of "$job" | tr '\n' ' ')" = 'alpha 1 2 0 1 a b '
check 'nothing is left' quiet "$job"
check 'results are back once' test "$(ls "$W/results" | grep -vcE 'receipt|report')" = 5
job=$(cd "$W" && as $USER1 salloc -Q -N2 --efs=job.yaml bash -c 'srun -Q -N1 -n1 -w n1 true; srun -Q bash -c "echo \$SLURM_NODEID >\$EFS_MOUNT/alloc.\$SLURM_NODEID"; echo $SLURM_JOB_ID' 2>/dev/null)
check 'salloc on two nodes, with several steps' await 30 test -n "$job"
check 'nothing is left' quiet "$job"
check 'results of both' test "$(cat "$W/results/alloc.0" "$W/results/alloc.1")" = $'0\n1'

# --- an array ---
work array
job=$(submit $USER1 --efs=job.yaml --array=1-6 -o "$W/out.%A_%a" <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a && echo $SLURM_ARRAY_TASK_ID >$EFS_MOUNT/r.$SLURM_ARRAY_TASK_ID')
array_done() { [ "$(cat "$W"/results/r.* 2>/dev/null | sort -n | tr '\n' ' ')" = '1 2 3 4 5 6 ' ] && all_idle; }
check 'six tasks of an array, more than there are nodes' await 90 array_done
check 'each had its inputs' test "$(cat "$W"/out.*_* | grep -c '^alpha$')" = 6

hold_slot
job=$(submit $USER1 --efs=job.yaml --array=1-2 -o "$W/out.%A_%a" <<<$'#!/bin/bash\ncat $EFS_MOUNT/in/a')
check 'two tasks of an array wait for their turn' await 30 waiters_are 2
own=$(scontrol -o show job "$job" | sed -n "s/^JobId=$job .* ArrayTaskId=\([0-9]*\) .*/\1/p; s/^JobId=$job ArrayJobId=[0-9]* ArrayTaskId=\([0-9]*\) .*/\1/p" | head -n 1)
scancel "${job}_$own"   # the one whose number is the array's
check 'one is cancelled' await 20 waiters_are 1
release_slot
check 'the other goes on' await 40 all_idle
check 'and has its inputs' test "$(cat "$W"/out."${job}"_* | grep -c '^alpha$')" = 1

# --- the cost for other jobs ---
work cost
# Prints the seconds of five sruns of `true` on n1, including prolog and epilog.
measure() {
  python3 -c '
import subprocess, time
def one():
    began = time.monotonic()
    subprocess.run(["srun", "-Q", "-w", "n1", "true"], check=True)
    return time.monotonic() - began
one()
for _ in range(5): print("%.3f" % one())'
}
started_at() { scontrol -o show node n1 | grep -oE 'SlurmdStartTime=[^ ]*'; }
has_registered() { [ "$(started_at)" != "$1" ] && [ "$(sinfo -h -n n1 -o %t)" = idle ]; }
# slurmd checks only at its start whether there are plugins. It reports its start time in whole
# seconds: two starts within one second would look like one.
another_second() { [ "SlurmdStartTime=$(date +%FT%T)" != "$1" ]; }
slurmd_has() {  # slurmd_has with|without
  local before; before=$(started_at)
  await 5 another_second "$before"
  if [ "$1" = with ]; then cp "$C/plugstack.aside" "$C/plugstack.conf"; else : >"$C/plugstack.conf"; fi
  cluster_kill "$C/slurmd.n1.pid" slurmd TERM
  cluster_slurmd n1
  await 40 has_registered "$before"
}
cp "$C/plugstack.conf" "$C/plugstack.aside"
for order in 'with without' 'without with' 'with without' 'without with'; do
  for how in $order; do
    check "slurmd runs $how the plugin" slurmd_has "$how"
    (cd "$W" && measure) >>"$S/cost.$how"
  done
done
slurmd_has with
check 'a job that does not ask for efs runs with the plugin and without it' test "$(cat "$S/cost.with" "$S/cost.without" | wc -l)" = 40
python3 - "$S/cost.with" "$S/cost.without" <<'END'
import statistics, sys
with_it, without = ([float(line) for line in open(name)] for name in sys.argv[1:])
show = lambda values: "median %.3f s, quartiles %.3f and %.3f, fastest %.3f" % (statistics.median(values), *statistics.quantiles(values, n=4)[::2], min(values))
ratio = lambda one: one(with_it) / one(without)
print("srun of a job without efs, %d runs each, slurmd restarted between: with the plugin %s; without it %s; ratio of medians %.2f, of the fastest %.2f" % (len(without), show(with_it), show(without), ratio(statistics.median), ratio(min)))
END
check_not 'it starts nothing' compgen -G "$C/state.n1/[0-9]*"
cluster_finish
