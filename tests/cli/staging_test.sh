#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Staging of hard links, deletions, lists of inputs, extended attributes and ACLs.
#   staging_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

worker() { field "$("$EFS" status --json "$NAME")" 'd["worker_pid"]'; }
# in_place FILE LINE...: as job, but the results go to the directory of the inputs.
in_place() { local file=$1; shift; job "$file" "$@"; sed -i 's|^  results-dir:.*|  in-place: true|' "$file"; }
inode() { stat -c %i "$1"; }
same_file() { [ -e "$1" ] && [ "$(inode "$1")" = "$(inode "$2")" ]; }
takes_over() { local old; old=$(worker); kill -KILL "$old"; await 20 has_successor "$old"; }
has_successor() { local text; text=$("$EFS" status --json "$NAME") && json "$text" "d['worker_pid'] != $1 and d['state'] == 'running'"; }

# --- hard links ---
fresh links
mkdir "$PFS/other"
ln "$PFS/input/a" "$PFS/input/sub/a2"; ln "$PFS/input/a" "$PFS/other/a3"
in_place "$JOB" 'resources: [ [ path: input, flags: persistent ], [ path: other ] ]'
check_exit 'plan counts their bytes once' 0 'stage in 4 files, 11 B' "$EFS" plan "$JOB"
check 'start' "$EFS" start "$JOB"
check 'two names of a file are two names of a file' same_file "$MNT/input/a" "$MNT/input/sub/a2"
check 'across resources, too' same_file "$MNT/input/a" "$MNT/other/a3"
check 'with their number' test "$(stat -c %h "$MNT/other/a3")" = 3
if kernel_has_it; then
  check 'hard links: a takeover' takes_over
  check 'after a takeover' same_file "$MNT/input/a" "$MNT/other/a3"
else
  skip 'hard links after a takeover' 'the kernel is older than 6.9'
fi
kill_both links
ln "$PFS/input/sub/b" "$PFS/input/b2"   # meanwhile
check 'start on what is left' "$EFS" start "$JOB"
check 'they are still one file' same_file "$MNT/input/a" "$MNT/other/a3"
check 'a name more of an input is a name more of it' same_file "$MNT/input/sub/b" "$MNT/input/b2"
echo changed >>"$MNT/input/sub/a2"
check 'stop' "$EFS" stop links
check 'what is persistent is back under both names' grep -qx changed "$PFS/input/a"
check 'as one file' same_file "$PFS/input/a" "$PFS/input/sub/a2"
check_not 'what is temporary is as it was' grep -qx changed "$PFS/other/a3"
check 'and dropped' test "$(action "$PFS" other/a3)" = "['dropped']"

fresh unloaded
ln "$PFS/input/a" "$PFS/input/a2"; ln "$PFS/input/a" "$PFS/input/a3"
in_place "$JOB" 'resources: [ [ path: input, flags: persistent ] ]'
check 'start' "$EFS" start "$JOB"
echo changed >>"$MNT/input/a"
check 'one of three names is brought out' "$EFS" unload -w "$MNT/input/a"
check 'it is there' grep -qx changed "$PFS/input/a"
check_not 'the others are as they were' grep -qx changed "$PFS/input/a2"
check_exit 'a load of it finds it there' 0 '' "$EFS" load -w input/a
check 'stop' "$EFS" stop unloaded
check 'the others are back, too' grep -qx changed "$PFS/input/a2"
check 'as one file' same_file "$PFS/input/a2" "$PFS/input/a3"

# --- deletions ---
# tree NAME: inputs d/1 .. d/5, a link and directories, all persistent.
tree() {
  fresh "$1"
  mkdir -p "$PFS/d/empty" "$PFS/d/full" "$PFS/d/tree/deep" "$PFS/t"
  local i; for i in 1 2 3 4 5; do echo "content $i" >"$PFS/d/$i"; done
  ln -s 1 "$PFS/d/link"; echo f >"$PFS/d/full/f"; echo x >"$PFS/d/tree/deep/x"; echo t >"$PFS/t/temporary"
}
resources='resources: [ [ path: d, flags: persistent ], [ path: t ] ]'
declare_deletions() { sed -i 's|^global-settings:|&\n  deletions: propagate|' "$JOB"; }

tree ignored
in_place "$JOB" "$resources"
before=$(listing "$PFS/d")
check 'start' "$EFS" start "$JOB"
rm -r "$MNT/d/1" "$MNT/d/tree"
check_exit 'explain: without the key it stays' 1 'stays on the PFS: deletions are not propagated' "$EFS" explain "$MNT/d/1"
check 'stop' "$EFS" stop ignored
check 'without the key nothing goes' test "$before" = "$(listing "$PFS/d")"
check 'and the receipt has no such entry' json "$(receipt "$PFS")" "not [e for e in d['entries'] if e['path'] in ('d/1', 'd/tree')] and 'removed' not in d['totals']"

