#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A store that a stop left in order, and changes to its containers before the next start.
#   left_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

PERSISTENT='resources: [ [ path: input, flags: persistent ] ]'
container_of() { local ino; ino=$(stat -c %i "$1") || return 1; printf '%s/data/%02x/%016x' "$2" $((ino % 256)) "$ino"; }

# Files as programs create them: by write, by a mapping, with explicit times, with holes, linked,
# changed, truncated, replaced.
work() {
  head -c 300000 /dev/urandom >"$MNT/written"
  python3 -c 'import mmap,sys
with open(sys.argv[1], "w+b") as f:
    f.truncate(70000)
    with mmap.mmap(f.fileno(), 0) as m: m[1000:2000] = b"m" * 1000' "$MNT/mapped"
  cp -p "$MNT/written" "$MNT/copied"; touch -d '2001-02-03 04:05:06.123456789' "$MNT/copied"
  truncate -s 1M "$MNT/sparse"; echo end >>"$MNT/sparse"
  echo one >"$MNT/a"; ln "$MNT/a" "$MNT/b"
  echo first >"$MNT/cut"; echo second >>"$MNT/cut"; truncate -s 3 "$MNT/cut"
  echo old >"$MNT/replaced"; echo new >"$MNT/replacing"; mv "$MNT/replacing" "$MNT/replaced"
  echo more >>"$MNT/input/a"
  : >"$MNT/empty"
}

for how in 'passthrough' 'daemon'; do
  name=left-$how; what=()
  [ $how = daemon ] && what=(-o daemon-io)
  fresh "$name"; mkdir -p "$S/$name/disk"
  job "$JOB" "$PERSISTENT" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/$name/disk ] ]"
  started "${what[@]}" "$JOB"; work
  store=$(ls -d "$S/$name"/disk/efs-*); sums=$(cd "$MNT" && find . -type f -exec md5sum {} + | sort)
  written=$(container_of "$MNT/written" "$store"); cut=$(container_of "$MNT/cut" "$store")
  check 'stop --keep' "$EFS" stop --keep "$name"
  check_exit 'nothing is wrong with it' 0 . "$EFS" check-image "$name"
  check 'and nobody has changed it' bash -c "! '$EFS' check-image '$name' | grep -q 'when the instance was left'"
  started "${what[@]}" "$JOB"
  check 'the next start has everything' test "$(cd "$MNT" && find . -type f -exec md5sum {} + | sort)" = "$sums"
  echo even-more >>"$MNT/written"; sums=$(cd "$MNT" && find . -type f -exec md5sum {} + | sort)
  check 'stop --keep --no-stage-out' "$EFS" stop --keep --no-stage-out "$name"

  cp -a "$written" "$S/$name/aside"
  truncate -s 5 "$written"
  check_exit 'one that was cut short is told' 1 'damage: written: container .* is not what it was when the instance was left: it has 5 bytes instead of 300010' "$EFS" check-image "$name"
  check_exit 'a repair refuses, and says why' 1 'is damaged, and efs cannot repair it' "$EFS" check-image --repair "$name"
  check 'in --json, too' json "$("$EFS" check-image --json --repair "$name")" "d['ok'] is False and 'cannot repair it' in d['error'] and d['code'] and d['findings']"
  check_exit 'and is no start' 1 'the contents of 1 files were changed since the instance was left.*it has 5 bytes instead of 300010.*remove .*/meta/contents' "$EFS" start "${what[@]}" "$JOB"
  check 'nothing is mounted' bash -c "! grep -qF ' $MNT ' /proc/self/mounts"
  check_exit 'again' 1 'it has 5 bytes instead of 300010' "$EFS" start "${what[@]}" "$JOB"
  check_exit 'a salvage leaves it out and says so' 3 'it has 5 bytes instead of 300010' "$EFS" salvage "$name" --to "$S/$name/to" --all
  check 'it is not there' test ! -e "$S/$name/to/written"
  check 'all else is' test "$(cd "$S/$name/to" && find . -type f ! -name "efs-salvage-*" -exec md5sum {} + | sort)" = "$(grep -v ' ./written$' <<<"$sums")"
  rm "$written"; cp -a "$S/$name/aside" "$written"
  printf X | dd of="$cut" conv=notrunc status=none
  check_exit 'one that was written to, too' 1 'damage: cut: container .* it was written to' "$EFS" check-image "$name"
  check_exit 'is no start either' 1 'it was written to' "$EFS" start "${what[@]}" "$JOB"
  rm "$store/meta/contents"
  started "${what[@]}" "$JOB"
  check 'without the list it is what is there' grep -q Xir "$MNT/cut"
  check 'and the rest' test "$(cd "$MNT" && find . -type f ! -name cut -exec md5sum {} + | sort)" = "$(grep -v ' ./cut$' <<<"$sums")"
  # A crash leaves no valid list, and later writes of programs are not damage.
  check 'kept once more' "$EFS" stop --keep --no-stage-out "$name"
  started "${what[@]}" "$JOB"
  echo and-more >>"$MNT/written"; truncate -s 2 "$MNT/cut"
  kill_both "$name"
  check_exit 'after a death nothing is compared' 0 . "$EFS" check-image "$name"
  started "${what[@]}" "$JOB"
  check 'and what was written is there' grep -qx and-more <(tail -n 1 "$MNT/written")
  check 'stop' "$EFS" stop "$name"
  check 'all is back' test "$(cd "$OUT" && md5sum <written)" = "$( (cat "$S/$name/aside"; echo and-more) | md5sum)"
