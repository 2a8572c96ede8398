#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# efs top and efs status --watch: on a terminal, which stays as it was, and elsewhere.
#   watch_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
export TERM=xterm
unset NO_COLOR COLUMNS

talk() { timeout 120 python3 "$SOURCE/tests/cli/talk_on_terminal.py" "$@" >"$S/said"; }
# talked NAME SIZE STEP... -- COMMAND...: as a check; all that was said is in $S/said.
talked() { local name=$1 text; shift; if talk "$@"; then ok; else fail "$name" "$(cat -v "$S/said")"; fi; }
# lines: what was said as lines without escape sequences
lines() { sed 's/\x1b\[H/\n/g; s/\x1b\[[0-9;?]*[a-zA-Z]//g' "$S/said" | tr -d '\r'; }
longest() { awk '{ if (length($0) > n) n = length($0) } END { print n + 0 }'; }
says() { grep -qaE "$1" "$S/said" || { cat -v "$S/said"; return 1; }; }

# --- no instance ---
talked 'top without an instance ends on q' 80x24 'see=no instance is running' key=q -- "$EFS" top
talked 'and on ctrl-c' 80x24 'see=no instance' 'key=\x03' -- "$EFS" top -i 100
talked 'and on SIGTERM' 80x24 'see=no instance' signal=TERM -- "$EFS" top -i 100
talked 'other keys do nothing' 80x24 'see=no instance' key=xyz 'see=no instance' key=q -- "$EFS" top -i 0.1
talked 'status, too' 80x24 'see=no instance' key=q -- "$EFS" status --watch

fresh grown
started "$JOB"
fresh quiet
started "$JOB"
fresh grown

# --- top ---
talked 'growth is shown, whatever the path of the I/O' 80x24 'see=grown +running' "run=head -c 30000000 /dev/zero >$MNT/new && sync $MNT/new" \
  'see=grown +running [^\n]* \+[0-9.]+[KM]' key=q -- "$EFS" top -i 0.5
check 'the heading fits 80 columns with these figures' says 'NAME +STATE +I/O +USED +USE% +GROW/s +REQ/s +OPEN/s +TRANSFER'
check 'no line exceeds 80 columns' test "$(lines | longest)" -le 80
check 'the most active instance is the first' python3 -SE - "$S/said" <<'PYTHON'
import re, sys
text = re.sub(rb"\x1b\[[0-9;?]*[a-zA-Z]", b"", open(sys.argv[1], "rb").read()).decode()
frames = re.split(r"(?=NAME +STATE)", text)[1:]
busy = [f for f in frames if re.search(r"grown +running .* \+[0-9.]+[KM]", f)]
assert busy and all(f.index("grown") < f.index("quiet") for f in busy), frames
PYTHON
talked 'it follows the size' 80x24 'see=TRANSFER' size=200x24 'see=WRIT/s' size=40x24 'see=GROW/s.{0,20}\r?\n' key=q -- "$EFS" top -i 100
talked 'a low one has fewer lines' 80x3 'see=running' key=q -- "$EFS" top -i 100
check 'of instances' test "$(lines | grep -c ' running')" = 1
talked 'ctrl-z gives the terminal back, too' 80x24 see=running stop see=running key=q -- "$EFS" top -i 100
talked 'colour' 80x24 see=running key=q -- "$EFS" top -i 100
check 'is there' says $'\033\[1mNAME'
NO_COLOR=1 talked 'NO_COLOR' 80x24 see=running key=q -- "$EFS" top -i 100
check_not 'there is none' says $'\033\[[0-9]*m'
NO_COLOR=1 talked '--color=always' 80x24 see=running key=q -- "$EFS" top -i 100 --color always
check 'wins' says $'\033\\[1mNAME'
talked '--color=never' 80x24 see=running -- "$EFS" status --color=never
check_not 'no colour' says $'\033\\[[0-9]*m'
talked 'the state in colour' 80x24 see=running -- "$EFS" status
check 'is green' says $': \033\\[32mrunning\033\\[m'
check_not 'none elsewhere' eval '"$EFS" status | grep -q $'"'\\033'"
check_not 'nor in JSON' eval '"$EFS" status --json --color=always | grep -q $'"'\\033'"
colours() { "$EFS" doctor --color=always >"$S/doctor"; grep -qE "^"$'\033'"\[3[123]m(ok|warning|problem)" "$S/doctor"; }
check 'a doctor in colour' colours
TERM=dumb talked 'a terminal without escape sequences' 80x24 -- "$EFS" top
check_not 'gets none' says $'\033'
check 'and a table that fits' test "$(lines | longest)" -le 80
talked 'an unknown instance' 80x24 see=nosuch -- sh -c "$EFS top nosuch; [ \$? = 1 ]"

