#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# efs salvage repeatedly and beside another salvage, and the checks of efs clean afterwards.
#   salvage_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# died NAME: the store of a killed instance.
died() { kill_both "$1"; STORE=$EFS_RUNTIME_DIR/$1/store; }

# --- one at a time: the names of partials contain the store's name ---
fresh two; started "$JOB"
mkdir "$MNT/many"; for i in $(seq 400); do echo "result $i" >"$MNT/many/$i"; done
died two
exec 8<"$STORE/meta/lock"; flock -s 8
mkdir "$S/two/look" "$S/two/both"
check 'a look beside another look' "$EFS" salvage --list two
check 'bringing out beside a look' "$EFS" salvage two --to "$S/two/look"
flock -u 8; exec 8<"$STORE/meta"; flock 8
check 'a look beside one that brings out' "$EFS" salvage --list two
check_exit 'bringing out beside another one that does' 1 'another efs salvage of .* runs' "$EFS" salvage two
exec 8<&-
for i in 1 2; do "$EFS" salvage two --to "$S/two/both" >"$S/two/said$i" 2>&1 & eval "salvage$i=$!"; done
wait "$salvage1"; one=$?; wait "$salvage2"; other=$?
ended_well() { [ "$1" = 0 ] || { [ "$1" = 1 ] && grep -q 'another efs salvage' "$2"; } || { echo "exit $1"; cat "$2"; return 1; }; }
check 'two at once: this one brings out, or is refused' ended_well $one "$S/two/said1"
check 'and so does that one' ended_well $other "$S/two/said2"
check 'one of them does' test $((one * other)) = 0
check 'everything is there' test "$(cat "$S/two/both/many/"* | sort -u | wc -l)" = 400
check 'two: clean' "$EFS" clean two

# --- a store that has lost a part of its metadata ---
# spoil FILE: changes one byte.
spoil() { printf '\001' | dd of="$1" bs=1 seek=20 conv=notrunc status=none; }
fresh damaged 'outputs: [ [ path: "r*", flags: persistent ] ]'
echo in >"$PFS/in"; started "$JOB"; echo result >"$MNT/r"; echo scratch >"$MNT/scratch"
died damaged
spoil "$STORE/meta/job.yaml"
check_exit 'not to a directory that the shell was to replace' 2 'write .HOME, or ./~' "$EFS" salvage damaged --to=~/out
check_exit 'the job file of a store is damaged: check-image says what goes on all the same' 1 'job.yaml: damaged: its rules are lost. Export all files .*: efs salvage --to DIR' "$EFS" check-image damaged
check_exit 'a salvage does not guess what is a result' 1 "its results and their names are unknown. Export .* elsewhere: efs salvage --to DIRECTORY damaged; or continue: efs start $JOB\$" "$EFS" salvage damaged
check_not 'and brings out nothing' test -e "$OUT/r"
check_exit 'elsewhere all comes out' 0 '2 staged out .*' "$EFS" salvage --to "$S/damaged/to" damaged
check 'that is all' test "$(cat "$S/damaged/to/r" "$S/damaged/to/scratch")" = $'result\nscratch'
check 'a start goes on' "$EFS" start "$JOB"
check 'with all of it' test "$(cat "$MNT/r" "$MNT/scratch")" = $'result\nscratch'
died damaged
for place in "$STORE/meta" "$EFS_RUNTIME_DIR/damaged"; do spoil "$place/instance.json"; done
check_exit 'the manifest is damaged: status finds the instance' 1 '^damaged: dead' "$EFS" status damaged
check_exit 'check-image says so, and the way' 1 'instance.json: damaged; its previous version is good. .*: efs salvage --to DIR' "$EFS" check-image damaged
check_exit 'a start refuses, and names the salvage' 1 "instance.json: damaged.*efs salvage" "$EFS" start "$JOB"
check_exit 'clean refuses' 1 'damaged is not removed' "$EFS" clean damaged
check_exit 'the salvage does not guess what it may replace' 1 'the options of its last run are unknown.*Export elsewhere: efs salvage --to DIRECTORY damaged' "$EFS" salvage damaged
check_not 'and brings nothing out' test -e "$OUT/r"
check_exit 'not into what goes with the image' 2 'is in the image' "$EFS" salvage --to "$EFS_RUNTIME_DIR/damaged/new" damaged
check_exit 'elsewhere it brings out the results' 0 '1 staged out .*' "$EFS" salvage --to "$S/damaged/results" damaged
check 'whole' grep -qx result "$S/damaged/results/r"
check_exit 'and has put it right' 0 'whole' "$EFS" check-image damaged
check 'a start goes on, again' "$EFS" start "$JOB"
check 'with all of it, again' test "$(cat "$MNT/r" "$MNT/scratch")" = $'result\nscratch'
check 'it stops' "$EFS" stop damaged
mkdir -p "$S/places/disk"
fresh places "backends: [ [ id: memory, capacity: 64 MiB ], [ id: disk, type: NVRAM-NVML, daxfs: $S/places/disk, capacity: 64 MiB ] ]"
started "$JOB"; echo result >"$MNT/r"; died places
second=$(ls -d "$S"/places/disk/efs-*)
check_exit 'nor into a backend behind the first' 2 'is in the image' "$EFS" salvage --to "$second/new" places
printf '\001' | dd of="$second/instance.json" bs=1 seek=20 conv=notrunc status=none
check 'what that says of itself is damaged: a start goes on' "$EFS" start "$JOB"
check 'and all is there' grep -qx result "$MNT/r"
check 'it stops, too' "$EFS" stop places

