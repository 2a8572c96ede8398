#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# -o writeback: the kernel collects writes. Contents, times, errors, copies of open files, takeover,
# and that the kernel does collect them.
#   writeback_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
export EFS
seed=${EFS_SEED:-$RANDOM}
echo "seed $seed (EFS_SEED=$seed repeats it)"
program() { local part=$1; shift; timeout 300 python3 -SE "$SOURCE/tests/mount/writeback.py" "$part" "$MNT" "$@"; }
same() { cmp "$1" "$2"; }
worker() { field "$(status_of "$NAME")" "d['worker_pid']"; }
# hold: a program that keeps $MNT/held open, and obeys `tell`.
hold() {
  mkfifo "$S/$NAME/tell" "$S/$NAME/said" || return
  program hold <"$S/$NAME/tell" >"$S/$NAME/said" 2>"$S/$NAME/errors" & holder=$!; pids+=("$holder")
  exec 7>"$S/$NAME/tell" 8<"$S/$NAME/said"
  wrote
}
wrote() { local line; read -r -t 60 line <&8 && [ "$line" = written ]; }
more() { echo more >&7; wrote; }
# here NAME COMMAND...: as check, in this shell, whose descriptors the command changes.
here() { local name=$1; shift; if "$@"; then ok; else fail "$name" "$* gave $?"; fi; }
let_go() { exec 7>&-; wait "$holder"; local code=$?; exec 8<&-; pids=(); [ $code = 0 ] || cat "$S/$NAME/errors"; return $code; }

fresh refused 'resources: []'
check_exit 'a trace shows each write: refused together' 2 'writeback.*trace' "$EFS" start "$JOB" -o writeback --trace "$S/trace"

# The paths of memory, and of the store in a directory whose capacity the daemon counts.
for kind in memory counted; do
  if [ $kind = memory ]; then fresh memory 'resources: [ [ path: input, flags: persistent ] ]'
  else
    fresh counted 'resources: [ [ path: input, flags: persistent ] ]' "backends: [ [ id: disk, type: NVRAM-NVML, daxfs: $S/counted/store, capacity: 128 MiB, enforce: strict ] ]"
    mkdir "$S/counted/store"
  fi
  started "$JOB" -o writeback
  check "$NAME: the path" json "$(status_of "$NAME")" "d['io'] == 'daemon' and d['writeback'] and 'writeback' in d['io_reason']"
  check "$NAME: the kernel agreed" grep -q 'passthrough=false writeback_cache=true' "$EFS_RUNTIME_DIR/$NAME/efsd.log"
  check "$NAME: the kernel collects small writes" program counts "$NAME"
  check "$NAME: random steps" program random "$seed" 400
  check "$NAME: sizes and times" program times
  check "$NAME: blocks" program blocks
  check "$NAME: a link that comes and goes" eval 'ln "$MNT/input/a" "$MNT/input/link" && rm "$MNT/input/link" && sync -f "$MNT"'
  mtime=$(stat -c %y "$MNT/moved/times")
  check "$NAME: stop" "$EFS" stop "$NAME"
  for i in 0 1 2 3; do check "$NAME: result $i" same "$OUT/random$i" "$OUT/random$i.expected"; done
  check "$NAME: mtime of a result" test "$(stat -c %y "$OUT/moved/times")" = "$mtime"
  check_not "$NAME: an unchanged input is not exported" test -e "$OUT/input/a"
done

CAPACITY='16 MiB' fresh full 'resources: []'
started "$JOB" -o writeback
check 'a full store is reported' program full
check 'full: stop' "$EFS" stop --no-stage-out full

# A file that lacks data which the kernel had collected is no result, for any later process either.
CAPACITY='16 MiB' fresh holed 'resources: []'
started "$JOB" -o writeback
check 'holed: a program misses the error' program lose
check 'holed: the log has it' grep -q 'event=write_lost .*No space left' "$EFS_RUNTIME_DIR/holed/efsd.log"
kill_both holed
check_exit 'holed: salvage names the file' 3 'holed: its content cannot be read .*lacks some' "$EFS" salvage holed
check 'holed: the other one is exported' grep -qx whole "$OUT/whole"
check_not 'holed: this one is not' test -e "$OUT/holed"
started "$JOB" -o writeback
check_exit 'holed: after a new start a stop names it' 3 'holed: its content cannot be read .*lacks some' "$EFS" stop holed
check_not 'holed: and does not export it' test -e "$OUT/holed"
check 'holed: stop' "$EFS" stop --no-stage-out holed