tree propagated
in_place "$JOB" "$resources"
declare_deletions
check_exit 'plan says so' 0 'deletions: .*removed from' "$EFS" plan "$JOB"
check 'start' "$EFS" start "$JOB"
rm "$MNT/d/1" "$MNT/d/link" "$MNT/t/temporary" "$MNT/d/full/f"
rmdir "$MNT/d/empty" "$MNT/d/full"
mv "$MNT/d/2" "$MNT/d/renamed"; mv "$MNT/d/tree" "$MNT/d/moved"
rm "$MNT/d/3"; echo new >"$MNT/d/3"     # a new file of this name
echo more >>"$MNT/d/4"; rm "$MNT/d/4"   # changed, then removed
check_exit 'explain' 1 'is removed from .*if it has not changed' "$EFS" explain "$MNT/d/1"
if kernel_has_it; then check 'deletions: a takeover' takes_over; else skip 'deletions after a takeover' 'the kernel is older than 6.9'; fi
kill_both propagated
check 'start on what is left' "$EFS" start "$JOB"
check_not 'what the job removed is not staged in again' test -e "$MNT/d/1"
check_not 'nor a directory' test -e "$MNT/d/empty"
echo theirs >"$PFS/d/full/theirs"   # somebody uses the directory
check 'stop' "$EFS" stop propagated
for name in 1 link 2 4 empty tree full/f; do check_not "$name is gone" test -e "$PFS/d/$name" -o -L "$PFS/d/$name"; done
check 'a renamed file is there under its new name' grep -qx 'content 2' "$PFS/d/renamed"
check 'a renamed directory, too' grep -qx x "$PFS/d/moved/deep/x"
check 'a new file of an old name is there' grep -qx new "$PFS/d/3"
check 'what nobody touched is there' grep -qx 'content 5' "$PFS/d/5"
check 'what is temporary is there' grep -qx t "$PFS/t/temporary"
check 'a directory that somebody uses stays' grep -qx theirs "$PFS/d/full/theirs"
check 'the receipt lists them' json "$(receipt "$PFS")" "sorted(e['path'] for e in d['entries'] if e['action'] == 'removed') == ['d/1', 'd/2', 'd/4', 'd/empty', 'd/full/f', 'd/link', 'd/tree', 'd/tree/deep', 'd/tree/deep/x'] and d['totals']['removed'] == 9"
check 'and the directory that stays' test "$(action "$PFS" d/full)" = "['skipped']"

tree conflict
in_place "$JOB" "$resources"
declare_deletions
check 'start' "$EFS" start "$JOB"
rm "$MNT/d/1" "$MNT/d/2"
echo theirs >"$PFS/d/1"
check_exit 'what changed on the PFS is a conflict' 3 'conflict: d/1' "$EFS" stop conflict
check 'and stays' grep -qx theirs "$PFS/d/1"
check_not 'the other one is gone' test -e "$PFS/d/2"
rm "$PFS/d/1"
check 'out of the way, the stop succeeds' "$EFS" stop conflict
for policy in keep-both overwrite; do
  tree "c-$policy"
  in_place "$JOB" "$resources"
  declare_deletions
  sed -i "s|^global-settings:|&\n  on-conflict: $policy|" "$JOB"
  check "$policy: start" "$EFS" start "$JOB"
  rm "$MNT/d/1"
  echo theirs >"$PFS/d/1"
  check "$policy: stop" "$EFS" stop "$NAME"
  [ $policy = keep-both ] && check 'keep-both keeps it' grep -qx theirs "$PFS/d/1"
  [ $policy = overwrite ] && check_not 'overwrite does not' test -e "$PFS/d/1"
done

tree kept
in_place "$JOB" "$resources"
declare_deletions
check 'start' "$EFS" start "$JOB"
rm "$MNT/d/1"; mv "$MNT/d/2" "$MNT/d/renamed"
check 'unload --remove is no removal of the job' "$EFS" unload -w --remove "$MNT/d/5"
check 'stop, and keep the buffer' "$EFS" stop --keep kept
check 'removed' test "$(action "$PFS" d/1) $(action "$PFS" d/2)" = "['removed'] ['removed']"
check 'what was only unloaded stays' grep -qx 'content 5' "$PFS/d/5"
check 'start on it' "$EFS" start "$JOB"
rm "$MNT/d/3"
check 'stop' "$EFS" stop kept
check 'what is done is not told again' json "$(receipt "$PFS")" "[e['path'] for e in d['entries'] if e['action'] == 'removed'] == ['d/3']"

tree replaced
in_place "$JOB" "$resources"
declare_deletions
sed -i 's/deletions: propagate/deletions: propagate\n  on-conflict: overwrite/' "$JOB"
check 'start' "$EFS" start "$JOB"
for i in 1 2; do echo "result $i" >"$MNT/new"; mv "$MNT/new" "$MNT/d/$i"; done
check 'brings out what took the place of inputs' "$EFS" unload -w "$MNT/d/2"
check 'and one of them removes its file' "$EFS" unload -w --remove "$MNT/d/1"
rm "$MNT/d/2"
check 'stop' "$EFS" stop replaced
check 'what was only unloaded stays' grep -qx 'result 1' "$PFS/d/1"
check_not 'what the job removed goes' test -e "$PFS/d/2"

tree elsewhere
job "$JOB" "$resources"
declare_deletions
check 'start' "$EFS" start "$JOB"
echo more >>"$MNT/d/1"; echo more >>"$MNT/d/2"
check 'brings two files out' "$EFS" unload -w "$MNT/d/1" "$MNT/d/2"
rm "$MNT/d/1" "$MNT/d/2" "$MNT/d/3"; echo theirs >"$OUT/d/2"
check_exit 'another results-dir: copies of this job go, others are a conflict' 3 'conflict: d/2' "$EFS" stop elsewhere
check_not 'the copy is gone' test -e "$OUT/d/1"
check 'the inputs are not' test -e "$PFS/d/1" -a -e "$PFS/d/3"
rm "$OUT/d/2"; check 'stop' "$EFS" stop elsewhere

