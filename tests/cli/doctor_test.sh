#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# efs doctor: its findings on this node, and in artificial sites, stores and Slurm configurations.
# It changes nothing.
#   doctor_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
export EFS_SITE_FILE=$S/site.yaml
printf 'limits:\n  workers: 16\n' >"$S/site.yaml"

# A fake scontrol, first in the PATH.
mkdir "$S/bin" "$S/etc"
cat >"$S/bin/scontrol" <<'SCRIPT'
#!/bin/sh
[ "$*" = 'show config' ] && exec cat "$(dirname "$0")/../config"
exit 1
SCRIPT
chmod 755 "$S/bin/scontrol"
PATH=$S/bin:$PATH
config() {  # config KEY=VALUE...: a good configuration with these changed
  { printf 'BatchStartTimeout = 7200 sec\nKillWait = 30 sec\nPrologEpilogTimeout = 65534\nPrologFlags = Alloc,DeferBatch\nSlurmdUser = root(0)\nUnkillableStepTimeout = 60 sec\nSLURM_VERSION = 22.05.8\nPluginDir = %s\nPlugStackConfig = %s\n' "$S/lib" "$S/etc/plugstack.conf"
    printf '%s\n' "$@"; } >"$S/config"   # the last of a key counts
}
plugstack() { printf '%s\n' "$*" >"$S/etc/plugstack.conf"; }
# finds NAME LEVEL WHAT PATTERN: a line of --json.
finds() {
  local name=$1 text; shift
  text=$("$EFS" doctor --json ${job:-} 2>/dev/null)
  if python3 -c 'import json,re,sys
d = json.loads(sys.argv[1])
sys.exit(not any(c["level"] == sys.argv[2] and c["what"] == sys.argv[3] and re.search(sys.argv[4], c["text"] + " " + c.get("advice", "")) for c in d["checks"]))' "$text" "$@"; then ok; else fail "$name" "$text"; fi
}

mkdir "$S/lib" "$S/shared" && chmod 755 "$S/lib" "$S/shared"
printf 'ELF efs-built-for-slurm=0x160508' >"$S/lib/spank_efs.so"
plugstack "required spank_efs.so efs=$EFS shared=$S/shared"
config

before=$(listing "$S")
# Dead mounts of other users would appear under "leftovers".
check 'it says something of every part' json "$("$EFS" doctor --json)" '{"kernel", "/dev/fuse", "fusermount3", "memory", "open files", "site file", "leftovers", "PrologFlags"} <= {"leftovers" if c["what"].startswith("mount ") else c["what"] for c in d["checks"]}'
check 'the sums are right' json "$("$EFS" doctor --json)" 'd["ok"] == (d["problems"] == 0) and d["problems"] == sum(c["level"] == "problem" for c in d["checks"]) and d["exit"] == (0 if d["ok"] else 1)'
check 'whatever is no good has words, and a problem a way out' json "$("$EFS" doctor --json)" 'all(c["text"] for c in d["checks"]) and all("advice" in c for c in d["checks"] if c["level"] == "problem")'
check 'it changes nothing' test "$before" = "$(listing "$S")"
# Call it once: other mounts on the machine change between two calls.
people=$("$EFS" doctor) && code=0 || code=$?
check 'for people' grep -qE '^ok +kernel: Linux' <<<"$people"
check 'its exit says whether there is a problem' test "$code" = "$(grep -q '^problem ' <<<"$people" && echo 1 || echo 0)"
check_exit 'usage' 2 'nosuch' "$EFS" doctor --nosuch