# --- orphans: behind a damaged record, and all containers if the journal is gone ---
fresh lost 'resources: [ [ path: ., flags: persistent ] ]'
echo plain >"$PFS/plain"; started "$JOB"
for i in $(seq 60); do echo "result $i" >"$MNT/r$i"; done
mkdir "$MNT/d"; echo hidden >"$MNT/d/hidden"; truncate -s 1M "$MNT/d/sparse"; : >"$MNT/d/empty"
contents=$(find "$MNT" -type f -size +0 | wc -l)
died lost
check_exit 'where the journal is whole there is nothing to be brought out without a name' 0 ': 0 contents that no name leads to' "$EFS" salvage --lost --to "$S/lost/none" lost
check_not 'and nothing is made' test -e "$S/lost/none"
check_exit '--lost needs a place' 2 'name a directory with --to' "$EFS" salvage --lost lost
check_exit 'and has nothing to do with --all' 2 'excludes' "$EFS" salvage --lost --all --to "$S/lost/none" lost
journal=$STORE/meta/journal; cp "$journal" "$S/lost/journal"
python3 - "$journal" <<'PY'
import sys
with open(sys.argv[1], "r+b") as file:
    at = file.read().index(b"r40"); file.seek(at); file.write(b"R")
PY
check_exit 'a damaged record: names behind it are lost, and the salvage says the way' 3 'export their contents under numbers: efs salvage --lost --to DIR lost' "$EFS" salvage --to "$S/lost/named" lost
before=$(find "$STORE" -ls)
check_exit 'the list says that there is more' 0 'names are missing; list their contents: efs salvage --lost --list lost' "$EFS" salvage --list lost
check_exit 'check-image calls them damage' 1 'damage: container [0-9]+ .*Export it: efs salvage --lost' "$EFS" check-image lost
check_exit 'not to root-dir, of which they would be inputs' 2 'root-dir' "$EFS" salvage --lost --to "$PFS" lost
ln -s "$STORE" "$S/lost/link"
check_exit 'not into the store itself' 2 'is in the image' "$EFS" salvage --lost --to "$STORE/data" lost
check_exit 'by whatever name' 2 'is in the image' "$EFS" salvage --lost --to "$S/lost/link/new/one" lost
check_exit 'nor what has names' 2 'is in the image' "$EFS" salvage --to "$S/lost/link" lost
check_exit 'they are listed' 0 'lost.found/lost-[0-9a-f]{8}/[0-9]+  7 B' "$EFS" salvage --lost --list lost
check_exit 'and brought out without their names' 0 'staged out' "$EFS" salvage --lost --to "$S/lost/to" lost
check 'each content is there once, in one place or the other' test "$(cat "$S"/lost/named/r* "$S"/lost/to/lost+found/lost-*/* | grep -a '^result' | sort -u | wc -l)" = 60
check 'and those of the other directory' grep -rqx hidden "$S/lost/to/lost+found"
check 'a sparse one, too, with its hole' test "$(find "$S/lost/to/lost+found" -size 2048 -printf '%b\n')" -lt 100
check 'their owner alone reads them' test -z "$(find "$S/lost/to/lost+found" -type f ! -perm 600)"
check 'the receipt vouches for nothing' json "$(cat "$S/lost/to/efs-salvage-lost.lost.json")" "d['verdict'] == 'complete' and all(e['evidence'] == 'as-found' for e in d['entries'])"
check 'the store has not changed' test "$(find "$STORE" -ls)" = "$before"
said=$("$EFS" salvage --json --lost --to "$S/lost/to" lost)
check 'once more, in JSON' json "$said" "d['ok'] and d['lost_files'] == len([e for e in d['receipt']['entries'] if e['action'] == 'kept' and e['evidence'] == 'as-found']) == $(find "$S/lost/to/lost+found" -type f | wc -l)"
printf X | dd of="$journal" bs=1 seek=3 conv=notrunc 2>/dev/null
check_exit 'a journal that is none: the refusal says the way' 1 'without names: efs salvage --lost --to DIR /.*lost/store' "$EFS" salvage --to "$S/lost/x" lost
check_exit 'all that the containers hold comes out' 0 "$contents contents that no name leads to.*the journal cannot be read" "$EFS" salvage --lost --to "$S/lost/all" lost
check 'inputs as well' grep -rqx plain "$S/lost/all/lost+found"
container=$(find "$STORE/data" -type f -size -2 -exec grep -lx 'result 1' {} +)
setfattr -n user.efs.container -v "$(getfattr --only-values -n user.efs.container "$container" | sed 's/^./x/')" "$container"
check_exit 'what is labelled as anothers is not brought out' 3 'failed: ' "$EFS" salvage --lost --to "$S/lost/foreign" lost
check_not 'is not there' grep -rqx 'result 1' "$S/lost/foreign/lost+found"
cp "$S/lost/journal" "$journal"
check 'lost: clean' "$EFS" clean --force lost