tree incomplete
in_place "$JOB" "$resources"
declare_deletions
check 'start' "$EFS" start "$JOB"
rm "$MNT/d/1"; echo more >>"$MNT/d/2"; echo theirs >"$PFS/d/2"
check_exit 'while results are missing nothing is removed' 1 'not-saved: d/1' "$EFS" stop incomplete
check 'it is there' test -e "$PFS/d/1"
cp "$PFS/d/2" "$S/x"; rm "$PFS/d/2"
check 'then it is' "$EFS" stop incomplete
check_not 'removed' test -e "$PFS/d/1"

tree salvaged
in_place "$JOB" "$resources"
declare_deletions
check 'start' "$EFS" start "$JOB"
rm "$MNT/d/1"
kill_both salvaged
check 'a salvage propagates, too' "$EFS" salvage salvaged
check_not 'it is gone' test -e "$PFS/d/1"
check 'clean' "$EFS" clean salvaged

tree rescued
in_place "$JOB" "$resources"
declare_deletions
sed -i 's/deletions: propagate/deletions: propagate\n  on-conflict: overwrite/' "$JOB"
check 'start' "$EFS" start "$JOB"
echo more >>"$MNT/d/1"
check 'brings it out' "$EFS" unload -w "$MNT/d/1"
rm "$MNT/d/1"
kill_both rescued
mkdir -p "$S/rescue/d"; echo mine >"$S/rescue/d/1"
check 'a salvage to another place' "$EFS" salvage --to "$S/rescue" rescued
check 'removes nothing there' grep -qx mine "$S/rescue/d/1"
check 'nor here' test -e "$PFS/d/1"
sed 's/"boot_id": "[^"]*"/"boot_id": "another"/; /"checksum"/d' -i "$EFS_RUNTIME_DIR"/rescued/store/meta/instance.json "/dev/shm/efs-$(id -u)-rescued/meta/instance.json" 2>"$S/sed"
check 'a salvage after a restart of the machine' "$EFS" salvage rescued
check 'removes nothing: what the job made instead may be lost' test -e "$PFS/d/1"
check 'and says so' test "$(field "$(cat "$PFS/efs-salvage-rescued.json")" "'were left where they are' in d['note']")" = True
check 'clean' "$EFS" clean --force rescued

tree aside
in_place "$JOB" "$resources" 'outputs: [ [ path: "out/**" ] ]'
declare_deletions
check 'start' "$EFS" start "$JOB"
mv "$MNT/d/1" "$MNT/aside"; mkdir "$MNT/out"; mv "$MNT/d/2" "$MNT/out/2"
check 'stop' "$EFS" stop aside
check 'what was renamed to something temporary stays' grep -qx 'content 1' "$PFS/d/1"
check_not 'which is dropped' test -e "$PFS/aside"
check 'what was renamed to a result is one' grep -qx 'content 2' "$PFS/out/2"
check_not 'and goes' test -e "$PFS/d/2"

fresh apart 'resources: [ [ path: input, flags: persistent ] ]'
declare_deletions
check 'start' "$EFS" start "$JOB"
echo changed >"$MNT/input/a"
check 'an input that was changed is brought out' "$EFS" unload -w "$MNT/input/a"
rm "$MNT/input/a"
check 'removed, its copy goes' "$EFS" stop --keep apart
check 'the input itself does not' test ! -e "$OUT/input/a" -a -e "$PFS/input/a"
check 'the next start' "$EFS" start "$JOB"
check 'does not bring it back' test ! -e "$MNT/input/a" -a -e "$MNT/input/sub/b"
check 'stop' "$EFS" stop apart

fresh nowhere 'resources: [ [ path: input ] ]' 'outputs: [ [ path: "**", flags: temporary ] ]'
sed -i '/results-dir/d' "$JOB"; declare_deletions
check_exit 'deletions without results are refused' 2 "nothing is exported" "$EFS" check "$JOB"
sed -i 's/deletions: propagate/deletions: propagat/' "$JOB"
check_exit 'a bad value has a suggestion' 2 "did you mean 'propagate'" "$EFS" check "$JOB"

# --- parts of several nodes ---
fresh parts 'resources: [ [ path: input ], [ path: dealt, distribute: partition ] ]'
mkdir "$PFS/dealt"; head -c 9000 /dev/zero >"$PFS/dealt/large"; for i in 1 2 3; do echo $i >"$PFS/dealt/small $i"; done; echo odd >"$PFS/dealt/"$'a\\b\nc'
check 'the second of two nodes' "$EFS" start --node 1/2 "$JOB"
parts=$(field "$("$EFS" status --json parts)" 'd["directory"]')/parts
check 'who has what is written down' test "$(cat "$parts")" = '1 dealt/a\134b\012c
0 dealt/large
1 dealt/small 1
1 dealt/small 2
1 dealt/small 3'
check 'and so it is' test -e "$MNT/dealt/small 1" -a -e "$MNT/dealt/"$'a\\b\nc' -a ! -e "$MNT/dealt/large" -a -e "$MNT/input/a"
check 'stop' "$EFS" stop --keep parts
check 'what is kept is not divided' test ! -e "$parts"
check 'goes on as one node' "$EFS" start "$JOB"
check 'and has no parts' test ! -e "$parts" -a -e "$MNT/dealt/large"
check 'stop' "$EFS" stop parts
check 'nothing is left' test ! -e "${parts%/*}"

