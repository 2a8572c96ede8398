# SPDX-License-Identifier: BSD-3-Clause
# Sourced: a real Slurm cluster on this machine, below $S/slurm: munged, slurmctld and one slurmd
# per node, with separate key, ports and directories. cluster_start NODES, cluster_stop; ends only
# processes that it started. Needs $BIN (efs, efsd) and $PLUGIN (spank_efs.so). The simulated nodes
# share one host: every path contains the node's name.
C=$S/slurm
cluster_pids=()

# cluster_ports COUNT: prints the first of COUNT consecutive free ports, below the kernel's range
# for outgoing connections. Another process may take one before its daemon does; then the cluster
# fails to start and is started again.
cluster_ports() {
  python3 -c '
import random, socket, sys
count, end = int(sys.argv[1]), int(open("/proc/sys/net/ipv4/ip_local_port_range").read().split()[0])
def free(port):
    with socket.socket() as s:
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try: s.bind(("0.0.0.0", port))
        except OSError: return False
    return True
for _ in range(1000):
    base = random.randrange(min(10000, end // 2), end - count)
    if all(free(base + i) for i in range(count)): print(base); sys.exit()
sys.exit("no ports are free")' "$1"
}

cluster_conf() {  # cluster_conf NODES
  local nodes=$1 base list
  base=$(cluster_ports $((nodes + 2))) || return 1
  list=$([ "$nodes" = 1 ] && echo n1 || echo "n[1-$nodes]")
  cat >"$C/slurm.conf" <<CONF
ClusterName=efstest
SlurmctldHost=$(hostname -s)(127.0.0.1)
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket=$C/munge/socket,cred_expire=5
CryptoType=crypto/munge
SlurmctldPort=$base
SlurmdPort=$((base + 1))
StateSaveLocation=$C/ctld
SlurmctldPidFile=$C/ctld.pid
SlurmctldLogFile=$C/ctld.log
SlurmdSpoolDir=$C/spool.%n
SlurmdPidFile=$C/slurmd.%n.pid
SlurmdLogFile=$C/slurmd.%n.log
SlurmctldDebug=info
SlurmdDebug=verbose
SlurmdParameters=config_overrides
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerNode=300
SchedulerType=sched/backfill
SchedulerParameters=sched_interval=1,bf_interval=1,batch_sched_delay=0
SwitchType=switch/none
MpiDefault=none
ReturnToService=2
SlurmdTimeout=30
KillWait=${CLUSTER_KILL_WAIT:-3}
MinJobAge=600
PropagateResourceLimits=NONE
PropagatePrioProcess=0
NodeName=$list NodeHostname=localhost NodeAddr=127.0.0.1 Port=$((base + 2))-$((base + 1 + nodes)) CPUs=4 RealMemory=2000
PartitionName=all Nodes=$list Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
CONF
  # From 24.05 on slurmd requires a setting for cgroups, though this cluster uses none; older
  # versions reject the word.
  [ "$(printf '24.05\n%s\n' "$(slurmd -V | grep -oE '[0-9]+\.[0-9]+' | head -n 1)" | sort -V | head -n 1)" != 24.05 ] || echo CgroupPlugin=disabled >"$C/cgroup.conf"
  sed "s,^PlugStackConfig=.*,PlugStackConfig=$C/plugstack.conf,; s,^BatchStartTimeout=.*,BatchStartTimeout=600," "$SOURCE/conf/slurm/slurm.conf" >>"$C/slurm.conf"   # as sites do
  [ -z "${CLUSTER_CONF:-}" ] || printf '%s\n' "$CLUSTER_CONF" >>"$C/slurm.conf"   # of one test
  [ -z "${CLUSTER_FILES:-}" ] || cp "$CLUSTER_FILES" "$C/"                          # beside it
  [ "$nodes" != 1 ] || sed -i "s/Port=$((base + 2))-$((base + 2))/Port=$((base + 2))/" "$C/slurm.conf"
}

cluster_plugstack() {  # cluster_plugstack [ARGUMENT...]: takes effect for the next job
  sed "s,^required .*,required $PLUGIN efs=$EFS state=$C/state.%n run=$C/run.%n mount=$C/mnt.%n shared=$C/shared poll=1 $*," "$SOURCE/conf/slurm/plugstack.conf" >"$C/plugstack.conf"
}

cluster_slurmd() {  # cluster_slurmd NODE: its pid is in $C/slurmd.NODE.pid
  SLURM_CONF=$C/slurm.conf SLURMD_NODENAME=$1 slurmd -f "$C/slurm.conf" -N "$1" -b
}

cluster_start() {  # cluster_start NODES: the second and third time with other ports
  local try
  for try in 1 2 3; do
    if cluster_try "$1"; then return 0; fi
    echo "the cluster does not come up (try $try of 3):"; tail -n 15 "$C/ctld.log"; sinfo -N -l
    [ $try = 3 ] || { cluster_stop; rm -rf "$C"/{munge,ctld,spool.*,*.log,*.pid}; }
  done
  return 1
}
cluster_try() {
  local nodes=$1 i
  mkdir -p "$C"/{munge,ctld,shared,queue} && chmod 755 "$C" "$C"/{munge,shared,queue} || return 1
  for i in $(seq "$nodes"); do mkdir -p "$C/spool.n$i"; done
  (umask 077 && head -c 128 /dev/urandom >"$C/munge/key")
  cluster_conf "$nodes" || return 1
  export SLURM_CONF=$C/slurm.conf
  munged --force --key-file="$C/munge/key" --socket="$C/munge/socket" --pid-file="$C/munge/pid" --log-file="$C/munge/log" --seed-file="$C/munge/seed" >/dev/null 2>&1 || return 1
  slurmctld -f "$C/slurm.conf" || return 1
  for i in $(seq "$nodes"); do cluster_slurmd "n$i" || return 1; done
  await 60 cluster_ready "$nodes"
}
cluster_ready() { [ "$(sinfo -h -N -t idle -o %N 2>/dev/null | sort -u | wc -l)" = "$1" ]; }

# Kills only by our own pid files, and only if the pids still belong to the same processes.
cluster_kill() {  # cluster_kill PIDFILE NAME SIGNAL
  local pid
  pid=$(cat "$1" 2>/dev/null) && [ -n "$pid" ] && [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = "$2" ] || return 0
  kill "-$3" "$pid" 2>/dev/null
  await 10 gone "$pid" || kill -KILL "$pid" 2>/dev/null
}
cluster_stop() {
  local i pid
  [ -d "$C" ] || return 0
  [ ! -e "$C/ctld.pid" ] || timeout 20 scancel -u root,"$USER1","$USER2" 2>/dev/null
  for i in "$C"/slurmd.*.pid; do [ ! -e "$i" ] || cluster_kill "$i" slurmd TERM; done
  cluster_kill "$C/ctld.pid" slurmctld TERM
  # Steps that outlived their slurmd.
  for pid in $(grep -lF "$C/spool." /proc/[0-9]*/cmdline 2>/dev/null | cut -d/ -f3); do [ "$pid" = $$ ] || [ "$(cat "/proc/$pid/comm" 2>/dev/null)" != slurmstepd ] || kill -KILL "$pid" 2>/dev/null; done
  cluster_kill "$C/munge/pid" munged TERM
  await 20 cluster_gone   # a slurmd that has just started sweeps in the background
  for i in "$C"/run.*/*; do [ ! -d "$i" ] || EFS_RUNTIME_DIR=$(dirname "$i") timeout 20 "$EFS" stop --no-stage-out "$(basename "$i")" >/dev/null 2>&1; done
}

cluster_gone() {
  local file
  for file in $(grep -lF "$C/" /proc/[0-9]*/cmdline 2>/dev/null); do
    ! grep -qE '^(slurm|munged|efsd)' "${file%cmdline}comm" 2>/dev/null || return 1
  done
}

as() { local user=$1; shift; runuser -u "$user" -- env SLURM_CONF="$SLURM_CONF" "$@"; }
# submit USER [OPTION...] <<<SCRIPT: prints the job's id; the output of sbatch is in $W/said.
submit() {
  local user=$1; shift
  (cd "$W" && as "$user" sbatch --parsable -o "$W/out.%j" -J test "$@" 2>"$W/said")
}
state_of() { [ -n "$1" ] && scontrol -o show job "$1" 2>/dev/null | grep -oE ' JobState=[A-Z_]+' | cut -d= -f2; }
job_field() { scontrol -o show job "$1" 2>/dev/null | grep -oE " $2=[^ ]*" | head -n 1 | cut -d= -f2-; }
comment_of() { scontrol show job "$1" 2>/dev/null | sed -n 's/^ *AdminComment=//p'; }
has_ended() { local state; state=$(state_of "$1"); case $state in COMPLETED | FAILED | CANCELLED | TIMEOUT | NODE_FAIL) ;; *) return 1 ;; esac; }
is_running() { [ "$(state_of "$1")" = RUNNING ]; }
all_idle() { [ -z "$(sinfo -h -N -o %t | grep -v '^idle$')" ]; }
not_drained() { ! sinfo -h -N -o %t | grep -qE 'drain|down|drng'; }
