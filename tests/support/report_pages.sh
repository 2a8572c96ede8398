#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes the report pages of three jobs (good, failed, wasteful) and pictures of them, to look at.
#   report_pages.sh BIN_DIR DIRECTORY
set -uo pipefail
[ $# = 2 ] || { echo "usage: $0 BIN_DIR DIRECTORY" >&2; exit 2; }
mkdir -p "$2" && PICTURES=$(cd "$2" && pwd) || exit 2
. "$(dirname "$0")/../cli/lib.sh" "$1"

# megabytes FILE NUMBER
megabytes() { head -c "$2M" /dev/urandom >"$1"; }
# paused COMMAND: each step of a program takes a moment, so that the pictures show something
paused() { "$@"; sleep 0.7; }
page() {
  cp "$OUT/efs-report-$NAME.html" "$PICTURES/$NAME.html"
  "$EFS" report --color=never "$OUT/efs-receipt-$NAME.json" >"$PICTURES/$NAME.txt"
  for browser in ${EFS_BROWSER:-} chromium-headless-shell chromium; do
    command -v "$browser" >/dev/null || continue
    for form in light:900,2400 narrow:420,3200; do
      timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$S/browser" \
        --window-size="${form#*:}" --screenshot="$PICTURES/$NAME-${form%:*}.png" "file://$PICTURES/$NAME.html" 2>/dev/null
    done
    timeout 60 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars --user-data-dir="$S/browser" --force-dark-mode \
      --blink-settings=preferredColorScheme=0 --window-size=900,2400 --screenshot="$PICTURES/$NAME-dark.png" "file://$PICTURES/$NAME.html" 2>/dev/null
    return
  done
}

CAPACITY='256 MiB' fresh good 'resources: [ [ path: input ] ]' 'outputs: [ [ path: steps, flags: persistent ] ]'
for i in 1 2 3 4; do megabytes "$PFS/input/mesh-$i.dat" 12; done
started "$JOB"
cat "$MNT"/input/* "$MNT"/input/sub/b >/dev/null 2>&1
mkdir "$MNT/steps"
for i in 1 2 3 4 5; do paused megabytes "$MNT/steps/step-$i.dat" 16; done
check 'an unload' "$EFS" unload --wait "$MNT/steps/step-1.dat"
check 'good: stop' "$EFS" stop good
page

CAPACITY='64 MiB' fresh failed 'resources: [ [ path: input ] ]' 'outputs: [ [ path: results, flags: persistent ] ]'
sed -i 's|^global-settings:|&\n  existing: fail|' "$JOB"
megabytes "$PFS/input/mesh.dat" 20
mkdir "$OUT/results"; echo 'of another run' >"$OUT/results/summary.txt"
started "$JOB"
cat "$MNT/input/mesh.dat" >/dev/null
mkdir "$MNT/results"; echo 'of this run' >"$MNT/results/summary.txt"
for i in 1 2 3; do paused megabytes "$MNT/results/field-$i.dat" 12 2>/dev/null; done
head -c 30M /dev/urandom 2>/dev/null >"$MNT/results/too-large.dat" || :
check_exit 'failed: stop' 3 conflict "$EFS" stop failed
page
check 'failed: the rest is dropped' "$EFS" stop --no-stage-out failed

CAPACITY='256 MiB' fresh wasteful 'resources:' '  - path: input' '  - path: archive' 'outputs: [ [ path: results, flags: persistent ] ]'
mkdir "$PFS/archive" "$PFS/tables"
for i in 1 2 3 4; do megabytes "$PFS/archive/run-2019-0$i.tar" 25; done
megabytes "$PFS/input/mesh.dat" 8; echo x >"$PFS/tables/opacity.tab"; echo y >"$PFS/settings.nml"
started "$JOB"
cat "$MNT/input/mesh.dat" >/dev/null; cat "$MNT/settings.nml" "$MNT/tables/opacity.tab" 2>/dev/null
mkdir "$MNT/results" "$MNT/scratch"
for i in 1 2 3; do paused megabytes "$MNT/scratch/tmp.$i" 20; done
rm "$MNT/scratch/tmp.1"; paused megabytes "$MNT/results/r.dat" 1; megabytes "$MNT/log.out" 2
check 'wasteful: stop' "$EFS" stop wasteful
page
ls -l "$PICTURES"
finish