check_exit 'once, with totals' 0 '^NAME +STATE +I/O +USED +OF +USE% +REQ +OPEN +READ +WRITTEN +ERRORS +TRANSFER$' "$EFS" top --once
check 'all instances' test "$(grep -cE '^(grown|quiet) +running ' <<<"$said")" = 2
check_exit 'once, with rates' 0 ' GROW/s ' "$EFS" top --once --interval 0.1
for width in 120 80 60 40; do
  check "once, in $width columns" test "$(COLUMNS=$width "$EFS" top --once -i 0.1 | longest)" -le $width
done
check_exit 'no number' 2 'interval' "$EFS" top -i nan

status=$(status_of quiet)
both="$(field "$status" 'd["supervisor_pid"]') $(field "$status" 'd["worker_pid"]')"
check 'a daemon that does not answer' stall $both
talked 'does not hold the others up for long' 80x24 'see=grown +running' 'see=quiet +silent' key=q -- "$EFS" top -i 0.5
kill -CONT $both

# --- status ---
talked 'status --watch shows what status shows' 100x50 'see=grown: .*running' 'see=used +[0-9.]+ ' "run=echo more >$MNT/more" 'see=changed +2 files' key=q -- "$EFS" status --watch=0.2 grown
check 'no line exceeds the width' test "$(lines | longest)" -le 100
talked 'a small terminal has its part' 30x5 'see=more lines' key=q -- "$EFS" status --watch 100
check 'of the lines' test "$(lines | longest)" -le 30
TERM=dumb talked 'a terminal without escape sequences gets blocks' 80x24 'see=grown: .*running' 'see=grown: .*running' 'key=\x03' -- "$EFS" status --watch=0.1 grown
check_not 'and none' says $'\033'
exec 3< <(exec "$EFS" status --watch=0.1 --json grown)
watcher=$!
read -r first <&3; read -r second <&3
check 'into a pipe: a document each time' json "$first" 'd["name"] == "grown"'
check 'and again' json "$second" 'd["name"] == "grown"'
exec 3<&-
check 'it ends with its reader' await 20 gone "$watcher"
exec 3< <(exec "$EFS" status --watch=0.1 grown)
watcher=$! blocks=0
while [ $blocks -lt 2 ] && read -r line <&3; do [ -n "$line" ] || blocks=$((blocks + 1)); done
check 'blocks with a blank line between' test $blocks = 2
kill -TERM "$watcher"
check 'SIGTERM ends it' await 20 gone "$watcher"
exec 3<&-
check_exit 'a name is no interval' 2 'write the instance first' "$EFS" status --watch grown
check_exit 'nor is too long a time' 2 'from 0.1 to 3600' "$EFS" status --watch 4000
check_exit 'a batch job is not watched' 2 'job' "$EFS" status --watch --job 1
talked 'the end of the instance is the end' 80x24 'see=grown: .*running' "run=$EFS stop grown" 'see=no instance has the name' -- sh -c "$EFS status --watch=0.2 grown; [ \$? = 1 ]"
check 'stop' "$EFS" stop quiet

# --- a transfer ---
fresh paced
head -c 6000000 /dev/urandom >"$PFS/input/large"
sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"
talked 'top shows a stage-in with its share and rate' 80x24 'see=no instance' "run=$EFS start $JOB >$S/started 2>&1 &" \
  'see=paced +staging-in .* in [0-9]+% [0-9.]+[KM]/s' 'see=paced +running' key=q -- "$EFS" top -i 0.1
check 'in yellow' says $'\033\\[33mpaced +staging-in'
check 'stop it' "$EFS" stop paced
finish
