#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Discards the store of a dead instance: efs clean, efs stop --no-stage-out, and efs clean by root
# for a user; and a stop whose worker dies.
#   clean_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

worker_of() { field "$("$EFS" status --json "$1" 2>/dev/null)" 'd["worker_pid"]' 2>/dev/null; }
# on_disk NAME: a job with a store outside the instance's directory.
on_disk() {
  fresh "$1"
  mkdir -p "$S/$1/disk"
  job "$JOB" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/$1/disk ] ]"
}

# --- stop --no-stage-out discards a dead instance completely ---
on_disk giveup
started "$JOB"; echo old >"$MNT/r"
kill_both giveup
store=$(ls -d "$S"/giveup/disk/efs-*)
check 'stop --no-stage-out of a dead instance' "$EFS" stop --no-stage-out giveup
check 'removes its store' test -n "$store" -a ! -e "$store"
check 'its dead mount' bash -c "! grep -qF ' $MNT ' /proc/self/mounts"
check 'and its directory' ended giveup
started "$JOB"
check 'the next start begins empty' test ! -e "$MNT/r"
check 'stop' "$EFS" stop giveup
check 'brings nothing back that was given up' test ! -e "$OUT/r"
on_disk saidso
started "$JOB"
kill_both saidso
check 'with --json it says so' json "$("$EFS" stop --json --no-stage-out saidso)" "d['ok'] and d['staged_out'] is False"

# --- work of a later stop is not discarded without a request ---
fresh directory
started "$JOB"; mkdir "$MNT/empty"
kill_both directory
check_exit 'a directory that the job made is a result' 1 'changes are not exported' "$EFS" clean directory
check 'salvage' "$EFS" salvage directory
check 'brings it' test -d "$OUT/empty"
check 'and then it goes' "$EFS" clean directory

fresh unloaded
started "$JOB"; echo result >"$MNT/r"
check 'unload' "$EFS" unload -w "$MNT/r"
kill_both unloaded
mv "$OUT/r" "$S/unloaded/r"
check_exit 'a result that results-dir does not have any more' 1 'changes are not exported' "$EFS" clean unloaded
mkdir "$S/unloaded/apart"; echo older >"$S/unloaded/apart/r"
check 'goes elsewhere' "$EFS" salvage --to "$S/unloaded/apart" unloaded
check 'whatever is there' grep -q result "$S/unloaded/apart/r"
mv "$S/unloaded/r" "$OUT/r"
check 'when it is there again it goes' "$EFS" clean unloaded

on_disk headless
started "$JOB"; echo result >"$MNT/r"
kill_both headless
store=$(ls -d "$S"/headless/disk/efs-*)
mv "$store/meta/journal" "$S/headless/"
check_exit 'a store that has lost its journal stays, and that is said' 0 "was not removed: its journal .* is lost, .* Remove it: rm -r $store\$" "$EFS" stop --no-stage-out headless
check 'it is there' test -d "$store/data"
rm -r "$store"

on_disk headless2
started "$JOB"; echo result >"$MNT/r"
kill_both headless2
mv "$EFS_RUNTIME_DIR/headless2/instance.json" "$S/headless2/"
check_exit 'the instance has lost what leads to its store: clean finds it, and what is in it' 1 'not removed' "$EFS" clean headless2
fresh memory2
started "$JOB"; echo result >"$MNT/r"
kill_both memory2
rm "$EFS_RUNTIME_DIR/memory2/"instance.json*
umount "$MNT"   # nothing leads there any more
check_exit 'also where it lies in memory' 1 'not removed' "$EFS" clean memory2
for name in headless2 memory2; do check "$name: salvage" "$EFS" salvage --to "$S/$name/to" "$name"; check "$name: has it" grep -qx result "$S/$name/to/r"; check "$name: clean" "$EFS" clean --force "$name"; done

on_disk partly
started "$JOB"; echo result >"$MNT/r"
kill_both partly
store=$(ls -d "$S"/partly/disk/efs-*)
mv "$store/meta/job.yaml" "$S/partly/"
check_exit 'a store that has lost a part of what it says of itself' 1 'not removed' "$EFS" clean partly
check 'is all there' test -e "$store/meta/journal"
mv "$S/partly/job.yaml" "$store/meta/"
check 'salvage' "$EFS" salvage partly
check 'brings the result' grep -q result "$OUT/r"
check 'clean' "$EFS" clean partly