# --- a node that exports after another one has exported the result ---
fresh early; first=$JOB m0=$MNT out=$OUT
fresh late; sed -i "s|results-dir: .*|results-dir: $out|" "$JOB"
check 'the first of two nodes' "$EFS" start --node 0/2 "$first"
echo 'of node 0' >"$m0/f"; echo same >"$m0/same"
check 'brings something out' "$EFS" unload -i early -w f same
await 20 eval 'touch "$S/now" && [ "$S/now" -nt "$out/f" ]'
check 'before the second one is there' "$EFS" start --node 1/2 "$JOB"
echo 'of node 1' >"$MNT/f"
check 'which takes that for an earlier run'"'"'s' "$EFS" stop late
check_exit 'the first one does not say that its own is back' 1 'conflict: f: .*another node' "$EFS" stop early
check_exit 'and says how it ends' 1 'To resolve a conflict' "$EFS" stop early
mv "$out/f" "$out/f.1"
check 'when the other is moved away, it is' "$EFS" stop early
check 'both are there' test "$(cat "$out/f" "$out/f.1" "$out/same" | tr '\n' ' ')" = 'of node 0 of node 1 same '

# --- inputs from an earlier job ---
fresh awaited 'resources: [ [ path: input ], [ path: later, from-job: true ] ]'
mkfifo "$PFS/input/pipe"
text=$("$EFS" plan --json --brief --at-submission "$JOB")
check 'a plan at submission tells what is awaited' json "$text" '[(s["path"].endswith("/later"), s["awaited"]) for s in d["skipped"]] == [(False, False), (True, True)] and d["ok"] and d["files"] == 2'
check 'in brief, without the entries' json "$text" 'd["entries"] == []'
check 'else with them' json "$("$EFS" plan --json --at-submission "$JOB")" 'len(d["entries"]) > 2'

# --- lists ---
fresh listed 'resources: [ [ list: inputs.txt, flags: persistent ] ]'
mkdir -p "$PFS/a dir/sub"; echo one >"$PFS/one"; echo two >"$PFS/two words"; echo star >"$PFS/*"; echo deep >"$PFS/a dir/sub/deep"; echo other >"$PFS/other"
printf '%s\n' '# inputs' '' 'one  # the first' '  "two words"' "$PFS/input/a" '"a dir/"' '*' './one' >"$PFS/inputs.txt"
check_exit 'plan' 0 'stage in 5 files' "$EFS" plan "$JOB"
check 'start' "$EFS" start "$JOB"
check 'what is listed is there' test -e "$MNT/one" -a -e "$MNT/two words" -a -e "$MNT/input/a" -a -e "$MNT/a dir/sub/deep" -a -e "$MNT/*"
check_not 'and nothing else' test -e "$MNT/other" -o -e "$MNT/inputs.txt" -o -e "$MNT/input/sub"
check_exit 'explain names the list' 0 'persistent: the list .*inputs.txt' "$EFS" explain "$MNT/one"
echo more >>"$MNT/one"
check 'stop' "$EFS" stop listed
check 'its flags hold' grep -qx more "$OUT/one"
# refused LINE PATTERN: a list with this line.
refused() { printf '%s\n' one "$1" >"$PFS/inputs.txt"; check_exit "a list with $1" 1 "inputs.txt:2: .*$2" "$EFS" plan "$JOB"; }
refused 'nosuch' 'does not exist'
refused 'one two three' 'third path'
refused 'one /elsewhere/two' 'is not below mount-dir'
refused '../outside' "holds '\.\.'"
refused '/etc/passwd' 'is not below root-dir'
refused '"one' 'quote is not closed'
refused '""' 'empty path'
refused "$(printf 'one\302\240')" 'holds a no-break space, U\+00A0, at column 4'
refused "$(printf 'o\302\240ne')" 'o.302.240ne does not exist \(the name holds a no-break space, U\+00A0\)'
refused "$(printf '%0300d' 1)" 'more than 255 bytes'
printf 'one\n\0\n' >"$PFS/inputs.txt"
check_exit 'a list that is no text' 1 'inputs.txt:2: .*NUL' "$EFS" plan "$JOB"
ln -s "$PFS/a dir" "$PFS/lead"; refused 'lead/sub/deep' 'leads through the symbolic link'
seq -f 'missing%g' 1000 >"$PFS/inputs.txt"
check_exit 'many bad lines are told of by some' 1 'has 980 more such lines' "$EFS" plan "$JOB"
check 'not by all' test "$(grep -c missing <<<"$said")" = 20
rm "$PFS/inputs.txt"; mkfifo "$PFS/inputs.txt"
check_exit 'a FIFO is no list' 1 'not a regular file' timeout 20 "$EFS" plan "$JOB"
rm "$PFS/inputs.txt"
check_exit 'a list that is not there' 1 'inputs.txt.*list cannot be read' "$EFS" plan "$JOB"
job "$JOB" 'resources: [ [ list: a, path: b ] ]'
check_exit 'list and path' 2 "'path' does not go with 'list'" "$EFS" check "$JOB"
job "$JOB" 'resources: [ [ list: a ], [ list: b, flags: persistent ] ]'
check_exit 'lists with different flags' 2 'different flags' "$EFS" check "$JOB"

