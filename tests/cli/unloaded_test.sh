#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# An unloaded file belongs to this job, whatever the job does to it during the copy or later, and
# even if the daemon dies.
#   unloaded_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

PERSISTENT='resources: [ [ path: input, flags: persistent ] ]'
# in_place NAME [SETTING...]
in_place() {
  fresh "$1" "$PERSISTENT"; shift
  sed -i 's|results-dir: .*|in-place: true|' "$JOB"; OUT=$PFS
  local setting; for setting; do sed -i "/^global-settings:/a\\  $setting" "$JOB"; done
}
stopped() { check "$NAME: stop" "$EFS" stop "$NAME"; }
is_out() { check "$NAME: $1 is out as it was at last" grep -qx "$2" "$PFS/input/$1"; }

# --- repeated unloads of an unchanged file ---
in_place open; echo old >"$PFS/input/log"
started "$JOB"
exec 5>>"$MNT/input/log"
for text in one two; do
  echo $text >&5
  check "open: unload --as-is behind $text" "$EFS" unload -i open -w --as-is input/log
  is_out log $text
done
echo three >&5; exec 5>&-
stopped; is_out log three

in_place both 'on-conflict: keep-both'; echo old >"$PFS/input/log"
started "$JOB"
exec 5>>"$MNT/input/log"; echo one >&5
check 'both: unload --as-is' "$EFS" unload -i both -w --as-is input/log
echo two >&5; exec 5>&-
stopped; is_out log two
check 'both: nothing is kept twice' test "$(ls "$PFS/input" | grep -c log)" = 1

in_place removed 'deletions: propagate'; echo old >"$PFS/input/log"
started "$JOB"
exec 5>>"$MNT/input/log"; echo one >&5
check 'removed: unload --as-is' "$EFS" unload -i removed -w --as-is input/log
exec 5>&-; rm "$MNT/input/log"
stopped
check_not 'removed: it is gone' test -e "$PFS/input/log"

# --- files that change during the copy ---
is_copied() { compgen -G "$PFS/input/*.efs-partial" >/dev/null; }
# meanwhile NAME COMMAND...: runs the command in the middle of an unload of input/f; then a stop.
meanwhile() {
  local name=$1 unload; shift
  in_place "$name" 'max-rate: 400 KB/s'
  echo 'f 0' >"$PFS/input/f"; echo 'g 0' >"$PFS/input/g"
  started "$JOB"
  { echo 'f 1'; head -c 300000 /dev/zero; } >"$MNT/input/f"
  "$EFS" unload -i "$name" -w input/f >"$S/said" 2>&1 & unload=$!
  check "$name: it is being copied" await 20 is_copied
  (cd "$MNT/input" && "$@")
  wait $unload
  stopped
}
meanwhile chmod chmod 600 f;                                                  check 'chmod: it has its mode' test "$(stat -c %a "$PFS/input/f")" = 600
meanwhile append bash -c 'echo last >>f';                                     check 'append: its end is out' test "$(tail -c 5 "$PFS/input/f")" = last
meanwhile truncate truncate -s 4 f;                                           is_out f 'f 1'
meanwhile over bash -c 'echo "f 2" >new && mv new f';                         is_out f 'f 2'
meanwhile anew bash -c 'rm f && echo "f 2" >f';                               is_out f 'f 2'
meanwhile exchange python3 -c 'import ctypes; assert ctypes.CDLL(None).renameat2(-100, b"f", -100, b"g", 2) == 0'
is_out f 'g 0'; check 'exchange: the other is out, too' grep -aqx 'f 1' "$PFS/input/g"
meanwhile away bash -c 'mv f h && echo "f 2" >f';                             is_out f 'f 2'; check 'away: under its new name it is out' grep -aqx 'f 1' "$PFS/input/h"
meanwhile directory bash -c 'mv ../input ../other && mkdir ../input && echo "f 2" >../input/f'
is_out f 'f 2'; check 'directory: under its new name it is out' grep -aqx 'f 1' "$PFS/other/f"