on_disk unmounted
started "$JOB"; echo result >"$MNT/r"
kill_both unmounted
mv "$S/unmounted/disk" "$S/unmounted/away"; mkdir "$S/unmounted/disk"
check_exit 'a store whose disk is not mounted' 1 'not removed: its store .* is not there' "$EFS" clean unmounted
check_exit 'no start begins anew in its place' 1 'its store .* is not there. If its disk is not mounted' "$EFS" start "$JOB"
check 'nor below it' test -z "$(ls -A "$S/unmounted/disk")"
rmdir "$S/unmounted/disk"; mv "$S/unmounted/away" "$S/unmounted/disk"
check 'is found again when it is' "$EFS" salvage unmounted
check 'with its result' grep -q result "$OUT/r"
rm -r "$S"/unmounted/disk/efs-*
check_exit 'one that somebody removed goes' 0 'unmounted: removed' "$EFS" clean --force unmounted

# --- a start killed before it created its journal, and a removal killed before its last step ---
on_disk remnant
for what in begun over; do
  store=$S/remnant/disk/efs-$(id -u)-remnant
  mkdir -p "$store/meta"; touch "$store/meta/lock"
  [ $what = over ] || mkdir -p "$store/data/00" "$store/data/ff"
  touch "$store/strange"
  check_exit "$what: with something that nobody knows" 1 'no instance has the name' "$EFS" clean "$store"
  rm "$store/strange"
  [ $what = over ] || { echo x >"$store/data/ff/00000000000000ff"; check_exit "$what: a container" 1 'no instance has the name' "$EFS" clean "$store"; rm "$store/data/ff/00000000000000ff"; }
  if [ $what = over ]; then check "$what: goes by its directory" "$EFS" clean "$store"; else check "$what: goes by the job file" "$EFS" clean "$JOB"; fi
  check "$what: it is gone" test ! -e "$store"
done

# in_memory NAME: an instance that dies with a result in memory, whose memory is then freed.
in_memory() {
  fresh "$1"
  started "$JOB"; echo result >"$MNT/r"
  kill_both "$1"
  if [ "$(id -u)" = 0 ]; then umount "$MNT"; await 20 umount "$EFS_RUNTIME_DIR/$1/store"; else rm -rf "/dev/shm/efs-$(id -u)-$1"; fi
}
in_memory vanished
check_exit 'a store in memory that is gone with results is no start' 1 'may have left results: its store .* was removed or unmounted.*efs clean vanished' "$EFS" start "$JOB"
check_exit 'clean says that it was gone' 0 'vanished: removed; its store .* was gone, with the results that were not exported' "$EFS" clean vanished
started "$JOB"
check 'lets it begin anew' test ! -e "$MNT/r"
check 'stop' "$EFS" stop vanished
in_memory unheard
said=$("$EFS" clean --json unheard)
check 'so it does for programs' json "$said" "d['ok'] and d['instances'][0]['removed'] and 'was gone' in d['instances'][0]['lost']"
fresh finished
started "$JOB"; echo result >"$MNT/r"
check 'a stop with --keep' "$EFS" stop --keep finished
if [ "$(id -u)" = 0 ]; then await 20 umount "$EFS_RUNTIME_DIR/finished/store"; else rm -rf "/dev/shm/efs-$(id -u)-finished"; fi
check_exit 'whose store is gone has lost nothing' 0 '^finished: removed$' "$EFS" clean finished
fresh emptied "backends: [ [ id: disk, type: NVRAM-NVML, daxfs: $S/emptied/disk, capacity: 64 MiB ] ]" 'resources: [ [ path: input ] ]'
mkdir "$S/emptied/disk"
started "$JOB"; echo result >"$MNT/r"
kill_both emptied
find "$S/emptied/disk" -path '*/data/??/*' -type f -delete
check_exit 'a store whose containers are gone, with results, is kept: its journal knows whose they are' 1 'not removed: 1 files have lost their containers, first /r' "$EFS" clean emptied
check 'but not against one'"'"'s will' "$EFS" clean --force emptied
in_memory forgotten
sed -i 's/"boot_id": "[^"]*"/"boot_id": "another"/; /"checksum"/d' "$EFS_RUNTIME_DIR/forgotten/instance.json"
check_exit 'after a restart of the machine a start says what is lost' 0 'forgotten: the data in memory of an earlier instance .* is gone: the machine was restarted, with results' "$EFS" start "$JOB"
check 'so does the log' grep -q 'event=memory_lost .*restarted=true' "$EFS_RUNTIME_DIR/forgotten/efsd.log"
check_exit 'and status' 0 'before .*the data in memory of .* is gone' "$EFS" status forgotten
check 'it has nothing made up' test ! -e "$MNT/r"
check 'stop' "$EFS" stop forgotten

