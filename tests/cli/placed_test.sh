#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The owner of a file on the PFS, in place and with several nodes. Whatever the job does to its
# files after their export, efs leaves files of other writers alone and replaces its own.
#   placed_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

PERSISTENT='resources: [ [ path: input, flags: persistent ] ]'
# in_place NAME [SETTING...]: with the inputs input/f, input/n (also named input/m) and the link
# input/l.
in_place() {
  fresh "$1" "$PERSISTENT"; shift
  sed -i 's|results-dir: .*|in-place: true|' "$JOB"; OUT=$PFS
  local setting; for setting; do sed -i "/^global-settings:/a\\  $setting" "$JOB"; done
  echo old >"$PFS/input/f"; echo old >"$PFS/input/n"; ln "$PFS/input/n" "$PFS/input/m"; ln -s old "$PFS/input/l"
}
NAMES=(input/f input/n input/m input/l r s t)
text_of() { if [ -L "$1" ]; then readlink "$1"; else cat "$1" 2>&1; fi; }
# write TEXT: writes to all names, in place, as a program would that opens them. n and m are one
# file, and so are s and t.
write() {
  local name; for name in input/f input/n r s; do echo "$1" >"$MNT/$name"; done
  [ -e "$MNT/t" ] || ln "$MNT/s" "$MNT/t"
  ln -sfn "$1" "$MNT/input/l"; ln -sfn "$1" "$MNT/u"
}
# bring_out HOW: exports the buffer to the PFS.
bring_out() {
  case $1 in
    unload) check "$NAME: unload" "$EFS" unload -i "$NAME" -w input r s t u ;;
    salvage) kill_both "$NAME"; check "$NAME: salvage" "$EFS" salvage "$NAME"; started "$JOB" ;;
    keep) check "$NAME: stop --keep" "$EFS" stop --keep "$NAME"; started "$JOB" ;;
    unload-died) check "$NAME: unload" "$EFS" unload -i "$NAME" -w input r s t u; kill_both "$NAME"; started "$JOB" ;;
  esac
}
# change HOW TEXT: the job then changes its files. In the end all names have the text.
change() {
  local name
  case $1 in
    write) write "$2" ;;
    over)   # as editors and savers do
      for name in input/f input/n input/m r s t; do echo "$2" >"$MNT/new" && mv "$MNT/new" "$MNT/$name"; done
      for name in input/l u; do ln -s "$2" "$MNT/new" && mv -T "$MNT/new" "$MNT/$name"; done ;;
    anew)
      for name in input/f input/n input/m r s t; do rm "$MNT/$name"; echo "$2" >"$MNT/$name"; done
      for name in input/l u; do rm "$MNT/$name"; ln -s "$2" "$MNT/$name"; done ;;
    away)
      for name in input/f input/n input/m r s t; do mv "$MNT/$name" "$MNT/$name.old"; echo "$2" >"$MNT/$name"; done
      for name in input/l u; do mv "$MNT/$name" "$MNT/$name.old"; ln -s "$2" "$MNT/$name"; done ;;
    linked)
      for name in input/f input/n r s; do ln "$MNT/$name" "$MNT/$name.more"; done
      write "$2" ;;
    turned)  # the files change places
      mv "$MNT/r" "$MNT/x"; mv "$MNT/input/f" "$MNT/r"; mv "$MNT/x" "$MNT/input/f"
      mv "$MNT/input/l" "$MNT/x"; mv "$MNT/u" "$MNT/input/l"; mv "$MNT/x" "$MNT/u"
      write "$2" ;;
  esac
}
all_names() { printf '%s\n' "${NAMES[@]}" u; }
all_are() { local name; for name in $(all_names); do [ "$(text_of "$PFS/$name")" = "$1" ] || { echo "$name: $(text_of "$PFS/$name")"; return 1; }; done; }
# theirs HOW: another writer replaces all names.
theirs() {
  local name
  for name in $(all_names); do
    case $1 in
      replace) if [ -L "$PFS/$name" ]; then ln -s THEM "$S/theirs"; else echo THEM >"$S/theirs"; fi; mv -T "$S/theirs" "$PFS/$name" ;;
      write) if [ -L "$PFS/$name" ]; then ln -sfn THEM "$PFS/$name"; else echo THEM >"$PFS/$name"; fi ;;
    esac
  done
}
# conflicts COMMAND...: fails, reports every name, and keeps the other writer's files.
conflicts() {
  local said; said=$("$@" 2>&1) && { echo "$* succeeded: $said"; return 1; }
  all_are THEM || { echo "$said"; return 1; }
}

