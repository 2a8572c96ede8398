#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Hooks of the plugin, each in a separate process, without a cluster. Covers cases that need this: a
# caller without a PATH, a lost state file, a stop that hangs.
#   hooks_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
PLUGIN=$BIN/../lib/spank_efs.so
USER1=games USER2=news

missing=
[ -e "$PLUGIN" ] || missing+=" spank_efs.so"
[ "$(id -u)" = 0 ] || missing+=" root"
[ -c /dev/fuse ] || missing+=" /dev/fuse"
for user in $USER1 $USER2; do id "$user" >/dev/null 2>&1 || missing+=" the user $user"; done
if [ -n "$missing" ]; then
  skip 'the hooks of the plugin' "missing:$missing"
  finish
fi
# If the plugin was built, there are a compiler and Slurm's headers.
cc -std=gnu11 -D_GNU_SOURCE -rdynamic -o "$S/one_hook" "$SOURCE/tests/slurm/one_hook.c" -ldl 2>"$S/cc" || { fail 'one_hook.c compiles' "$(cat "$S/cc")"; finish; }

# --- the site: programs of Slurm that record their queries, an efs without effect, and directories
#     ---
mkdir -p "$S"/{slurm,fake,shared,users} && chmod 755 "$S"/{slurm,fake,shared} && chown $USER1 "$S/users"
printf '#!/bin/sh\necho "$*" >>%s/scontrol.log\n' "$S" >"$S/slurm/scontrol"
printf '#!/bin/sh\necho "7|RUNNING|10:00|n1|n1"\n' >"$S/slurm/squeue"
cat >"$S/fake/efs" <<FAKE
#!/bin/sh
echo "\$(cat /proc/self/oom_score_adj) \$*" >>$S/efs.log
[ ! -e "$S/fake.\$1" ] || . "$S/fake.\$1"
FAKE
chmod 755 "$S"/slurm/* "$S/fake/efs"
site=(state="$S/state" run="$EFS_RUNTIME_DIR" mount="$S/mnt" scontrol="$S/slurm/scontrol" poll=1 efs="$EFS")
uid1=$(id -u $USER1)

# hook NAME [VARIABLE=VALUE...] [-- ARGUMENT...]: for job 7, or HOOK_JOB, with the small environment
# of a prolog of slurmd, and additional words of plugstack.conf. Its output is in $S/said.
hook() {
  local name=$1 set=(); shift
  while [ $# -gt 0 ] && [ "$1" != -- ]; do set+=("$1"); shift; done
  [ $# = 0 ] || shift
  /usr/bin/env -i SLURMD_NODENAME=n1 SLURM_JOB_NODELIST=n1 HOOK_UID="$uid1" HOOK_GID="$(id -g $USER1)" "${set[@]}" "$S/one_hook" "$PLUGIN" "$name" "${site[@]}" "$@" >"${SAID:-$S}/said.$name" 2>&1
}
prolog() { hook job_prolog SPANK_EFS_JOB="$(cat "$W/job.yaml")" "$@"; }
epilog() { hook job_epilog "$@"; }
task() { hook task_init_privileged HOOK_CONTEXT=remote HOOK_OPTION=efs=job.yaml "$@"; }
result() { cat "$S/state/${1:-7}.0/result" 2>/dev/null; }
result_is() { result "${2:-7}" | grep -qE "^$1"; }
no_job() { [ ! -e "$S/state/${1:-7}.0" ] && [ ! -e "$S/mnt/${1:-7}" ]; }
no_instance() { [ ! -e "$EFS_RUNTIME_DIR/slurm-${1:-7}.0-n1" ]; }
as_user() { runuser -u $USER1 -- "$@"; }
# work NAME [LINE...]: the PFS of a job, in W. Lines go to the settings.
work() {
  W=$S/$1; shift
  mkdir -p "$W/in" "$W/results"; echo alpha >"$W/in/a"
  { printf 'global-settings:\n  root-dir: %s\n  mount-dir: /efs\n  results-dir: %s/results\n' "$W" "$W"
    [ $# = 0 ] || printf '  %s\n' "$@"
    printf 'backends: [ [ id: ram, type: DRAM, capacity: 64 MiB ] ]\nresources: [ [ path: in ] ]\n'; } >"$W/job.yaml"
  chown -R $USER1 "$W"
}
# Removes an instance that ended and was deliberately not saved.
forget() { local job=${1:-7}; "$EFS" clean --force "slurm-$job.0-n1" >/dev/null 2>&1; rm -rf "$S/state/$job.0"; umount -l "$S/mnt/$job" 2>/dev/null; rmdir "$S/mnt/$job" 2>/dev/null; }

# --- long tests run in the background, each with a separate site and separate programs of Slurm,
#     because other tests count queries ---
mkdir "$S/slow" && printf '#!/bin/sh\ncase $1 in start | stop) exec sleep 200 ;; esac\n' >"$S/slow/efs"
printf '#!/bin/sh\n' >"$S/slow/scontrol"; cp "$S/slurm/squeue" "$S/slow/"; chmod 755 "$S/slow" "$S/slow"/*
aside() {  # aside NAME COMMAND...: with its own state, mounts and instances; its seconds are in $S/NAME.took
  local name=$1 began=$SECONDS SAID=$S/$1; shift
  site=("${site[@]}" state="$S/$name/state" run="$S/$name/r" mount="$S/$name/mnt" efs="$S/fake/efs" scontrol="$S/slow/scontrol")
  mkdir -p "$S/$name"
  "$@" >"$S/$name.said" 2>&1
  echo $((SECONDS - began)) >"$S/$name.took"
}
took() { [ -s "$S/$1.took" ] && [ "$(cat "$S/$1.took")" -le "$2" ]; }
cat >"$S/fake.stop" <<'FAKE'
case $EFS_RUNTIME_DIR in
  */hung*) echo "$EFS_RUNTIME_DIR" >>"${0%/*}/../stops"; exec sleep 200 ;;
  */over*) rm -r "$EFS_RUNTIME_DIR/slurm-7.0-n1"; echo '{"code":3,"error":"is over: its daemon died when it had ended"}'; exit 1 ;;
esac
FAKE
echo 'case $EFS_RUNTIME_DIR in */over*) echo '\''{"code":2,"error":"no instance has the name"}'\''; exit 1 ;; esac' >"$S/fake.clean"
# hung RESULT [ARGUMENT...]: an epilog whose stop hangs.
hung() {
  local result=$1 top=$S/$name; shift   # name: aside's
  mkdir -p "$top/state/7.0" "$top/r/slurm-7.0-n1" "$top/mnt/7"
  [ -z "$result" ] || echo "$result" >"$top/state/7.0/result"
  epilog -- "$@"
}
work aside
aside hung-started hung 'running x' stage-out=2 & pids+=($!); aside_pids=($!)
aside hung-failed hung 'failed x' & pids+=($!); aside_pids+=($!)
locked() {
  local state=$S/locked/state holder
  mkdir -p "$state"
  python3 -c 'import fcntl, os, signal, sys
lock = os.open(sys.argv[1] + "/.lock." + sys.argv[2], os.O_RDWR | os.O_CREAT, 0o600); fcntl.flock(lock, fcntl.LOCK_EX); open(sys.argv[1] + "/../held", "w").close(); signal.pause()' "$state" "$uid1" &
  holder=$!
  await 20 test -e "$S/locked/held"
  prolog SPANK_EFS_FLAGS=keep=x
  kill $holder
}
aside locked locked & pids+=($!); aside_pids+=($!)
# slurmd kills a prolog or an epilog that exceeds PrologEpilogTimeout, and drains the node.
slow_start() { prolog HOOK_TIMEOUT=30 -- efs="$S/slow/efs" poll=100; }
begun() { mkdir -p "$S/$1/state/7.0" "$S/$1/r/slurm-7.0-n1" "$S/$1/mnt/7" && echo 'running x' >"$S/$1/state/7.0/result"; }
ends_meanwhile() { begun over; epilog; }
slow_stop() { begun slow-stop; epilog HOOK_TIMEOUT=45 -- efs="$S/slow/efs"; }
busy() {  # busy NAME VARIABLE=VALUE...: the job is locked
  local holder name=$1; shift
  begun "$name"
  python3 -c 'import fcntl, os, signal, sys
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_EX); open(sys.argv[1] + "/held", "w").close(); signal.alarm(60); signal.pause()' "$S/$name/state/7.0" &
  holder=$!
  await 20 test -e "$S/$name/state/7.0/held"
  epilog "$@"
  kill $holder
}
aside over ends_meanwhile & pids+=($!); aside_pids+=($!)
for one in slow-start slow-stop; do aside $one "${one/-/_}" & pids+=($!); aside_pids+=($!); done
aside busy busy busy HOOK_TIMEOUT=15 & pids+=($!); aside_pids+=($!)
# Slurm 24.11 does not pass the setting to its prologs; the node's slurm.conf has it.
mkdir "$S/conf" "$S/conf/parts"
printf '#PrologEpilogTimeout=9\nClusterName=x\nInclude parts/*.conf\nBatchStartTimeout=3\n' >"$S/conf/slurm.conf"
printf 'PrologEpilogTimeout=900\nSlurmdDebug=info prologepilogtimeout = 15 # not 3\nOldPrologEpilogTimeout=7\n' >"$S/conf/parts/times.conf"
aside busy-conf busy busy-conf SLURM_CONF="$S/conf/slurm.conf" & pids+=($!); aside_pids+=($!)
# For a job number that no other job on this machine has: processes to signal are found by the
# instance's name and runtime directory. The program is the real one. Without a signal, the
# stage-out would run to its limit.
without_socket() {
  site+=(efs="$EFS")
  prolog HOOK_JOB=4000009
  (site+=(state="$S/twin/state" run="$S/twin/r" mount="$S/twin/mnt"); prolog HOOK_JOB=4000009)   # on another cluster of this machine
  as_user sh -c "echo precious >$S/unheard/mnt/4000009/result; rm $S/unheard/r/slurm-4000009.0-n1/control.sock"
  as_user bash -c "echo \$\$ >$S/socket/reader; exec -a 'efs salvage slurm-4000009.0-n1' sleep 600" &
  reads() { grep -qaF 'salvage slurm-4000009.0-n1' "/proc/$(cat "$S/socket/reader")/cmdline"; }; await 20 reads
  epilog HOOK_JOB=4000009 -- stage-out=180
}
work socket
mkdir "$S/twin"
aside unheard without_socket & pids+=($!); aside_pids+=($!)