# A line with a destination, as in manifests of UnifyFS.
fresh placed 'resources: [ [ list: inputs.txt, flags: persistent ] ]'
mkdir "$PFS/dir"; echo deep >"$PFS/dir/deep"; echo one >"$PFS/one"; echo two >"$PFS/two words"; echo plain >"$PFS/plain"
printf '%s\n' "$PFS/one $MNT/first" '"two words" "in/the second"' 'dir elsewhere' plain >"$PFS/inputs.txt"
check 'placed: plan' json "$("$EFS" plan --json "$JOB")" '{(e["path"], e.get("source")) for e in d["entries"]} >= {("first", "one"), ("in/the second", "two words"), ("elsewhere/deep", "dir/deep"), ("plain", None)} and not any(e["path"] == "one" for e in d["entries"])'
check 'placed: start' "$EFS" start "$JOB"
check 'placed: all are where the list says' test "$(cat "$MNT/first" "$MNT/in/the second" "$MNT/elsewhere/deep" "$MNT/plain" | tr '\n' ' ')" = 'one two deep plain '
check 'placed: and nowhere else' test ! -e "$MNT/one" -a ! -e "$MNT/two words" -a ! -e "$MNT/dir"
check_exit 'placed: explain says where from' 0 "staged in from $PFS/dir/deep" "$EFS" explain "$MNT/elsewhere/deep"
echo late >"$PFS/dir/late"; rm "$PFS/inputs.txt"
check 'placed: load by the name on the mount' "$EFS" load -w "$MNT/elsewhere/late"
check 'placed: brings it there' grep -qx late "$MNT/elsewhere/late"
if kernel_has_it; then
  worker=$(field "$(status_of placed)" 'd["worker_pid"]'); kill -KILL "$worker"
  succeeded() { [ "$(field "$(status_of placed)" 'd["takeovers"]')" = 1 ]; }
  await 20 succeeded
  check_exit 'placed: a successor knows it, too' 0 "staged in from $PFS/one" "$EFS" explain "$MNT/first"
  check 'placed: and loads from there' "$EFS" load -w --replace "$MNT/elsewhere/late"
else skip 'placed: a successor knows it, too' 'takeover needs Linux 6.9'; fi
check 'placed: and the store, for a salvage' json "$(grep -v "^# checksum " "$EFS_RUNTIME_DIR/placed/store/meta/listed")" 'd["first"] == "one"'
echo changed >>"$MNT/first"; echo new >"$MNT/elsewhere/deep"
check 'placed: stop' "$EFS" stop placed
check 'placed: results have the names of the mount' test "$(cat "$OUT/first" "$OUT/elsewhere/deep" | tr '\n' ' ')" = 'one changed new '
check 'placed: and the inputs are as they were' grep -qx deep "$PFS/dir/deep"
printf '%s\n' 'one place' 'plain place' >"$PFS/inputs.txt"
check_exit 'placed: two at one place' 1 "inputs.txt:2: .*would be at place, and so would $PFS/one" "$EFS" plan "$JOB"
in_place "$JOB" 'resources: [ [ list: inputs.txt, flags: persistent ] ]'
check_exit 'placed: in place there is no destination' 1 'inputs.txt:1: .*does not go with in-place' "$EFS" plan "$JOB"

fresh listing
echo one >"$PFS/one"; echo other >"$PFS/other"; printf '%s\n' one input/a >"$PFS/inputs.txt"
in_place "$JOB" 'resources: [ [ list: inputs.txt, flags: persistent ] ]'
declare_deletions
check 'listing: start' "$EFS" start "$JOB"
check 'listing: load of what is not in the list' "$EFS" load -w other
rm "$MNT/other" "$MNT/one"
check_exit 'listing: explain' 1 'stays on the PFS: it is no persistent input' "$EFS" explain "$MNT/other"
check 'listing: stop' "$EFS" stop listing
check 'listing: what no list names stays' grep -qx other "$PFS/other"
check_not 'listing: what one names goes' test -e "$PFS/one"

# --- one directory with two names ---
fresh alias; ln -s "$PFS" "$S/alias/way"; OUT=$S/alias/way
job "$JOB" 'resources: [ [ path: input, flags: persistent ] ]'
check_exit 'alias: plan refuses' 1 'by another name.*in-place: true' "$EFS" plan "$JOB"
check_exit 'alias: start, too' 1 'by another name.*in-place: true' "$EFS" start "$JOB"
sed -i 's|^  results-dir:.*|  in-place: true|' "$JOB"
check 'alias: in place' "$EFS" plan "$JOB"

# --- max-ops also counts calls before the start ---
fresh paced; for i in $(seq 40); do : >"$PFS/input/f$i"; done
job "$JOB" 'resources: [ [ path: input ] ]'
check 'paced: plan' timeout 60 "$EFS" plan "$JOB"
check_exit 'paced: at one call a second it takes longer than two seconds' 124 '' timeout 2 "$EFS" plan --set max-ops=1/s "$JOB"

