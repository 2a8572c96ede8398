#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Contents move between the tiers of a job by themselves (section tiers): down before a tier is
# full, up when a program opens them, and not while they are pinned.
#   tiers_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

late=60   # seconds, on a machine that is as busy as it may be
# three NAME PROMOTE [LINE...]: a job with three tiers; `input` is in the second.
three() {
  local name=$1 promote=$2; shift 2
  mkdir -p "$S/$name/middle" "$S/$name/last"
  fresh "$name" "backends: [ [ id: fast, type: DRAM, capacity: 64 MiB ], [ id: middle, type: NVRAM-NVML, daxfs: $S/$name/middle, capacity: 64 MiB, enforce: strict ], [ id: last, type: NVRAM-NVML, daxfs: $S/$name/last, capacity: 256 MiB, enforce: strict ] ]" \
    "tiers: {order: [fast, middle, last], high: 60%, low: 40%, promote: $promote}" \
    'resources: [ [ path: input, backend: middle ] ]' "$@"
}
backend_of() { field "$("$EFS" ls -i "$NAME" --json "$1")" "d[0]['backend']"; }
is_in() { [ "$(backend_of "$1")" = "$2" ] || { echo "$1 is in $(backend_of "$1"), not in $2"; return 1; }; }
tier() { field "$(status_of "$NAME")" "d['tiers'][$1]['$2']"; }
has_room() { [ "$(tier 0 used)" -le $((45 << 20)) ]; }   # below two thirds: the next file fits
makes() { cp "$S/made/$1" "$MNT/out/$1" && await $late has_room; }
right() { local i; for i in $(seq "$2" "$3"); do cmp "$S/made/$i" "$1/$i" || return 1; done; }
worker() { field "$(status_of "$NAME")" 'd["worker_pid"]'; }
a_worker() { local text; text=$(status_of "$NAME" 2>/dev/null) && json "$text" "d['worker_pid'] != $1 and d['state'] == 'running'"; }
calm() { json "$(status_of "$NAME")" "all(t['used'] * 100 <= t['capacity'] * 60 for t in d['tiers'][:2])"; }
mkdir "$S/made"; for i in $(seq 40); do head -c 4194304 /dev/urandom >"$S/made/$i"; done

# --- job files ---
fresh bad 'tiers: { order: [ ram ] }'
check_exit 'one tier is none' 2 'names one backend only' "$EFS" check "$JOB"
three shown never
check_exit 'check --show has the tiers' 0 'order .*fast, middle, last' "$EFS" check --show "$JOB"

# --- down ---
three down never
started "$JOB"
mkdir "$MNT/out"
check 'down: the first result' makes 1
check 'down: is pinned' "$EFS" pin -i down out/1
for i in $(seq 2 40); do makes "$i" || { fail "down: result $i"; break; }; done; ok
check 'down: the tiers come to rest' await $late calm
check 'down: new results are in the first tier' is_in out/40 fast
check 'down: the oldest is further down' is_in out/2 last
check 'down: some are between' eval 'for i in $(seq 2 39); do is_in out/$i middle >/dev/null && break; done'
check 'down: what is pinned stays' is_in out/1 fast
check 'down: all results are right' right "$MNT/out" 1 40
check_exit 'down: status has a line for each tier' 0 'tier     middle: .*moved in [1-9]' "$EFS" status down
check 'down: what left one tier came to the others' json "$(status_of down)" "d['tiers'][0]['moved_out_bytes'] > 80 << 20 and d['tiers'][2]['moved_in'] > 0 and d['tiers'][0]['moved_in'] == 0"
check 'down: metrics, too' grep -q "^efs_tier_moved_in_files_total{instance=\"down\",backend=\"last\"} [1-9]" <<<"$("$EFS" metrics down)"
check 'down: that is logged' grep -q 'event=move from=fast to=middle files=' "$EFS_RUNTIME_DIR/down/efsd.log"
before=$(tier 0 moved_out); first=$(worker)
kill -KILL "$first"
check 'down: another worker' await $late a_worker "$first"
check 'down: knows the figures' test "$(tier 0 moved_out)" -ge "$before"
mkdir "$MNT/more"
for i in $(seq 12); do cp "$S/made/$i" "$MNT/more/$i" && await $late has_room || { fail "down: more $i"; break; }; done; ok
check 'down: and goes on' test "$(tier 0 moved_out)" -gt "$before"
check 'down: contents are right' right "$MNT/more" 1 12
check 'down: unpin' "$EFS" unpin -i down out/1
check 'down: stop' "$EFS" stop down
check 'down: all results are out' eval 'right "$OUT/out" 1 40 && right "$OUT/more" 1 12'
check 'down: nothing is left behind' test -z "$(ls -A "$S/down/middle" "$S/down/last" | grep -v :)"

# --- up ---
three up on-open
started "$JOB"
check 'up: the input begins in the second tier' is_in input/a middle
opened_up() { cat "$MNT/input/a" >/dev/null; is_in input/a fast; }
was=$(stat -c '%i %s %Y %Z' "$MNT/input/a")
check 'up: what a program opens goes to the first' await $late opened_up
check 'up: as it was' test "$was" = "$(stat -c '%i %s %Y %Z' "$MNT/input/a")"
check 'up: with its content' cmp "$PFS/input/a" "$MNT/input/a"
check 'up: what no program opens stays' is_in input/sub/b middle
check 'up: a move down stays until the next open' eval '"$EFS" move -i up input/a --to last && is_in input/a last'
check 'up: status counts it' test "$(tier 0 moved_in)" -ge 1
check 'up: stop' "$EFS" stop up

finish
