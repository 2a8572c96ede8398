#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Several nodes export results into one directory: no node's file is lost under another's, even if
# the PFS reuses an inode number.
#   nodes_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

TIME='2001-02-03 04:05:06'
# put FILE TEXT: with that modification time.
put() { echo "$2" >"$1" && touch -d "$TIME" "$1"; }
number() { stat -c %i "$1"; }
# two_nodes NAME: both run with one results-dir OUT; their mount points are M0 and M1, their names
# NAME-0 and NAME-1.
two_nodes() {
  fresh "$1-0"; local first=$JOB out=$OUT; M0=$MNT
  fresh "$1-1"; sed -i "s|results-dir: .*|results-dir: $out|" "$JOB"; M1=$MNT OUT=$out
  check "$1: node 0" "$EFS" start --node 0/2 "$first"
  check "$1: node 1" "$EFS" start --node 1/2 "$JOB"
  mkdir "$M0/d" "$M1/d"
}
# unload_with NUMBER NAME MOUNT FILE TEXT: unloads the file until its copy has that free inode
# number.
unload_with() {
  local try i
  for try in {1..20}; do
    for i in {1..300}; do
      : >"$OUT/n$i"
      [ "$(number "$OUT/n$i")" != "$1" ] || { rm "$OUT/n$i"; break; }
    done
    put "$3/$4" "$5"; check "$2: unload $4" "$EFS" unload -i "$2" -w "$4"
    rm -f "$OUT"/n*
    [ "$(number "$OUT/$4")" != "$1" ] || return 0
    rm "$OUT/$4"
  done
  put "$3/$4" "$5"; check "$2: unload $4" "$EFS" unload -i "$2" -w "$4"
  return 1
}

# --- an inode number freed by the node's own second unload ---
two_nodes freed
put "$M0/d/f" 1-of-0; check 'freed: unload' "$EFS" unload -i freed-0 -w d/f
was=$(number "$OUT/d/f")
put "$M0/d/f" 2-of-0; check 'freed: unload again' "$EFS" unload -i freed-0 -w d/f
if unload_with "$was" freed-1 "$M1" d/g 1-of-1; then
  put "$M0/d/g" 3-of-0
  check_exit 'freed: what has that number now is node 1'"'"'s' 3 'conflict: d/g: .*another node' "$EFS" stop freed-0
  check 'freed: and stays' grep -qx 1-of-1 "$OUT/d/g"
  mv "$OUT/d/g" "$OUT/d/g.1"
else
  skip 'a number that is used again' "the file system of $S gave it to none"
fi
check 'freed: stop' "$EFS" stop freed-0
check 'freed: end of node 1, whose file was moved away' "$EFS" stop --no-stage-out freed-1

# --- a copy removed by hand, under the same name; and with a successor ---
for how in removed successor; do
  [ $how != successor ] || kernel_has_it || { skip 'a successor' 'needs Linux 6.9'; continue; }
  two_nodes $how
  put "$M0/d/f" 1-of-0; check "$how: unload" "$EFS" unload -i $how-0 -w d/f
  was=$(number "$OUT/d/f")
  if [ $how = successor ]; then
    worker=$(field "$(status_of $how-0)" 'd["worker_pid"]')
    kill -KILL "$worker"
    replaced() { [ "$(field "$(status_of $how-0)" 'd["worker_pid"]')" != "$worker" ]; }
    check "$how: another worker" await 20 replaced
  fi
  rm "$OUT/d/f"
  if unload_with "$was" $how-1 "$M1" d/f 1-of-1; then
    check_exit "$how: node 0 does not take it for its own" 3 'conflict: d/f: .*another node' "$EFS" stop $how-0
    check "$how: it stays" grep -qx 1-of-1 "$OUT/d/f"
    mv "$OUT/d/f" "$OUT/d/f.1"
  else
    rm "$OUT/d/f"
    skip "$how: a number that is used again" "the file system of $S gave it to none"
  fi
  check "$how: stop" "$EFS" stop $how-0
  check "$how: end of node 1, whose file was moved away" "$EFS" stop --no-stage-out $how-1
done
# --- a hard link of this node, exported by both, and a successor ---
for how in linked-kept linked-died; do
  [ $how != linked-died ] || kernel_has_it || { skip 'a successor' 'needs Linux 6.9'; continue; }
  two_nodes $how; first=$S/$how-0/$how-0.yaml
  for m in "$M0" "$M1"; do put "$m/d/a" same-in-b; ln "$m/d/a" "$m/d/b"; done
  check "$how: unload" "$EFS" unload -i $how-0 -w d/a d/b
  was=$(number "$OUT/d/a")
  if [ $how = linked-kept ]; then
    check "$how: stop --keep" "$EFS" stop --keep $how-0
    check "$how: start again" "$EFS" start --node 0/2 "$first"
  else
    worker=$(field "$(status_of $how-0)" 'd["worker_pid"]'); kill -KILL "$worker"
    check "$how: another worker" await 20 eval '[ "$(field "$(status_of $how-0)" "d[\"worker_pid\"]")" != "$worker" ]'
  fi
  check "$how: node 1 has the same" "$EFS" unload -i $how-1 -w d/a d/b
  if unload_with "$was" $how-1 "$M1" d/c 1-of-one1; then
    put "$M0/d/c" 1-of-two2
    check_exit "$how: what has its number now is node 1's" 3 'conflict: d/c: .*another node' "$EFS" stop $how-0
    check "$how: and stays" grep -qx 1-of-one1 "$OUT/d/c"
  else
    skip "$how: a number that is used again" "the file system of $S gave it to none"
  fi
  check "$how: end" "$EFS" stop --no-stage-out $how-0
  check "$how: end of node 1" "$EFS" stop $how-1