# --- Slurm ---
finds 'a good plugin' ok plugin 'built for Slurm 22.05'
finds 'a good shared directory' ok 'plugin, shared=' "$S/shared"
config 'PrologFlags = Alloc'
finds 'a missing flag' problem PrologFlags 'Alloc: .*PrologFlags=Alloc,DeferBatch'
check_exit 'a problem gives 1' 1 '^problem +PrologFlags' "$EFS" doctor
config 'PrologFlags = Alloc,Contain,DeferBatch,RunInJob'
finds 'prologs in the job' problem PrologFlags 'kills its file system.*without RunInJob'
config 'BatchStartTimeout = 10 sec'
finds 'the default of BatchStartTimeout' problem BatchStartTimeout '10 s: .*requeued'
config 'PrologEpilogTimeout = 60 sec'
finds 'a time-out that is short' problem PrologEpilogTimeout 'fails its job'
config 'SLURM_VERSION = 23.11.4'
finds 'a plugin of another release' problem plugin 'built for Slurm 22.05, and this is 23.11'
config 'JobContainerType = job_container/tmpfs'
plugstack "required spank_efs.so mount=/tmp/efs"
finds 'a mount where the job has its own /tmp' problem JobContainerType 'mount= lies there'
config
plugstack "required $S/none/spank_efs.so"
finds 'a plugin that is not there' problem plugin 'every launch on this node fails'
plugstack '# nothing'
finds 'no plugin' problem plugin 'knows no --efs'
plugstack "required spank_efs.so efs=$EFS shared=$S/shared pol=5 plan=maybe"
finds 'a word that the plugin does not know' problem plugstack.conf '"pol=5".*sbatch refuses every job'
check 'and a value that cannot be' json "$("$EFS" doctor --json)" 'len([c for c in d["checks"] if c["what"] == "plugstack.conf"]) == 2 and any("plan= must be yes or no" in c["text"] for c in d["checks"])'
plugstack "required spank_efs.so efs=$S/none shared=$S/shared queue=$S/queue"
finds 'a program that is not there' problem 'plugin, efs=' 'cannot be run'
finds 'a queue that is not there' problem 'plugin, queue=' 'is not there'
chmod 777 "$S/shared"
finds 'a shared directory that anybody can write' problem 'plugin, shared=' 'can be changed by others'
mkdir "$S/queue" && chmod 755 "$S/queue"
echo 'longest-wait: 20000' >"$S/queue/settings"
finds 'the longest wait for a turn counts' warning BatchStartTimeout '7200 s: .*20600 s here'
printf '#!/bin/sh\n[ "$1" != show ] || cat "%s/unit"\n' "$S" >"$S/bin/systemctl"; chmod 755 "$S/bin/systemctl"
printf 'LoadState=loaded\nKillMode=control-group\n' >"$S/unit"
finds 'a unit whose restart kills the file systems of jobs' problem slurmd.service 'KillMode=control-group: .*KillMode=process'
printf 'LoadState=loaded\nKillMode=process\n' >"$S/unit"
finds 'one that does not' ok slurmd.service 'KillMode=process'
printf 'LoadState=not-found\nKillMode=control-group\n' >"$S/unit"
check 'no unit is no problem' json "$("$EFS" doctor --json)" '"slurmd.service" not in [c["what"] for c in d["checks"]]'
rm "$S/config"
finds 'a slurmctld that does not answer' warning Slurm 'cannot be asked'
check 'without Slurm nothing is said of it' json "$(PATH=$S/none /bin/sh -c "'$EFS' doctor --json")" '"PrologFlags" not in [c["what"] for c in d["checks"]]'

# --- site and stores ---
printf 'backends:\n  - id: disk\n    type: NVRAM-NVML\n    daxfs: %s\n    capacity: 900 TiB\n' "$S/etc" >"$S/site.yaml"
finds 'a store without the space' problem 'store disk' 'free in .*the capacity is 900'
sed -i "s|daxfs: .*|daxfs: $S/nowhere|" "$S/site.yaml"
finds 'a store that is not there' problem 'store disk' 'No such file'
printf 'backends:\n  - id: disk\n    type: NVRAM-NVML\n    daxfs: /dev/shm\n    capacity: 32 MiB\n' >"$S/site.yaml"
finds 'a store in memory is called one' warning 'store disk' 'memory: volatile, lost at a restart'
printf 'backends:\n  - id: disk\n    type: NVRAM-NVML\n    daxfs: /dev/shm\n    require-dax: true\n    capacity: 32 MiB\n' >"$S/site.yaml"
finds 'a store in memory that must be persistent' problem 'store disk' "require-dax: true' no job starts"
mkdir "$S/disk"
sed -i "s|daxfs: .*|daxfs: $S/disk|" "$S/site.yaml"
with_dax() { PMEM_IS_PMEM_FORCE=1 EFS_TEST_PMEM=1 "$EFS" doctor --json; }
case $(stat -f -c %T "$S/disk") in
  tmpfs|ramfs) skip 'a store on persistent memory' 'the test is on a tmpfs' ;;
  *) check 'a store on persistent memory' json "$(with_dax)" '[c["level"] for c in d["checks"] if c["what"] == "store disk"][0] == "ok" and any("real DAX" in c["text"] for c in d["checks"])'
     sed -i '/require-dax/d' "$S/site.yaml"
     check 'a variable alone makes none' json "$(PMEM_IS_PMEM_FORCE=1 "$EFS" doctor --json)" '"real DAX" not in str(d["checks"])'
     check 'a probe leaves nothing' test -z "$(ls -A "$S/disk")" ;;