for how in unload salvage keep unload-died; do
  for what in write over anew away linked turned; do
    in_place "$how-$what"; started "$JOB"
    write one; bring_out $how
    check "$NAME: it is out" all_are one
    change $what two
    check "$NAME: stop" "$EFS" stop "$NAME"
    check "$NAME: all have the last version" all_are two
    for put in replace write; do
      [ $how = unload ] || [ $put = replace ] || continue
      in_place "$how-$what-$put"; started "$JOB"
      write one; bring_out $how; theirs $put; change $what two
      check "$NAME: what somebody else put there stays" conflicts "$EFS" stop "$NAME"
      check "$NAME: also at the second try" conflicts "$EFS" stop "$NAME"
      check "$NAME: and for a salvage" kill_both "$NAME"
      check "$NAME: that comes after" conflicts "$EFS" salvage "$NAME"
      drop_store "$NAME"
    done
  done
done

# --- twice, and again ---
for how in unload salvage; do
  in_place "again-$how"; started "$JOB"
  write one; bring_out $how; change away two; bring_out $how; change linked three; change over four; bring_out $how; change anew five
  check "$NAME: stop" "$EFS" stop "$NAME"
  check "$NAME: all have the last version" all_are five
  in_place "between-$how"; started "$JOB"
  write one; bring_out $how; change away two; bring_out $how; theirs replace; change over three
  check "$NAME: what somebody else put there stays" conflicts "$EFS" stop "$NAME"
  "$EFS" stop --no-stage-out "$NAME"
done

# --- another writer's file may be wanted: by the job file, or after its removal ---
in_place both 'on-conflict: keep-both'; started "$JOB"
write one; bring_out unload; theirs replace; change over two
check 'both: stop' "$EFS" stop both
check 'both: theirs is there' all_are THEM
check 'both: and ours' test "$(text_of "$PFS/input/f.efs-both") $(text_of "$PFS/r.efs-both")" = 'two two'
in_place overwrite 'on-conflict: overwrite'; started "$JOB"
write one; bring_out unload; theirs replace; change over two
check 'overwrite: stop' "$EFS" stop overwrite
check 'overwrite: ours is there' all_are two
in_place goes; started "$JOB"
write one; bring_out unload; theirs replace; change over two
check 'goes: a conflict' conflicts "$EFS" stop goes
for name in $(all_names); do rm "$PFS/$name"; done
check 'goes: none any more' "$EFS" stop goes
check 'goes: ours is there' all_are two

# --- another writer's file is an input from the next start or load on ---
in_place input; started "$JOB"
write one; bring_out unload; rm "$MNT"/input/[fl]
check 'input: stop --keep' "$EFS" stop --keep input
theirs replace
started "$JOB"
check 'input: it is brought in' test "$(cat "$MNT/input/f")" = THEM
echo two >"$MNT/input/f"; ln -sfn two "$MNT/input/l"
check 'input: stop' "$EFS" stop input
check 'input: and replaced' test "$(text_of "$PFS/input/f") $(text_of "$PFS/input/l")" = 'two two'
in_place loaded; started "$JOB"
write one; bring_out unload; theirs replace
check 'loaded: load' "$EFS" load -i loaded -w --replace --force input/f
echo two >"$MNT/input/f"
check 'loaded: unload' "$EFS" unload -i loaded -w input/f
check 'loaded: it is replaced' test "$(text_of "$PFS/input/f")" = two
"$EFS" stop --no-stage-out loaded

# --- an input that the job removed from the PFS: another writer takes its name ---
in_place removed 'deletions: propagate'; started "$JOB"
rm "$MNT/input/f"; check 'removed: stop --keep' "$EFS" stop --keep removed
check_not 'removed: it is gone' test -e "$PFS/input/f"
started "$JOB"
echo THEM >"$PFS/input/f"; echo two >"$MNT/input/f"
check_exit 'removed: what somebody put there is a conflict' 1 'conflict: input/f' "$EFS" stop removed
check 'removed: and stays' grep -qx THEM "$PFS/input/f"
rm "$PFS/input/f"
check 'removed: stop' "$EFS" stop removed
check 'removed: ours is there' grep -qx two "$PFS/input/f"

