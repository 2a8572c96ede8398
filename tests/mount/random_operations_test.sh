#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Several processes make random system calls on the mount, and the same calls on a tmpfs. The
# results must not differ, while files are loaded and unloaded, all contents move between two
# backends, results go home, contents leave a full buffer and are fetched again, and the worker is
# killed. Between the
# rounds the instance ends and starts again: by stop --keep and start, or both processes are killed
# and the next start continues. At the end results-dir equals the mirror.
#   random_operations_test.sh BIN_DIR
# EFS_ROUNDS and EFS_OPERATIONS: of each process in a round; EFS_SEED; EFS_SOAK_SECONDS: repeats
# rounds for this long.
set -uo pipefail
trap "" PIPE
. "$(dirname "$0")/../cli/lib.sh" "$1"
rounds=${EFS_ROUNDS:-2} operations=${EFS_OPERATIONS:-1500} soak=${EFS_SOAK_SECONDS:-0}
seed=${EFS_SEED:-$RANDOM}
echo "seed $seed (EFS_SEED=$seed repeats it), $operations operations of each process in a round"
RANDOM=$seed
MIRROR=$(mktemp -d /dev/shm/efs-mirror.XXXXXX)
trap 'rm -rf "$MIRROR"; clean; exit 130' INT TERM
trap 'rm -rf "$MIRROR"; clean' EXIT

# The process p1 works by the library, from the first call of each descriptor on.
operate() {
  local library=
  [ "$1" = p1 ] && [ -e "$BIN/../lib/libefs-intercept.so" ] && library=$BIN/../lib/libefs-intercept.so
  LD_PRELOAD=$library EFS_INTERCEPT_AFTER=1 python3 -X faulthandler "$SOURCE/tests/mount/random_operations.py" "$MIRROR/$1" "$MNT/$1" "$seed.$2.$1" "$operations" >"$S/said.$1" 2>&1
}
worker() { field "$(status_of "$NAME" 2>/dev/null)" 'd["worker_pid"]' 2>/dev/null; }
settled() { json "$(status_of "$NAME" 2>/dev/null)" "d['state'] == 'running' and d['worker_pid'] != $1"; }

# beside ROUND: works while the processes run, and ends after them.
beside() {
  local pid
  while compgen -G "$S/running.*" >/dev/null; do
    rm -rf "${MNT:?}/input" 2>/dev/null
    "$EFS" load -w -i "$NAME" input >"$S/said.load" 2>&1 || fail "round $1: load" "$(cat "$S/said.load")"
    cmp -s "$PFS/input/large" "$MNT/input/large" || fail "round $1: what was loaded is what the PFS has"
    count=$((count + 1))
    cp "$MNT/input/large" "$MNT/own/$count" && cp "$PFS/input/large" "$MIRROR/own/$count"
    "$EFS" unload -w -i "$NAME" "own/$count" >"$S/said.unload" 2>&1 || fail "round $1: unload" "$(cat "$S/said.unload")"
    cmp -s "$PFS/input/large" "$OUT/own/$count" || fail "round $1: what was unloaded is what was written"
    [ -z "${places:-}" ] || move_all "$1"
    [ -z "${far:-}" ] || read_all "$1"
    if kernel_has_it && [ "$1" != 0 ]; then
      pid=$(worker) && kill -KILL "$pid" && await 20 settled "$pid" || fail "round $1: a successor"
    fi
  done
}

# Files that a process has open stay: exit code 3.
move_all() {
  local to code
  to=$(echo "$places" | cut -d' ' -f$((count % 2 + 1)))
  "$EFS" move -i "$NAME" p0 p1 p2 own --to "$to" >"$S/said.move" 2>&1; code=$?
  cat "$S/said.move" >>"$S/said.moves"
  [ $code = 0 ] || [ $code = 3 ] || fail "round $1: move to $to" "exit code $code: $(tail -n 5 "$S/said.move")"
}

# The inputs and the drained results need more room than there is. An old result is changed.
read_all() {
  local one=$((RANDOM % count + 1)) file
  echo "$one" | tee -a "$MIRROR/own/$one" >>"$MNT/own/$one" || fail "round $1: result $one is changed"
  for file in "$PFS"/far/*; do
    cmp -s "$file" "$MNT/far/${file##*/}" || fail "round $1: far/${file##*/} is what the PFS has"
  done
  for file in "$MIRROR"/own/*; do
    cmp -s "$file" "$MNT/own/${file##*/}" || fail "round $1: own/${file##*/} is what was written"
  done
  field "$(status_of "$NAME" 2>/dev/null)" 'd["evict"]["evicted"], d["fetch"]["fetched"]' >>"$S/said.evicted" 2>/dev/null
}

round() {  # round NUMBER: three processes with what goes on beside them
  local p code
  rm -f "$S"/code.*
  for p in p0 p1 p2; do
    touch "$S/running.$p"
    # Records the status in a file: after some ten thousand processes, bash may return the status of
    # a later process with the same pid.
    { operate $p "$1"; echo $? >"$S/code.$p"; rm "$S/running.$p"; } &
  done
  beside "$1"
  for p in p0 p1 p2; do
    code=$(cat "$S/code.$p")
    if [ "$code" = 0 ]; then ok; else fail "round $1: process $p sees the same on both" "exit code $code, $OPTIONS: $(tail -n 15 "$S/said.$p")"; fi
  done
}

