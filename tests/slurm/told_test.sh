#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Reports to a batch user: new files that no output rule matched, the result of the stage-out in the
# job's output, all tasks of an array, dead file systems, and later changes of missing results. Uses
# the commands that the messages name.
#   told_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/scene.sh" "$@"

last_line() { tail -n 1 "$W/out.$1"; }
status() { "$EFS" status --job "$@" --shared "$C/shared"; }
told() { grep -qE -- "$2" <<<"$(status "$1" 2>&1)"; }
on_n1() { as $USER1 env EFS_RUNTIME_DIR="$C/run.n1" "$EFS" "$@"; }
unwritable() { chown root "$W/results" && chmod 755 "$W/results"; }
writable() { chown $USER1 "$W/results"; }
: >"$C/mail.log"

# --- a new file that no output rule matches, and one that a rule drops ---
work unmatched 'resources: [ [ path: in ] ]' 'outputs: [ [ path: "out/*" ], [ path: "tmp/*", flags: temporary ] ]'
job=$(submit $USER1 --efs=job.yaml --efs-intercept -w n1 <<<$'#!/bin/bash\necho "$LD_PRELOAD" >'"$W/preload"$'; mkdir $EFS_MOUNT/out $EFS_MOUNT/output $EFS_MOUNT/tmp\necho r >$EFS_MOUNT/out/r; echo s >$EFS_MOUNT/tmp/s; echo f >$EFS_MOUNT/output/final.h5')
ends "$job" COMPLETED 'a job whose rules miss a result'
dropped='1 new file (2 B) matched no output rule and was dropped: output/final.h5'
check_exit 'efs status --job says so' 0 "done: all results are exported; ${dropped//[()]/.}$" status "$job"
check 'and the mail' grep -qF "$job $(id -u $USER1) n1 all results are exported; $dropped" "$C/mail.log"
check 'and the last line of its output' grep -qF "; $dropped; receipt: $W/results/efs-receipt-slurm-$job.0-n1.json" <<<"$(last_line "$job")"
library=$BIN/../lib/libefs-intercept.so
if [ -e "$library" ]; then check 'its script has the library of --efs-intercept' test "$(cat "$W/preload")" = "$(realpath "$library")"
else skip 'the library of --efs-intercept' 'it was not built'; fi
check 'which says what is back' grep -qE "^efs on n1: stage-out complete: [0-9]+ staged out " <<<"$(last_line "$job")"

# --- the output: only an existing regular file of the user ---
work output
link=$S/output/link; echo old >"$S/output/target"; ln -s target "$link"; chown -h $USER1 "$link" "$S/output/target"
job=$(submit $USER1 --efs=job.yaml -w n1 -o "$link" <<<$'#!/bin/bash\ntrue')
ends "$job" COMPLETED 'a job whose output is a link'
check_not 'which is not followed' grep -q '^efs on' "$S/output/target"
job=$(submit $USER1 --efs=job.yaml -w n1 -o "$W/pipe" <<<$'#!/bin/bash\nrm '"$W/pipe; mkfifo $W/pipe")
ends "$job" COMPLETED 'a job that puts a pipe into its place'
job=$(submit $USER1 --efs=job.yaml -w n1 -o "%x-%u-%3n-%N-%j.%%" <<<$'#!/bin/bash\necho mine')
ends "$job" COMPLETED 'a job with patterns in its output'
W_OUT=$W/test-$USER1-000-$(hostname -s)-$job.%
check 'has its line there' grep -q '^efs on n1: stage-out complete' "$W_OUT"
check 'and it is one' test "$(wc -l <"$W_OUT")" = 2
cluster_plugstack output=no
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\ntrue')
ends "$job" COMPLETED 'a site that wants no such line'
check 'has none' test ! -s "$W/out.$job"
cluster_plugstack queue="$C/queue" mail="$C/mail.sh" watch=1

