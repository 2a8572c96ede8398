#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Sources of values: Slurm's patterns, environment and home in job files, the site file, and their
# precedence.
#   settings_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
unset ${!SLURM@} EFS_SITE_FILE
export EFS_SITE_FILE=$S/site.yaml
umask 022
echo >"$EFS_SITE_FILE"

# shown KEY FILE [OPTION...]: "value|source|where" of a setting.
shown() { local key=$1 file=$2; shift 2; field "$("$EFS" check --show --json "$@" "$file")" "next(v['value'] + '|' + v['source'] + '|' + v['where'] for v in d['values'] if v['key'] == '$key')"; }
is() { [ "$1" = "$2" ] || { echo "$1 is not $2"; return 1; }; }

# --- patterns and variables, up to the mount ---
fresh slurm
export SLURM_JOB_ID=4711 SLURM_JOB_NAME=heat WHERE=$S/slurm
cat >"$JOB" <<EOF
global-settings:
  name: run-%j
  root-dir: \$WHERE/pfs
  mount-dir: \${WHERE}/mnt-%x-%j
  results-dir: $S/slurm/out/%u
backends: [ [ id: ram, capacity: 128 MiB ] ]
resources: [ [ path: input ] ]
EOF
mkdir "$OUT/$(id -un)"
check 'run' "$EFS" run "$JOB" -- sh -c 'echo "$EFS_MOUNT" >"$EFS_MOUNT/where"; cat "$EFS_MOUNT/input/a" >"$EFS_MOUNT/copy"'
check 'the mount point is the expanded one' grep -qx "$S/slurm/mnt-heat-4711" "$OUT/$(id -un)/where"
check 'the inputs were found' grep -qx alpha "$OUT/$(id -un)/copy"
check 'the receipt has the expanded name' test -e "$OUT/$(id -un)/efs-receipt-run-4711.json"
unset SLURM_JOB_NAME
check_exit 'a directive without a value: line, column, variable' 2 "slurm.yaml:4:14: %x has no value: SLURM_JOB_NAME is not set" "$EFS" start "$JOB"
unset WHERE
check_exit 'an unset variable: line, column, name' 2 "slurm.yaml:3:13: the environment variable WHERE is not set" "$EFS" plan "$JOB"
check 'nothing was started' test -z "$(ls -A "$EFS_RUNTIME_DIR")"
fresh percent; mkdir "$S/percent/100%"
check 'what efs has expanded the daemon does not expand again' "$EFS" start "$JOB" -m "$S/percent/100%"
check 'a percent sign of the command line stays' cmp "$PFS/input/a" "$S/percent/100%/input/a"
check 'stop' "$EFS" stop percent

# --- before the job ---
mkdir -p "$S/submit/pfs/sub"
PFS=$S/submit/pfs MNT=$S/submit/mnt JOB=$S/submit/submit.yaml
echo alpha >"$PFS/a"
export SHORT=$S/submit PART=sub
printf '%s\n' 'global-settings:' '  root-dir: $SHORT/pfs' '  mount-dir: $SHORT/mnt' '  results-dir: out/%N' "backends: [ [ id: ram, capacity: 128 MiB ] ]" 'resources:' '  - path: in.%N' '  - path: $PART/%x_%a.%A.%j' '  - path: a' >"$JOB"
check_exit 'patterns of a job that is not there' 2 'submit.yaml:8:11: %x has no value' "$EFS" check "$JOB"
check_exit 'stay at submission' 0 good "$EFS" check --at-submission "$JOB"
check_exit 'and in what the nodes read' 0 good sh -c 'cd "$1" && "$2" check --at-submission --snapshot=snapshot "$3"' sh "$S/submit" "$EFS" "$JOB"
check 'where variables are expanded' grep -qF "root-dir: \"$S/submit/pfs\"" "$S/submit/snapshot"
check 'and directories absolute' grep -qF "results-dir: \"$S/submit/out/%N\"" "$S/submit/snapshot"
check 'each in its line' test "$(grep -nF 'path: "sub/%x_%a.%A.%j"' "$S/submit/snapshot" | cut -d: -f1)" = 8
check_exit 'elsewhere it means the same' 1 "$PFS/in.n5" env -u SHORT -u PART SLURM_JOB_NAME=heat SLURM_ARRAY_TASK_ID=2 SLURM_ARRAY_JOB_ID=7 SLURMD_NODENAME=n5 "$EFS" plan "$S/submit/snapshot"
check 'for each input' grep -q "$PFS/sub/heat_2.7.4711" <<<"$said"
check_exit 'plan finds the rest' 0 'skipped: in.%N .*when the job starts' "$EFS" plan --at-submission "$JOB"
check 'with what is there' grep -qE '1 files?' <<<"$said"
rmdir "$PFS/sub"
check_exit 'and what holds it' 1 "$PFS/sub: does not exist" "$EFS" plan --at-submission "$JOB"
check_exit 'a snapshot is of a submission' 2 'at-submission' "$EFS" check --snapshot="$S/x" "$JOB"
check_exit 'one that cannot be written' 1 'cannot write .*none/x' "$EFS" check --at-submission --snapshot="$S/none/x" "$JOB"
unset SHORT PART