done

# --- a program that outlives both processes, with a file open ---
fresh outlives
started "$JOB"
if kernel_has_it && [ "$(id -u)" = 0 ]; then
  exec 9>"$MNT/open"; echo first >&9
  echo closed >"$MNT/closed"
  kill_both outlives
  check 'who had it open writes on' bash -c 'echo second >&9'
  check_exit 'a salvage does not call that brought out' 3 'failed: open: .*still has it open for writing' "$EFS" salvage outlives
  check 'only what is closed' test "$(cat "$OUT"/*closed)" = closed -a ! -e "$OUT/open"
  started "$JOB"
  check 'and the next start has it' test "$(cat "$MNT/open")" = "$(printf 'first\nsecond')"
  check_exit 'a stop does not call it back either' 3 'failed: open: .*still has it open for writing' "$EFS" stop outlives
  check 'stop --keep' "$EFS" stop --keep --no-stage-out outlives
  echo third >&9
  check_exit 'kept, nothing is known of what may be written to' 0 . "$EFS" check-image outlives
  exec 9>&-
  started "$JOB"
  check 'and all of it is there' grep -qx third "$MNT/open"
  check 'when he has ended, a stop' "$EFS" stop outlives
  check 'brings it' test "$(cat "$OUT/open")" = "$(printf 'first\nsecond\nthird')"
else
  check 'stop' "$EFS" stop outlives
  skip 'a program that outlives both processes' 'no passthrough on this kernel, or not root'
fi

# --- times beyond the range of nanoseconds ---
fresh far
started "$JOB"; echo x >"$MNT/far"; touch -d '2300-01-01' "$MNT/far"
check 'stop --keep with a file of the year 2300' "$EFS" stop --keep far
check_exit 'which nobody has touched' 0 . "$EFS" check-image far
started "$JOB"
check 'stop' "$EFS" stop far

# --- a failed start does not change a store ---
fresh fails
started "$JOB"; echo result >"$MNT/r"
check 'stop --keep --no-stage-out' "$EFS" stop --keep --no-stage-out fails
mv "$PFS/input" "$PFS/aside"
check_not 'a start without its inputs' "$EFS" start "$JOB"
mv "$PFS/aside" "$PFS/input"
check 'leaves it as it was left' json "$(status_of fails)" "d['left'] == 'unsaved'"
: >"$(grep -rlx result "$EFS_RUNTIME_DIR/fails/store/data")"
check_exit 'and what somebody does to it is told' 1 'damage: r: .* it has 0 bytes instead of 7' "$EFS" check-image fails
"$EFS" clean --force fails >/dev/null

