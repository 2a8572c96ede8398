#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Names of any bytes: invalid UTF-8, newlines, escape sequences. Every verb accepts them unchanged
# and shows them in a form that controls no terminal and is unambiguous; JSON restores them.
#   names_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

efs() { timeout 60 "$EFS" "$@"; }
# As efs(1) describes: how a program gets the name from a string of our JSON.
decode='import re; raw = lambda s: re.sub(rb"\\([0-3][0-7][0-7])", lambda m: bytes([int(m[1], 8)]), s.encode())'
# holds TEXT EXPRESSION: the expression must hold for the document d; raw(string) is the name.
holds() { python3 -c "import json, sys; $decode
d = json.loads(sys.argv[1])
if not ($2): sys.exit('not so: %s' % sys.argv[1][:2000])" "$1"; }

latin=$'caf\351' line=$'two\nlines' title=$'\033]0;title\007' octal='\351' cut=$'cut\342\202'
fresh names 'resources: [ [ path: input ], [ path: list ] ]' 'outputs: [ [ path: "**", flags: persistent ] ]'
mkdir "$PFS/list"
for name in "$latin" "$line" "$title" "$octal" "$cut"; do echo input >"$PFS/input/$name"; done
ln -s "$latin" "$PFS/input/link"
check 'plan --json' holds "$(efs plan --json "$JOB")" '{raw(e["path"]) for e in d["entries"]} >= {b"input/caf\xe9", b"input/two\nlines", b"input/\\351", b"input/cut\xe2\x82"}'
started "$JOB" --log-file "$S/log"
for name in "$latin" "$line" "$title" "$octal" "$cut"; do check "staged in: $(printf %q "$name")" cmp "$PFS/input/$name" "$MNT/input/$name"; done

# --- ls ---
shown=$(efs ls input)
for text in 'caf\\351$' 'two\\012lines$' '\\033\]0;title\\007$' 'input/\\134351$' 'cut\\342\\202$' 'link -> caf\\351$'; do
  check_exit "ls shows it as $text" 0 "$text" echo "$shown"
done
check_not 'and nothing that controls a terminal' grep -q $'[\033\007\351]' <<<"$shown"
all=$(efs ls --json input)
check 'a line for each' test "$(wc -l <<<"$shown")" = "$(field "$all" 'len(d)')"
check 'ls --json is JSON, and its names come back' holds "$all" '{raw(e["path"]) for e in d} >= {b"input/caf\xe9", b"input/two\nlines", b"input/\x1b]0;title\x07", b"input/\\351", b"input/cut\xe2\x82"}'
check 'a target, too' holds "$all" '[raw(e["target"]) for e in d if "target" in e] == [b"caf\xe9"]'
for name in "$latin" "$line" "$octal" "$cut"; do check "ls of $(printf %q "$name") alone" holds "$(efs ls --json "input/$name")" 'len(d) == 1'; done

# --- explain, set ---
check_exit 'explain' 0 '^input/caf\\351: file, 6 B$' efs explain "input/$latin"
check_exit 'explain of a name with a newline' 0 '^input/two\\012lines: file' efs explain "$MNT/input/$line"
check 'explain --json' holds "$(efs explain --json "input/$latin")" 'raw(d["path"]) == b"input/caf\xe9" and d["in_buffer"]'
check_exit 'explain of what is not there' 1 '^none\\351\\012: not in the buffer' efs explain $'none\351\n'
check 'set' efs set persistent "input/$latin"
check_exit 'is of this name' 0 'persistent: set while the job ran' efs explain "input/$latin"
check_exit 'and of no other' 0 'class +temporary' efs explain 'input/\351'

# --- load, unload ---
for name in "$latin" "$line" "$octal"; do
  echo loaded >"$PFS/late-$name"
  check "load $(printf %q "$name")" efs load -w "late-$name"
  check 'is there' cmp "$PFS/late-$name" "$MNT/late-$name"
  echo result >"$MNT/new-$name"
  check "unload $(printf %q "$name")" efs unload -w "new-$name"
  check 'is back' cmp "$MNT/new-$name" "$OUT/new-$name"
done
check_exit 'status shows what tasks are about' 0 'unload of new-caf\\351: done' efs status names
check 'status --json' holds "$(efs status --json names)" 'raw(d["tasks"][0]["what"]) == b"late-caf\xe9"'
check_exit 'an error is one line' 1 'none\\351\\012two' efs load -w $'none\351\ntwo'
check 'one' test "$(wc -l <<<"$said")" = 1
check 'an error in JSON' holds "$(efs load -w --json $'none\351')" 'b"none\xe9" in raw(d["outcome"]["error"])'

# --- the end ---
check_exit 'a forged line in the summary' 0 'staged out' bash -c 'echo r >"$1/$2"; exec timeout 60 "$3" stop names' - "$MNT" $'forged\n  conflict: all' "$EFS"
check_not 'does not appear' grep -q '^  conflict' <<<"$said"
receipt=$(cat "$OUT/efs-receipt-names.json")
check 'the receipt is JSON, and its names come back' holds "$receipt" '{raw(e["path"]) for e in d["entries"]} >= {b"new-caf\xe9", b"new-two\nlines", b"new-\\351", b"input/cut\xe2\x82"}'
check_not 'the log has a line for each event' grep -vE '^[0-9-]+T[0-9:.]+ [a-z]+ pid=[0-9]+ event=' "$S/log"
# --- paths of job files ---
fresh lines
mkdir "$PFS/two"$'\n'"lines"; echo deep >"$PFS/two"$'\n'"lines/a"; echo latin >"$PFS/$latin"
mv "$PFS" "$PFS"$'\n'; mkdir "$OUT"$'\n' "$MNT"$'\n'
printf 'global-settings: {root-dir: "%s\\n", mount-dir: "%s\\n", results-dir: "%s\\n"}\nbackends: [ [ id: ram, capacity: 64 MiB ] ]\nresources: [ [ path: "two\\nlines", flags: persistent ], [ path: "caf?" ] ]\noutputs: [ [ path: "new\\n*" ] ]\n' "$PFS" "$MNT" "$OUT" >"$JOB"
check_exit 'check takes newlines in paths, and shows them' 0 "good .*mounts at $MNT\\\\012" efs check "$JOB"
check_exit 'plan' 0 "stage out: to $OUT\\\\012\$" efs plan "$JOB"
check_exit 'a resource that is not there is told of in one line' 1 "problem: .*none\\\\012here\\\\012lines: does not exist" bash -c 'sed "s/two/none\\\\nhere/" "$1" >"$1.yaml"; exec "$2" plan "$1.yaml"' - "$JOB" "$EFS"
started "$JOB"
check 'a resource of such a name' grep -qx deep "$MNT"$'\n'/two$'\n'lines/a
check 'a pattern means a name that is not UTF-8' grep -qx latin "$MNT"$'\n'/"$latin"
echo changed >"$MNT"$'\n'/two$'\n'lines/a; echo new >"$MNT"$'\n'/new$'\n'; echo dropped >"$MNT"$'\n'/other
check_exit 'status' 0 "^  mount    $MNT\\\\012\$" efs status lines
check 'by its mount point' efs status "$MNT"$'\n'
check_exit 'stop' 0 "to $OUT\\\\012 " efs stop lines
check 'its results are back' grep -qx changed "$OUT"$'\n'/two$'\n'lines/a
check 'and what the pattern of an output means' grep -qx new "$OUT"$'\n'/new$'\n'
check 'what none means is not' test ! -e "$OUT"$'\n'/other

# --- directories named on the command line, in a killed instance ---
fresh left 'resources: [ [ path: input ] ]'
sed -i '/mount-dir\|results-dir/d' "$JOB"
mkdir "$S/left/$latin" "$S/left/$latin/mnt" "$S/left/$latin/out"
check 'start' efs start --mount-dir "$S/left/$latin/mnt" --results-dir "$S/left/$latin/out" "$JOB"
echo precious >"$S/left/$latin/mnt/result"
kill_both left
umount -l "$S/left/$latin/mnt"
check_exit 'check-image of what a killed instance left' 0 'left' efs check-image left
check_exit 'salvage brings it to where it belongs' 0 'to .*/left/caf.351/out in ' efs salvage left
check 'the result is there' grep -qx precious "$S/left/$latin/out/result"
check 'and it can go' efs clean left

check_exit 'check names the job file' 2 'caf\\351\.yaml: ' efs check $'caf\351.yaml'
finish