# --- a receipt among the inputs of the next run ---
fresh again 'resources: [ [ path: ., flags: persistent ] ]'
sed -i 's|results-dir: .*|in-place: true|' "$JOB"
for run in 1 2; do
  started "$JOB"; echo "$run" >"$MNT/r$run"; died again
  check "again: salvage $run" "$EFS" salvage again
  check "again: its result" grep -qx "$run" "$PFS/r$run"
  check "again: and its receipt" json "$(cat "$PFS/efs-salvage-again.json")" "[e['path'] for e in d['entries'] if e['action'] == 'staged-out'] == ['r$run']"
  check "again: clean" "$EFS" clean again
done

# --- a result with the name of the receipt ---
fresh called; started "$JOB"
echo mine >"$MNT/efs-salvage-called.json"; died called
check_exit 'called: says where to' 1 'efs salvage --to' "$EFS" salvage called
check 'called: there it is brought out' "$EFS" salvage called --to "$S/called/to"
check 'called: the result is the result' grep -qx mine "$S/called/to/efs-salvage-called.json"
check 'called: the receipt has another name' json "$(cat "$S/called/to/efs-salvage-called.2.json")" "d['verdict'] == 'complete'"
check 'called: clean' "$EFS" clean called

# --- files that an earlier salvage had exported, and a later one could not export again ---
fresh mark; started "$JOB"
head -c 700000 /dev/urandom >"$MNT/r"; died mark
if mount -t tmpfs -o size=1m pfs "$OUT" 2>/dev/null; then
  check 'mark: salvage' "$EFS" salvage mark
  rm "$OUT/r"; head -c 600000 /dev/zero >"$OUT/others"
  check_exit 'mark: no room any more' 1 'still in the buffer' "$EFS" salvage mark
  check_exit 'mark: clean knows it' 1 'mark is not removed' "$EFS" clean mark
  rm "$OUT/others"
  check 'mark: it is brought out again' "$EFS" salvage mark
  check 'mark: and then clean removes' "$EFS" clean mark
  rm "$OUT/r"; started "$JOB"
  head -c 700000 /dev/urandom >"$MNT/r"; check 'mark: stop --keep' "$EFS" stop --keep mark
  rm "$OUT/r"; head -c 600000 /dev/zero >"$OUT/others"
  check_exit 'mark: kept, and no room' 1 'still in the buffer' "$EFS" salvage mark
  check_exit 'mark: kept, clean knows it' 1 'mark is not removed' "$EFS" clean mark
  rm "$OUT/others"
  check 'mark: kept, brought out again' "$EFS" salvage mark
  check 'mark: kept, clean' "$EFS" clean mark
  umount "$OUT"
else skip 'mark' 'no tmpfs can be mounted here'; "$EFS" clean --force mark; fi

