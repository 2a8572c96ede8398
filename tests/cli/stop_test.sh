#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Stops under difficulties: files of the instance that its user removed or replaced, mounts in other
# namespaces, other stops, results of another run; and `efs run` under limits and signals of its
# caller.
#   stop_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

state() { field "$(status_of "$1")" 'd["state"]'; }
has_state() { [ "$(state "$1")" = "$2" ]; }
own_namespace() { [ "$(readlink "/proc/$1/ns/mnt")" != "$(readlink /proc/self/ns/mnt)" ] && grep -qF " $2 " "/proc/$1/mounts"; }
# A process uses the mount in a namespace that no unmount reaches; its pid is in `viewer`.
view() { "$SOURCE/tests/own_mounts.py" --keep "$MNT" sleep 600 & viewer=$!; await 20 own_namespace "$viewer" "$MNT"; }
ended_well() { local code; wait "$1"; code=$?; if [ $code = 0 ]; then ok; else fail "$2" "$code: $(cat "$S/said")"; fi; }
end_view() { kill "$viewer"; wait "$viewer" 2>/dev/null; }

# --- changes of the user to the files of the user's instance ---
fresh links
started "$JOB"
echo result >"$MNT/r"
D=$EFS_RUNTIME_DIR/links
mv "$D/control.sock" "$D/own.sock"; ln -s own.sock "$D/control.sock"
check_exit 'a link in place of the socket is not followed' 1 'control.sock' "$EFS" stop links
rm "$D/control.sock"; mkfifo "$D/control.sock"
check_exit 'nor is anything else connected to' 1 'not a socket' "$EFS" stop links
rm "$D/control.sock"; mv "$D/own.sock" "$D/control.sock"
rm "$D/lock"
check 'an instance lives without its lock file' has_state links running
check_exit 'and is not cleaned away' 0 '' "$EFS" clean
check 'its result is still there' grep -q result "$MNT/r"
said=$("$EFS" stop --json --brief links)
check 'it stops' json "$said" "d['ok'] and d['exit'] == 0 and 'receipt' not in d and 'summary' in d"
check 'with its result' grep -q result "$OUT/r"
check 'and is gone' ended links

if [ "$(id -u)" = 0 ] && id nobody >/dev/null 2>&1; then
  # The socket of an instance of root, presented as the user's own.
  fresh bait
  started "$JOB"; echo bait >"$MNT/r"; BAIT=$OUT
  fresh own
  chmod 755 "$S" "$S/own"; chown -R nobody "$PFS" "$OUT"; mkdir -p "$MNT"; chown nobody "$MNT"
  check 'an instance of a user' "$EFS" start --user=nobody "$JOB"
  O=$EFS_RUNTIME_DIR/own
  mv "$O/control.sock" "$O/own.sock"; ln -s ../bait/control.sock "$O/control.sock"
  check_exit "another user's socket behind a link" 1 'control.sock' "$EFS" stop --no-stage-out own
  rm "$O/control.sock"; ln "$EFS_RUNTIME_DIR/bait/control.sock" "$O/control.sock"
  check_exit "another user's socket under a second name" 1 'another user' "$EFS" stop --no-stage-out own
  rm "$O/control.sock"; mv "$O/own.sock" "$O/control.sock"
  check 'the other instance has noticed nothing' has_state bait running
  check 'the user'"'"'s is stopped' "$EFS" stop own
  check 'and the other' "$EFS" stop bait
  check 'with its result' grep -q bait "$BAIT/r"
else
  skip "another user's socket" 'needs root and the user nobody'
fi