esac
echo 'resorces: 1' >"$S/site.yaml"
finds 'a site file with a misspelt key' problem 'site file' 'site.yaml:1:1: .*resorces'
printf 'limits:\n  workers: 16\n' >"$S/site.yaml"
fresh mine "backends:
  - id: ram
    type: DRAM
    capacity: 900 TiB"
job=$JOB
finds 'more memory than there is' problem 'store ram' '900'
echo 'x: [' >"$JOB"
finds 'a job file that is none' problem 'job file' 'mine.yaml'
job=$S/none.yaml
finds 'a job file that is not there' problem 'job file' 'none.yaml'
job=

# --- persistent memory ---
# Unit tests have nodes with persistent memory. This node may have none.
before=$(listing "$S")
check_exit 'persistent memory' 0 '^ok +type DRAM: .*' "$EFS" doctor --pmem
check_exit 'a type that no backend has is told' 0 '^ok +type NVRAM-DEVDAX: not supported' "$EFS" doctor --pmem
check 'as JSON' json "$("$EFS" doctor --pmem --json)" 'd["ok"] and {"regions", "dax", "problems"} == set(d["pmem"]) and {"type DRAM", "type NVRAM-NVML"} <= {c["what"] for c in d["checks"]}'
check 'a node without any says what works instead' json "$("$EFS" doctor --pmem --json)" 'd["pmem"]["regions"] or d["pmem"]["dax"] or d["pmem"]["problems"] or any(c["what"] == "persistent memory" and "SSD" in c["advice"] for c in d["checks"])'
check 'nothing else is examined' json "$("$EFS" doctor --pmem --json)" 'not {c["what"] for c in d["checks"]} & {"kernel", "memory", "site file"}'
check_exit 'not with a job file' 2 'excludes' "$EFS" doctor --pmem "$JOB"
check_exit 'nor with --mem' 2 'excludes' "$EFS" doctor --pmem --mem 1G
check 'it changes nothing' test "$before" = "$(listing "$S")"
if [ "$(id -u)" = 0 ] && id games >/dev/null 2>&1; then
  check_exit 'an ordinary user gets an answer' 0 'type NVRAM-NVML' runuser -u games -- "$EFS" doctor --pmem
else skip 'persistent memory for an ordinary user' 'needs root to become one'; fi

# --- the rights of the caller ---
(ulimit -n 1000; "$EFS" doctor) >"$S/said" 2>&1
check 'few open files' grep -q '^warning  open files: hard limit 1000' "$S/said"
(ulimit -n 100; "$EFS" doctor) >"$S/said" 2>&1
check 'too few for an instance' grep -q '^problem  open files: hard limit 100.*no instance starts' "$S/said"
chmod 777 "$EFS_RUNTIME_DIR" 2>/dev/null || install -d -m 777 "$EFS_RUNTIME_DIR"
finds 'a runtime directory that anybody can write' problem 'runtime directory' 'can be changed by others'
rmdir "$EFS_RUNTIME_DIR"
if [ "$(id -u)" = 0 ] && id games >/dev/null 2>&1; then
  chmod 644 "$S/site.yaml"
  text=$(runuser -u games -- env EFS_SITE_FILE="$S/site.yaml" EFS_RUNTIME_DIR="$S/none/r" "$EFS" doctor --json)
  check 'an ordinary user gets an answer' json "$text" '{c["what"]: c["level"] for c in d["checks"]}["privilege"] == "warning"'
  check 'and what he cannot make is told' json "$text" '{c["what"]: c["level"] for c in d["checks"]}["runtime directory"] == "problem"'