# --- a prolog of slurmd without a PATH ---
work path
check 'the program is found where the plugin says' "$SOURCE/tests/own_mounts.py" bash -c "$(declare -f hook prolog); $(declare -p site S PLUGIN uid1 USER1 W); mount --bind '$S/fake' /usr/local/sbin && prolog -- efs=efs"
check 'and has run' result_is "running $S/mnt/7$"
check 'it is not one of the system that is spared when memory runs out' grep -qE '^[0-9]+ start --json' "$S/efs.log"
epilog -- efs="$S/fake/efs"
rm -f "$S/efs.log"
if (echo -500 >/proc/self/oom_score_adj) 2>/dev/null; then
  (echo -500 >/proc/$BASHPID/oom_score_adj; prolog -- efs="$S/fake/efs")
  check 'not where slurmd is spared, either' grep -qE '^0 start --json' "$S/efs.log"
  epilog -- efs="$S/fake/efs"
else skip 'slurmd that is spared when memory runs out' 'oom_score_adj cannot be lowered here'; fi

# --- the reports of a prolog, and their intervals ---
cat >"$S/fake.start" <<'FAKE'
[ -e "${0%/*}/../quick" ] || until [ "$(grep -c ' status ' "${0%/*}/../efs.log")" -ge 4 ]; do sleep 0.2; done
cp "${0%/*}/../shared/jobs/7.0/n1" "${0%/*}/../told" 2>/dev/null || :
FAKE
cat >"$S/fake.status" <<'FAKE'
echo '{"name":"x","turn":{"ahead":'"$(grep -c ' status ' "${0%/*}/../efs.log")"',"direction":"in","since":0.5,"standing":"waiting","wait_seconds":3725.9},"state":"staging-in"}'
FAKE
work progress
rm -f "$S/efs.log" "$S/scontrol.log"
prolog -- efs="$S/fake/efs"
check 'an estimate is told' grep -q 'AdminComment=efs on n1: waits to stage in, 1 ahead, about 1h02m$' "$S/scontrol.log"
check 'and not each that follows' test "$(grep -c 'waits to stage in' "$S/scontrol.log")" = 1
check 'when the inputs are there it says so' test "$(grep 'AdminComment' "$S/scontrol.log" | tail -n 1)" = 'update JobId=7 AdminComment=efs on n1: staged in'
epilog -- efs="$S/fake/efs"
# First the job waits, then its bytes move; one of two nodes reports this.
cat >"$S/fake.status" <<'FAKE'
done=$(grep -c ' status ' "${0%/*}/../efs.log")
[ "$done" -gt 1 ] || { echo '{"turn":{"ahead":2,"direction":"in","since":0.5,"standing":"waiting"},"bytes_done":0,"bytes_total":400,"state":"staging-in"}'; exit; }
echo '{"name":"x","bytes_done":'"$done"',"bytes_total":400,"eta_seconds":3725.9,"turn":{"ahead":0,"standing":"holds"},"state":"staging-in"}'
FAKE
told() { rm -f "$S/efs.log" "$S/scontrol.log"; prolog "$@" -- efs="$S/fake/efs" shared="$S/shared"; epilog -- efs="$S/fake/efs" shared="$S/shared"; }
told
check 'while it waits it is told' grep -q 'AdminComment=efs on n1: waits to stage in, 2 ahead$' "$S/scontrol.log"
check 'and when its bytes move, how many have, and for how long still' grep -q 'AdminComment=efs on n1: staging in, 0% moved, about 1h02m left$' "$S/scontrol.log"
check 'not each of them' test "$(grep -c 'moved' "$S/scontrol.log")" = 1
sed -i 's/"bytes_total":400,"eta/"bytes_total":4,"eta/' "$S/fake.status"
told SLURM_JOB_NODELIST=n1,n2
check 'of two nodes the first one tells, of itself' grep -q 'AdminComment=efs on n1: staging in, 50% moved, about 1h02m left (the first of 2 nodes; see efs status --job 7)$' "$S/scontrol.log"
told SLURM_JOB_NODELIST=n0,n1
check_not 'the second one asks nothing of slurmctld' grep -q AdminComment "$S/scontrol.log"
check 'but says it where other nodes see it' grep -q 'staging in, 50% moved, about 1h02m left' "$S/told"
said_by() { printf '{"node":"%s","job":7,"restart":0,"uid":%s,"state":"%s","text":"no such %s","time":0}\n' "$1" "${said_uid:-$uid1}" "$2" "$1" >"$S/shared/jobs/7.0/${3:-}$1"; }   # said_by NODE STATE [.failed/]
mkdir -p "$S/shared/jobs/7.0/.failed"
said_by n2 failed .failed/
told SLURM_JOB_NODELIST=n1,n2
check_not 'nor does the first one where another has failed, which has said why' grep -q AdminComment "$S/scontrol.log"
rm "$S/fake.status"; rm -rf "$S/shared/jobs"
prolog -- efs="$S/fake/efs"

# --- time that other nodes used ---
rm -f "$S/scontrol.log"
echo "$(($(date +%s) - 290)) 0" >"$S/state/7.0/began"
check 'a step that starts' task HOOK_STEP=0 -- efs="$S/fake/efs"
check 'gives nothing back' test ! -e "$S/scontrol.log"
check 'the script, when it starts' task -- efs="$S/fake/efs"
check 'gives back what its prolog has not' grep -qx 'update JobId=7 TimeLimit=+5' "$S/scontrol.log"
task -- efs="$S/fake/efs"
check 'once' test "$(wc -l <"$S/scontrol.log")" = 1
printf '#!/bin/sh\necho asked >>%s/squeue.log; exit 1\n' "$S" >"$S/slurm/squeue"
for i in 1 2; do sed -i "s/^[0-9]*/$(($(date +%s) - 900))/" "$S/state/7.0/began"; task -- efs="$S/fake/efs"; done
check 'where slurmctld does not answer it is asked once' test "$(cat "$S/squeue.log")" = asked
printf '#!/bin/sh\necho "7|RUNNING|10:00|n1|n1"\n' >"$S/slurm/squeue"
epilog -- efs="$S/fake/efs"
touch "$S/quick"

# --- memory ---
work memory
# The answers of slurmctld: sinfo, scontrol show config and partition, and the job's resources.
cluster() { printf 'SelectTypeParameters    = %s\nJobSubmitPlugins        = %s\n%s\n' "${1:-CR_CORE_MEMORY}" "${3:-(null)}" "${2:-DefMemPerNode           = UNLIMITED}" >"$S/config"; }
partitions() { printf 'PartitionName=%s\n' "$@" >"$S/partition"; }
given() { printf '%-24s%-24s%-256s\n' 7 "$@" >"$S/given"; }
printf '#!/bin/sh\necho "4000 2"; echo "2000 1"\n' >"$S/slurm/sinfo"
printf '#!/bin/sh\necho "$*" >>%s/scontrol.log\n[ "$3" != show ] || exec cat "%s/$4"\n' "$S" "$S" >"$S/slurm/scontrol"
printf '#!/bin/sh\ncase "$*" in *tres-alloc*) exec cat %s/given ;; *) echo "7|RUNNING|10:00|n1|n1" ;; esac\n' "$S" >"$S/slurm/squeue"
chmod 755 "$S"/slurm/*
mkdir -m 1777 "$S/tmp"
submits() { hook init_post_opt HOOK_CONTEXT=allocator TMPDIR="$S/tmp" HOOK_OPTION="efs=$W/job.yaml" "$@" -- plan=no; }
refuses() {  # refuses NAME MEMORY WHENCE [OPTION...]: sbatch says that 64 MiB are more than that
  local name=$1 text="job on a node, $2 \($3\)"; shift 3
  check_not "$name" submits "$@"
  check "$name: with the reason" grep -qE "capacity 64 MiB.*$text.*Ask for more memory" "$S/said.init_post_opt"
}
takes() { check "$1" submits "${@:2}"; }
plain='all Default=YES OverSubscribe=NO SelectTypeParameters=NONE DefMemPerNode=UNLIMITED MaxMemPerNode=UNLIMITED'
cluster; partitions "$plain"
takes 'where nothing is said and nothing limits it'
refuses 'a job with too little' '32 MiB' '--mem' HOOK_OPT_mem=32M
takes 'one with all memory of a node' HOOK_OPT_mem=0
refuses 'memory for one CPU' '62 MiB' '--mem-per-cpu, for at most 2 CPUs' HOOK_OPT_mem-per-cpu=31M
takes 'for enough CPUs' HOOK_OPT_mem-per-cpu=31M HOOK_OPT_cpus-per-task=2
refuses 'for all tasks that a node may have' '60 MiB' '--mem-per-cpu, for at most 6 CPUs' HOOK_OPT_mem-per-cpu=10M HOOK_OPT_ntasks=3
takes 'which are more' HOOK_OPT_mem-per-cpu=10M HOOK_OPT_ntasks=4
refuses 'or no more than it says for a node' '40 MiB' '--mem-per-cpu, for at most 4 CPUs' HOOK_OPT_mem-per-cpu=10M HOOK_OPT_ntasks=4 HOOK_OPT_ntasks-per-node=2
takes 'not where it has all CPUs of a node' HOOK_OPT_mem-per-cpu=10M HOOK_OPT_exclusive=exclusive
takes 'nor where its GPUs say' HOOK_OPT_mem-per-gpu=10M
cluster CR_CORE_MEMORY 'DefMemPerNode           = 48'
refuses "the cluster's default" '48 MiB' DefMemPerNode
takes 'which is none where the job says more' HOOK_OPT_mem=64M
takes 'nor at another cluster' HOOK_OPT_clusters=other
partitions "$plain" 'big OverSubscribe=NO SelectTypeParameters=NONE DefMemPerNode=100'
takes 'nor in a partition that has more' HOOK_OPT_partition=big
takes 'or may have' HOOK_OPT_partition=all,big
takes 'nor in one that is not known' HOOK_OPT_partition=nosuch
takes 'nor in that of a reservation' HOOK_OPT_reservation=mine
cluster CR_CORE_MEMORY 'DefMemPerNode           = 48' lua
takes 'nor where a plugin may give more'
cluster CR_CORE_MEMORY 'DefMemPerCPU            = 16'
refuses "the cluster's default for a CPU" '32 MiB' 'DefMemPerCPU, for at most 2 CPUs'
partitions 'all Default=YES OverSubscribe=EXCLUSIVE SelectTypeParameters=NONE DefMemPerNode=UNLIMITED'
takes 'not where nodes are given whole'
cluster CR_CORE
takes 'memory that Slurm does not give jobs is no limit' HOOK_OPT_mem=32M
printf '#!/bin/sh\necho "48 2"\n' >"$S/slurm/sinfo"
check_not 'but what nodes have is' submits
check 'and says so' grep -q 'is more than any node has, 48 MiB' "$S/said.init_post_opt"

job_with_memory() {  # job_with_memory WORD MEMORY ALLOCATED [VARIABLE...]: what a prolog makes of it
  : >"$S/scontrol.log"
  if [ "$2" = unknown ]; then rm "$S/given"; else given "$2" "$3"; fi
  prolog "${@:4}"
  check "$1" result_is "$expected"
  epilog
}
expected='failed .*job.yaml:[0-9]+: capacity 64 MiB of backend ram.*job on a node, 32 MiB \(what Slurm has given the job\).*Ask for more memory'
cluster
job_with_memory 'a job whose memory is less fails before anything is staged' 32M cpu=1,mem=32M,node=1,billing=1
check 'it is in the comment' grep -q 'AdminComment=.*32 MiB' "$S/scontrol.log"
job_with_memory 'one of two nodes, each with that' 32M cpu=2,mem=64M,node=2,billing=2
job_with_memory 'one of two nodes, by its CPUs here' 16M cpu=5,mem=80M,node=2,billing=5 SLURM_JOB_CPUS_PER_NODE=2,3
expected='running '
job_with_memory 'one that has as much is staged' 64M cpu=1,mem=64M,node=1,billing=1
job_with_memory 'one with more CPUs here, too' 16M cpu=5,mem=80M,node=2,billing=5 SLURM_JOB_CPUS_PER_NODE=4,1
job_with_memory 'one with all memory of its nodes' 0 cpu=5,mem=80M,node=2,billing=5 SLURM_JOB_CPUS_PER_NODE=4,1
# A check of the memory that hangs leaves time for the start.
mkdir "$S/mute" && printf '#!/bin/sh\n[ "$1" != check ] || exec sleep 600\n[ "$1" != start ] || sleep 3\nexec "%s" "$@"\n' "$EFS" >"$S/mute/efs"; chmod 755 "$S/mute" "$S/mute/efs"
given 64M cpu=1,mem=64M,node=1,billing=1; prolog HOOK_TIMEOUT=45 -- efs="$S/mute/efs"
check 'a check of the memory that hangs is given up, and the job has its inputs' result_is 'running '
epilog
# The job file belongs to the user: root does not read it.
mkdir "$S/asked" && printf '#!/bin/sh\n[ "$1" != check ] || id -u >"%s"; [ "$1" != check ] || id -G >>"%s"; [ "$1" != start ] || echo "$*" >"%s"\nexec "%s" "$@"\n' "$W/who" "$W/who" "$S/started" "$EFS" >"$S/asked/efs"
chmod 755 "$S/asked" "$S/asked/efs"; install -o $USER1 -m 600 /dev/null "$W/who"
given 64M cpu=1,mem=64M,node=1,billing=1; prolog -- efs="$S/asked/efs"
check 'efs is told the memory of the job, for a capacity that is not declared' grep -q -- ' --memory=64MiB ' "$S/started"
check 'the job file is looked at as its user' test "$(head -n 1 "$W/who")" = "$(id -u $USER1)"
check_not 'and in no group of root' grep -qw 0 <(tail -n +2 "$W/who")
epilog
prolog HOOK_GID= -- efs="$S/asked/efs"
check 'where Slurm does not tell his group' test "$(head -n 1 "$W/who")" = "$(id -u $USER1)"
check 'it is that which the system knows' test "$(tail -n +2 "$W/who")" = "$(id -g $USER1)"
epilog
nobodys=4000009; chown $nobodys "$W/who"
prolog HOOK_GID= HOOK_UID=$nobodys -- efs="$S/asked/efs"
check 'of a user whom it does not know' test "$(head -n 1 "$W/who")" = $nobodys
check 'none that anybody has' test "$(tail -n +2 "$W/who")" = 65534
epilog HOOK_UID=$nobodys
check 'nothing is left' no_job
cluster CR_CORE
job_with_memory 'memory that Slurm does not give jobs is no limit there, either' 32M cpu=1,mem=32M,node=1,billing=1
given 96M cpu=1,mem=96M,node=1,billing=1; prolog -- efs="$S/asked/efs"; epilog
check 'what a job asked for bounds it where memory is not given, too' grep -q -- ' --memory=96MiB ' "$S/started"
given 0 cpu=1,mem=2000M,node=1,billing=1; prolog -- efs="$S/asked/efs"; epilog
check_not 'all memory of a node does not' grep -q -- ' --memory=' "$S/started"
cluster
given 0 cpu=1,mem=2000M,node=1,billing=1; prolog -- efs="$S/asked/efs"; epilog
check 'but where jobs are given it' grep -q -- ' --memory=2000MiB ' "$S/started"
given 0 cpu=1,mem=1M,node=1,billing=1; prolog -- efs="$S/asked/efs"; epilog
check_not 'and the site has said how much it is' grep -q -- ' --memory=' "$S/started"
job_with_memory 'nor one that slurmctld does not tell' unknown ''
check 'nothing is left' no_job

# --- job files with variables and patterns ---
work patterns
cat >"$S/slurm/squeue" <<FAKE
#!/bin/sh
echo "\$*" >>$S/squeue.log
case "\$*" in
  *ArrayTaskID*) printf '%-24s%-24s%-24s\n' 7 5 "\$(cat $S/task)" ;;
  *Name:*) printf '%-24s%-1024s\n' 7 "\$(cat $S/name)" ;;
  *) echo '7|RUNNING|10:00|n1|n1' ;;
esac
FAKE
printf '#!/bin/sh\necho "4000 2"\n' >"$S/slurm/sinfo"
echo 3 >"$S/task"; echo 'my job' >"$S/name"
mkdir -p "$W/$USER1/in"; echo mine >"$W/$USER1/in/my job.3"; chown -R $USER1 "$W"
printf '%s\n' 'global-settings:' '  root-dir: $TOP/%u' '  mount-dir: /efs' '  results-dir: results/%A.%j.%t.%N' 'backends: [ [ id: ram, capacity: 64 MiB ] ]' 'resources: [ [ path: "in/%x.%a" ] ]' >"$W/job.yaml"
submitted() { (cd "$W" && submits TOP="$W" HOME=/nowhere "$@" HOOK_THEN='printf "%s\n" "$EFS_JOB" >submitted'); }
check 'a job file with patterns is taken' submitted
echo 'resources: [ [ path: in/a ] ]' >"$W/job.yaml"
: >"$S/squeue.log"
staged() { hook job_prolog SPANK_EFS_JOB="$(cat "$W/submitted")" "$@"; }
staged SPANK_EFS_ROOT="$S" SPANK_EFS_RESULTS="$S/other" SPANK_SLURM_ARRAY_TASK_ID=9 SPANK_SLURM_JOB_NAME=other SLURM_JOB_NODELIST=n0,n1
check 'it is what runs, whatever became of the file' result_is 'running '
check 'with the input that is meant' grep -qx mine "$S/mnt/7/in/my job.3"
as_user touch "$S/mnt/7/r"
epilog SLURM_JOB_NODELIST=n0,n1
check 'and the results where they are meant to be' test -e "$W/results/5.7.1.n1/r"
check 'not where the environment says' test ! -e "$S/other"
echo N/A >"$S/task"; staged
check 'a job of no array' result_is 'failed .*:6:.*%a has no value: SLURM_ARRAY_TASK_ID is not set'
epilog
echo 3 >"$S/task"; echo ../../x >"$S/name"; staged
check 'a name that leads elsewhere' result_is 'failed .*cannot be part of a name'
epilog
work plain-again
: >"$S/squeue.log"
prolog
check_not 'nothing is asked that nobody needs' grep -qE 'Array|Name:' "$S/squeue.log"
epilog
mkdir "$W/50%j" && echo x >"$W/50%j/a" && chown -R $USER1 "$W"
check 'a directory of submission with a percent sign' eval '(cd "$W/50%j" && submits HOOK_OPTION=efs-stage-in=a HOOK_THEN="printf \"%s\n\" \"\$EFS_JOB\" >../submitted")'
check 'is no pattern' grep -qF "root-dir: \"$W/50%%j\"" "$W/submitted"
check 'inputs with another name' submits HOOK_OPTION=efs-stage-in=in/a:first HOOK_THEN="printf '%s\n' \"\$EFS_JOB\" >$W/submitted"
check 'have it on the mount' grep -qF 'as: "first"' "$W/submitted"
check_not 'a variable that is not set' submits HOOK_OPTION='efs-stage-in=$NOSUCH'
check 'is told at submission' grep -q 'environment variable NOSUCH is not set' "$S/said.init_post_opt"
check 'no temporary file is left' test -z "$(ls "$S/tmp")"
check 'nothing is left' no_job
printf '#!/bin/sh\necho "7|RUNNING|10:00|n1|n1"\n' >"$S/slurm/squeue"

# --- inputs from anywhere, and results that are inputs ---
work options/job
far() { (cd "$W" && submits HOOK_OPTION="$1" HOOK_THEN='printf "%s\n" "$EFS_JOB" >submitted'); }
mkdir -p "$W/../set/deep" "$W/here"; echo far >"$W/../set/deep/f"; echo near >"$W/here/n"; chown -R $USER1 "$W/.."
check 'an input from elsewhere, with a place on the mount' far "efs-stage-in=$S/options/set/deep/f:data/f"$'\n'"efs-stage-in=here"$'\n'"efs-stage-in=../set/deep:all"
staged
check 'is there' grep -qx far "$S/mnt/7/data/f" "$S/mnt/7/all/f"
check 'those without one keep theirs' grep -qx near "$S/mnt/7/here/n"
epilog
check 'that nothing comes back is said' grep -q 'efs: warning: efs exports nothing that the job writes .*--efs-stage-out is missing' "$S/said.init_post_opt"
check_not 'without a place it is refused' far "efs-stage-in=$S/options/set/deep/f"
check 'which is said, with the way out' grep -qF "efs: --efs-stage-in=$S/options/set/deep/f is not below the directory of the submission, $W; name its place on the mount: --efs-stage-in=$S/options/set/deep/f:DST" "$S/said.init_post_opt"
check_not 'inputs with nothing above them all' far "efs-stage-in=/etc/hostname:h"$'\n'"efs-stage-in=here"
check 'are refused' grep -q 'no directory above them all but /' "$S/said.init_post_opt"
# named_back NAME OPTIONS DIRECTORY: the named files are exported to that directory, also inputs,
# and no other files.
named_back() {
  echo before >"$W/here/n"; echo before >"$W/here/other"; rm -rf "$W/out"; chown -R $USER1 "$W"
  check "$1" far "$2"
  check_not "$1: nothing is said" grep -q 'exports nothing' "$S/said.init_post_opt"
  staged
  as_user sh -c "echo after >$S/mnt/7/here/n; echo after >$S/mnt/7/here/other; echo new >$S/mnt/7/new"
  epilog
  check "$1: an input that the job has changed comes back where it is named" test "$(cat "$3/here/n")" = after
  check "$1: not where it is not" test "$(cat "$W/here/other")" = before -a ! -e "$W/out/here/other"
  check "$1: a new file" test "$(cat "$3/new")" = new
}
named_back 'in place' efs-stage-in=here$'\n'efs-stage-out=here/n$'\n'efs-stage-out=new "$W"
rm "$W/new"
named_back 'to the directory of the submission' efs-stage-in=here$'\n'efs-stage-out=here/n:.$'\n'efs-stage-out='n*':. "$W"
named_back 'elsewhere' efs-stage-in=here$'\n'efs-stage-out='here/n*':out$'\n'efs-stage-out=new:out "$W/out"
check 'which leaves the inputs alone' test "$(cat "$W/here/n")" = before
named_back 'to whole paths' efs-stage-in=here$'\n'efs-stage-out=./here/n:out/here/n$'\n'efs-stage-out="new:$W/out/new" "$W/out"
check 'nothing is left' no_job
# goes OPTION RESULTS NAME: one result is exported to that directory, under that name.
goes() {
  check "$1" far efs-stage-in=here$'\n'efs-stage-out="$1"
  check "$1 goes to ${2:-its inputs}" grep -qF "${2:+results-dir: \"$2\"}" "$W/submitted"
  if [ -n "$3" ]; then check "$1 is called $3" grep -qF "as: \"$3\"" "$W/submitted"; else check_not "$1 keeps its name" grep -q '^as: ' "$W/submitted"; fi
}
mkdir -p "$W/there"
goes new:there "$W/there" ''
goes new:fresh/ "$W/fresh" ''
goes new:fresh "" fresh
goes new:fresh/r.h5 "$W/fresh" r.h5
goes here/n:fresh/n "$W/fresh" n
goes here/n:fresh/here/n "$W/fresh" ''
goes "new:$W/there/new" "$W/there" ''
goes new:there/new/ "$W/there/new" ''
goes 'n*:fresh' "$W/fresh" ''
check 'several results to one place' far efs-stage-out=new:fresh$'\n'efs-stage-out=other:fresh
check 'go to a directory' grep -qF "results-dir: \"$W/fresh\"" "$W/submitted"
check_not 'under their own names' grep -q '^as: ' "$W/submitted"
check_not 'two directories' far efs-stage-out=new:out/new$'\n'efs-stage-out=other:elsewhere/
check 'are refused' grep -qF 'efs: --efs-stage-out: out and elsewhere: results of one job go into one directory' "$S/said.init_post_opt"
rm -rf "$W/out"; mkdir -p "$W/out"; echo before >"$W/here/n"; chown -R $USER1 "$W"
check 'results with other names' far efs-stage-in=here$'\n'efs-stage-out=here/n:out/n.1$'\n'efs-stage-out=dir:out/dir.1$'\n'efs-stage-out=same:out/
staged
as_user sh -c "cd $S/mnt/7 && echo after >here/n && mkdir dir && echo deep >dir/f && echo same >same && echo dropped >n.2"
epilog
check 'have them' test "$(cd "$W/out" && cat n.1 dir.1/f same)" = $'after\ndeep\nsame'
check 'and no others' test "$(cd "$W/out" && find . -type f | grep -v 'efs-re' | sort | tr '\n' ' ')" = './dir.1/f ./n.1 ./same '
check 'the receipt tells both' json "$(cat "$W"/out/efs-receipt-*)" '{e["path"]: e.get("placed_as") for e in d["entries"] if e["action"] == "staged-out"} == {"here/n": "n.1", "dir": "dir.1", "dir/f": "dir.1/f", "same": None}'
check 'nothing is left' no_job

work elsewhere
printf '#!/bin/sh\necho "7|RUNNING|10:00|n2|n[1-2]"\n' >"$S/slurm/squeue"
: >"$S/scontrol.log"
prolog -- efs="$S/fake/efs"
for i in 1 2; do echo "$(($(date +%s) - 290)) 0" >"$S/state/7.0/began"; task -- efs="$S/fake/efs"; done
check_not 'a node that is not that of the script gives nothing back' grep -q TimeLimit "$S/scontrol.log"
epilog -- efs="$S/fake/efs"

# An allocation without a script: squeue reports the host of salloc.
work allocation
allocation() { printf '#!/bin/sh\ncase "$*" in *BatchFlag*) printf "%%-24s%%-8s\n" 7 %s ;; *) echo "7|RUNNING|10:00|%s|n1" ;; esac\n' "$1" "$2" >"$S/slurm/squeue"; }
mv "$S/fake.start" "$S/start.aside"
late_start() { printf 'sed -i "s/^[0-9]*/$(($(date +%%s) - 290))/" %s/state/7.0/began\n' "$S" >"$S/fake.start"; }
gives_back() {  # gives_back BATCHFLAG HOST [VARIABLE...]: how often a prolog whose start took five minutes does
  allocation "$1" "$2"; : >"$S/scontrol.log"
  late_start; prolog "${@:3}" -- efs="$S/fake/efs"; epilog -- efs="$S/fake/efs"; rm "$S/fake.start"
  grep -c 'TimeLimit=+5$' "$S/scontrol.log"
}
check 'of an allocation without a script the first node gives back' test "$(gives_back 0 login SLURM_JOB_NODELIST=n1,n2)" = 1
check 'no other one' test "$(gives_back 0 login SLURM_JOB_NODELIST=n0,n1)" = 0
check 'not either where salloc was called on it' test "$(gives_back 0 n1 SLURM_JOB_NODELIST=n0,n1)" = 0
check 'of a job whose script is elsewhere the first node does not' test "$(gives_back 1 n2 SLURM_JOB_NODELIST=n1,n2)" = 0
check 'but that of the script does' test "$(gives_back 1 n1 SLURM_JOB_NODELIST=n0,n1)" = 1
mv "$S/start.aside" "$S/fake.start"
printf '#!/bin/sh\necho "7|RUNNING|10:00|n1|n1"\n' >"$S/slurm/squeue"

# --- the licence of a stage-in ---
work licence
licences() { printf '#!/bin/sh\ncase "$*" in *Licenses*) printf "%%-24s%%-512s\n" 7 "%s" ;; *) echo "7|RUNNING|10:00|n1|n1" ;; esac\n' "$1" >"$S/slurm/squeue"; }
given_back() {  # given_back LICENCES [ARGUMENT...]: what a prolog makes of them
  licences "$1"; shift
  : >"$S/scontrol.log"
  prolog -- efs="$S/fake/efs" licence=efs_stagein "$@"
  epilog -- efs="$S/fake/efs"
  sed -n 's/^update JobId=7 Licenses=/left: /p' "$S/scontrol.log"
}
check 'a job gives its licence back' test "$(given_back efs_stagein:1)" = 'left: '
check 'and keeps others' test "$(given_back matlab:2,efs_stagein:1,efs_stagein_x)" = 'left: matlab:2,efs_stagein_x'
check 'one without asks for nothing' test -z "$(given_back '(null)')"
check 'nor does one with others' test -z "$(given_back 'efs_stage:1,matlab')"
check 'a list that may be cut off is left alone' test -z "$(given_back "efs_stagein:1,$(printf 'x%.0s' {1..520})")"
check 'where the site has none nobody is asked' test -z "$(given_back efs_stagein:1 licence=)"
printf '#!/bin/sh\necho "7|RUNNING|10:00|n1|n1"\n' >"$S/slurm/squeue"
check 'nothing is left' no_job

# --- the directories of the parts ---
work place
prolog
check 'a task' hook user_init HOOK_CONTEXT=remote EFS_PARTS=another HOOK_THEN="env >$W/env"
for line in "EFS_MOUNT=$S/mnt/7" "DW_JOB_PRIVATE=$S/mnt/7" EFS_NODE=0 EFS_NODES=1; do check "has $line" grep -qx "$line" "$W/env"; done
check_not 'and no list of parts, for nothing was dealt out' grep -q '^EFS_PARTS=' "$W/env"
hook user_init HOOK_CONTEXT=remote DW_JOB_PRIVATE=/mine HOOK_THEN="env >$W/env"
check 'what the user has set stays' grep -qx DW_JOB_PRIVATE=/mine "$W/env"
hook user_init HOOK_CONTEXT=remote EFS_MOUNT=/before DW_JOB_PRIVATE=/before HOOK_THEN="env >$W/env"
check 'what comes from another node, or another job, does not' grep -qx "DW_JOB_PRIVATE=$S/mnt/7" "$W/env"

# --- --efs-intercept: the library of the efs that the site names ---
mkdir -p "$S/prefix/bin" "$S/prefix/lib" && ln -s prefix "$S/link-to-prefix"
printf '#!/bin/sh\n' >"$S/prefix/bin/efs" && chmod 755 "$S/prefix/bin/efs"
intercepted() { hook user_init HOOK_CONTEXT=remote HOOK_OPTION=efs-intercept=yes HOOK_THEN="env >$W/env" "$@" -- efs="$S/link-to-prefix/bin/efs"; }
preload_is() { local got; got=$(sed -n 's/^LD_PRELOAD=//p' "$W/env"); [ "$got" = "$1" ] || { echo "LD_PRELOAD=$got"; return 1; }; }
check 'no library: the task runs' intercepted
check 'without it' preload_is ''
check 'and the site is told' grep -q 'slurm_error: efs: --efs-intercept has no effect on n1: libefs-intercept.so is not installed' "$S/said.user_init"
# The loader of later programs must find it: an empty library.
library=$S/prefix/lib/libefs-intercept.so
echo | cc -shared -x c -o "$library" - && cp "$library" "$S/own.so"
check 'a task with the library' intercepted
check 'has it' preload_is "$library"
intercepted LD_PRELOAD="$S/own.so"; check 'behind its own' preload_is "$S/own.so:$library"
intercepted LD_PRELOAD="$library $S/own.so"; check 'once' preload_is "$library $S/own.so"
intercepted EFS_STAGING_OUT=7; check 'a step that stages out has none' preload_is ''
hook user_init HOOK_CONTEXT=remote HOOK_THEN="env >$W/env" -- efs="$S/prefix/bin/efs"; check 'nor has a task without the option' preload_is ''
intercepted HOOK_JOB=8; check 'nor one of a job without a file system' preload_is ''
epilog
prolog HOOK_OPTION=$'efs=job.yaml\nefs-intercept=yes' -- efs="$EFS"
check_not 'nor has the daemon' grep -qz '^LD_PRELOAD=' /proc/"$(daemons | head -n 1)"/environ
epilog

# --- the reason why nothing was staged ---
work why
ln -s /tmp "$S/link"
because() {  # because NAME PATTERN [ARGUMENT...]: a prolog and a task say so, and nothing is left
  local name=$1 pattern=$2; shift 2
  check "$name: the prolog does not fail" prolog -- "$@"
  check_not "$name: the task does" task -- "$@"
  check "$name: and says why" grep -qE "^slurm_error: efs: $pattern" "$S/said.task_init_privileged"
  check "$name: the epilog" epilog -- "$@"
  check "$name: nothing is left" no_job
}
because 'mount= is a symbolic link' 'stage-in failed on n1: the directories of efs .state=, run= and mount= in plugstack.conf. cannot be used' mount="$S/link"
because 'run= is one' 'stage-in failed on n1: the directories of efs' run="$S/link"
because 'state= is one' "nothing was staged on n1: $S/link, .* cannot be used there, or is full; tell the administrators" state="$S/link"
because 'state= is one, and there is shared=' 'stage-in failed on n1: the directories of efs' state="$S/link" shared="$S/shared"
rm -r "$S/shared/jobs"
mkdir "$S/full" && mount -t tmpfs -o nr_inodes=1,mode=755 full "$S/full"
because 'state= is full' "nothing was staged on n1: $S/full, .* cannot be used there, or is full" state="$S/full"
mount -o remount,nr_inodes=2 "$S/full"
because 'it is full when the job has its directory' "nothing was staged on n1: its prolog did not finish, or could not write below $S/full" state="$S/full"
umount "$S/full"
because 'there is no efs' 'stage-in failed on n1: efs start failed with 127: cannot run it: no such program' efs=/none
check_not 'without a prolog a task fails' task
check 'and says what the site must set' grep -q 'nothing was staged on n1: its prolog has not run. The site must set PrologFlags=Alloc,DeferBatch' "$S/said.task_init_privileged"
check 'nothing is left of the look' no_job

# --- a step that asks for efs ---
step() { hook init_post_opt HOOK_CONTEXT=local HOOK_OPTION=efs=job.yaml SLURM_JOB_ID=7 "$@"; }
check_not 'a step of a job without efs cannot ask for it' step
check 'and is told who can' grep -q 'give --efs to sbatch or salloc, not to a step' "$S/said.init_post_opt"
check 'one that has it from its job is let through' step _SLURM_SPANK_OPTION_efs_efs=job.yaml
check 'or is in a script that has a file system' step EFS_INSTANCE=slurm-7.0-n1
check 'one that does not ask, too' hook init_post_opt HOOK_CONTEXT=local SLURM_JOB_ID=7

# --- forged data in place of that from sbatch ---
work hostile
places() { find "$S/state" "$S/mnt" "$EFS_RUNTIME_DIR" "$S/users" "$W" "$S/shared" | sort; }
refused() {  # refused NAME PATTERN VARIABLE=VALUE...
  local name=$1 pattern=$2 before; shift 2
  before=$(places)
  check "$name: the prolog does not fail" prolog "$@"
  check "$name: it is refused" result_is "failed .*$pattern"
  check_not "$name: the task fails" task "$@"
  check "$name: the epilog does not" epilog "$@"
  check "$name: nothing is left, nor made elsewhere" test "$(places)" = "$before"
}
long() { head -c "$1" /dev/zero | tr '\0' x; }
refused 'flags that are too long' 'flags .* are too long' SPANK_EFS_FLAGS="no-stage-out $(long 200)"
refused 'a name that leads elsewhere' 'that is not a valid name for --efs-keep' SPANK_EFS_FLAGS=keep=../x
refused 'one to attach to' 'that is not a valid name for --efs-keep or --efs-attach' SPANK_EFS_FLAGS='attach=../../x'
refused 'a job file that is too large' 'job file .* is too large' SPANK_EFS_JOB="# $(long 98304)"
refused 'one that is no text' 'job.yaml:1:' SPANK_EFS_JOB=$'\x01\xff\xfe{\x02'
refused 'none' 'job.yaml' SPANK_EFS_JOB=

# --- a run that was started again meanwhile ---
work begun
begun_again() {  # begun_again RESTARTS [STATE]: what an epilog of run 0 asks efs, when slurmctld knows of so many
  printf '#!/bin/sh\ncase "$*" in *RestartCnt*) printf "%%-24s%%-12s%%-24s\\n" 7 %s %s ;; *) echo "7|RUNNING|10:00|n1|n1" ;; esac\n' "$1" "${2:-COMPLETING}" >"$S/slurm/squeue"
  mkdir -p "$S/state/7.0" "$EFS_RUNTIME_DIR/slurm-7.0-n1" "$S/mnt/7"
  echo "running $S/mnt/7" >"$S/state/7.0/result"
  : >"$S/efs.log"
  epilog -- efs="$S/fake/efs"
  rmdir "$EFS_RUNTIME_DIR/slurm-7.0-n1"
  grep ' stop ' "$S/efs.log"
}
asked=$(begun_again 0)
check 'an epilog waits for no copy of the mount' grep -q -- ' --cut-off' <<<"$asked"
check_not 'and replaces older results where its run is the last' grep -q -- ' --merge' <<<"$asked"
check 'but not where the job had ended before' grep -q -- ' --merge' <<<"$(begun_again 0 NODE_FAIL)"
check 'nor those of a later run' grep -q -- ' --merge' <<<"$(begun_again 1)"
check 'and leaves nothing' no_job
# Uses grep's output: its exit code is an error if another process has ended between the two
# searches.
sweep_is_over() { [ -z "$(grep -lzxF init $(grep -lzxF "$S/one_hook" /proc/[0-9]*/cmdline 2>/dev/null) /dev/null 2>/dev/null)" ]; }
swept() {  # swept RESTARTS: what a slurmd that starts asks efs of run 0, which it finds, when slurmctld knows of so many and the job runs
  printf '#!/bin/sh\ncase "$*" in *RestartCnt*) printf "%%-24s%%-12s\n" 7 %s ;; *) echo "7|RUNNING|10:00|n2|n2" ;; esac\n' "$1" >"$S/slurm/squeue"
  mkdir -p "$S/state/7.0" "$EFS_RUNTIME_DIR/slurm-7.0-n1" "$S/mnt/7"
  echo "running $S/mnt/7" >"$S/state/7.0/result"
  : >"$S/efs.log"
  hook init HOOK_CONTEXT=slurmd -- efs="$S/fake/efs"
  await 30 sweep_is_over
  rmdir "$EFS_RUNTIME_DIR/slurm-7.0-n1"
  grep ' stop ' "$S/efs.log"
}
check 'slurmd, when it starts, stops a run that was begun again elsewhere' grep -q -- ' stop .*--merge.* slurm-7.0-n1$' <<<"$(swept 1)"
check 'and leaves nothing' no_job
check 'not one that runs here' test -z "$(swept 0)"
check 'which stays' test -e "$S/state/7.0/result"
rm -r "$S/state/7.0" "$S/mnt/7"
# From Slurm 23.11 on, a reconfigured slurmd is already listening when it calls the hook. The next
# slurmd binds with SO_REUSEADDR.
listens_again() {
  python3 -c 'import socket, sys
s = socket.socket(); s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1); s.bind(("127.0.0.2", int(sys.argv[1]))); s.listen()' "$(cat "$S/port")"
}
mkdir "$S/waits" && printf '#!/bin/sh\n[ "$1" != stop ] || { touch %s/stops; while [ -e %s ] && [ ! -e %s/go ]; do sleep 0.1; done; }\n' "$S" "$S" "$S" >"$S/waits/efs" && chmod -R 755 "$S/waits"
swept_and_waits() { hook init HOOK_CONTEXT=slurmd HOOK_LISTEN="$S/port" -- efs="$S/waits/efs"; }
printf '#!/bin/sh\ncase "$*" in *RestartCnt*) printf "%%-24s%%-12s\\n" 7 1 ;; *) echo "7|RUNNING|10:00|n2|n2" ;; esac\n' >"$S/slurm/squeue"
mkdir -p "$S/state/7.0" "$EFS_RUNTIME_DIR/slurm-7.0-n1" "$S/mnt/7" && echo "running $S/mnt/7" >"$S/state/7.0/result"
check 'a slurmd that has its port already' swept_and_waits
check 'sweeps' await 30 test -e "$S/stops"
check_not 'for long' sweep_is_over
check 'meanwhile the next slurmd gets the port' listens_again
touch "$S/go"
check 'the sweep ends' await 30 sweep_is_over
check 'and leaves nothing' no_job
rmdir "$EFS_RUNTIME_DIR/slurm-7.0-n1"
printf '#!/bin/sh\necho "7|RUNNING|10:00|n1|n1"\n' >"$S/slurm/squeue"

# --- another user's lock ---
work lock
python3 -c 'import fcntl, os, pwd, signal, sys
held = open(sys.argv[3], "w")
os.setuid(pwd.getpwnam(sys.argv[2]).pw_uid)
fcntl.flock(os.open(sys.argv[1], os.O_RDONLY), fcntl.LOCK_SH); held.write("yes"); held.flush(); signal.pause()' "$S/state" $USER2 "$S/held" &
holder=$!; pids+=($!)
check "another user locks the plugin's directory" await 20 test -s "$S/held"
check 'prologs do not wait for him' timeout 30 bash -c "$(declare -f hook prolog); $(declare -p site S PLUGIN uid1 USER1 W); prolog"
check 'they stage' result_is 'running '
check 'epilogs neither' timeout 30 bash -c "$(declare -f hook epilog); $(declare -p site S PLUGIN uid1 USER1); epilog"
check 'nothing is left' no_job
kill $holder; wait $holder 2>/dev/null

# --- words of plugstack.conf ---
work words
check 'a prolog with a word of another release' prolog -- nosuch=1
check 'says so' grep -q 'unknown argument "nosuch=1"' "$S/said.job_prolog"
check 'and stages' result_is 'running '
check 'its task starts' task -- nosuch=1
check_not 'with no word of it in its output' grep -q 'error.*nosuch' "$S/said.task_init_privileged"
check 'its epilog' epilog -- nosuch=1
check 'leaves nothing' no_job
check 'a prolog with a value that cannot be' prolog -- stage-out=soon
check 'begins nothing' no_job
check_not 'the tasks fail' task -- stage-out=soon
check 'and say why' grep -q 'slurm_error: efs: nothing was staged on n1: plugstack.conf there has a bad value' "$S/said.task_init_privileged"
check 'those of other jobs do not' hook task_init_privileged HOOK_CONTEXT=remote -- stage-out=soon
prolog
check 'what is begun ends all the same' epilog -- poll=0
check 'and leaves nothing' no_job

# The fragment for sites: all its keys are known, and its line is accepted.
fragment=$SOURCE/conf/slurm/plugstack.conf
named=($(grep -oE '^# +[a-z-]+=' "$fragment" | tr -d '# '))
check 'the fragment tells of the arguments' test "${#named[@]}" -ge 15
declare -A value=([poll=]=3 [stage-out=]=60 [keep=]=12 [plan=]=no [directives=]=no [efs=]=$EFS [state=]=$S/state [run=]=$EFS_RUNTIME_DIR [mount=]=$S/mnt [scontrol=]=$S/slurm/scontrol [shared=]= [queue=]= [view=]= [mail=]= [output=]=no [watch=]=no)
read -ra line < <(sed -n 's,^required [^ ]*,,p' "$fragment")
check 'and has a line' test "${#line[@]}" -ge 1
for i in "${named[@]}"; do line+=("$i${value[$i]-}"); done
check 'a prolog with all of them' prolog -- "${line[@]}"
check_not 'knows them, and takes their values' grep -qE 'unknown argument|bad value' "$S/said.job_prolog"
check 'it stages' result_is 'running '
check 'its epilog' epilog -- "${line[@]}"
check 'leaves nothing' no_job

# --- written state survives power loss ---
work durable
prolog HOOK_TELL_SYNC=1
check 'a result is synced' grep -qE "^synced: [0-9]+ $S/state/7.0/.result.[0-9]+$" "$S/said.job_prolog"
check 'and its name' grep -qE "^synced: [0-9]+ $S/state/7.0$" "$S/said.job_prolog"
check 'and that of the job' grep -qE "^synced: [0-9]+ $S/state$" "$S/said.job_prolog"
as_user sh -c "echo precious >$S/mnt/7/result"
kill_both slurm-7.0-n1
rm "$S/state/7.0/result"
check 'an epilog that does not know whether the job ran' epilog
check 'leaves what is dead' test -d "$EFS_RUNTIME_DIR/slurm-7.0-n1"
check 'and tells' result_is 'unsaved .*it is not known whether the job ran'
check 'the results can be brought out' "$EFS" salvage slurm-7.0-n1
check 'whole' test "$(cat "$W/results/result")" = precious
forget
prolog
: >"$S/state/7.0/result"
check 'one that is alive is stopped' epilog
check 'it is gone' no_instance
check 'nothing is left' no_job
rm "$W/results/result"; prolog
as_user sh -c "echo precious >$S/mnt/7/result"
rm "$S/state/7.0/result"
check 'one that is alive, and whose job has run' epilog
check 'loses nothing' test "$(cat "$W/results/result")" = precious
check 'and goes' no_instance
check 'as a whole' no_job
rm "$W/results/result"; prolog
as_user sh -c "echo precious >$S/mnt/7/result"
rm "$S/state/7.0/result"
printf '#!/bin/sh\n[ "$1" != status ] || { echo %s; exit; }\nexec "%s" "$@"\n' "'{\"state\":\"recovering\"}'" "$EFS" >"$S/slurm/recovering"
chmod 755 "$S/slurm/recovering"
check 'one whose worker is just being replaced' epilog -- efs="$S/slurm/recovering"
check 'has results, too' test "$(cat "$W/results/result")" = precious
check 'before it goes' no_instance

# --- a restarted node that lost its memory ---
work restarted
prolog
as_user sh -c "echo precious >$S/mnt/7/result"
kill_both slurm-7.0-n1
umount -l "$S/mnt/7"; umount "$EFS_RUNTIME_DIR/slurm-7.0-n1/store"; rm -r "$EFS_RUNTIME_DIR/slurm-7.0-n1"
cp "$S/state/7.0/boot" "$S/boot"
echo 00000000-0000-0000-0000-000000000000 >"$S/state/7.0/boot"
check 'an epilog that finds nothing of its job' epilog
check 'does not call that done' result_is 'unsaved .*the node was restarted'
check 'tells of it once' epilog
check 'and leaves nothing' no_job
prolog
"$EFS" stop slurm-7.0-n1 >/dev/null
check 'which start of the node it was is written down' cmp "$S/boot" "$S/state/7.0/boot"
check 'what the job itself has stopped is done' epilog
check 'and nothing is left of it' no_job

# --- a comment that slurmctld no longer accepts ---
work comment
printf '#!/bin/sh\necho "$*" >>%s/sacctmgr.log\n' "$S" >"$S/slurm/sacctmgr"; chmod 755 "$S/slurm/sacctmgr"
cp "$S/slurm/scontrol" "$S/scontrol.good"
unsaved() {  # unsaved: an epilog whose results do not come back
  : >"$S/sacctmgr.log"
  prolog
  as_user sh -c "echo precious >$S/mnt/7/result; chmod 555 $W/results"
  epilog
  as_user chmod 755 "$W/results"
  "$EFS" stop slurm-7.0-n1 >/dev/null; forget
}
unsaved
check 'a comment that slurmctld takes is not written into the accounting' test ! -s "$S/sacctmgr.log"
printf '#!/bin/sh\n[ "$1" != update ] || { echo "slurm_update error: Job has already finished" >&2; exit 1; }\nexec %s/scontrol.good "$@"\n' "$S" >"$S/slurm/scontrol"
unsaved
check 'one of a job that has ended is' grep -qE '^--immediate --quiet modify job where jobid=7 set AdminComment=efs on n1: results are not exported: ' "$S/sacctmgr.log"
check 'once' test "$(wc -l <"$S/sacctmgr.log")" = 1
cp "$S/scontrol.good" "$S/slurm/scontrol"; rm "$S/slurm/sacctmgr"
check 'nothing is left' no_job

# --- other entries in the state ---
prolog
touch "$S/state/7.0/script" "$S/state/7.0/.result.4711"
check 'an epilog removes what it does not know' epilog
check 'nothing is left' no_job

# --- an interrupted start of a job that keeps its instance ---
work cut
prolog SPANK_EFS_FLAGS=keep=cut
check 'a job that keeps' test -d "$EFS_RUNTIME_DIR/slurm-kept.$uid1.cut-n1"
rm "$S/state/7.0/result"
check 'whose prolog did not come to its end' epilog
check 'leaves no file system' test ! -e "$EFS_RUNTIME_DIR/slurm-kept.$uid1.cut-n1"
check 'nor anything else' no_job
prolog SPANK_EFS_FLAGS=keep=cut; epilog
check 'what another has kept' json "$("$EFS" status --json "slurm-kept.$uid1.cut-n1")" 'd["state"] == "kept"'
prolog SPANK_EFS_FLAGS=attach=cut
rm "$S/state/7.0/result"
check 'and a job attached to whose prolog did not come to its end' epilog
check 'is kept still' json "$("$EFS" status --json "slurm-kept.$uid1.cut-n1")" 'd["state"] == "kept"'
check 'nothing of the job is left' no_job
prolog SPANK_EFS_FLAGS=attach=cut
echo 'failed for another reason' >"$S/state/7.0/result"
epilog
check 'one that is called failed is stopped, too' json "$("$EFS" status --json "slurm-kept.$uid1.cut-n1")" 'd["state"] == "kept"'
"$EFS" clean "slurm-kept.$uid1.cut-n1" >/dev/null

for before in '' 'failed for another reason'; do
  prolog SPANK_EFS_FLAGS=keep=cut
  as_user sh -c "echo precious >$S/mnt/7/result"
  rm "$S/state/7.0/result"; [ -z "$before" ] || echo "$before" >"$S/state/7.0/result"
  rm -f "$S/looks"
  python3 -c 'import fcntl, os, signal, sys
lock = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600); fcntl.flock(lock, fcntl.LOCK_EX); open(sys.argv[2], "w").close(); signal.alarm(60); signal.pause()' "$S/state/.lock.$uid1" "$S/looks" & looker=$!; pids+=($looker)
  await 20 test -e "$S/looks"
  began=$SECONDS
  epilog HOOK_TIMEOUT=15
  check 'an epilog does not wait for who looks at what is kept for longer than it has' test $((SECONDS - began)) -le 15
  check 'leaves what may be its own, and does not forget it' test -e "$S/mnt/7/result" -a -e "$S/state/7.0"
  [ -n "$before" ] || check 'and says so where the job may have run' result_is 'unsaved .*another job of the user locks the kept files'
  kill $looker; wait $looker 2>/dev/null
  check 'the next one ends it' epilog
  check 'nothing of the job is left' no_job
  [ -n "$before" ] || check 'and its result is back' grep -qx precious "$W/results/result"
  "$EFS" clean --force "slurm-kept.$uid1.cut-n1" >/dev/null 2>&1