# --- the reason why results are missing, for programs: before the receipt exists ---
fresh short
started "$JOB"
mkdir "$MNT/many"; for i in $(seq 1 600); do : >"$MNT/many/file-$i"; done
: >"$OUT/many"   # no directory
said=$("$EFS" stop --json short 2>/dev/null)
check 'a stop that fails says why' json "$said" "d['exit'] != 0 and len(d['receipt']['entries']) >= 600 and 'stage-out' in d['error'] and len(d['error']) < 2000"
check 'ahead of a long receipt' grep -q '^{"conflicts":0,"error":' <<<"$said"
rm "$OUT/many"
check 'stop again' "$EFS" stop short
check 'brings all back' test -e "$OUT/many/file-600"

# --- the worker dies during a stop ---
fresh dies
sed -i '/^global-settings:/a\  max-rate: 20 MB/s' "$JOB"
started "$JOB"
for i in 1 2 3; do head -c 20000000 /dev/zero >"$MNT/r-$i"; done
staging_out() { json "$("$EFS" status --json dies 2>/dev/null)" "d['state'] == 'staging-out'"; }
worker=$(worker_of dies)
"$EFS" stop dies >"$S/dies/said" 2>&1 & stopper=$!
check 'a stage-out that takes its time' await 20 staging_out
kill -KILL "$worker"
wait "$stopper"
check 'a stop whose worker dies goes on with the successor' test $? -eq 0
check 'and brings all back' test "$(cat "$OUT"/r-* | wc -c)" = 60000000
check 'nothing is left' ended dies

fresh runs
sed -i '/^global-settings:/a\  max-rate: 20 MB/s' "$JOB"
"$EFS" run "$JOB" -- bash -c 'for i in 1 2 3; do head -c 20000000 /dev/zero >$EFS_MOUNT/r-$i; done' >"$S/runs/said" 2>&1 & runner=$!
staging_out() { json "$("$EFS" status --json runs 2>/dev/null)" "d['state'] == 'staging-out'"; }
check 'a run that stages out' await 30 staging_out
kill -KILL "$(worker_of runs)"
wait "$runner"
check 'a run whose worker dies at its end succeeds' test $? -eq 0
check 'and brings all back' test "$(cat "$OUT"/r-* | wc -c)" = 60000000

# The manifest says that a mounted instance is over: efs does not trust it.
fresh mounted
started "$JOB"; echo precious >"$MNT/r"
worker=$(worker_of mounted)
# says LEFT FILE: a manifest with this state.
says() {
  python3 - "$@" <<'PY'
import json, sys
d = json.load(open(sys.argv[2])); d["left"] = sys.argv[1]; del d["checksum"]; text = json.dumps(d); open(sys.argv[2], "w").write(text)
PY
}
for verb in salvage check-image; do check_exit "$verb of the store of an instance that runs" 1 'mounted is running' "$EFS" $verb "$EFS_RUNTIME_DIR/mounted/store"; done
says over "$EFS_RUNTIME_DIR/mounted/instance.json"
says salvaged "$EFS_RUNTIME_DIR/mounted/store/meta/instance.json"
kill -KILL "$worker"
check 'a successor of an instance that is mounted goes on' await 20 grep -qx precious "$MNT/r"
check 'whatever its manifest says' json "$("$EFS" status --json mounted)" "d['takeovers'] == 1 and d['state'] == 'running'"
for file in instance.json store/meta/instance.json; do check "which is put right: $file" grep -q '"left": *"in-use"' "$EFS_RUNTIME_DIR/mounted/$file"; done
check 'stop' "$EFS" stop mounted
check 'brings out' grep -qx precious "$OUT/r"

# A stop that had discarded or exported everything, and was killed during the removal.
on_disk finished
started "$JOB"; echo 'given up' >"$MNT/r"; mkdir "$MNT/d"
kill_both finished
says over "$EFS_RUNTIME_DIR/finished/instance.json"
started "$JOB"
check 'a start on what was over begins empty' test ! -e "$MNT/r" -a ! -e "$MNT/d"
echo new >"$MNT/r"
check 'stop' "$EFS" stop finished
check 'brings out what is new' grep -qx new "$OUT/r"

