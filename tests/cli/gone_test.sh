#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Inputs that the job removed, renamed or unloaded: the files that the next start imports again.
#   gone_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

PERSISTENT='resources: [ [ path: input, flags: persistent ] ]'
in_place() { fresh "$@"; sed -i 's|results-dir: .*|in-place: true|' "$JOB"; OUT=$PFS; }
inputs() { local name; for name in changed clean moved part removed renewed rotated twice; do echo "$name 0" >"$PFS/input/$name"; done; ln -s 0 "$PFS/input/symlink"; }
unloaded() { check "$NAME: unload $*" "$EFS" unload -i "$NAME" -w "$@"; }
has() { check "$NAME: $1 is $2" grep -qx "$2" "$MNT/input/$1"; }
has_no() { check_not "$NAME: no $1" test -e "$MNT/input/$1"; }

# work: changes and exports inputs, and removes them in each way.
work() {
  echo 'changed 1' >"$MNT/input/changed"; unloaded --remove input/changed
  unloaded --remove input/clean
  mv "$MNT/input/moved" "$MNT/moved"
  rm "$MNT/input/removed"
  echo 'renewed 1' >"$MNT/input/renewed"; unloaded input/renewed; rm "$MNT/input/renewed"
  echo 'rotated 1' >"$MNT/input/rotated"; mv "$MNT/input/rotated" "$MNT/input/rotated.1"
  # Under two names in turn.
  echo 'twice 1' >"$MNT/input/twice"; unloaded input/twice; mv "$MNT/input/twice" "$MNT/twice"; unloaded twice; rm "$MNT/twice"
  # A part of the old file in its place, for a while.
  echo 'part 1' >"$MNT/input/part"; unloaded input/part; rm "$MNT/input/part"
  check "$NAME: load a part" "$EFS" load -i "$NAME" -w --offset 0 --size 2 input/part
  rm "$MNT/input/part"
  ln -sfn 1 "$MNT/input/symlink"; unloaded input/symlink; rm "$MNT/input/symlink"
}
# newest DIRECTORY: the directory has the newest version of each exported file.
newest() {
  local name
  for name in changed part renewed twice; do check "$NAME: the newest $name stays" grep -qx "$name 1" "$1/input/$name"; done
  check "$NAME: the newest link stays" test "$(readlink "$1/input/symlink")" = 1
}

for how in died unsaved salvaged; do
  fresh "$how" "$PERSISTENT"; inputs
  started "$JOB"; work
  case $how in
    died) kill_both "$how" ;;
    unsaved) check 'stop --keep --no-stage-out' "$EFS" stop --keep --no-stage-out "$how" ;;
    salvaged) kill_both "$how"; check 'salvage' "$EFS" salvage "$how" ;;
  esac
  check_exit "$how: a start says how many stay away" 0 '; 8 that the job removed stay removed, efs load imports them; I/O' "$EFS" start "$JOB"
  check_exit "$how: and so does status" 0 'inputs .*; 8 that the job removed stay removed' "$EFS" status "$how"
  for name in changed moved part removed renewed rotated twice; do has_no "$name"; done
  check_not "$how: no link" test -L "$MNT/input/symlink"
  has rotated.1 'rotated 1'
  has clean 'clean 0'   # an unload took it away, not the job, and nothing newer is anywhere
  check "$how: what was renamed is there" grep -qx 'moved 0' "$MNT/moved"
  check "$how: a load brings it all the same" "$EFS" load -i "$how" -w input/removed
  has removed 'removed 0'
  check "$how: stop" "$EFS" stop "$how"
  newest "$OUT"
  check "$how: the receipt says how many stayed away" json "$(receipt)" "d['staged_in']['files_away'] == 8"
done

# After an orderly stop, the next start imports missing inputs, except those with an older exported
# version or another name.
fresh kept "$PERSISTENT"; inputs
started "$JOB"; work
check 'stop --keep' "$EFS" stop --keep kept
started "$JOB"
for name in changed moved part renewed rotated twice; do has_no "$name"; done
check_not 'kept: no link' test -L "$MNT/input/symlink"
has rotated.1 'rotated 1'
for name in clean removed; do has "$name" "$name 0"; done
check 'kept: stop' "$EFS" stop kept
newest "$OUT"