# --- results that are missing, and later exported: by a stop, by a salvage, or discarded ---
work unsaved
go=$S/unsaved/go
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result; touch '"$W/there; until [ -e $go ]; do sleep 0.1; done")
second=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/other; touch '"$W/there2; until [ -e $go ]; do sleep 0.1; done")
check 'two jobs' await 60 test -e "$W/there" -a -e "$W/there2"
unwritable; touch "$go"
ends "$job" COMPLETED 'whose results cannot be brought out'
check_exit 'is told' 3 "unsaved: results are not exported: .*run there: efs stop --job $job$" status "$job"
check 'in its output, too' grep -qE "^efs on n1: results are not exported: .*run there: efs stop --job $job$" <<<"$(last_line "$job")"
ends "$second" COMPLETED 'the second one'
check_exit 'a job that has none on the node' 1 'no file system of job 999999 is on this node' on_n1 stop --job 999999
writable
check 'what the message says is a command of the user, and short' on_n1 stop --job "$job"
check 'the result is back' grep -qx r "$W/results/result"
check_exit 'efs status --job follows' 0 'done: all results are exported, by a later efs stop' status "$job"
check_exit 'of the other one it does not' 3 'unsaved' status "$second"
on_n1 stop --no-stage-out --job "$second" >/dev/null
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\ntrue')
ends "$job" COMPLETED 'another job'
check_exit 'after which the node has noticed what was given up' 3 'given-up: results that were not exported were discarded on n1' status "$second"

# --- both processes of a running job's file system die ---
work died
job=$(submit $USER1 --efs=job.yaml -w n1 <<<$'#!/bin/bash\necho r >$EFS_MOUNT/result; sync $EFS_MOUNT/result; touch '"$W/there; until [ -e $W/go ]; do sleep 0.2; done")
check 'a job that runs' await 60 test -e "$W/there"
check 'what it uses is told' await 20 told "$job" 'running: .*; [0-9.]+ [KMG]?i?B of 64 MiB used, .* ago$'
check 'and what a stage-out would bring out' await 60 told "$job" 'running: .*, 1 files changed \(2 B\), which the stage-out exports, .* ago$'
check 'in JSON, too' json "$(status "$job" --json)" 'd["nodes"][0]["changed_files"] == 1 and d["nodes"][0]["changed_bytes"] == 2'
members=$(status_on n1 "slurm-$job.0-n1")
kill -KILL $(field "$members" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')
check 'its file system dies, and that is told at once' await 20 told "$job" "on n1: dead: .*efs salvage --job $job"
check_exit 'with a code of its own' 3 dead status "$job"
touch "$W/go"
await 60 has_ended "$job"
check_exit 'its end says what to do' 3 "unsaved: results are not exported: .*run there: efs salvage --job $job$" status "$job"
said=$(on_n1 status "slurm-$job.0-n1")
check 'status on the node advises that, too, and no start by root' grep -qE "^  export: efs salvage --job $job$" <<<"$said"
check 'that is a command' on_n1 salvage --job "$job"
check 'which brings it out' grep -qx r "$W/results/result"
check_exit 'efs status --job follows' 0 'done: all results are exported, by a later efs salvage' status "$job"
EFS_RUNTIME_DIR=$C/run.n1 "$EFS" clean --job "$job" >/dev/null

# --- all tasks of an array ---
work array
job=$(submit $USER1 --efs=job.yaml -w n1 --array=1-3 -o "$W/out.%A_%a" <<<$'#!/bin/bash\necho r >$EFS_MOUNT/r.$SLURM_ARRAY_TASK_ID; [ $SLURM_ARRAY_TASK_ID != 2 ] || echo x >$EFS_MOUNT/taken')
mkdir -p "$W/results/taken/by"; chown -R $USER1 "$W/results"
array_is_over() { [ -z "$(squeue -h -j "$job" 2>/dev/null)" ] && all_idle; }
check 'an array of which one task has results that are not back' await 90 array_is_over
check_exit 'the number that sbatch prints means all, and the worst counts' 3 "job ${job}_2 on n1: unsaved" status "$job"
for task in 1 3; do check "task $task" grep -qE "^job ${job}_$task on n1: done: all results are exported$" <<<"$said"; done
check 'in JSON, too' json "$(status "$job" --json)" "d['exit'] == 3 and sorted(n['task'] for n in d['nodes']) == ['${job}_1', '${job}_2', '${job}_3']"
check_exit 'a task alone' 0 "^job [0-9]+ on n1: done" status "${job}_3"
forgets() { PATH=$C/none:$PATH status "$@"; }
mkdir "$C/none"; printf '#!/bin/sh\nexit 1\n' >"$C/none/squeue"; chmod 755 "$C/none/squeue"
check_exit 'also when slurmctld has forgotten it' 3 "job ${job}_2 on n1: unsaved" forgets "$job"
check 'all of it' test "$(grep -c "^job ${job}_" <<<"$said")" = 3
check_exit 'and a task' 0 "^job [0-9]+ on n1: done" forgets "${job}_1"
for instance in "$C"/run.n1/*; do [ ! -d "$instance" ] || EFS_RUNTIME_DIR=$C/run.n1 "$EFS" stop --no-stage-out "$(basename "$instance")" >/dev/null 2>&1; done
cluster_finish