# --- results among the inputs ---
fresh among; OUT=$PFS/input
job "$JOB" 'resources: [ [ path: input ] ]'
check_exit 'among: check refuses' 2 "results-dir' is the same as the resource" "$EFS" check "$JOB"
ln -s "$PFS" "$S/among/way"; OUT=$S/among/way/input
job "$JOB" 'resources: [ [ path: input ] ]'
check_exit 'among: by another name plan does' 1 'is inside the input' "$EFS" plan "$JOB"
check_exit 'among: and start' 1 'is inside the input' "$EFS" start "$JOB"
check_exit 'among: and run, before anything moves' 1 'is inside the input' "$EFS" run "$JOB" -- sh -c 'echo OVER >$EFS_MOUNT/a'
check 'among: the input is what it was' grep -qx "$(cat "$PFS/input/a")" "$PFS/input/a"
ln -s "$S/among" "$S/among/above"; OUT=$S/among/above
job "$JOB" 'resources: [ [ path: input ] ]'
check_exit 'among: the directory above root-dir' 1 'is inside results-dir' "$EFS" run "$JOB" -- true
OUT=$S/among/way/results
job "$JOB" 'resources: [ [ path: input ] ]'
check 'among: beside the inputs' "$EFS" run "$JOB" -- sh -c 'echo good >$EFS_MOUNT/a'
check 'among: the result' grep -qx good "$PFS/results/a"

# --- the job's own log among the inputs ---
fresh ownlog 'resources: [ [ path: . ] ]'
sed -i "/results-dir/a\  log-file: $PFS/efs.log" "$JOB"
: >"$PFS/efs.log"
check_exit 'ownlog: plan leaves it out and says so' 0 "skipped: efs.log .this job's log-file." "$EFS" plan "$JOB"
check 'ownlog: start' "$EFS" start "$JOB"
check 'ownlog: the inputs are there' test -e "$MNT/input/a"
check_not 'ownlog: the log is not' test -e "$MNT/efs.log"
check 'ownlog: stop' "$EFS" stop ownlog