done

prolog SPANK_EFS_FLAGS=keep=; epilog
check 'each user has a lock of his own for what is kept' test -e "$S/state/.lock.$uid1"
check_not 'which another cannot open' runuser -u $USER2 -- cat "$S/state/.lock.$uid1"
check 'a job that keeps without a name keeps under its number' json "$("$EFS" status --json "slurm-kept.$uid1.7-n1")" 'd["state"] == "kept"'
prolog SPANK_EFS_FLAGS='keep= attach=7'; epilog
check 'one that attaches, under the name that it attaches to' json "$("$EFS" status --json "slurm-kept.$uid1.7-n1")" 'd["state"] == "kept"'
"$EFS" clean "slurm-kept.$uid1.7-n1" >/dev/null

# --- the child that reads the shared directory ---
work child
prolog -- shared="$S/shared"
epilog HOOK_TELL_FDS="$S/shared" HOOK_FDS_FILE="$S/fds" -- shared="$S/shared"
check 'has its pipe, and nothing else of its parent' test "$(awk '$2 != "/dev/null" { print $1, $2 }' "$S/fds" | grep -v '^3 pipe:'; grep -c pipe: "$S/fds")" = 1

# --- reports of other nodes ---
work others
prolog -- shared="$S/shared"
opened() { grep -c "^$S/shared/jobs/7.0/.*n[0-9]" "$S/opened" || :; }
for i in $(seq 2 60); do said_by n$i running; done
: >"$S/opened"
check 'a task whose other nodes are all good' task HOOK_TELL_OPENS="$S/opened" -- shared="$S/shared"
check 'reads none of what they say' test "$(opened)" = 0
rm "$S/state/7.0/checked"
mkdir "$S/shared/jobs/7.0/.failed"
said_uid=99999 said_by n3 failed .failed/
check 'one of which another job of that number has failed, of another user, is good' task -- shared="$S/shared"
rm -f "$S/state/7.0/checked" "$S/shared/jobs/7.0/.failed/n3"
for i in $(seq 10 60); do said_by n$i failed .failed/; done
check_not 'one of which some have failed, fails' task HOOK_TELL_OPENS="$S/opened" -- shared="$S/shared"
check 'and says why' grep -qE 'slurm_error: efs: stage-in failed on (n[0-9]*): no such \1$' "$S/said.task_init_privileged"
check 'and has read no more than that' test "$(opened)" = 1
rm -r "$S/shared/jobs/7.0/.failed"; mkdir "$S/shared/jobs/7.0/.failed"
said_by n5 put-off .failed/
task -- shared="$S/shared"
check 'or is put off' grep -q 'slurm_error: efs: nothing was staged on n5: no such n5' "$S/said.task_init_privileged"
epilog -- shared="$S/shared"
rm -r "$S/shared/jobs/7.0"
prolog SPANK_EFS_JOB='resources: [' -- shared="$S/shared"
check 'a node that fails says so to the others' grep -q '"state":"failed"' "$S/shared/jobs/7.0/.failed/n1"
check 'who see it' json "$("$EFS" status --json --job 7 --shared "$S/shared")" 'not d["ok"] and [n["node"] for n in d["nodes"]] == ["n1"]'
epilog -- shared="$S/shared"
check 'nothing is left' no_job