# --- a file that no output rule matches ---
fresh unmatched 'resources: []' 'outputs: [ [ path: "out/*" ], [ path: "tmp/*", flags: temporary ] ]'
started "$JOB"
mkdir "$MNT/out" "$MNT/output" "$MNT/tmp"; echo result >"$MNT/out/r"; echo scratch >"$MNT/tmp/s"
truncate -s 64M "$MNT/output/final.h5"
said=$("$EFS" stop --keep unmatched)
check 'it is the last thing that a stop says' test "$(tail -n 1 <<<"$said")" = '1 new file (64 MiB) matched no output rule and stays in the buffer: output/final.h5'
started "$JOB"
said=$("$EFS" stop --json --brief unmatched)
check 'in JSON, too' json "$said" "d['exit'] == 0 and d['unmatched']['files'] == 1 and d['unmatched']['bytes'] == 64 << 20 and 'was dropped: output/final.h5' in d['unmatched']['text']"
check 'and in the receipt' json "$(receipt)" "[e['path'] for e in d['entries'] if e.get('reason') == 'no output rule matches it'] == ['output/final.h5']"

# --- a mount point that is reached through a link ---
fresh linked
ln -s "$S/linked" "$S/way"
sed -i "s|mount-dir: .*|mount-dir: $S/way/mnt|" "$JOB"
started "$JOB"
sleep 600 <"$MNT/input/a" & holder=$!
check 'check and plan of a job that is running, by that link' sh -c '"$1" check "$2" && "$1" plan "$2"' sh "$EFS" "$JOB"
check 'somebody reads' await 20 test -e "/proc/$holder/fd/0"
check_exit 'who keeps it busy is named' 1 "$holder sleep" "$EFS" stop linked
kill "$holder"; wait "$holder" 2>/dev/null
check 'then it stops' "$EFS" stop linked

# --- an argument that matches several instances, or none ---
fresh twin
check 'one' "$EFS" start -n twin-a -m "$S/twin/a" "$JOB"
check 'and another of the same job file' "$EFS" start -n twin-b -m "$S/twin/b" "$JOB"
echo precious >"$S/twin/a/x"; echo precious >"$S/twin/b/x"
check_exit 'the job file of two is no name' 1 "$JOB means several.*twin-a, twin-b" "$EFS" stop --no-stage-out "$JOB"
check_exit 'nor one to show' 1 'twin-a, twin-b' "$EFS" status "$JOB"
check 'nothing of theirs is dropped' grep -qx precious "$S/twin/a/x" "$S/twin/b/x"
check 'the mount point of one is' "$EFS" stop "$S/twin/b"
check 'the other is kept' "$EFS" stop --keep twin-a
check_exit 'two of which one lives' 0 '' "$EFS" start -n twin-b -m "$S/twin/b" "$JOB"
check_exit 'of what is salvaged, the one that does not' 0 'twin-a' "$EFS" salvage --list "$JOB"
check 'the one that lives is meant' json "$("$EFS" stop --json "$JOB")" "d['ok'] and 'twin-b' in d['receipt_file']"
check 'both are gone' "$EFS" clean twin-a
fresh unset
started "$JOB"; echo precious >"$MNT/x"
for verb in 'stop --no-stage-out' status top salvage check-image clean 'ls -i' 'load x -i'; do
  check_exit "$verb of a variable that is not set" 2 'empty' "$EFS" $verb ''
done
check 'nothing is dropped' grep -qx precious "$MNT/x"
check 'stop of the only one' "$EFS" stop