# --- extended attributes and ACLs ---
acl() { getfacl -cpn "$1" 2>/dev/null | grep -v '^$'; }
same_acl() { [ -e "$1" ] && [ "$(acl "$1")" = "$(acl "$2")" ] || { acl "$1"; echo "---"; acl "$2"; return 1; }; }
attribute() { getfattr --absolute-names --only-values -n "$2" "$1" 2>/dev/null; }
has_tools() { command -v setfacl >/dev/null && command -v setfattr >/dev/null; }
acls() {  # acls NAME [OPTION...]: for a user's instance, the tree belongs to the user
  fresh "$1"; shift
  mkdir -p "$PFS/d/sub"; echo content >"$PFS/d/f"
  setfacl -m u:12345:r,g:54321:rw "$PFS/d/f" && setfacl -m u:12345:rwx,d:u:12345:rx,d:g::- "$PFS/d/sub" && setfattr -n user.dir -v in "$PFS/d/sub" && setfattr -n user.old -v old "$PFS/d/sub" && setfattr -n user.file -v in "$PFS/d/f" || return 1
  chmod 2751 "$PFS/d"
  in_place "$JOB" 'resources: [ [ path: d, flags: persistent ] ]'
  [ $# = 0 ] || { chown -R 65534:65534 "$PFS"; mkdir "$MNT"; chown 65534:65534 "$MNT"; }
  check "$NAME: start" "$EFS" start "$@" "$JOB"
  local name
  for name in d d/f d/sub; do
    check "$NAME: ACL in: $name" same_acl "$PFS/$name" "$MNT/$name"
    check "$NAME: mode in: $name" test "$(stat -c '%a %u %g' "$PFS/$name")" = "$(stat -c '%a %u %g' "$MNT/$name")"
  done
  check "$NAME: attributes in" test "$(attribute "$MNT/d/sub" user.dir) $(attribute "$MNT/d/f" user.file)" = 'in in'
  echo new >"$MNT/d/sub/new"
  check "$NAME: a new file inherits" grep -q 'user:12345' <<<"$(acl "$MNT/d/sub/new")"
  setfacl -m u:12345:rw "$MNT/d/f"; setfacl -m d:u:12345:rwx,u:4711:x "$MNT/d/sub"
  mkdir "$MNT/d/made"; setfacl -m d:u:4711:rx "$MNT/d/made"; setfattr -n user.dir -v out "$MNT/d/made"
  setfattr -n user.dir -v changed "$MNT/d/sub"; setfattr -x user.old "$MNT/d/sub"
  echo bare >"$MNT/d/sub/bare"; setfacl -b "$MNT/d/sub/bare"
  (cd "$MNT" && for name in d d/f d/sub d/sub/new d/sub/bare d/made; do acl $name >"$S/$NAME/$(tr / - <<<"$name").acl"; done)
  check "$NAME: stop" "$EFS" stop "$NAME"
  for name in d d/f d/sub d/sub/new d/sub/bare d/made; do
    check "$NAME: ACL out: $name" diff <(acl "$PFS/$name") "$S/$NAME/$(tr / - <<<"$name").acl"
  done
  check "$NAME: attributes out" test "$(attribute "$PFS/d/sub" user.dir) $(attribute "$PFS/d/made" user.dir)" = 'changed out'
  check_not "$NAME: one that was taken away is gone" getfattr -n user.old "$PFS/d/sub"
  check "$NAME: other attributes of directories stay" test "$(stat -c %a "$PFS/d")" = 2751
}
if ! has_tools; then
  skip 'ACLs' 'no setfacl or setfattr here'
elif ! (: >"$S/probe" && setfacl -m u:12345:r "$S/probe" && setfattr -n user.x -v x "$S/probe") 2>/dev/null; then
  skip 'ACLs' "the file system of $S has none"
else
  acls acls
  if [ "$(id -u)" = 0 ]; then acls user -u nobody; else skip 'ACLs of a job of an ordinary user' 'needs root'; fi
fi

# A default ACL alone is a change, but no reason to write the content.
if has_tools && [ "$(id -u)" = 0 ]; then
  fresh owners
  mkdir "$PFS/d"; echo f >"$PFS/d/f"; chown 4711:4712 "$PFS/d" "$PFS/d/f"
  job "$JOB" 'resources: [ [ path: d, flags: persistent ] ]'
  check 'owners: start' "$EFS" start "$JOB"
  check 'owners: in' test "$(stat -c '%u:%g' "$MNT/d" "$MNT/d/f" | tr '\n' ' ')" = '4711:4712 4711:4712 '
  setfacl -m d:u:4711:rx "$MNT/d"; chown 4713 "$MNT/d/f"
  check 'owners: stop' "$EFS" stop owners
  check 'owners: out' test "$(stat -c '%u:%g' "$OUT/d" "$OUT/d/f" | tr '\n' ' ')" = '4711:4712 4713:4712 '
  check 'owners: a default ACL alone is a change' grep -q 'default:user:4711:r-x' <<<"$(acl "$OUT/d")"
else
  skip 'owners' 'needs root, setfacl and setfattr'
fi

# Attributes that only root sees: in place, the changed file keeps them.
if has_tools && [ "$(id -u)" = 0 ] && command -v setcap >/dev/null && (setfattr -n trusted.x -v in "$S/probe" && setcap cap_net_raw+ep "$S/probe") 2>/dev/null; then
  for how in start takeover; do
    [ $how != takeover ] || kernel_has_it || { skip 'a successor' 'needs Linux 6.9'; continue; }
    fresh "trusted-$how"; mkdir "$PFS/d"; echo in >"$PFS/d/f"; echo in >"$PFS/d/run"; chmod 755 "$PFS/d/run"
    setfattr -n trusted.x -v in "$PFS/d"; setfattr -n trusted.x -v in "$PFS/d/f"; setcap cap_net_raw+ep "$PFS/d/run"
    in_place "$JOB" 'resources: [ [ path: d, flags: persistent ] ]'
    check "$NAME: start" "$EFS" start "$JOB"
    if [ $how = takeover ]; then
      kill -KILL "$(field "$("$EFS" status --json "$NAME")" 'd["worker_pid"]')"
      check "$NAME: a successor" await 20 eval 'json "$("$EFS" status --json "$NAME")" "d[\"takeovers\"] == 1"'
    fi
    check "$NAME: in" test "$(attribute "$MNT/d" trusted.x) $(attribute "$MNT/d/f" trusted.x) $(getcap "$MNT/d/run" | cut -d' ' -f2)" = 'in in cap_net_raw=ep'
    echo more >>"$MNT/d/f"; echo new >"$MNT/d/new"; setfattr -n trusted.x -v new "$MNT/d/new"; chmod 700 "$MNT/d/run"
    check "$NAME: stop" "$EFS" stop "$NAME"
    check "$NAME: out" test "$(attribute "$PFS/d" trusted.x) $(attribute "$PFS/d/f" trusted.x) $(attribute "$PFS/d/new" trusted.x) $(getcap "$PFS/d/run" | cut -d' ' -f2)" = 'in in new cap_net_raw=ep'
    check "$NAME: changed" test "$(cat "$PFS/d/f" | tr '\n' ' ') $(stat -c %a "$PFS/d/run")" = 'in more  700'
  done
else
  skip 'trusted attributes and file capabilities' 'needs root, setfacl, setfattr and setcap'
fi

# --- inputs under other names ---
fresh renamed 'resources: [ [ path: input, as: deep/in, flags: persistent ], [ path: input/a, as: alpha.txt ] ]'
setfattr -n user.of -v input "$PFS/input" 2>/dev/null && setfattr -n user.of -v b "$PFS/input/sub/b" && has_xattrs=1 || has_xattrs=
check 'plan: names on the mount, and where they come from' json "$("$EFS" plan --json "$JOB")" '{(e["path"], e.get("source")) for e in d["entries"]} >= {("alpha.txt", "input/a"), ("deep/in/sub/b", "input/sub/b")}'
check 'start: inputs under other names' "$EFS" start "$JOB"
check 'a directory' cmp "$PFS/input/sub/b" "$MNT/deep/in/sub/b"
check 'a file' cmp "$PFS/input/a" "$MNT/alpha.txt"
check 'not where they were' test ! -e "$MNT/input"
[ -z "$has_xattrs" ] || check 'with their attributes' test "$(getfattr --absolute-names --only-values -n user.of "$MNT/deep/in")$(getfattr --absolute-names --only-values -n user.of "$MNT/deep/in/sub/b")" = inputb
check_exit 'explain says where from' 0 "staged in from $PFS/input/sub/b" "$EFS" explain -i renamed deep/in/sub/b
echo new >"$PFS/input/late"
check 'load by the name on the mount' "$EFS" load -i renamed --wait deep/in/late
check 'brings it there' grep -qx new "$MNT/deep/in/late"
check 'unload --remove of what the PFS has' "$EFS" unload -i renamed --wait --remove deep/in/late
check 'it is gone' test ! -e "$MNT/deep/in/late"
echo changed >>"$MNT/deep/in/a"
echo dropped >>"$MNT/alpha.txt"
kill_both renamed
echo beta2 >"$PFS/input/sub/b"
check 'start on what was left under other names' "$EFS" start "$JOB"
check 'what is changed stays' grep -qx changed "$MNT/deep/in/a"
check 'what the PFS has anew comes' grep -qx beta2 "$MNT/deep/in/sub/b"
check 'stop: other names' "$EFS" stop renamed
check 'results have the names of the mount' grep -qx changed "$OUT/deep/in/a"
check 'and only what is changed is there' test ! -e "$OUT/deep/in/sub/b" -a ! -e "$OUT/alpha.txt"
check 'inputs are as they were' grep -qx alpha "$PFS/input/a"
in_place "$JOB" 'resources: [ [ path: input, as: in ] ]'
check_exit 'in place they cannot be' 2 "'as' does not go with in-place" "$EFS" check "$JOB"

# --- directories that may be searched and not listed, as on project file systems ---
if [ "$(id -u)" = 0 ]; then
  fresh passage 'resources: [ [ path: input/a ], [ path: input/sub ] ]'
  chmod 755 "$S" "$S/passage"; mkdir "$MNT"; chown 65534 "$MNT" "$OUT"; chmod 711 "$PFS" "$PFS/input"
  check 'plan as the user' setpriv --reuid 65534 --regid 65534 --clear-groups "$EFS" plan "$JOB"
  check 'inputs below directories that the user may only pass' "$EFS" start -u 65534 "$JOB"
  check 'are there' cmp "$PFS/input/sub/b" "$MNT/input/sub/b"
  echo late >"$PFS/input/late"
  check 'and can be loaded' "$EFS" load -i passage --wait input/late
  check 'stop' "$EFS" stop passage
  in_place "$JOB" 'resources: [ [ path: input ] ]'
  check_exit 'what has to be listed has to be readable' 1 "$PFS/input: directory cannot be read: Permission denied" "$EFS" start -u 65534 "$JOB"
else
  skip 'directories that may only be passed' 'needs root, to be somebody else'
fi

# --- results with other names in results-dir ---
fresh called 'resources: [ [ path: input, flags: persistent ] ]' 'outputs: [ [ path: sub/r, as: final ], [ path: dir, as: run1 ], [ path: "**", flags: temporary ] ]'
started "$JOB"
mkdir "$MNT/sub" "$MNT/dir"; echo first >"$MNT/sub/r"; echo deep >"$MNT/dir/f"; echo dropped >"$MNT/other"
check_exit 'efs explain says where a result goes' 0 "is staged out to $OUT/final: it is new" "$EFS" explain sub/r
check 'efs unload' "$EFS" unload -w sub/r
check 'knows the other name' test "$(cat "$OUT/final")" = first -a ! -e "$OUT/sub"
check_exit 'of a part it is refused' 1 'in results-dir it is called final: unload all of it' "$EFS" unload -w --size 2 sub/r
echo second >"$MNT/sub/r"
check_exit 'stop --keep' 0 'stage-out complete' "$EFS" stop --keep called
check 'they are there under their other names' test "$(cat "$OUT/final" "$OUT/run1/f")" = $'second\ndeep'
check 'and under no others' test "$(cd "$OUT" && find . -type f | grep -v efs-re | sort | tr '\n' ' ')" = './final ./run1/f '
check 'the receipt says both' json "$(cat "$OUT/efs-receipt-called.json")" '{e["path"]: e.get("placed_as") for e in d["entries"] if e["action"] in ("staged-out", "kept")} == {"sub/r": "final", "dir": "run1", "dir/f": "run1/f"}'
check_exit 'what is kept has nothing that is not back' 0 'called' "$EFS" check-image called
started "$JOB"
check 'a start goes on with their own names' test "$(cat "$MNT/sub/r")" = second
check_exit 'what is back is clean' 0 ' 0 staged out' "$EFS" stop --keep called
rm "$OUT/final"
started "$JOB"
check_exit 'a result that results-dir lost is brought out again' 0 ' 1 staged out' "$EFS" stop --keep called
check 'under its other name' test "$(cat "$OUT/final")" = second
started "$JOB"
echo third >"$MNT/sub/r"; echo mine >"$MNT/final"
check_exit 'where the mount has something else of that name' 1 'sub/r: it is to be final in results-dir, and the buffer has something else of that name' "$EFS" stop called
check 'it stays in the buffer' grep -qx second "$OUT/final"
kill_both called 2>/dev/null
umount -l "$MNT" 2>/dev/null
check_exit 'and so does salvage leave it' 1 'something else of that name' "$EFS" salvage called
check 'which brings it elsewhere under its own name' "$EFS" salvage called --to "$S/called/elsewhere"
check 'whole' test "$(cat "$S/called/elsewhere/sub/r")" = third
check 'efs clean' "$EFS" clean --force called
started "$JOB"
mkdir "$MNT/sub"; echo fourth >"$MNT/sub/r"
kill_both called; umount -l "$MNT"
check 'salvage gives the other names, too' "$EFS" salvage called
check 'results' grep -qx fourth "$OUT/final"
check 'efs clean' "$EFS" clean called

finish