# --- many nodes, and arrays of many tasks ---
work many
answers() { cat >"$S/answer"; printf '#!/bin/sh\nexec cat %s/answer\n' "$S" >"$S/slurm/squeue"; }
names() { seq -f "node-of-a-long-name-%.0f" -s, "$1" "$2"; }
echo "7|$(names 1 800),n1,$(names 801 900)" | answers
check 'a node of many, of which slurmctld alone tells' prolog SLURM_JOB_NODELIST=other -- efs="$S/fake/efs"
check 'finds its place' grep -q ' start .*--node=800/901 ' "$S/efs.log"
epilog -- efs="$S/fake/efs"
echo "7|n1,$(names 1 4000)" | answers
prolog SLURM_JOB_NODELIST=other
check 'a list that is too long is not cut' result_is "failed the list of the job's nodes is longer than 64 KiB"
epilog
seq -f '%.0f|RUNNING|1:00|n2' 100 5100 | cat - <(echo '7|PENDING|10:00|n1') <(seq -f '%.0f|RUNNING|1:00|n2' 6000 6999) | answers
rm "$S/quick"; : >"$S/efs.log"
prolog -- efs="$S/fake/efs"
check 'a task of a large array is found among them' result_is 'put-off .*the job was over'
touch "$S/quick"
epilog
printf '#!/bin/sh\necho "7|RUNNING|10:00|n1|n1"\n' >"$S/slurm/squeue"
check 'nothing is left' no_job