# --- the daemon dies during the copy, and the file is removed: no stage-out would write its partial
#     again ---
another_worker() { local now; now=$(field "$(status_of "$NAME")" 'd["worker_pid"]') && [ "$now" != "$1" ]; }
for who in worker both salvage; do
  in_place "orphan-$who" 'max-rate: 400 KB/s'
  echo 'f 0' >"$PFS/input/f"; echo mine >"$PFS/input/x.efs-partial"
  started "$JOB"
  # The copy takes five seconds: it must not finish before the daemon dies.
  { echo 'f 1'; head -c 2000000 /dev/zero; } >"$MNT/input/f"; mkdir "$MNT/input/d"; mv "$MNT/input/f" "$MNT/input/d/f"
  worker=$(field "$(status_of "$NAME")" 'd["worker_pid"]')
  "$EFS" unload -i "$NAME" -w input/d/f >"$S/said" 2>&1 & unload=$!
  partial() { compgen -G "$PFS/input/d/*.efs-partial" >/dev/null; }
  check "$NAME: it is being copied" await 20 partial
  kill -KILL $unload; wait $unload 2>/dev/null   # it would repeat its request to the successor
  if [ $who = worker ]; then kill -KILL "$worker"; check "$NAME: a successor takes over" await 20 another_worker "$worker"
  else kill_both "$NAME"; started "$JOB"; fi
  check "$NAME: the partial is there still" partial
  mv "$MNT/input/d/f" "$MNT/h"
  if [ $who = salvage ]; then kill_both "$NAME"; check "$NAME: salvage" "$EFS" salvage "$NAME"; check "$NAME: clean" "$EFS" clean "$NAME"
  else stopped; fi
  check "$NAME: under its new name it is out" grep -aqx 'f 1' "$PFS/h"
  check "$NAME: no partial stays, but what is called so by somebody else" test "$(find "$PFS" -name '*.efs-partial')" = "$PFS/input/x.efs-partial"
  rm "$PFS/input/x.efs-partial"
done

# --- another writer creates the name before the unload is over ---
for how in change remove link; do
  in_place "theirs-$how" 'max-ops: 40/s'
  [ $how != remove ] || sed -i '/^global-settings:/a\  deletions: propagate' "$JOB"
  for i in {1..6}; do if [ $how = link ]; then ln -s OLD "$PFS/input/$i"; else echo OLD >"$PFS/input/$i"; fi; done
  started "$JOB"
  for i in {1..6}; do if [ $how = link ]; then ln -sfn JOB "$MNT/input/$i"; else echo JOB >"$MNT/input/$i"; fi; done
  "$EFS" unload -i "$NAME" -w input >"$S/said" 2>&1 & unload=$!
  first() { if [ $how = link ]; then find "$PFS/input" -lname JOB ! -name '*partial'; else grep -lx JOB "$PFS"/input/[1-6] 2>/dev/null; fi | head -n 1; }
  has_one() { [ -n "$(first)" ]; }
  check "$NAME: one has its name" await 20 has_one
  one=$(first)
  if [ $how = link ]; then ln -s THR "$S/theirs" && mv -T "$S/theirs" "$one"; else echo THR >"$S/theirs" && mv "$S/theirs" "$one"; fi
  check "$NAME: the unload goes on" test -e "/proc/$unload"
  wait $unload
  name=${one##*/}
  case $how in change) echo JOB2 >"$MNT/input/$name" ;; remove) rm "$MNT/input/$name" ;; link) ln -sfn JOB2 "$MNT/input/$name" ;; esac
  check_not "$NAME: the stop does not succeed" "$EFS" stop "$NAME"
  check "$NAME: theirs is left alone" test "$(if [ $how = link ]; then readlink "$one"; else cat "$one"; fi)" = THR
  check "$NAME: as a conflict" test "$(action "$PFS" "input/$name")" = "['conflict']"
  "$EFS" stop --no-stage-out "$NAME"
done

