#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Long work shows its progress, its rate and the remaining time on a terminal, and only there.
#   terminal_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

on_terminal() { timeout 120 python3 "$SOURCE/tests/cli/on_terminal.py" "$@" >"$S/said"; }
# One line of progress, which overwrites the previous one: STATE: BYTES (PERCENT) in TIME (RATE)
# TIME left
moment() { printf '%s' "$1"': [0-9.]+ [KM]?i?B \([0-9]+%\) in [0-9.]+ s \([0-9.]+ [KM]?i?B/s\) [0-9a-z. ]+ left'; }
wipe=$'\r\033[K'
# shows STATE: the terminal showed progress in this state, each line over the previous one, and no
# such line remained.
shows() {
  local text; text=$(cat "$S/said")
  grep -qaE "$(moment "$1")" <<<"$text" || { echo "no rate and time left of $1: $(cat -v "$S/said")"; return 1; }
  [ "$(grep -aoE "$1: " <<<"$text" | wc -l)" -ge 2 ] || { echo "not again and again: $(cat -v "$S/said")"; return 1; }
  [ "$(tr '\r' '\n' <"$S/said" | grep -aE "$1: " | grep -avc '^'$'\033''\[K')" = 0 ] || { echo "a line that does not take the place of the last: $(cat -v "$S/said")"; return 1; }
  local last=${text##*"$wipe"}
  ! grep -qa '% *)' <<<"$last" || { echo "the last one stayed: $(cat -v "$S/said")"; return 1; }
}
# quiet FILE: it contains no progress.
quiet() { ! grep -qaE $'[\r\033]|[0-9]%|left$' "$1" || { cat -v "$1"; return 1; }; }

fresh paced
head -c 8000000 /dev/urandom >"$PFS/input/large"
sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"
check 'start on a terminal' on_terminal "$EFS" start "$JOB"
check 'shows rate and time left' shows staging-in
check 'and says at the end what it did' grep -qa 'paced is mounted at' "$S/said"
cp "$MNT/input/large" "$MNT/result"
check 'stop on a terminal' on_terminal "$EFS" stop paced
check 'shows them, too' shows staging-out
check 'and the verdict' grep -qa 'stage-out complete' "$S/said"

check 'run on a terminal' on_terminal "$EFS" run "$JOB" -- sh -c 'cp "$EFS_MOUNT/input/large" "$EFS_MOUNT/again"; echo program'
check 'shows the way in' shows staging-in
check 'and out' shows staging-out
check 'and what the program says' grep -qa program "$S/said"

started "$JOB" --log-file "$S/log"
check 'the log of the daemon has a line for each event, and no progress' quiet "$S/log"
echo result >"$MNT/result"
"$EFS" top >"$S/said" 2>&1
check 'top into a file is a table' quiet <(grep -v '^paced' "$S/said")
check 'stop' "$EFS" stop paced
"$EFS" start "$JOB" >"$S/said" 2>&1; cp "$MNT/input/large" "$MNT/more"; "$EFS" stop paced >>"$S/said" 2>&1
check 'into a file: what was done' grep -q 'stage-out complete' "$S/said"
check 'and nothing of the way there' quiet "$S/said"
check 'start --json on a terminal' on_terminal "$EFS" start --json "$JOB"
check 'is the document alone' json "$(tr -d '\r' <"$S/said")" 'd["state"] == "running"'
check 'stop --no-stage-out' "$EFS" stop --no-stage-out paced
finish