# --- mounts in other namespaces ---
if unshare -m true 2>/dev/null; then
  fresh elsewhere
  started "$JOB"; echo result >"$MNT/r"
  view
  "$EFS" stop elsewhere >"$S/said" 2>&1 & stopping=$!
  check 'a stop waits for who has the mount in a namespace of his own' await 60 grep -q 'event=mount_elsewhere' "$EFS_RUNTIME_DIR/elsewhere/efsd.log"
  check 'and stages nothing out meanwhile' has_state elsewhere unmounting
  end_view
  ended_well "$stopping" 'and goes on when he has left'
  check 'with the result' grep -q result "$OUT/r"

  fresh cut
  started "$JOB"; echo result >"$MNT/r"
  view
  check 'it does not wait with --cut-off' timeout 120 "$EFS" stop --cut-off cut
  check 'the result is back' grep -q result "$OUT/r"
  check_not 'who was cut off has no file system any more' nsenter -t "$viewer" -m cat "$MNT/r"
  end_view
  check 'and nothing is left' ended cut

  # With passthrough, the kernel still serves open files after the daemons are gone.
  fresh writes
  started "$JOB"; echo result >"$MNT/r"
  if kernel_has_it && [ "$(id -u)" = 0 ]; then
    "$SOURCE/tests/own_mounts.py" --keep "$MNT" bash -c 'exec 9>"$0"; echo first >&9; until [ -e "$1" ]; do sleep 0.1; done; echo second >&9' "$MNT/open" "$S/writes/go" & viewer=$!
    await 20 own_namespace "$viewer" "$MNT"; await 20 test -s "$MNT/open"
    check_exit 'what a program that was cut off can still write to is not called back' 3 'failed: open: .*still has it open for writing' timeout 120 "$EFS" stop --cut-off writes
    check 'all else is' grep -q result "$OUT/r"
    touch "$S/writes/go"; wait "$viewer"
    check 'when it has ended, the next stop' "$EFS" stop writes
    check 'brings all of it' grep -qx second "$OUT/open"
  else
    check 'stop' "$EFS" stop writes
    skip 'what a program that was cut off can still write to' 'no passthrough on this kernel, or not root'
  fi
  check 'nothing is left of it' ended writes

  # However short the time is.
  fresh brief
  started "$JOB"
  if kernel_has_it && [ "$(id -u)" = 0 ]; then
    "$SOURCE/tests/own_mounts.py" --keep "$MNT" bash -c 'exec 9>"$0"; echo first >&9; until [ -e "$1" ]; do sleep 0.1; done; echo second >&9' "$MNT/open" "$S/brief/go" & viewer=$!
    await 20 own_namespace "$viewer" "$MNT"; await 20 test -s "$MNT/open"
    check_exit 'nor where there is hardly time for anything' 1 'efs salvage brief' timeout 120 "$EFS" stop --deadline 0.5 brief
    check 'what is kept is good' "$EFS" check-image brief
    touch "$S/brief/go"; wait "$viewer"
    check 'salvage' "$EFS" salvage brief
    check 'brings all of it, too' test "$(cat "$OUT/open")" = "$(printf 'first\nsecond')"
    "$EFS" clean brief >/dev/null
  else
    check 'stop' "$EFS" stop brief
    skip 'a program that is cut off at once' 'no passthrough on this kernel, or not root'
  fi

  fresh late
  started "$JOB"; echo result >"$MNT/r"
  view
  "$EFS" stop late >"$S/said" 2>&1 & stopping=$!
  check 'a stop waits' await 60 has_state late unmounting
  check 'a later one need not' timeout 120 "$EFS" stop --cut-off late
  ended_well "$stopping" 'and ends the first'
  end_view

  fresh twice
  started "$JOB"; echo result >"$MNT/r"
  view
  "$EFS" stop --keep twice >"$S/said" 2>&1 & stopping=$!
  check 'a stop that wants to keep the buffer waits' await 60 has_state twice unmounting
  check 'one that does not say' timeout 120 "$EFS" stop --cut-off twice
  ended_well "$stopping" 'both end'
  end_view
  check 'and the buffer is kept' has_state twice kept
  check 'the result is back' grep -q result "$OUT/r"
  "$EFS" clean --force twice >/dev/null

  fresh hurry
  started "$JOB"; echo result >"$MNT/r"
  view
  check 'nor with a deadline, which leaves time for the stage-out' timeout 120 "$EFS" stop --deadline 20 hurry
  end_view
  check 'the result is back' grep -q result "$OUT/r"
else
  skip 'mounts in other namespaces' 'needs root'
fi

# --- results that no longer exist, or that have moved from their target ---
fresh moved
started "$JOB"
echo data >"$MNT/f"; ln -s f "$MNT/link"; mkdir "$MNT/empty" "$MNT/d"; ln -s x "$MNT/d/link"
check 'all is brought out' "$EFS" stop --keep moved
before=$(cd "$OUT" && find . ! -name 'efs-re*' -printf '%p %y %m %s %l\n' | sort)
mv "$OUT" "$OUT.away"; mkdir "$OUT"
started "$JOB"
check 'and once more where somebody has taken it away' "$EFS" stop moved
check 'files, links and directories' test "$(cd "$OUT" && find . ! -name 'efs-re*' -printf '%p %y %m %s %l\n' | sort)" = "$before"