# --- an instance without a path to its store ---
on_disk unled
started "$JOB"; echo r >"$MNT/r"
kill_both unled
store=$(ls -d "$S"/unled/disk/efs-*-unled)
rm "$EFS_RUNTIME_DIR"/unled/instance.json*
check_exit 'clean says that it could not find it' 0 'the path of its store is unknown .*a store on a disk is still there.*export it: efs salvage JOBFILE' "$EFS" clean unled
check 'which is so' "$EFS" salvage "$JOB"
check 'with the result' grep -qx r "$OUT/r"
check 'clean of the store' "$EFS" clean "$store"
check 'removes it' test ! -e "$store"
umount "$MNT"  # no process knows of it any more

# --- root cleans a user's store, with the user's rights ---
if [ "$(id -u)" = 0 ] && id games >/dev/null 2>&1; then
  on_disk roots
  started "$JOB"; echo precious >"$MNT/r"
  kill_both roots
  store=$(ls -d "$S"/roots/disk/efs-0-roots)
  fresh users
  chown -R games "$S/users"
  started --user games "$JOB"
  kill_both users
  # The user claims: this store belongs to root, and it was kept.
  python3 - "$EFS_RUNTIME_DIR/users" "$store" <<'PY'
import json, sys
for name in sys.argv[1] + "/instance.json", sys.argv[1] + "/store/meta/instance.json":
    d = json.load(open(name)); d["store"] = sys.argv[2]; d["left"] = "kept"; del d["checksum"]; text = json.dumps(d); open(name, "w").write(text)
PY
  check "root's clean of a user's instance" "$EFS" clean users
  check "does not remove root's store on the user's word" test -e "$store/meta/journal"
  check 'but what is the user'"'"'s' ended users
  check 'with its memory' bash -c "! grep -qF '$EFS_RUNTIME_DIR/users/' /proc/self/mounts"
  check "root's own store holds what it held" "$EFS" salvage roots
  check 'precious' grep -qx precious "$S/roots/out/r"
  check "and goes when root says so" "$EFS" clean roots
  check 'whole' test ! -e "$store"

  fresh memory
  chown -R games "$S/memory"
  started --user games "$JOB"; runuser -u games -- sh -c "echo r >$MNT/r"
  check 'a stop with --keep' "$EFS" stop --keep memory
  check_exit "a user's clean of what is in root's tmpfs refuses" 1 'only root can unmount its store' runuser -u games -- env EFS_RUNTIME_DIR="$EFS_RUNTIME_DIR" "$EFS" clean memory
  check_exit 'and changes nothing' 0 'kept' "$EFS" status memory
  check 'it can be gone on with' "$EFS" start --user games "$JOB"
  check 'with what it had' grep -qx r "$MNT/r"
  check 'stop' "$EFS" stop memory

  on_disk theirs
  chown -R games "$S/theirs"
  started --user games "$JOB"; runuser -u games -- sh -c "echo r >$MNT/r"
  kill_both theirs
  store=$(ls -d "$S"/theirs/disk/efs-*-theirs)
  check_exit "root's clean refuses where the user's results would be lost" 1 'salvage theirs' "$EFS" clean theirs
  check 'clean --force' "$EFS" clean --force theirs
  check "removes the user's store elsewhere" test -n "$store" -a ! -e "$store"
  check 'and the rest' ended theirs

  on_disk lone
  chown -R games "$S/lone"
  started --user games "$JOB"; runuser -u games -- sh -c "echo r >$MNT/r"
  kill_both lone
  rm -rf "${EFS_RUNTIME_DIR:?}/lone"; umount "$MNT"   # as after a restart of the machine
  store=$(ls -d "$S"/lone/disk/efs-*-lone)
  check_exit "root's clean of a user's store to which no instance leads" 1 "$store is not removed: .*have no other copy" "$EFS" clean "$store"
  check_exit 'with --force' 0 "$store: removed" "$EFS" clean --force "$store"
  check 'removes it' test ! -e "$store"
  mkdir -p "$S/lone/bait/efs-0-bait"; chown games "$S/lone/bait"
  check_exit 'a directory that is no store is none' 1 . "$EFS" clean --force "$S/lone/bait/efs-0-bait"
  check 'and stays' test -d "$S/lone/bait/efs-0-bait"
else
  skip "root's clean of a user's instance" 'not root, or no user games'
fi

finish