# What the daemon copies while programs run has the newest bytes.
fresh copies 'resources: []'
started "$JOB" -o writeback
here 'a program writes' hold
check_exit 'an open file is not unloaded' 1 'open for writing' "$EFS" unload --wait "$MNT/held"
check_exit 'with --as-is it is' 0 'unverified' "$EFS" unload --wait --as-is "$MNT/held"
check 'with what was written before' eval 'test "$(tr -d first <"$OUT/held" | wc -c),$(wc -c <"$OUT/held")" = 0,10000'
here 'the program writes on' more
check_exit 'and once more' 0 'unverified' "$EFS" unload --wait --as-is "$MNT/held"
check 'with the newest bytes' test "$(wc -c <"$OUT/held")" = 22000
here 'the program writes again' more
here 'the program closes the file' let_go
check 'unload of the closed file' "$EFS" unload --wait "$MNT/held"
check 'has everything' same "$OUT/held" "$MNT/held"
check 'which is all that was written' test "$(wc -c <"$OUT/held")" = 34000
check 'copies: stop' "$EFS" stop copies

# A stop that cannot unmount exports the files that no program writes to.
fresh drained 'resources: []'
started "$JOB" -o writeback
echo newest >"$MNT/closed"
(cd "$MNT" && exec sleep 300) & guest=$!; pids+=("$guest")
await 20 eval '[ "$(readlink /proc/$guest/cwd)" = "$MNT" ]'
"$EFS" stop --deadline 20 drained >/dev/null 2>&1 & stopping=$!; pids+=("$stopping")
check 'a stop exports the closed file' await 30 same "$OUT/closed" <(echo newest)
kill -KILL "$guest"; wait "$guest" 2>/dev/null
wait "$stopping"; pids=()
await 20 ended drained || "$EFS" stop drained
check 'it is there' grep -qx newest "$OUT/closed"

# A stop that cuts programs off keeps what they had written.
fresh cut 'resources: []'
started "$JOB" -o writeback
here 'cut: a program writes' hold
check 'cut: the mount is detached' umount -l "$MNT"
check 'cut: stop' "$EFS" stop --cut-off cut
check 'cut: what it had written is exported' test "$(wc -c <"$OUT/held" 2>/dev/null)" = 10000
here 'cut: the program gets an error' eval '! let_go >/dev/null'

# What a program has closed survives the death of both processes.
fresh killed 'resources: []'
started "$JOB" -o writeback
echo closed >"$MNT/closed"
kill_both killed
check 'killed: salvage' "$EFS" salvage killed
check 'killed: what was closed is there' grep -qx closed "$OUT/closed"
check 'killed: clean' "$EFS" clean killed

kernel_has_it || { skip takeover 'needs Linux 6.9'; finish; }
fresh taken 'resources: []'
started "$JOB" -o writeback
here 'taken: a program writes' hold
kill -KILL "$(worker)"
check 'a successor takes over' await 20 eval '[ "$(field "$(status_of taken)" "d[\"takeovers\"]")" = 1 ]'
check 'it collects writes, too' json "$(status_of taken)" "d['writeback'] and d['io'] == 'daemon'"
here 'the program writes on' more
here 'the program ends without an error' let_go
check 'no byte is lost' test "$(wc -c <"$MNT/held")" = 22000
check 'the kernel still collects writes' program counts taken
program work "$seed" 20000 >"$S/taken/work" 2>&1 & load=$!; pids+=("$load")
kills=0
while [ $kills -lt 5 ] && kill -0 "$load" 2>/dev/null; do
  last=$(worker); kill -KILL "$last" 2>/dev/null; kills=$((kills + 1))
  await 20 eval '[ "$(worker)" != '"$last"' ] && ls "$MNT/.never'"$kills"'" 2>&1 | grep -q "No such"'
done
check 'workers died under the program' test $kills -ge 1
here 'the program that wrote meanwhile lost nothing' wait "$load"
cat "$S/taken/work"
pids=()
check 'taken: stop' "$EFS" stop taken

CAPACITY='16 MiB' fresh again 'resources: []'
started "$JOB" -o writeback
check 'again: the program misses the error once more' program lose
kill -KILL "$(worker)"
check 'again: a successor takes over' await 20 eval '[ "$(field "$(status_of again)" "d[\"takeovers\"]")" = 1 ] && ls "$MNT"'
check_exit 'again: after a takeover a stop names it' 3 'holed: its content cannot be read .*lacks some' "$EFS" stop again
check 'again: the other one is exported after a takeover' grep -qx whole "$OUT/whole"
check_not 'again: the holed one is not' test -e "$OUT/holed"
check 'again: the end' "$EFS" stop --no-stage-out again
finish