# --- several names ---
in_place names; echo old >"$PFS/input/n"; ln "$PFS/input/n" "$PFS/input/m"
started "$JOB"
exec 5>>"$MNT/input/n"; echo one >&5
check 'names: unload --as-is' "$EFS" unload -i names -w --as-is input
echo two >&5; exec 5>&-
stopped; is_out n two; is_out m two
check 'names: they are one file' test "$(stat -c %i "$PFS/input/n")" = "$(stat -c %i "$PFS/input/m")"
in_place names-removed 'deletions: propagate'; echo old >"$PFS/input/n"; ln "$PFS/input/n" "$PFS/input/m"
started "$JOB"
exec 5>>"$MNT/input/n"; echo one >&5
check 'names-removed: unload --as-is' "$EFS" unload -i names-removed -w --as-is input
exec 5>&-; rm "$MNT/input/n" "$MNT/input/m"
stopped
check 'names-removed: both are gone' test "$(ls "$PFS/input")" = $'a\nsub'

# --- a file that had its name when the worker died ---
if ! kernel_has_it; then skip 'takeover in the middle of an unload' 'Linux older than 6.9'; else
  for conflict in fail keep-both; do
    in_place "died-$conflict" 'max-ops: 400/s' "on-conflict: $conflict"
    for i in {1..30}; do echo old >"$PFS/input/$i"; done
    started "$JOB"
    for i in {1..30}; do echo one >"$MNT/input/$i"; done
    "$EFS" unload -i "$NAME" -w input >"$S/said" 2>&1 & unload=$!
    some_have_names() { [ "$(cat "$PFS"/input/[1-9]* 2>/dev/null | grep -cx one)" -gt 3 ]; }
    check "$NAME: some have their names" await 20 some_have_names
    kill -KILL "$(field "$(status_of "$NAME")" 'd["worker_pid"]')"
    wait $unload
    for i in {1..30}; do echo two >"$MNT/input/$i"; done
    stopped
    check "$NAME: all are out" test "$(cat "$PFS"/input/[1-9]* | sort | uniq -c | tr -d ' ')" = 30two
    check "$NAME: and no other" test "$(ls "$PFS/input" | wc -l)" = 32   # lib.sh's own two
  done
fi

# --- another name of an input: replacing one changes the ctime of the others ---
for how in unload apart keep died keep-both; do
  conflict=fail; [ $how != keep-both ] || conflict=keep-both
  in_place "linked-$how" "on-conflict: $conflict"; echo old >"$PFS/input/n"
  started "$JOB"
  ln "$MNT/input/n" "$MNT/nn"; echo one >"$MNT/input/n"
  case $how in
    keep) check "$NAME: stop --keep" "$EFS" stop --keep "$NAME"; started "$JOB" ;;
    apart) for name in input/n nn; do check "$NAME: unload $name" "$EFS" unload -i "$NAME" -w "$name"; done ;;
    *) check "$NAME: unload" "$EFS" unload -i "$NAME" -w input/n nn ;;
  esac
  [ $how != died ] || { kill_both "$NAME"; started "$JOB"; }
  echo two >"$MNT/input/n"
  stopped; is_out n two
  check "$NAME: under both names, and no third" test "$(cat "$PFS/nn") $(ls "$PFS" "$PFS/input" | grep -c '^n')" = 'two 2'
done
in_place linked-removed 'deletions: propagate'; echo old >"$PFS/input/n"
started "$JOB"
ln "$MNT/input/n" "$MNT/nn"; echo one >"$MNT/input/n"
check 'linked-removed: unload' "$EFS" unload -i linked-removed -w input/n nn
echo two >"$MNT/nn"; rm "$MNT/input/n"
stopped
check 'linked-removed: it is gone, and the other is out' test ! -e "$PFS/input/n" -a "$(cat "$PFS/nn")" = two

in_place further; echo old >"$PFS/input/n"
started "$JOB"
ln "$MNT/input/n" "$MNT/nn"
check 'further: unload --remove of the further name' "$EFS" unload -i further -w --remove nn
check 'further: the input is unchanged under its own' json "$("$EFS" ls --json "$MNT/input/n")" '[(e["staged"], e["dirty"]) for e in d] == [("in", False)]'
stopped
check 'further: both are there' test "$(cat "$PFS/input/n" "$PFS/nn" | uniq -c | tr -s ' ')" = ' 2 old'