done

# --- files that a stop --merge left alone are not replaced by a later verb ---
for how in deadline-salvage died-salvage died-start deadline-start; do
  fresh "merge-$how"; started "$JOB"
  echo mine >"$MNT/f"; echo theirs >"$OUT/f"
  check_exit "$NAME: another run's" 1 'conflict: f: .*another node or run' "$EFS" stop --merge "$NAME"
  case $how in
    deadline-*) check_exit "$NAME: it is kept" 1 'salvage' "$EFS" stop --deadline 20 "$NAME" ;;
    *) kill_both "$NAME" ;;
  esac
  case $how in
    *-salvage) check_exit "$NAME: salvage" 1 'conflict: f: .*another node or run' "$EFS" salvage "$NAME" ;;
    *) started "$JOB"; check_exit "$NAME: stop" 1 'conflict: f: .*another node or run' "$EFS" stop "$NAME" ;;
  esac
  check "$NAME: it stays" grep -qx theirs "$OUT/f"
  mv "$OUT/f" "$OUT/f.1"
  case $how in
    *-salvage) check "$NAME: salvage, when it is moved away" "$EFS" salvage "$NAME"; check "$NAME: clean" "$EFS" clean "$NAME" ;;
    *) check "$NAME: stop, when it is moved away" "$EFS" stop "$NAME" ;;
  esac
  check "$NAME: both are there" test "$(cat "$OUT/f" "$OUT/f.1" | tr '\n' ' ')" = 'mine theirs '
done

# --- the stores of several nodes are exported to one other place ---
two_nodes elsewhere
echo 0 >"$M0/log"; echo 1 >"$M1/log"; echo same >"$M0/d/same"; echo same >"$M1/d/same"; echo 1 >"$M1/d/one"
kill_both elsewhere-0; kill_both elsewhere-1
TO=$S/elsewhere-0/to
check 'elsewhere: salvage of node 0' "$EFS" salvage --to "$TO" elsewhere-0
check_exit 'elsewhere: of node 1' 3 'conflict: log: .*another node or run' "$EFS" salvage --to "$TO" elsewhere-1
check 'elsewhere: nothing is replaced' grep -qx 0 "$TO/log"
check 'elsewhere: all else is there' bash -c "grep -qx same '$TO/d/same' && grep -qx 1 '$TO/d/one'"
check_exit 'elsewhere: clean does not take what is nowhere else' 1 'elsewhere-1 is not removed' "$EFS" clean elsewhere-1
check 'elsewhere: again, it is the same' "$EFS" salvage --to "$TO" elsewhere-0
check 'elsewhere: to another place' "$EFS" salvage --to "$TO.1" elsewhere-1
check 'elsewhere: it is there' grep -qx 1 "$TO.1/log"
check 'elsewhere: clean' "$EFS" clean elsewhere-0 elsewhere-1

# --- a merging stop joins one that does not merge ---
fresh joined 'resources: []'; sed -i '1a\  max-rate: 1 MB/s' "$JOB"
started "$JOB"; head -c 4000000 /dev/urandom >"$MNT/a"; echo mine >"$MNT/z"; echo theirs >"$OUT/z"
"$EFS" stop joined >"$S/said" 2>&1 & stopper=$!
stages_out() { json "$(status_of joined)" "d['state'] == 'staging-out'"; }
check 'joined: a stop is under way' await 20 stages_out
check_exit 'joined: what it has replaced is no success of a stop --merge' 1 'overruled by another stop without --merge' "$EFS" stop --merge joined
wait $stopper; check 'joined: it is one of the other' test $? = 0

# --- a file whose part was exported in place, and that was then removed: its name still belongs to
#     this job, also for a successor ---
if kernel_has_it; then
  fresh part 'resources: [ [ path: x, flags: persistent ] ]'
  sed -i 's|results-dir: .*|in-place: true|; 1a\  max-ops: 10/s' "$JOB"
  mkdir "$PFS/x"; head -c 6000 /dev/urandom >"$PFS/x/b"; was=$(number "$PFS/x/b")
  check 'part: start' "$EFS" start --node 0/2 "$JOB"
  printf changed | dd of="$MNT/x/b" conv=notrunc status=none
  "$EFS" unload -i part -w --offset 0 --size 100 x/b >"$S/said" 2>&1 & unloader=$!
  is_out() { [ "$(number "$PFS/x/b")" != "$was" ]; }
  check 'part: it is out' await 20 is_out
  rm "$MNT/x/b"; wait $unloader
  worker=$(field "$(status_of part)" 'd["worker_pid"]'); kill -KILL "$worker"
  has_successor() { json "$(status_of part)" "d['worker_pid'] != $worker and d['state'] == 'running'"; }
  check 'part: a successor' await 20 has_successor
  echo new >"$MNT/x/b"
  check_exit 'part: stop' 0 complete "$EFS" stop part
  check 'part: what the job made of it is back' grep -qx new "$PFS/x/b"
else
  skip 'part: a successor' 'needs Linux 6.9'
fi
finish