# --- the worker dies after it has recorded its end ---
hit=0
for try in $(seq 60); do
  [ $hit -lt 2 ] || break
  fresh "ends$try"
  started "$JOB"; echo result >"$MNT/r"
  worker=$(field "$(status_of "ends$try")" 'd["worker_pid"]')
  python3 -c 'import os, sys
with open(sys.argv[1]) as log:
    print("watches", flush=True)
    while "state=ended" not in log.readline(): pass
os.kill(int(sys.argv[2]), 9)' "$EFS_RUNTIME_DIR/ends$try/efsd.log" "$worker" >"$S/ends$try/watcher" 2>&1 & killer=$!
  await 20 test -s "$S/ends$try/watcher"
  check 'stop --keep whose worker is killed at its end' timeout 60 "$EFS" stop --keep "ends$try"
  wait "$killer"
  check 'keeps' json "$(status_of "ends$try")" "d['state'] == 'kept'"
  await 20 no_daemon "ends$try"
  ! grep -q 'event=takeover .*its store is kept' "$EFS_RUNTIME_DIR/ends$try/efsd.log" || hit=$((hit + 1))
  "$EFS" clean "ends$try" >/dev/null 2>&1 || "$EFS" clean --force "ends$try" >/dev/null 2>&1
done
check 'some were killed behind the answer' test $hit -ge 1

# --- the worker and its supervisor die before they answer ---
# dies_untold NAME: replaces the daemons of a stopped store: accepts a request, and ends.
dies_untold() {
  rm -f "$S/$1/stand-in"
  python3 -c 'import fcntl, os, socket, sys
place = sys.argv[1]
fcntl.flock(os.open(place, os.O_RDONLY), fcntl.LOCK_EX)
door = socket.socket(socket.AF_UNIX)
door.bind(place + "/control.sock")
door.listen()
print("listens", flush=True)
asker = door.accept()[0]
asker.recv(10000)
os.unlink(place + "/control.sock")' "$EFS_RUNTIME_DIR/$1" >"$S/$1/stand-in" 2>&1 & stand_in=$!
  await 20 test -s "$S/$1/stand-in"
}
left_as() {
  python3 -c 'import json, sys
manifest = json.load(open(sys.argv[1]))
manifest.pop("checksum", None)
manifest["left"] = sys.argv[2]
json.dump(manifest, open(sys.argv[1], "w"))' "$EFS_RUNTIME_DIR/$1/instance.json" "$2"
}
fresh untold
started "$JOB"; echo result >"$MNT/r"
check 'stop --keep' "$EFS" stop --keep untold
dies_untold untold
check_exit 'a stop --keep that gets no answer looks at what was left' 0 'untold has been stopped, and its buffer was kept in .*: all its results are exported' timeout 60 "$EFS" stop --keep untold
wait "$stand_in"; dies_untold untold
check_exit 'and so does the machine' 0 '"exit":0,' timeout 60 "$EFS" stop --json --keep untold
wait "$stand_in"; dies_untold untold
check_exit 'one that was not to keep it says so' 1 'untold has been stopped, and its buffer was kept' timeout 60 "$EFS" stop untold
wait "$stand_in"; left_as untold unsaved; dies_untold untold
check_exit 'what is not back is no success' 1 'not all results are exported. They are in .*efs salvage untold' timeout 60 "$EFS" stop --keep untold
wait "$stand_in"; left_as untold over; dies_untold untold
check_exit 'what is over is told' 1 'untold is over: .*its daemon died .*receipt' timeout 60 "$EFS" stop untold
wait "$stand_in"
check 'clean' "$EFS" clean untold

# --- an input with a link of the job is unchanged; a renamed input is not exported as another file
#     ---
fresh linked
sed -i "s|results-dir: .*|in-place: true|" "$JOB"; sed -i '/^global-settings:/a\  on-conflict: overwrite\n  deletions: propagate' "$JOB"
printf 'resources: [ [ path: input, flags: persistent ] ]\n' >"$S/res"; sed -i '/^resources/d' "$JOB"; cat "$S/res" >>"$JOB"
started "$JOB"; ln "$MNT/input/a" "$MNT/input/link"
check 'stop --keep of a job that linked an input' "$EFS" stop --keep linked
echo 'new and important' >"$PFS/input/a.new"; mv "$PFS/input/a.new" "$PFS/input/a"
started "$JOB"
check 'the next start brings what is new on the PFS' grep -qx 'new and important' "$MNT/input/a"
check 'stop' "$EFS" stop linked
check 'and it is there still' grep -qx 'new and important' "$PFS/input/a"