# --- an input with several names, some of which are exported again ---
for how in one one-died other two-of-three; do
  in_place "names-$how"; echo old >"$PFS/input/n"; ln "$PFS/input/n" "$PFS/input/m"
  [ $how != two-of-three ] || ln "$PFS/input/n" "$PFS/input/o"
  started "$JOB"
  all=(); for name in "$PFS"/input/[nmo]; do all+=("input/${name##*/}"); done
  echo one >"$MNT/input/n"; check "$NAME: unload all names" "$EFS" unload -i "$NAME" -w "${all[@]}"
  echo two >"$MNT/input/n"
  case $how in
    two-of-three) check "$NAME: unload two" "$EFS" unload -i "$NAME" -w input/m input/n ;;
    other) check "$NAME: unload the other" "$EFS" unload -i "$NAME" -w input/n ;;
    *) check "$NAME: unload one" "$EFS" unload -i "$NAME" -w input/m ;;
  esac
  [ $how != one-died ] || { kill_both "$NAME"; started "$JOB"; }
  echo three >"$MNT/input/n"
  stopped
  check "$NAME: all names have the last version" test "$(cat "$PFS"/input/[nmo] | uniq -c | tr -s ' ')" = " ${#all[@]} three"
done
in_place names-others; echo old >"$PFS/input/n"; ln "$PFS/input/n" "$PFS/input/m"
started "$JOB"
echo one >"$MNT/input/n"; check 'names-others: unload both' "$EFS" unload -i names-others -w input/m input/n
echo two >"$MNT/input/n"; check 'names-others: unload one' "$EFS" unload -i names-others -w input/m
echo theirs >"$PFS/input/n"; echo three >"$MNT/input/n"
check_exit 'names-others: what somebody else changed is still a conflict' 3 'conflict: input/n' "$EFS" stop names-others
check 'names-others: and stays' grep -qx theirs "$PFS/input/n"
rm "$PFS/input/n"; stopped

# --- a link that another writer sets back ---
in_place led-back; ln -s first "$PFS/input/l"
started "$JOB"
ln -sfn second "$MNT/input/l"
check 'led-back: unload' "$EFS" unload -i led-back -w input/l
ln -sfn first "$PFS/input/l"; ln -sfn third "$MNT/input/l"
check_exit 'led-back: both have changed it' 1 'conflict: input/l' "$EFS" stop led-back
check 'led-back: and it stays' test "$(readlink "$PFS/input/l")" = first
check 'led-back: until it goes' rm "$PFS/input/l"
stopped

# --- one node of several ---
fresh node "$PERSISTENT"
sed -i '/^global-settings:/a\  max-ops: 2000/s' "$JOB"
check 'node: start' "$EFS" start --node 0/2 "$JOB"
echo one >"$MNT/f"; ln "$MNT/f" "$MNT/g"; mkdir "$MNT/d"; for i in {1..100}; do echo one >"$MNT/d/$i"; done
check 'node: unload' "$EFS" unload -i node -w f g
if kernel_has_it; then
  "$EFS" unload -i node -w d >"$S/said" 2>&1 & unload=$!
  some_are_out() { [ "$(cat "$OUT"/d/* 2>/dev/null | grep -cx one)" -gt 10 ]; }
  check 'node: some are out' await 20 some_are_out
  kill -KILL "$(field "$(status_of node)" 'd["worker_pid"]')"
  wait $unload
fi
echo two >"$MNT/f"; for i in {1..100}; do echo two >"$MNT/d/$i"; done
stopped
check 'node: all names have the last version' test "$(cat "$OUT"/[fg] "$OUT"/d/* | sort | uniq -c | tr -d ' ')" = 102two