fresh unmounted; mkdir "$PFS/results"
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=16m,mode=777 efs-test "$PFS"; then
  mkdir "$PFS/input" "$S/unmounted/elsewhere"; echo alpha >"$PFS/input/a"
  sed -i "s|results-dir: .*|results-dir: $PFS/results|" "$JOB"
  started "$JOB"
  echo result >"$MNT/r"
  mount --bind "$PFS" "$S/unmounted/elsewhere"; umount "$PFS"   # as when the PFS's client has gone
  check_exit 'nothing goes to the directory that the PFS was mounted on' 1 "nothing is mounted on $PFS any more" "$EFS" stop unmounted
  check 'which is as it was' test "$(cd "$PFS" && find . | sort | tr '\n' ' ')" = ". ./input ./input/a ./input/sub ./input/sub/b ./results "
  mount --bind "$S/unmounted/elsewhere" "$PFS"
  check 'when it is mounted again' "$EFS" stop unmounted
  check 'it goes there' grep -q result "$S/unmounted/elsewhere/results/r"
  umount "$PFS" "$S/unmounted/elsewhere"

  # The same for mount points below results-dir that results go to.
  fresh below 'resources: [ [ path: ".", flags: persistent ] ]'
  sed -i "s|results-dir: .*|in-place: true\n  deletions: propagate|" "$JOB"
  mkdir "$PFS/vol" "$PFS/other" "$S/below/elsewhere"
  mount -t tmpfs -o size=16m,mode=777 efs-test "$PFS/vol"; mount -t tmpfs -o size=16m,mode=777 efs-test "$PFS/other"
  echo old >"$PFS/vol/a"; echo gone >"$PFS/vol/gone"
  started "$JOB"
  echo changed >"$MNT/vol/a"; rm "$MNT/vol/gone"; echo result >"$MNT/r"
  mount --bind "$PFS/vol" "$S/below/elsewhere"; umount "$PFS/vol" "$PFS/other"
  check_exit 'nothing goes to a directory below, either, on which something was mounted' 1 "nothing is mounted on $PFS/vol any more" "$EFS" stop below
  check 'which is empty as it was' test -z "$(ls -A "$PFS/vol")"
  mount --bind "$S/below/elsewhere" "$PFS/vol"
  check 'when that is mounted again, whatever else is not' "$EFS" stop below
  check 'results go there' grep -qx changed "$S/below/elsewhere/a"
  check 'and removals' test ! -e "$S/below/elsewhere/gone"
  umount "$PFS/vol" "$S/below/elsewhere"
else
  skip 'a PFS that is not mounted when the stop comes' 'needs root'
fi

# --- a mount that something has which no one can see ---
# A descriptor on its way between two processes belongs to neither.
fresh looked-at
started "$JOB"
mkfifo "$S/on-its-way"
python3 -c '
import os, socket, sys, time
mount, told, log = sys.argv[1:]
here, there = socket.socketpair()
file = os.open(mount + "/file", os.O_CREAT | os.O_WRONLY)
os.write(file, b"written")
socket.send_fds(here, [b"x"], [file])
os.close(file)
open(told, "w").close()
while open(log).read().count("event=stop_refused") < 2: time.sleep(0.02)' "$MNT" "$S/on-its-way" "$EFS_RUNTIME_DIR/looked-at/efsd.log" & looker=$!
cat "$S/on-its-way"
check 'a stop waits for what only looks' "$EFS" stop looked-at
check 'it had been refused' wait "$looker"
check 'and brings all back' grep -qx written "$OUT/file"