# --- precedence ---
fresh order
printf 'global-settings: {workers: 2}\n' >"$EFS_SITE_FILE"
check 'site over built in' is "$(shown workers "$JOB")" "2|site file|$EFS_SITE_FILE:1"
sed -i '2i\  workers: 3' "$JOB"
check 'job file over site' is "$(shown workers "$JOB")" "3|job file|$JOB:2"
export EFS_WORKERS=4
check 'environment over job file' is "$(shown workers "$JOB")" '4|environment|EFS_WORKERS'
check 'command line over environment' is "$(shown workers "$JOB" --set workers=5)" '5|command line|--set workers'
check 'built in where nobody says anything' is "$(shown on-conflict "$JOB") $(shown max-rate "$JOB") $(shown retries "$JOB")" 'fail|built in| none|built in| 6|built in|'
check_exit 'check --show shows them' 0 'workers +4 +environment \(EFS_WORKERS\)' "$EFS" check --show "$JOB"
check_exit 'plan --show, too' 0 'workers +4 +environment \(EFS_WORKERS\)' "$EFS" plan --show "$JOB"
check 'plan --show --json' json "$("$EFS" plan --show --json "$JOB")" "any(v['key'] == 'workers' and v['value'] == '4' for v in d['values'])"
EFS_WORKERS=many check_exit 'a bad variable is named' 2 "^EFS_WORKERS: 'workers' is 'many'" "$EFS" check "$JOB"
check_exit '--set of an unknown key' 2 "did you mean 'workers'" "$EFS" check --set wokers=3 "$JOB"
check_exit '--set without a value is usage' 2 'KEY=VALUE' "$EFS" check --set workers "$JOB"
unset EFS_WORKERS
check 'the daemon reads what the command read' env EFS_LOG_LEVEL=error "$EFS" start "$JOB" --set log-file="$S/order/log"
check 'log-file by --set' test -e "$S/order/log"
check 'log-level by the environment' test ! -s "$S/order/log"
check 'stop ' "$EFS" stop order

# --- values that the site fixes and limits ---
printf 'global-settings: {workers: 2}\nlimits: {capacity: 64 MiB}\nfixed: [workers]\n' >"$EFS_SITE_FILE"
check_exit 'what is fixed' 2 "order.yaml:2:12: 'workers' is '3', but the site has fixed it to '2' .*site.yaml:1" "$EFS" start "$JOB"
sed -i 2d "$JOB"
check_exit 'the capacity is limited' 2 "'capacity' is above the site's limit of 64 MiB" "$EFS" start "$JOB"
sed -i '/backends/,$d' "$JOB"; printf 'resources: [ [ path: input ] ]\n' >>"$JOB"
check 'start without a capacity' "$EFS" start "$JOB"
check 'has the limit' json "$("$EFS" status --json order)" "d['capacity'] <= 64 << 20"
check 'stop  ' "$EFS" stop order
printf 'global-settings: {mount-dir: "%s/order/mnt-%%u/"}\nfixed: [mount-dir]\n' "$S" >"$EFS_SITE_FILE"
sed -i '/mount-dir/d' "$JOB"
check 'a fixed mount point with a variable' "$EFS" start "$JOB"
check 'is where it is' mounted "$S/order/mnt-$(id -un)"
check 'stop   ' "$EFS" stop order
chmod go+w "$EFS_SITE_FILE"
check_exit 'a site file that others can write is refused' 2 'site.yaml: .*changed by others' "$EFS" check "$JOB"
check_exit 'but keeps nobody from looking' 0 'warning: .*site.yaml' env -u EFS_RUNTIME_DIR EFS_RUNTIME_DIR="$S/none" "$EFS" status
chmod go-w "$EFS_SITE_FILE"
echo 'limit: {}' >"$EFS_SITE_FILE"
check_exit 'a wrong site file: line, column, name' 2 "site.yaml:1:1: unknown key 'limit'.*did you mean 'limits'" "$EFS" check "$JOB"
rm "$EFS_SITE_FILE"
check_exit 'a named site file that is not there' 2 'site.yaml: cannot read' "$EFS" check "$JOB"
mkdir "$S/site-run"; printf 'runtime-dir: %s\nglobal-settings: {mount-dir: %s}\n' "$S/site-run" "$MNT" >"$EFS_SITE_FILE"
if [ "$(id -u)" = 0 ]; then
  check 'the runtime directory of the site' env -u EFS_RUNTIME_DIR "$EFS" start "$JOB"
  check 'is used' test -d "$S/site-run/order"
  check 'and found again' env -u EFS_RUNTIME_DIR "$EFS" stop order