# --- a part over another writer's file ---
fresh part "$PERSISTENT"; printf A0A0A0 >"$PFS/input/p"; mkdir "$OUT/input"; printf oldold >"$OUT/input/p"
started "$JOB"
check 'part: of an input that nobody changed' "$EFS" unload -i part -w --offset 2 --size 2 input/p
check 'part: it is laid over what is there' test "$(cat "$OUT/input/p")" = olA0ld
stopped
check 'part: the stop brings all of it' test "$(cat "$OUT/input/p")" = A0A0A0

fresh loaded "$PERSISTENT"; printf A0A0A0 >"$PFS/input/p"
started "$JOB"
printf B1B1B1 >"$MNT/input/p"; check 'loaded: unload' "$EFS" unload -i loaded -w input/p; rm "$MNT/input/p"
check 'loaded: a part of the input' "$EFS" load -i loaded -w --offset 0 --size 2 input/p
check 'loaded: is unloaded over what another file brought there' "$EFS" unload -i loaded -w --offset 0 --size 2 input/p
stopped
check 'loaded: it is there' test "$(cat "$OUT/input/p")" = A0B1B1

fresh replaced "$PERSISTENT"; printf A0A0A0 >"$PFS/input/p"
started "$JOB"
printf B1B1B1 >"$MNT/input/p"; touch -d 2001-09-09 "$MNT/input/p"
check 'replaced: unload' "$EFS" unload -i replaced -w input/p
check 'replaced: a part of what is out' "$EFS" unload -i replaced -w --offset 2 --size 2 input/p
check 'replaced: leaves it as it is' test "$(cat "$OUT/input/p") $(stat -c %Y "$OUT/input/p")" = "B1B1B1 $(date -d 2001-09-09 +%s)"
printf xxxxxx >"$OUT/input/p"
check 'replaced: a part over what somebody else put there' "$EFS" unload -i replaced -w --offset 2 --size 2 input/p
stopped
check 'replaced: the stop brings all of it' test "$(cat "$OUT/input/p")" = B1B1B1

# --- a result that an output rule renames in results-dir ---
fresh called 'outputs: [ [ path: n, as: renamed ], [ path: "**" ] ]' "$PERSISTENT"
started "$JOB"
echo one >"$MNT/n"; echo one >"$MNT/m"
check_exit 'called: is out' 0 '2 unloaded' "$EFS" unload -i called -w n m
check 'called: and clean' json "$("$EFS" ls --json -i called n)" "not d[0]['dirty'] and d[0]['staged'] == 'out'"
check_exit 'called: so it can go' 0 '1 unchanged' "$EFS" unload -i called -w --remove n
check 'called: it is gone here' test ! -e "$MNT/n"
check 'called: and there' grep -qx one "$OUT/renamed"
stopped
check 'called: it stays there' grep -qx one "$OUT/renamed"
fresh called-again 'outputs: [ [ path: n, as: renamed ], [ path: "**" ] ]'
started "$JOB"
echo one >"$MNT/n"; check 'called-again: unload' "$EFS" unload -i called-again -w n
echo two >"$MNT/n"
stopped
check 'called-again: what it was changed to since' grep -qx two "$OUT/renamed"

# --- a failed unload that could not remove its partial ---
fresh partial; mkdir -p "$OUT"
if chattr +a "$OUT" 2>/dev/null; then   # names can be made there, and not be removed or changed
  sed -i '/^global-settings:/a\  retries: 0' "$JOB"
  started "$JOB"; echo r >"$MNT/r"; echo s >"$MNT/s"
  check_exit 'an unload into a directory in which no name can be changed' 1 'partial' "$EFS" unload -i partial -w r
  partials() { ls "$OUT" | grep -c 'efs-partial$'; }
  check 'leaves a partial' test "$(partials)" = 1
  chattr -a "$OUT"; rm "$MNT/r"
  check 'stop' "$EFS" stop partial
  check 'removes it, though what it was of is gone' test "$(partials)" = 0
  check 'and brings out the rest' grep -qx s "$OUT/s"
else
  skip 'a partial that cannot be removed at once' 'no chattr +a here'