# --- another name of an input that the job removed: also if the next start imports the input again
#     ---
for how in away keep; do
  in_place "further-$how" 'deletions: propagate'; ln "$PFS/input/n" "$PFS/input/k"; started "$JOB"
  rm "$MNT/input/k"; echo one >"$MNT/new"; mv "$MNT/new" "$MNT/input/n"
  chmod 600 "$PFS/input/m"
  if [ $how = keep ]; then "$EFS" stop --no-stage-out --keep "$NAME"; else kill_both "$NAME"; fi
  started "$JOB"
  check_not "$NAME: what the job removed stays away" test -e "$MNT/input/k"
  echo THEM >"$PFS/input/n"
  check_exit "$NAME: what somebody wrote there is a conflict" 1 'conflict: input/n' "$EFS" stop "$NAME"
  check "$NAME: and stays" grep -qx THEM "$PFS/input/n"
  "$EFS" stop --no-stage-out "$NAME"
done

# --- a full buffer has no room to record its exports: files of unknown origin are left alone ---
CAPACITY='16 MiB' in_place full; started "$JOB"
mkdir "$MNT/o"
seq -f "$MNT/o/%04g" 1800 | while read -r name; do echo one >"$name"; done
for size in 64 4; do until ! dd if=/dev/zero of="$MNT/fill-$size" bs=${size}k count=1024 oflag=append conv=notrunc status=none 2>"$S/full.txt"; do :; done; done
check 'full: it is' grep -q 'No space left' "$S/full.txt"
# The journal, too, except for the room that it keeps for exports.
python3 - "$MNT/fill-4" <<'FILL' || exit 2
import itertools, os, sys
number = itertools.count()
for size in 60000, 4000, 200:
    for _ in range(20000):
        try: os.setxattr(sys.argv[1], f"user.{next(number)}", b"x" * size)
        except OSError: break
    else: sys.exit("the journal is not full")
FILL
check 'full: unload' "$EFS" unload -i full -w o
kill_both full; started "$JOB"; rm "$MNT"/fill-*
all_in_o() { [ "$(cat "$PFS/o/"* | sort | uniq -c | xargs)" = "$1" ] || cat "$PFS/o/"* | sort | uniq -c; }
check 'full: all is out' all_in_o '1800 one'
for name in "$MNT"/o/*; do
  case $name in *[13579]) echo THEM >"$S/theirs"; mv "$S/theirs" "$PFS/o/${name##*/}" ;; esac
  echo two >"$MNT/new"; mv "$MNT/new" "$name"
done
check_exit 'full: what may be somebody else'"'"'s is a conflict' 3 'more conflict' "$EFS" stop full
check 'full: the receipt says why' grep -q 'too full to record' "$PFS/efs-receipt-full.json"
check 'full: nothing of theirs is replaced' test "$(cat "$PFS"/o/* | grep -cx THEM)" = 900
check 'full: what was noted is' test "$(cat "$PFS"/o/* | grep -cx two)" -gt 100
sed -i '/^global-settings:/a\  on-conflict: overwrite' "$JOB"; kill_both full; started "$JOB"
check 'full: as the user says' "$EFS" stop full
check 'full: all are the last version' all_in_o '1800 two'

# --- two paths in the buffer with one name in results-dir ---
as() { in_place "$1"; printf 'outputs:\n  - path: tmp\n    as: all\n    flags: persistent\n  - path: all\n    flags: persistent\n' >>"$JOB"; }
as as; started "$JOB"
mkdir "$MNT/all" "$MNT/tmp"; echo first >"$MNT/all/x"
check 'as: unload --remove' "$EFS" unload -i as -w --remove all/x
rmdir "$MNT/all"; echo second >"$MNT/tmp/x"
check_exit 'as: another result of that name' 3 'conflict: tmp/x: another file of the job' "$EFS" stop as
check 'as: the first one stays' grep -qx first "$PFS/all/x"
"$EFS" stop --no-stage-out as
as as-same; started "$JOB"
mkdir "$MNT/tmp"; echo first >"$MNT/tmp/x"
check 'as-same: unload' "$EFS" unload -i as-same -w tmp/x
echo second >"$MNT/tmp/x"
check 'as-same: stop' "$EFS" stop as-same
check 'as-same: it is replaced' grep -qx second "$PFS/all/x"
as as-theirs; started "$JOB"
mkdir "$MNT/tmp"; echo first >"$MNT/tmp/x"
check 'as-theirs: unload' "$EFS" unload -i as-theirs -w tmp/x
echo THEM >"$PFS/all/x"; echo second >"$MNT/tmp/x"
check_exit 'as-theirs: somebody has changed it' 3 'conflict: tmp/x' "$EFS" stop as-theirs
check 'as-theirs: and it stays' grep -qx THEM "$PFS/all/x"
"$EFS" stop --no-stage-out as-theirs