# With propagate, inputs that the job removed are removed from results-dir too, also those that only
# an unload exported.
fresh propagated "$PERSISTENT"; inputs; sed -i '/^global-settings:/a\  deletions: propagate' "$JOB"
ln -s 0 "$PFS/input/other"; ln -s 0 "$PFS/input/file"; echo 'rested 0' >"$PFS/input/rested"; echo 'back 0' >"$PFS/input/back"
started "$JOB"; work
ln -sfn 1 "$MNT/input/other"; unloaded input/other; ln -sfn 2 "$MNT/input/other"
rm "$MNT/input/file"; echo file >"$MNT/input/file"; unloaded input/file; rm "$MNT/input/file"
# Exported, renamed, changed, and removed under the new name.
echo 'rested 1' >"$MNT/input/rested"; unloaded input/rested; mv "$MNT/input/rested" "$MNT/rested"; echo 'rested 2' >"$MNT/rested"; unloaded rested
echo 'back 1' >"$MNT/input/back"; unloaded input/back; mv "$MNT/input/back" "$MNT/back"; unloaded back; mv "$MNT/back" "$MNT/input/back"; echo 'back 2' >"$MNT/input/back"
check 'propagated: stop' "$EFS" stop propagated
for name in file renewed rested twice; do check_not "propagated: $name is out no more" test -e "$OUT/input/$name"; done
check_not 'propagated: nor is the link' test -L "$OUT/input/symlink"
for name in file renewed rested symlink twice; do check "propagated: the receipt says it of $name" test "$(action "$OUT" "input/$name")" = "['removed']"; done
check 'propagated: a link is there as it was at last' test "$(readlink "$OUT/input/other")" = 2
check 'propagated: under its new name it is there' grep -qx 'rested 2' "$OUT/rested"
check 'propagated: and under its old one what came back' grep -qx 'back 2' "$OUT/input/back"

# The same in place; efs may replace a link that an unload exported.
in_place links "$PERSISTENT"; inputs; ln -s 0 "$PFS/input/other"; sed -i '/in-place/a\  deletions: propagate' "$JOB"
started "$JOB"
ln -sfn 1 "$MNT/input/symlink"; unloaded input/symlink; rm "$MNT/input/symlink"
ln -sfn 1 "$MNT/input/other"; unloaded input/other; ln -sfn 2 "$MNT/input/other"
echo 'twice 1' >"$MNT/input/twice"; unloaded input/twice; mv "$MNT/input/twice" "$MNT/twice"; unloaded twice; rm "$MNT/twice"
check 'links: stop' "$EFS" stop links
check_not 'links: the link is gone' test -L "$PFS/input/symlink"
check_not 'links: and what was renamed' test -e "$PFS/input/twice"
check 'links: the other leads elsewhere' test "$(readlink "$PFS/input/other")" = 2

# An unchanged input renamed over another input, exported by a salvage.
fresh over "$PERSISTENT"; inputs
started "$JOB"; mv "$MNT/input/clean" "$MNT/input/removed"
kill_both over
check 'salvage' "$EFS" salvage over
started "$JOB"; rm "$MNT/input/removed"
check 'stop --keep' "$EFS" stop --keep over
started "$JOB"
has_no removed
check 'over: stop' "$EFS" stop over
check 'over: what was brought out stays' grep -qx 'clean 0' "$OUT/input/removed"

# In place, the PFS has the newest version of the unloaded files.
for how in died-in-place kept-in-place; do
  in_place "$how" "$PERSISTENT"; inputs
  started "$JOB"; work
  if [ $how = died-in-place ]; then kill_both "$how"; else check 'stop --keep' "$EFS" stop --keep "$how"; fi
  started "$JOB"
  has changed 'changed 1'
  if [ $how = kept-in-place ]; then has renewed 'renewed 1'; else has_no renewed; fi
  # A stop that keeps the store has exported them, and the next job starts with the PFS versions.
  for name in moved rotated; do if [ $how = kept-in-place ]; then has "$name" "$name 0"; else has_no "$name"; fi; done
  check "$how: stop" "$EFS" stop "$how"
  check "$how: what was renamed is there" grep -qx 'rotated 1' "$PFS/input/rotated.1"
  check "$how: and what it was renamed from, as it was" grep -qx 'rotated 0' "$PFS/input/rotated"
done

# An input with several names, one of which is changed.
in_place several "$PERSISTENT"; inputs; ln "$PFS/input/changed" "$PFS/input/second"
started "$JOB"
echo 'changed 1' >"$MNT/input/changed"; unloaded input/changed; rm "$MNT/input/changed"
kill_both several
started "$JOB"
has_no changed
has second 'changed 1'
check 'several: stop' "$EFS" stop several