fi

# --- two names of one PFS file, imported one after the other ---
# siblings NAME [LINE...]: input/a, and another name of it, input/c, by a load; lines go to the
# settings. Both get new contents.
siblings() {
  fresh "$1" 'resources: [ [ path: input/a, flags: persistent ] ]' 'outputs: [ [ path: "**", inputs: true ] ]'; shift
  sed -i 's|results-dir: .*|in-place: true|' "$JOB"; OUT=$PFS
  local line; for line in "$@"; do sed -i "/in-place/a\\  $line" "$JOB"; done
  ln "$PFS/input/a" "$PFS/input/c"
  started "$JOB"
  check "$NAME: a load of the other name" "$EFS" load -w -i "$NAME" input/c
}
siblings each
echo new >"$MNT/input/a"; echo new2 >"$MNT/input/c"
check_exit 'each: none is a conflict for what the stop does to the other' 0 '2 staged out' "$EFS" stop each
check 'each: has its own' test "$(cat "$PFS/input/a" "$PFS/input/c" | tr '\n' ' ')" = 'new new2 '
siblings both 'on-conflict: keep-both'
echo new >"$MNT/input/a"; echo new2 >"$MNT/input/c"
check 'both: stop' "$EFS" stop both
check 'both: none is kept beside the other' test "$(cd "$PFS/input" && cat a c | tr '\n' ' '; ls -d "$PFS"/input/*.efs-* 2>/dev/null)" = 'new new2 '
fresh gone "$PERSISTENT"; sed -i 's|results-dir: .*|in-place: true|; /in-place/a\  deletions: propagate' "$JOB"; OUT=$PFS
ln "$PFS/input/a" "$PFS/input/c"; started "$JOB"
rm "$MNT/input/c"; check 'gone: a load of the other name' "$EFS" load -w -i gone input/c
mv "$MNT/input/c" "$MNT/y"; echo new >"$MNT/input/a"
check_exit 'gone: what was renamed is no conflict either' 0 . "$EFS" stop gone
check 'gone: its old name is gone' test ! -e "$PFS/input/c"
check 'gone: the rest is there' test "$(cat "$PFS/input/a" "$PFS/y" | tr '\n' ' ')" = 'new alpha '
siblings changed
echo new >"$MNT/input/a"; echo new2 >"$MNT/input/c"
rm "$PFS/input/c"; echo theirs >"$PFS/input/c"
check_exit 'changed: another file there is a conflict still' 3 'conflict: input/c' "$EFS" stop changed
check 'changed: and stays' grep -qx theirs "$PFS/input/c"
"$EFS" stop --no-stage-out changed >/dev/null

# --- the daemon is replaced: the receipt of the stop is complete all the same ---
taken_over() { json "$(status_of told)" "d['takeovers'] == 1 and d['state'] == 'running'"; }
fresh told
started "$JOB"; for name in stays removed freed; do echo $name >"$MNT/$name"; done
check 'told: unload' "$EFS" unload -w -i told stays removed
check 'told: unload --remove' "$EFS" unload -w --remove -i told freed
rm "$MNT/removed"
if kernel_has_it && [ "$(id -u)" = 0 ]; then
  kill -KILL "$(field "$(status_of told)" 'd["worker_pid"]')"
  check 'told: a takeover' await 20 taken_over
  stopped
  check 'told: what is there still' json "$(receipt)" "[('unloaded while the job ran' in e['reason'], 'checksum' in e) for e in d['entries'] if e['path'] == 'stays'] == [(True, True)]"
  check 'told: what was freed' json "$(receipt)" "[e['action'] for e in d['entries'] if e['path'] == 'freed' and 'removed from the buffer' in e['reason']] == ['staged-out']"
  check 'told: what the job has removed since' json "$(receipt)" "any(e['path'] == 'removed' and 'stays in results-dir' in e['reason'] for e in d['entries'])"
else
  skip 'unloads of a worker that was replaced' 'not root, or Linux before 6.9'
  stopped
fi
finish