# --- a connection that root ends ---
# writers: two programs with open files, one as a descriptor and one as a mapping. `go` makes them
# write on and end.
writers() {
  go=$S/$NAME/go
  bash -c 'exec 9>"$0"; echo first >&9; until [ -e "$1" ]; do sleep 0.1; done; echo second >&9' "$MNT/open" "$go" & writer=$!
  python3 -c '
import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
os.ftruncate(fd, 4096)
memory = mmap.mmap(fd, 4096)
os.close(fd)
memory[0:5] = b"first"
while not os.path.exists(sys.argv[2]): time.sleep(0.1)
memory[0:5] = b"later"' "$MNT/mapped" "$go" & mapper=$!
  await 20 test -s "$MNT/open"; await 20 grep -q first "$MNT/mapped"
  for i in 1 2 3; do echo "result $i" >"$MNT/r$i"; done
}
says() { status_of "$1" | grep -qE "$2"; }
end_writers() { touch "$go"; wait "$writer" "$mapper"; }
all_is_back() { test "$(tail -n 1 "$OUT/open")" = second && test "$(head -c 5 "$OUT/mapped")" = later && test "$(cat "$OUT"/r?)" = "$(printf 'result %s\n' 1 2 3)"; }
if [ "$(id -u)" = 0 ]; then
  fresh aborted
  started "$JOB"
  if kernel_has_it; then
    writers
    check_not 'a mount whose connection is ended has programs in it still' umount -f "$MNT"
    check 'it waits for them' await 20 says aborted 'its connection was ended'
    check_exit 'so does a stop' 1 'is in use' "$EFS" stop aborted
    check 'which is told once or twice, not all the time' test "$(wc -l <"$EFS_RUNTIME_DIR/aborted/efsd.log")" -lt 100
    end_writers
    check 'when they have ended' await 60 ended aborted
    check 'what they wrote since is back, too' all_is_back

    fresh in-time
    sed -i '/results-dir/a\  deadline: 2' "$JOB"
    started "$JOB"
    writers
    umount -f "$MNT" 2>/dev/null
    check 'with a deadline it waits as well' await 20 says in-time 'its connection was ended'
    sleep 3  # longer than that
    check 'and longer than that' says in-time 'its connection was ended'
    end_writers
    check 'which is for the stage-out' await 60 ended in-time
    check 'of everything' all_is_back

    for how in plain successor; do
      fresh "detached-$how"
      started "$JOB"
      writers
      if [ $how = successor ]; then
        kill -9 "$(field "$(status_of "$NAME")" 'd["worker_pid"]')"
        check "$how: another worker" await 60 says "$NAME" '"takeovers": ?1'
        check "$how: has the connection once, so that it can end it" test "$(find "/proc/$(field "$(status_of "$NAME")" 'd["worker_pid"]')/fd" -lname /dev/fuse | wc -l)" = 1
      fi
      umount -f "$MNT" 2>/dev/null; umount -l "$MNT"
      check "$how: what is still written to is not called back" await 60 has_state "$NAME" unsaved
      said=$("$EFS" stop "$NAME" 2>&1)
      check "$how: a stop says of which files" test "$(grep -cE 'failed: (open|mapped): .*still has it open for writing' <<<"$said")" = 2
      check "$how: and of no other" test "$(grep -c 'failed:' <<<"$said")" = 2
      check "$how: all else is back" test "$(ls "$OUT"/r?)" = "$(ls -d "$OUT"/r{1,2,3})"
      end_writers
      check "$how: when they have ended, the next stop" "$EFS" stop "$NAME"
      check "$how: brings all of it" all_is_back
      check "$how: nothing is left" ended "$NAME"
    done
  else
    check 'stop' "$EFS" stop aborted
    skip 'a connection that root ends' 'no passthrough on this kernel'
  fi

  # Data that programs in another mount namespace stored through mappings is written back before
  # they are cut off.
  for how in passthrough daemon; do
    [ $how = daemon ] || kernel_has_it || continue
    fresh "stored-$how" 'resources: [ [ path: input, flags: persistent ] ]'; head -c 8192 /dev/zero >"$PFS/input/mapped"
    if [ $how = daemon ]; then started -o daemon-io "$JOB"; else started "$JOB"; fi
    "$SOURCE/tests/own_mounts.py" --keep "$MNT" python3 -c 'import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR)