else
  skip 'the runtime directory of the site' 'it is root'\''s'
fi
# --- memory of a batch job ---
fresh memory
check_exit 'a capacity that the memory of the job holds' 0 'good' "$EFS" check --memory '128 MiB' --node-memory 1GiB "$JOB"
check_exit 'one that it does not hold' 2 'memory.yaml:[0-9]+: capacity 128 MiB of backend ram, .*job on a node, 127 MiB .*--mem' "$EFS" check --memory 127MiB "$JOB"
check_exit 'and where that comes from' 2 'job on a node, 1 MiB \(DefMemPerNode\)' "$EFS" check --memory 1MiB --memory-source DefMemPerNode "$JOB"
check_exit 'one that no node holds' 2 'any node has, 100 MiB' "$EFS" check --memory 1GiB --node-memory 100MiB "$JOB"
check 'it tells programs' json "$("$EFS" check --json --memory 1MiB "$JOB")" 'not d["ok"] and "127" not in d["error"] and "1 MiB" in d["error"]'
check_exit 'a memory that is no size' 2 'lots is not a size' "$EFS" check --memory lots "$JOB"
fresh both "backends:
  - {id: one, type: DRAM, capacity: 64 MiB}
  - {id: two, type: DRAM, capacity: 32 MiB}"
check_exit 'several in memory together' 2 'both.yaml:[0-9]+: capacity 96 MiB of the backends one, two, which are in memory, is more than .*95 MiB' "$EFS" check --memory 95MiB "$JOB"
check_exit 'that fit together' 0 good "$EFS" check --memory 96MiB "$JOB"
fresh disk "backends:
  - id: disk
    type: NVRAM-NVML
    daxfs: $S
    capacity: 128 MiB"
check_exit 'a store on a disk is not memory' 0 'good' "$EFS" check --memory 1MiB "$JOB"
if [ "$(stat -f -c %T /dev/shm 2>/dev/null)" = tmpfs ]; then
  fresh shm "backends:
  - {id: one, type: DRAM, capacity: 64 MiB}
  - {id: two, type: NVRAM-NVML, daxfs: /dev/shm/$(basename "$S")-none/two, capacity: 32 MiB}"
  check_exit 'a store on a tmpfs is' 2 'capacity 96 MiB of the backends one, two, which are in memory' "$EFS" check --memory 95MiB "$JOB"
  check_exit 'and one that fits' 0 good "$EFS" check --at-submission --memory 96MiB "$JOB"
else skip 'a store on a tmpfs' 'no /dev/shm'; fi

# --- memory of the nodes, if the job file has no capacity ---
fresh roomy; sed -i '/^backends:/,/capacity/d' "$JOB"
head -c 40M /dev/urandom >"$PFS/input/big"
check 'what this host has says nothing of the nodes' json "$("$EFS" plan --json --at-submission "$JOB")" 'd["ok"] and "capacity" not in d'
check_exit 'inputs that half of the largest node takes' 0 '' "$EFS" plan --at-submission --node-memory 100MiB "$JOB"
check_exit 'and that it does not take' 1 'inputs need 40.* and the buffer takes 39 MiB' "$EFS" plan --at-submission --node-memory 78MiB "$JOB"
check_exit 'of a job that has less, its share counts' 1 'inputs need 40.* and the buffer takes 39 MiB' "$EFS" plan --at-submission --memory 78MiB --node-memory 1GiB "$JOB"
check_exit 'also where the node is not known' 1 'and the buffer takes 39 MiB' "$EFS" plan --at-submission --memory 78MiB "$JOB"
check_exit 'and on a node' 1 'and the buffer takes 39 MiB' "$EFS" plan --memory 78MiB "$JOB"
check_exit 'as Slurm tells a script' 1 'and the buffer takes 39 MiB' env SLURM_MEM_PER_NODE=78 "$EFS" plan "$JOB"
check_exit 'but not to what is only submitted there' 0 '' env SLURM_MEM_PER_NODE=78 "$EFS" plan --at-submission "$JOB"
printf 'memory-share: 100%%\n' >"$S/share.yaml"
check_exit 'the site has another share' 0 '' env EFS_SITE_FILE="$S/share.yaml" "$EFS" plan --memory 78MiB "$JOB"
check 'doctor goes by it' grep -q '^ok .*a job of 40 MiB: .*has 40 MiB: 100% of its memory' <(EFS_SITE_FILE="$S/share.yaml" "$EFS" doctor --mem 40M)
check_exit 'a memory of nodes that is no size' 2 'lots is not a size' "$EFS" plan --at-submission --node-memory lots "$JOB"
finish