else skip 'an ordinary user' 'needs root to become one'; fi

# --- leftovers ---
# Other tests on this machine may leave mounts that hang for a while; this test leaves none.
no_leftover() { json "$("$EFS" doctor --json)" "not any(c['level'] != 'ok' and (c['what'].startswith('instance ') or c['what'].startswith('mount ') and '$S' in c['what']) for c in d['checks'])"; }
if [ -c /dev/fuse ]; then
  fresh dead
  check 'efs start' "$EFS" start "$JOB"
  check 'a running instance is no leftover' no_leftover
  text=$("$EFS" status --json dead)
  kill -KILL "$(field "$text" 'd["supervisor_pid"]')" "$(field "$text" 'd["worker_pid"]')"
  await 10 no_daemon
  finds 'an instance that was killed' warning 'instance dead' 'efs salvage dead'
  check_not 'which is one' no_leftover
  [ "$(id -u)" != 0 ] || finds 'and its mount' warning "mount $MNT" 'no process serves it'
  check 'which clean removes' "$EFS" clean --force dead
  fresh hung
  MNT="$MNT;x y"
  sed -i "s|mount-dir: .*|mount-dir: '$MNT'|" "$JOB"
  check 'efs start' "$EFS" start "$JOB"
  text=$("$EFS" status --json hung)
  both="$(field "$text" 'd["supervisor_pid"]') $(field "$text" 'd["worker_pid"]')"
  kill -STOP $both
  silent() { WHAT=$1 json "$(timeout 100 "$EFS" doctor --json)" "any(c['what'] == __import__('os').environ['WHAT'] and c['level'] == 'problem' and 'does not answer' in c['text'] for c in d['checks'])"; }
  check 'a mount whose daemon hangs does not hold it up, and is named as a shell would need it' silent "mount '$MNT'"
  printf 'backends:\n  - id: disk\n    type: NVRAM-NVML\n    daxfs: "%s"\n    capacity: 32 MiB\n' "$MNT" >"$S/site.yaml"
  check 'nor does a store' silent 'store disk'
  printf 'limits:\n  workers: 16\n' >"$S/site.yaml"
  plugstack "required spank_efs.so efs=$EFS shared=${MNT% y}"; config
  ln -s "$MNT" "${MNT% y}"
  check 'nor a shared directory' silent 'plugin, shared='
  rm "$S/config" "${MNT% y}"
  kill -CONT $both; kill -KILL $both
  await 10 no_daemon
  [ "$(id -u)" != 0 ] || finds 'a dead mount with a blank in its name' warning "mount '$MNT'" 'no process serves it'
  check 'clean' "$EFS" clean --force hung
  check 'and then it is gone' no_leftover
else skip 'leftovers' 'no /dev/fuse'; fi
lost=/dev/shm/efs-$(id -u)-lost-$(basename "$S")
mkdir -p "$lost/meta" && : >"$lost/meta/lock"
finds 'a store in memory that no instance leads to' warning "store $lost" 'no instance leads to it.*efs salvage.*efs clean'
mkdir -p "$S/disk/efs-$(id -u)-job/meta" && : >"$S/disk/efs-$(id -u)-job/meta/lock"
printf 'backends:\n  - id: disk\n    type: NVRAM-NVML\n    daxfs: "%s"\n    capacity: 32 MiB\n' "$S/disk" >"$S/site.yaml"
finds 'and one on a disk of the site' warning "store $S/disk/efs-$(id -u)-job" 'no instance leads to it.*efs salvage.*efs clean'
printf 'limits:\n  workers: 16\n' >"$S/site.yaml"
if [ "$(id -u)" = 0 ] && id games >/dev/null 2>&1; then
  chown games "$lost"
  check 'not one that a stranger has made under such a name' json "$("$EFS" doctor --json)" "not any('$lost' in c['what'] for c in d['checks'])"
  chown 0 "$lost"
fi
exec 8<"$lost/meta/lock"; flock 8
check 'not one that is in use' json "$("$EFS" doctor --json)" "'store $lost' not in [c['what'] for c in d['checks']]"
exec 8<&-
rm -r "$lost"
finish