# In place, a link replaces an input, and a salvage has exported it: it already exists.
in_place link-out "$PERSISTENT"; inputs; started "$JOB"
ln -sfn 10 "$MNT/input/symlink"
rm "$MNT/input/clean"; ln -s changed "$MNT/input/clean"
ln -s removed "$MNT/link"; mv -T "$MNT/link" "$MNT/input/moved"
kill_both link-out
check_exit 'link-out: salvage' 0 '3 staged out' "$EFS" salvage link-out
check 'link-out: start' "$EFS" start "$JOB"
check_exit 'link-out: stop' 0 'complete' "$EFS" stop link-out
check 'link-out: the links are the job'"'"'s' test "$(readlink "$OUT/input/symlink") $(readlink "$OUT/input/clean") $(readlink "$OUT/input/moved")" = '10 changed removed'

# A result with two names. One is renamed after both are exported: the new name is linked to the
# exported file, which changes its ctime.
for how in kept out kept-in-place out-in-place; do
  case $how in
    *in-place) in_place "linked-$how" "$PERSISTENT" ;;
    *) fresh "linked-$how" "$PERSISTENT" ;;
  esac
  sed -i '/^global-settings:/a\  deletions: propagate' "$JOB"
  inputs; started "$JOB"
  echo 'changed 1' >"$MNT/input/changed"; ln "$MNT/input/changed" "$MNT/a"
  case $how in
    out*) unloaded input a ;;
    *) check "$NAME: stop --keep" "$EFS" stop --keep "$NAME"; check "$NAME: start" "$EFS" start "$JOB" ;;
  esac
  mv "$MNT/input/changed" "$MNT/e"
  check_exit "$NAME: no conflict" 0 'removed: input/changed' "$EFS" stop "$NAME"
  check "$NAME: both names" test "$(cat "$OUT/a" "$OUT/e" | tr '\n' ' ')" = 'changed 1 changed 1 ' -a ! -e "$OUT/input/changed"
done

# A later version on the PFS is imported, whatever happened to the earlier one.
fresh newer "$PERSISTENT"; inputs
ln -s clean "$PFS/input/link"; ln -s clean "$PFS/input/same"; mkdir "$PFS/input/empty" "$PFS/input/full"; echo f >"$PFS/input/full/f"
started "$JOB"; work
rm -r "$MNT/input/link" "$MNT/input/same" "$MNT/input/empty" "$MNT/input/full"
kill_both newer
ln -sfn removed "$PFS/input/link"; echo new >"$PFS/input/full/new"
sleep_until_newer() { until echo 'moved 2' >"$PFS/input/moved.new" && [ "$PFS/input/moved.new" -nt "$PFS/input/moved" ]; do :; done; mv "$PFS/input/moved.new" "$PFS/input/moved"; }
sleep_until_newer
started "$JOB"
has moved 'moved 2'
check 'newer: a link that leads elsewhere' test "$(readlink "$MNT/input/link")" = removed
check_not 'newer: no link that is as it was' test -L "$MNT/input/same"
check_not 'newer: no directory that is as it was' test -e "$MNT/input/empty"
check 'newer: what is new in a directory, and nothing else of it' test "$(ls "$MNT/input/full")" = new
check 'newer: beside what it was' grep -qx 'moved 0' "$MNT/moved"
check 'newer: stop' "$EFS" stop newer
# --- inputs named one by one, removed from the PFS by a stage-out ---
for how in keep salvage; do
  in_place "named-$how" 'resources: [ [ path: input/a, flags: persistent ], [ path: input/sub, flags: persistent ], [ path: input/d, flags: persistent ] ]'
  mkdir "$PFS/input/d"; echo gamma >"$PFS/input/d/c"
  sed -i '/in-place/a\  deletions: propagate' "$JOB"
  started "$JOB"
  mv "$MNT/input/a" "$MNT/input/z"; rm -r "$MNT/input/d"
  [ $how = keep ] || rm "$PFS/input/a"   # another program has removed it first
  if [ $how = keep ]; then check "$NAME: stop --keep" "$EFS" stop --keep "$NAME"; else kill_both "$NAME"; check "$NAME: salvage" "$EFS" salvage "$NAME"; fi
  check_not "$NAME: the PFS has neither any more" test -e "$PFS/input/a" -o -e "$PFS/input/d"
  check "$NAME: what is not there because the job took it away is no obstacle" "$EFS" start "$JOB"
  check "$NAME: it has its new name" grep -qx alpha "$MNT/input/z"
  check "$NAME: and not the old one" test ! -e "$MNT/input/a" -a ! -e "$MNT/input/d"
  mv "$PFS/input/sub" "$PFS/input/elsewhere"
  check "$NAME: stop" "$EFS" stop --keep "$NAME"
  check_exit "$NAME: what somebody else took away is one" 1 'input/sub: does not exist' "$EFS" start "$JOB"
  "$EFS" clean --force "$NAME"
done
finish