memory = mmap.mmap(fd, 8192)
memory[:6] = b"stored"
open(sys.argv[2], "w").close()
time.sleep(1000)' "$MNT/input/mapped" "$S/stored-$how/said" & writer=$!; pids+=("$writer")
    await 20 test -e "$S/stored-$how/said"
    "$EFS" stop --cut-off "$NAME" >"$S/said" 2>&1; code=$?
    # With passthrough the program can write on, so the stop does not export its file; the daemon
    # does not see the writes.
    check "$how: a stop that cuts it off" test $code = $([ $how = daemon ] && echo 0 || echo 1)
    kill "$writer"; wait "$writer" 2>/dev/null; pids=()
    [ $code = 0 ] || check "$how: and the next one" "$EFS" stop "$NAME"
    check "$how: what was stored before is back" test "$(head -c 6 "$OUT/input/mapped")" = stored
  done

  fresh aborted-daemon
  started -o daemon-io "$JOB"
  bash -c 'exec 9>"$0"; echo first >&9; until [ -e "$1" ]; do sleep 0.1; done; echo second >&9' "$MNT/open" "$S/go" 2>"$S/said" & writer=$!
  await 20 test -s "$MNT/open"
  umount -f "$MNT" 2>/dev/null
  touch "$S/go"
  wait "$writer"; code=$?
  check_not 'where the daemon has it, who writes on gets an error' test $code = 0
  check 'which is ENOTCONN' grep -q 'Transport endpoint is not connected' "$S/said"
  check 'and what had been written is back' await 60 ended aborted-daemon
  check 'as it was' grep -qx first "$OUT/open"
else
  skip 'a connection that root ends' 'needs root'
fi

# --- results of another run ---
fresh runs
check 'a run of a batch job' "$EFS" start --node=0/1 "$JOB"
echo 'run 0, half' >"$MNT/r"; echo 'run 0' >"$MNT/only"
echo 'run 1, whole' >"$OUT/r"
check_exit 'a late stop replaces nothing that is newer than it' 3 'another node or run' "$EFS" stop --merge runs
check 'the later run has its result' grep -q 'run 1, whole' "$OUT/r"
check 'what nobody else made is back' grep -q 'run 0' "$OUT/only"
check_exit 'the other version stays in the image' 3 'salvage' "$EFS" stop --merge --deadline 30 runs
check 'to be brought out elsewhere' "$EFS" salvage runs --to "$S/apart"
check 'as it was' grep -q 'run 0, half' "$S/apart/r"
"$EFS" clean --force runs >/dev/null

# --- a full PFS, and the receipt ---
fresh crowd
if [ "$(id -u)" = 0 ] && mount -t tmpfs -o size=64k,mode=777 full "$OUT"; then
  started "$JOB"
  for i in $(seq 60); do head -c 4096 /dev/urandom >"$MNT/r$i"; done
  echo last >"$MNT/blocked"; mkdir "$OUT/blocked"
  held() { field "$("$EFS" stop --json crowd)" 'd["receipt_file"]'; }
  check 'a receipt that a full PFS does not take is in the instance' test "$(held)" = "$EFS_RUNTIME_DIR/crowd/receipt.json"
  R=$EFS_RUNTIME_DIR/crowd/receipt.json
  check 'it names each result that is safe, and each that is not' json "$(cat "$R")" "d['totals']['staged-out'] > 5 and d['totals']['failed'] + d['totals']['not-saved'] > 5 and len({e['path'] for e in d['entries'] if e['path'].startswith('r')}) == 60"
  check_exit 'people are told where' 3 "Meanwhile it is here: $R" "$EFS" stop crowd
  cp "$R" "$S/first"
  mount -o remount,size=1m "$OUT"
  check_exit 'with room the rest comes, but for one' 3 'failed: blocked' "$EFS" stop crowd
  check 'and the receipt, of which there is no older one any more' test -s "$OUT/efs-receipt-crowd.json" -a ! -e "$R"
  rmdir "$OUT/blocked"
  check 'that one, too' "$EFS" stop crowd
  check 'the last receipt has all, with checksums' python3 - "$S/first" "$OUT/efs-receipt-crowd.json" <<'END'