# --- a part ---
in_place part; started "$JOB"
printf A0A0A0 >"$MNT/r"; check 'part: unload' "$EFS" unload -i part -w r
printf THEIRS >"$PFS/r"; printf B1B1B1 >"$MNT/r"
check_exit 'part: is not laid over what somebody else has there' 1 'changed on the PFS' "$EFS" unload -i part -w --offset 0 --size 2 r
check 'part: which stays' grep -q THEIRS "$PFS/r"
"$EFS" stop --no-stage-out part

in_place part-new; echo before >"$PFS/r"; echo before >"$PFS/s"; started "$JOB"
printf B1B1B1 >"$MNT/r"; printf B1B1B1 >"$MNT/s"
for name in r s; do check "part-new: unload of a part of $name" "$EFS" unload -i part-new -w --offset 0 --size 2 $name; done
echo THEM >"$S/theirs"; mv "$S/theirs" "$PFS/r"
for name in r s; do echo two >"$MNT/new"; mv "$MNT/new" "$MNT/$name"; done
check_exit 'part-new: what somebody put there since is a conflict' 3 'conflict: r' "$EFS" stop part-new
check 'part-new: and stays' grep -qx THEM "$PFS/r"
check 'part-new: the other one is replaced' grep -qx two "$PFS/s"
"$EFS" stop --no-stage-out part-new

# --- a file that existed before the job, and a new file of the job ---
in_place before; echo before >"$PFS/r"; mkdir "$PFS/d"; echo before >"$PFS/d/r"
started "$JOB"
mkdir "$MNT/d"; echo one >"$MNT/r"; echo one >"$MNT/d/r"
check 'before: it is replaced' "$EFS" stop before
check 'before: as by any program' grep -qx one "$PFS/r" "$PFS/d/r"

# --- several nodes: a file that was unloaded and then removed, renamed or replaced belongs to the
#     node ---
node_started() { check "$NAME: start" "$EFS" start --node 0/2 "$JOB"; }
# node_changes HOW DIED: exports, changes, and exports again.
node_changes() {
  local how=$1 died=$2 name
  node_started
  for name in r s; do echo one >"$MNT/$name"; done; ln "$MNT/s" "$MNT/t"; ln -s one "$MNT/u"
  [ $died = salvage ] || check "$NAME: unload" "$EFS" unload -i "$NAME" -w r s t u
  case $died in
    salvage) kill_both "$NAME"; check "$NAME: salvage" "$EFS" salvage "$NAME"; node_started ;;
    yes) kill_both "$NAME"; node_started ;;
  esac
  case $how in
    away) for name in r s t; do mv "$MNT/$name" "$MNT/$name.old"; echo two >"$MNT/$name"; done; mv "$MNT/u" "$MNT/u.old"; ln -s two "$MNT/u" ;;
    over) for name in r s t; do echo two >"$MNT/x"; mv "$MNT/x" "$MNT/$name"; done; ln -s two "$MNT/x"; mv -T "$MNT/x" "$MNT/u" ;;
    anew) for name in r s t u; do rm "$MNT/$name"; done; for name in r s t; do echo two >"$MNT/$name"; done; ln -s two "$MNT/u" ;;
    linked) ln "$MNT/r" "$MNT/more"; echo two >"$MNT/r"; echo two >"$MNT/s"; ln -sfn two "$MNT/u" ;;
  esac
  check "$NAME: stop" "$EFS" stop "$NAME"
  check "$NAME: all have the last version" test "$(text_of "$OUT/r")$(text_of "$OUT/s")$(text_of "$OUT/t")$(text_of "$OUT/u")" = twotwotwotwo
}
for how in away over anew linked; do
  for died in no yes salvage; do
    fresh "node-$how-$died" "$PERSISTENT"; echo old >"$PFS/input/f"
    node_changes $how $died
  done
done
# A PFS without birth times: only its ctime distinguishes a file from another one, and a change of
# its names changes the ctime.
for how in over linked; do
  fresh "node-no-birth-$how" "$PERSISTENT"
  mount -t ramfs -o mode=777 pfs "$OUT" 2>/dev/null || { skip "$NAME" 'ramfs cannot be mounted here'; continue; }
  check "$NAME: it says nothing of births" test "$(touch "$OUT/x" && stat -c %W "$OUT/x")" = 0
  node_changes $how yes
  umount "$OUT"
done
finish