# --- the end of a stage-out ---
work deadline 'max-rate: 64 KiB/s'
prolog
as_user sh -c "for i in 1 2 3 4 5; do head -c 256K /dev/urandom >$S/mnt/7/r\$i; done; cat $S/mnt/7/r? | cksum >$W/sum"
began=$SECONDS
check 'an epilog whose stage-out takes too long' epilog -- stage-out=12
check 'ends in time' test $((SECONDS - began)) -le 46
check 'and says what became of it' result_is 'unsaved results are not exported: time was up'
back() { find "$W/results" -name 'r[1-5]' | wc -l; }  # which of them is up to the threads that copy
check 'some are back' test "$(back)" -ge 1
check 'not all' test "$(back)" -le 4
check 'the rest can be brought out' "$EFS" salvage slurm-7.0-n1
check 'whole' test "$(cat "$W"/results/r? | cksum)" = "$(cat "$W/sum")"
forget

# --- views, with a shared tree (as with systemd) and without ---
viewer() { task HOOK_JOB="$1" HOOK_THEN="cd $S/view; echo r >result; echo \$\$ >$W/viewer.$1; exec /bin/sleep 600" -- view="$S/view"; }
views() {  # views KIND
  local own other
  work "view-$1"
  prolog -- view="$S/view"
  prolog HOOK_JOB=8 -- view="$S/view"
  viewer 7 & viewer 8 &
  check "$1: a process in the view of each of two jobs" await 20 test -s "$W/viewer.7" -a -s "$W/viewer.8"
  own=$(cat "$W/viewer.7") other=$(cat "$W/viewer.8"); pids+=("$own" "$other")
  check "$1: the end of one job" epilog -- view="$S/view"
  check "$1: ends its process" await 10 gone "$own"
  check "$1: and leaves nothing" no_job
  check "$1: its result is back" test "$(cat "$W/results/result")" = r
  check_not "$1: the other one is left alone" gone "$other"
  check "$1: and has its mount" mounted "$S/mnt/8"
  check "$1: with its daemons" json "$("$EFS" status --json slurm-8.0-n1)" 'd["state"] == "running" and d["takeovers"] == 0'
  kill -KILL "$other" 2>/dev/null; await 10 gone "$other"
  epilog HOOK_JOB=8 -- view="$S/view"
  check "$1: then that ends, too" no_job 8
}
mkdir "$S/view"
for kind in private shared; do
  mount --bind "$S/mnt" "$S/mnt" && mount --make-$kind "$S/mnt"
  views $kind 2>/dev/null   # the shell tells of each process that is killed
  umount "$S/mnt"