started "$JOB"; mv "$MNT/input/sub/b" "$MNT/input/renamed"
kill_both linked
: >"$(grep -rlx beta "$EFS_RUNTIME_DIR/linked/store/data")"
check_exit 'a renamed input whose container was emptied is damage' 1 'damage: input/renamed: .*is not what was staged in' "$EFS" check-image linked
check_exit 'and no result of a salvage' 1 'failed: input/renamed: .*not what was staged in' "$EFS" salvage linked
check 'the PFS has what it had' grep -qx beta "$PFS/input/sub/b"
check 'and nothing more' test ! -e "$PFS/input/renamed"
check_exit 'nor is it shown to programs' 1 'input/renamed: .*not what was staged in.*efs salvage linked' "$EFS" start "$JOB"
check_exit 'what is not back is not removed for nothing' 1 'efs clean --force linked' "$EFS" clean linked
check 'but where that is wished' "$EFS" clean --force linked

# The same if it now has the name of another input: that input is not staged in over the job's file.
fresh over
started "$JOB"; mv "$MNT/input/sub/b" "$MNT/input/a"
kill_both over
container=$(grep -rlx beta "$EFS_RUNTIME_DIR/over/store/data")
cp -a "$container" "$S/aside"; echo XX >"$container"
check_exit 'an input that was renamed over another, exchanged, is not shown to programs' 1 'input/a: .*not what was staged in' "$EFS" start "$JOB"
cp -a "$S/aside" "$container"
started "$JOB"; check 'one that is whole again is' grep -qx beta "$MNT/input/a"
check 'stop' "$EFS" stop --no-stage-out over

# A file that efs load imported is not a resource that is imported again.
fresh brought; echo gamma >"$PFS/input/c"
sed -i 's|path: input |path: input/a |' "$JOB"
started "$JOB"; check 'load' "$EFS" load -i brought -w input/c
kill_both brought
container=$(grep -rlx gamma "$EFS_RUNTIME_DIR/brought/store/data")
cp -a "$container" "$S/aside"; truncate -s 3 "$container"
check_exit 'a loaded input whose container was cut short is not shown to programs' 1 'input/c: .*not what was staged in' "$EFS" start "$JOB"
cp -a "$S/aside" "$container"
started "$JOB"; check 'one that is whole again is' grep -qx gamma "$MNT/input/c"
check 'stop' "$EFS" stop brought

# linked_job NAME LINE: keeps an input with a link of the job; then the PFS has a newer version of
# the input.
linked_job() {
  fresh "$1" "$2"
  started "$JOB"; ln "$MNT/input/a" "$MNT/link"; [ -z "${3:-}" ] || echo "$3" >>"$MNT/input/a"
  check 'stop --keep' "$EFS" stop --keep "$1"
  echo newer >"$PFS/input/a.new"; mv "$PFS/input/a.new" "$PFS/input/a"
  started "$JOB"
}
linked_job only-linked "$PERSISTENT"
check 'an input that was only linked comes anew' grep -qx newer "$MNT/input/a"
check 'and the link is what it was' grep -qx alpha "$MNT/link"
check 'stop' "$EFS" stop only-linked
linked_job changed-too "$PERSISTENT" changed
check 'one that was changed, too, is the one of the job' grep -qx changed "$MNT/input/a"
check 'stop' "$EFS" stop changed-too
linked_job under-one-name 'resources: [ [ path: input ] ]' changed
check 'also where it was brought out under the other name only' grep -qx changed "$MNT/input/a"
check 'as here' bash -c "grep -qx changed '$OUT/link' && [ ! -e '$OUT/input/a' ]"
check 'stop' "$EFS" stop under-one-name

finish