import json, sys
first, last = ({e["path"]: e for e in json.load(open(path))["entries"]} for path in sys.argv[1:])
safe = [path for path, e in first.items() if e["action"] in ("staged-out", "kept") and e["path"].startswith("r")]
assert safe and all(last[path]["action"] == "kept" and last[path]["checksum"] == first[path]["checksum"] for path in safe), last
assert all(e["checksum"] for path, e in last.items() if path.startswith("r")), last
END
  umount "$OUT"
else
  skip 'a full PFS' 'needs root'
fi
fresh nowhere 'resources: [ [ path: input, flags: temporary ] ]' 'outputs: [ [ path: "**", flags: temporary ] ]'
sed -i '/results-dir/d' "$JOB"
started "$JOB"
for i in $(seq 50); do : >"$MNT/t$i"; done
check 'without results-dir the text names all that is dropped' test "$("$EFS" stop nowhere 2>&1 | grep -c 'dropped: t')" = 50

# --- efs run and its caller ---
fresh caller
check_exit 'the code of the program, where SIGCHLD is ignored' 7 '' timeout 120 python3 -c 'import os, signal, sys
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
os.execv(sys.argv[1], sys.argv[1:])' "$EFS" run "$JOB" -- sh -c 'echo result >"$EFS_MOUNT/r"; exit 7'
check 'with the result' grep -q result "$OUT/r"
fresh small
check 'a limit of the size of files is for programs' bash -c 'ulimit -S -f 64; exec "$@"' - "$EFS" run "$JOB" -- true
check_exit 'and where it holds for efs, too, that is an error' 1 '' bash -c 'ulimit -f 16; exec "$@"' - "$EFS" start "$JOB"
check 'which leaves nothing' ended small

clean
# --- two stops with different requests: the last one is carried out, and does not count as a
#     success of the other ---
# ask_no_results DIRECTORY KEEP FILE: creates FILE when the daemon has received the request.
ask_no_results() {
  python3 -c 'import json, socket, sys
s = socket.socket(socket.AF_UNIX); s.settimeout(60); s.connect(sys.argv[1] + "/control.sock")
s.sendall(json.dumps({"verb": "stop", "stage_out": False, "keep": sys.argv[2] == "keep"}).encode() + b"\n")
lines = s.makefile(); lines.readline(); open(sys.argv[3], "w").close()
for line in lines:
  if json.loads(line).get("event") == "result": sys.exit(0 if json.loads(line)["ok"] else 1)' "$@"
}
for how in keep drop; do
  unshare -m true 2>/dev/null || { skip "between-$how" 'no mount namespace of our own'; continue; }
  fresh "between-$how"; started "$JOB"; echo result >"$MNT/r"
  if view; then ok; else fail "$NAME: somebody has the mount in a namespace"; end_view; fi
  "$EFS" stop "$NAME" >"$S/said" 2>&1 & stopper=$!
  check "$NAME: a stop waits" await 20 has_state "$NAME" unmounting
  ask_no_results "$EFS_RUNTIME_DIR/$NAME" $how "$S/$NAME/taken" & other=$!
  check "$NAME: another one came" await 20 test -e "$S/$NAME/taken"
  end_view
  wait $other; check "$NAME: that is carried out" test $? = 0
  wait $stopper; check "$NAME: the first one fails" test $? = 1
  check "$NAME: and says why" grep -q 'overruled by another stop --no-stage-out' "$S/said"
  check_not "$NAME: nothing is back" test -e "$OUT/r"
  [ $how = drop ] || { check "$NAME: what is kept is brought out" "$EFS" salvage "$NAME"; check "$NAME: it is" grep -qx result "$OUT/r"; check "$NAME: clean" "$EFS" clean "$NAME"; }
done
finish