done

# --- results of the background tests ---
wait "${aside_pids[@]}"
check 'a stop that hangs has its time, and no more' took hung-started 80
check 'and leaves the results where they are' grep -q '^unsaved .*did not end within the site.s limit' "$S/hung-started/state/7.0/result"
check 'one without anything to save has two minutes' took hung-failed 150
check 'what hung is not forgotten' test -e "$S/hung-failed/state/7.0"
check 'a stop that finds out too late that all is over' took over 30
check 'has nothing left to do' test ! -e "$S/over/state/7.0" -a ! -e "$S/over/mnt/7"
check 'a stage-in that is slow ends before slurmd would kill its prolog' took slow-start 30
check 'and fails, with the reason' grep -q '^failed .*within the time limit of a prolog (PrologEpilogTimeout, 30 s)' "$S/slow-start/state/7.0/result"
check 'a stop that is slow ends before slurmd would kill its epilog' took slow-stop 45
check 'and leaves the results where they are' grep -q '^unsaved .*PrologEpilogTimeout' "$S/slow-stop/state/7.0/result"
check 'an epilog does not wait longer than that for another one' took busy 15
check 'and takes nothing from it' grep -qx 'running x' "$S/busy/state/7.0/result"
check 'nor where slurm.conf alone says how long it may take' took busy-conf 15
check 'and takes nothing from it, either' grep -qx 'running x' "$S/busy-conf/state/7.0/result"
check 'a job that keeps waits a minute for the lock' took locked 80
check 'and fails with the reason' grep -q '^failed your kept files on n1 .* are locked by another job of yours .*/.lock.'"$uid1" "$S/locked/state/7.0/result"
check 'an epilog ends daemons whose socket the user has removed' await 20 no_daemon "$S/unheard/r"
check 'and leaves nothing' test ! -e "$S/unheard/state/4000009.0" -a ! -e "$S/unheard/mnt/4000009" -a ! -e "$S/unheard/r/slurm-4000009.0-n1"
check 'they have staged out' test "$(cat "$S/socket/results/result")" = precious
check 'and no other process of his that has its name as an argument' kill "$(cat "$S/socket/reader")"
check 'nor the daemons of a job of another cluster that has its name' json "$(EFS_RUNTIME_DIR=$S/twin/r "$EFS" status --json slurm-4000009.0-n1)" 'd["state"] == "running" and d["takeovers"] == 0'
check 'whose own epilog ends them' eval 'epilog HOOK_JOB=4000009 -- state="$S/twin/state" run="$S/twin/r" mount="$S/twin/mnt" && await 20 no_daemon "$S/twin/r"'
for pid in $(daemons "$S/unheard/r") $(daemons "$S/twin/r"); do kill -KILL "$pid"; done
check 'no program is left' await 20 no_daemon
finish