# --- a backend that is not mounted now ---
mkdir "$S/first" "$S/second"
fresh disks "backends: [ [ id: first, type: NVRAM-NVML, daxfs: $S/first, capacity: 32 MiB ], [ id: second, type: NVRAM-NVML, daxfs: $S/second, capacity: 32 MiB ] ]" 'outputs: [ [ path: there, backend: second, flags: persistent ], [ path: "**", flags: persistent ] ]'
started "$JOB"
mkdir "$MNT/there"; echo far >"$MNT/there/r"; echo near >"$MNT/r"; died disks
check 'disks: salvage' "$EFS" salvage disks
mv "$S/second" "$S/gone"
check_exit 'disks: the journal stays, which alone knows whose the containers are' 1 'in a missing backend' "$EFS" clean disks
mv "$S/gone" "$S/second"
check 'disks: clean' "$EFS" clean disks
check 'disks: nothing is left' rmdir "$S/first" "$S/second"

# --- a killed salvage, and efs clean meanwhile and afterwards ---
fresh halfway; sed -i '/^global-settings:/a\  max-rate: 400 KB/s' "$JOB"
started "$JOB"; head -c 2000000 /dev/urandom >"$MNT/r"; died halfway   # five seconds to bring out
check 'halfway: salvage' "$EFS" salvage halfway
rm "$OUT/r"
"$EFS" salvage halfway >/dev/null 2>&1 & salvage=$!; pids+=("$salvage")
is_under_way() { compgen -G "$OUT/r.*.efs-partial" >/dev/null; }
check 'halfway: another one begins' await 20 is_under_way
for how in '' --force; do check_exit "halfway: clean $how does not take it away meanwhile" 1 'in use|halfway is not removed' "$EFS" clean $how halfway; done
kill -KILL "$salvage"; wait "$salvage" 2>/dev/null
check_exit 'halfway: what the first had brought out is not out any more' 1 'halfway is not removed' "$EFS" clean halfway
check 'halfway: it is brought out again' "$EFS" salvage halfway
check 'halfway: clean' "$EFS" clean halfway
check 'halfway: it is there' test "$(stat -c %s "$OUT/r")" = 2000000

# --- an output rule gives a result the name of the receipt, or renames a result of that name ---
fresh from 'outputs: [ [ path: efs-salvage-from.json, as: other.json ], [ path: "**", flags: persistent ] ]'
started "$JOB"; echo mine >"$MNT/efs-salvage-from.json"; died from
check 'from: salvage' "$EFS" salvage from
check 'from: the result has the name that the rule gives it' grep -qx mine "$OUT/other.json"
check 'from: the receipt its own' json "$(cat "$OUT/efs-salvage-from.json")" "d['verdict'] == 'complete'"
check 'from: clean' "$EFS" clean from
fresh to 'outputs: [ [ path: mine, as: efs-salvage-to.json ], [ path: "**", flags: persistent ] ]'
started "$JOB"; echo mine >"$MNT/mine"
check 'to: stop --keep' "$EFS" stop --keep to
check_exit 'to: no receipt takes the place of a result' 1 'efs salvage --to' "$EFS" salvage to
check 'to: that is there' grep -qx mine "$OUT/efs-salvage-to.json"
check 'to: clean' "$EFS" clean --force to

# --- an orderly stop stays one ---
fresh orderly; started "$JOB"; echo r >"$MNT/r"
check 'orderly: stop --keep' "$EFS" stop --keep orderly
check 'orderly: salvage' "$EFS" salvage orderly
check 'orderly: it is kept' json "$(status_of orderly)" "d['left'] == 'kept'"
rm "$OUT/r"; STORE=$EFS_RUNTIME_DIR/orderly/store
if mount --bind "$STORE" "$STORE" 2>/dev/null && mount -o remount,bind,ro "$STORE"; then
  check 'orderly: also from a medium that takes no changes' "$EFS" salvage orderly
  check 'orderly: it is out' grep -qx r "$OUT/r"
else skip 'salvage from a medium that takes no changes' 'no bind mounts'; fi
umount "$STORE" 2>/dev/null
check 'orderly: clean' "$EFS" clean orderly

# --- files that no process of efs writes ---
deep="$EFS_RUNTIME_DIR/deep"
install -d -m 700 "$deep"; install -m 600 /dev/null "$deep/lock"
python3 -c 'import sys; n = 500000; print("{\"format\": \"efs-image-1\", \"checksum\": \"0\", \"a\":" + "[" * n + "]" * n + "}")' >"$deep/instance.json"
for verb in 'ls --instances' 'ls --instances --json' status 'status deep' 'check-image deep' 'salvage deep' clean 'clean deep'; do
  $EFS $verb >"$S/said" 2>&1; code=$?
  check "a manifest nested deeply: efs $verb does not die of it" test $code -lt 4
done
rm -rf "$deep"
finish