comes_again() {  # comes_again NUMBER
  if [ $((RANDOM % 2)) = 0 ]; then
    check "round $1: stop --keep" "$EFS" stop --keep --no-stage-out "$NAME"
  else
    kill_both "$NAME"
  fi
  check "round $1: start" "$EFS" start "$JOB" $OPTIONS
}

# A result that a program removes stays in results-dir if it is home. If a directory has its name
# now, the stop fails for this name and those below, and shows the first few. A failure elsewhere is
# not accepted: results-dir is compared later.
stopped() {
  local said code names
  said=$("$EFS" stop "$1" 2>&1); code=$?
  [ $code != 0 ] || return 0
  echo "$said"
  names=$(sed -nE 's/^ +failed: (.*)/\1/p' <<<"$said")
  [ -n "${far:-}" ] && [ $code = 3 ] && grep -q '^p2/' <<<"$names" &&
    ! grep -v '^p2/' <<<"$names" && "$EFS" stop --no-stage-out "$1"
}

# life NAME OPTIONS ROUNDS [LINE...]: an instance from its first start to its last stop
life() {
  local name=$1 number many=$3 count=0; OPTIONS=$2
  shift 3
  rm -f "$S/said.moves" "$S/said.evicted"
  [ -n "${far:-}" ] || set -- 'resources: []' "$@"
  CAPACITY=${capacity:-256 MiB} fresh "$name" "$@"
  head -c 3000000 /dev/urandom >"$PFS/input/large"
  mkdir "$PFS/far"
  for ((number = 0; number < ${far:-0}; number++)); do head -c 8000000 /dev/urandom >"$PFS/far/$number"; done
  started "$JOB" $OPTIONS || return
  mkdir -p "$MIRROR"/{p0,p1,p2,own} "$MNT"/{p0,p1,p2,own}
  for ((number = 0; number < many; number++)); do
    round "$number"
    [ $failed = 0 ] || break
    comes_again "$number"
  done
  rm -rf "${MNT:?}/input"
  # beside slow processes, no other move may find a file that is closed and elsewhere
  [ -z "${places:-}" ] || { count=0; move_all "$many"; count=1; move_all "$many"; }
  [ -z "${places:-}" ] || check "$name: contents have moved" grep -qE 'move done: [1-9]' "$S/said.moves"
  [ -z "${far:-}" ] || check "$name: contents have left and come again" grep -qE '[1-9].* [1-9]' "$S/said.evicted"
  check "$name: stop" stopped "$name"
  [ -z "${far:-}" ] || rm -rf "${OUT:?}/p2" "${MIRROR:?}/p2"
  rm -f "$OUT"/efs-re*
  check "$name: results-dir has what the mirror has" python3 - "$SOURCE/tests/mount" "$MIRROR" "$OUT" <<'PYTHON'
import sys
sys.path.insert(0, sys.argv[1])
sys.dont_write_bytecode = True
from random_operations import tree, without_links_to_links
native, results = without_links_to_links(tree(sys.argv[2])), tree(sys.argv[3])
different = [path for path in sorted(set(native) | set(results)) if native.get(path) != results.get(path)]
sys.exit("\n".join(f"{path}: {native.get(path)} and {results.get(path)}" for path in different[:10]) or None)
PYTHON
  rm -rf "${MIRROR:?}"/* "${S:?}/$name"   # the next round may have one of this name
}

lives() {
  local how
  life passthrough '' "$rounds"
  [ $failed != 0 ] || life daemon '-o daemon-io' "$rounds"
  [ $failed != 0 ] || life writeback '-o writeback' "$rounds"
  [ $failed != 0 ] || { mkdir -p "$S/store"; CAPACITY='256 MiB' life disk '' "$rounds" "backends: [ [ id: disk, type: NVRAM-NVML, daxfs: $S/store, capacity: 256 MiB ] ]"; }
  [ $failed != 0 ] || { mkdir -p "$S/second"; places='fast second' life moves '' "$rounds" "backends: [ {id: fast, type: DRAM, capacity: 256 MiB}, {id: second, type: NVRAM-NVML, daxfs: $S/second} ]"; }
  [ $failed != 0 ] || { mkdir -p "$S/third"; places='fast third' life moves_daemon '-o daemon-io' "$rounds" "backends: [ {id: fast, type: DRAM, capacity: 256 MiB}, {id: third, type: NVRAM-NVML, daxfs: $S/third} ]"; }
  for how in passthrough daemon-io; do
    [ $failed != 0 ] || far=16 capacity='96 MiB' life "evicts-$how" "$([ $how = passthrough ] || echo "-o $how")" "$rounds" 'resources: [ {path: far, stage: on-access, evict: when-full} ]' 'outputs: [ {path: "own/**", drain: on-close, evict: when-full}, {path: "p2/**", drain: on-close, evict: when-full}, {path: "**"} ]'
  done
}

done_with_mirror() { rm -rf "$MIRROR"; finish; }

[ "$(id -u)" = 0 ] || { skip 'random operations' 'needs root'; done_with_mirror; }
lives
while [ "$SECONDS" -lt "$soak" ] && [ $failed = 0 ]; do
  seed=$((seed + 1)); RANDOM=$seed
  echo "$SECONDS of $soak s, seed $seed: $passed passed"
  lives
done
done_with_mirror
