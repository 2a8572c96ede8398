#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The messages of efs about a dead instance are true, and the commands in them work as printed.
#   advice_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# advised WORDS...: runs the command in $said that begins with these words.
advised() { local line; line=$(grep -oE "$*[^;:,()]*" <<<"$said" | head -n 1); [ -n "$line" ] && eval "${line/#efs/\"\$EFS\"}"; }
# dead NAME [LINE...]: an instance with a result, whose processes were killed.
dead() { fresh "$@"; started "$JOB"; echo result >"$MNT/r"; kill_both "${NAME// /-}"; }

# --- the commands name their instance ---
dead 'a job'
check_exit 'no name, one is dead: salvage means it' 0 'a-job .*not exported: 1 files' "$EFS" salvage --list
check_exit 'so does check-image' 0 'whole' "$EFS" check-image
check_exit 'an empty name is none' 2 'the name is empty.*Leave the argument out' "$EFS" check-image ''
for verb in 'status' 'ls --instances' 'stop' 'doctor'; do
  said=$("$EFS" $verb 2>&1)
  check "$verb: how to go on" grep -qF "efs start '$JOB'" <<<"$said"
done
said=$("$EFS" status 2>&1)
check 'and that is a command' advised efs start
dead other
check_exit 'what was asked for is not there: nobody is called running who is dead' 1 'nosuch; running: a-job; not running: other$' "$EFS" stop nosuch
check_exit 'the only dead one is meant beside one that runs' 0 'other .*not exported' "$EFS" salvage --list
kill_both a-job
check_exit 'nor where none runs' 1 'nosuch; none is running; not running: a-job, other$' "$EFS" stop nosuch
for verb in stop salvage check-image; do check_exit "$verb does not guess" 1 'name one; none is running; not running: a-job, other$' "$EFS" $verb; done
check_exit 'clean says how to go on' 1 "other is not removed.* efs salvage other; or continue: efs start $JOB; or discard it" "$EFS" clean other
check 'and that is a command, too' advised efs start
check 'stop' "$EFS" stop other
check_exit 'a dead one is given up: what was done is said' 0 '^a-job: its daemon was gone; what it left is removed, and unexported results are dropped$' "$EFS" stop --no-stage-out a-job
for verb in salvage check-image; do check_exit "$verb where none is dead" 1 'no dead instance is there \(none is running\)' "$EFS" $verb; done

# --- started with options: the advised command includes them ---
fresh optional
cd "$S" || exit; started -n another-one -m "another mount" --set 'max-rate=1 GB/s' --set 'access-log=optional/a log' -o noexec "$JOB"; cd "$OLDPWD" || exit
check 'it is where it was asked for' mountpoint -q "$S/another mount"
echo result >"$S/another mount/r"; kill_both another-one
said=$("$EFS" status another-one 2>&1)
check 'the options are named, as words of a shell' grep -qF "continue: efs start -n another-one -m '$S/another mount' --set 'max-rate=1 GB/s' --set 'access-log=$S/optional/a log' -o noexec $JOB; export" <<<"$said"
check_exit 'by clean, too' 1 "or continue: efs start -n another-one -m " "$EFS" clean another-one
check 'and that is a command' eval "$(grep -oE "efs start [^;]*" <<<"$said" | head -n 1 | sed 's/^efs/"$EFS"/')"
check 'that goes on with it' grep -qx result "$S/another mount/r"
check 'and stops' "$EFS" stop another-one

# --- a batch job: root owns its directory, its job file and its name ---
fresh batch
started -n slurm-12.0-n1 "$JOB"; echo result >"$MNT/r"; kill_both slurm-12.0-n1
check_exit 'status advises what the user can do' 1 '^  export: efs salvage --job 12; remove: efs clean --job 12$' "$EFS" status slurm-12.0-n1
check_not 'and no start' grep -q 'efs start' <<<"$said"
check_exit 'a job that has none here' 1 'no file system of job 13 is on this node' "$EFS" stop --job 13
check_exit 'clean finds it by the job' 1 'slurm-12.0-n1 is not removed' "$EFS" clean --job 12
check_not 'and advises no start, either' grep -q 'efs start' <<<"$said"
check_exit 'so does stop' 1 'slurm-12.0-n1 does not run any more: .*efs salvage --job 12' "$EFS" stop --job 12
check 'what it says is short' test "${#said}" -le 300
check 'and a command' advised efs salvage --job
check 'that brings it out' grep -qx result "$OUT/r"
said=$("$EFS" status slurm-12.0-n1)
check 'the rest is removed as it says' advised efs clean --job
check 'is done' ended slurm-12.0-n1

# --- values of the environment in the job file are part of the command ---
fresh surroundings
sed -i "s|results-dir: .*|results-dir: $S/\$WHERE|" "$JOB"
mkdir -p "$S/a place"
check 'start' env 'WHERE=a place' EFS_ON_CONFLICT=keep-both "$EFS" start "$JOB"
echo result >"$MNT/r"; kill_both "$NAME"
check_exit 'without it the start is refused' 2 'WHERE is not set' "$EFS" start "$JOB"
said=$("$EFS" status "$NAME" 2>&1)
check 'it is named, as words of a shell' grep -qF "continue: env EFS_ON_CONFLICT=keep-both 'WHERE=a place' efs start $JOB; export" <<<"$said"
check 'and that is a command' eval "$(grep -oE "env .* efs start [^;]*" <<<"$said" | head -n 1 | sed 's/efs start/"$EFS" start/')"
check 'that means the same' json "$(status_of "$NAME")" "d['results_dir'] == '$S/a place' and 'EFS_ON_CONFLICT=keep-both' in d['start_options']"
check 'stop' "$EFS" stop "$NAME"
check 'the result is where it was to be' grep -qx result "$S/a place/r"

# --- an unreadable manifest ---
dead unreadable
for file in "$EFS_RUNTIME_DIR/unreadable" "$EFS_RUNTIME_DIR/unreadable/store/meta"; do echo '{"x":1}' >"$file/instance.json"; done
check_exit 'status advises no start' 1 'export: efs salvage --to DIRECTORY unreadable; discard it: efs clean --force unreadable$' "$EFS" status unreadable
check_not 'none at all' grep -q 'efs start' <<<"$said"
check_exit 'nor does stop' 1 'export: efs salvage --to DIRECTORY unreadable; discard it: efs clean --force unreadable$' "$EFS" stop unreadable
check_exit 'clean does as it says' 1 'unreadable is not removed' "$EFS" clean unreadable
mkdir "$S/elsewhere"
check 'what they advise brings it out' "$EFS" salvage --to "$S/elsewhere" unreadable
check 'all of it' grep -qx result "$S/elsewhere/r"
check 'and gives it up' "$EFS" clean --force unreadable
check 'is done' ended unreadable

# --- after a salvage ---
dead out
check 'salvage' "$EFS" salvage out
check_exit 'a list knows of it' 0 'an earlier salvage has exported the results' "$EFS" salvage --list out
check 'in JSON, too' json "$("$EFS" salvage --list --json out)" "(d['left'], d['unsaved_files'], d['unsaved_bytes']) == ('salvaged', 0, 0)"
check_exit 'and status' 1 'efs salvage has exported its results' "$EFS" status out
check_not 'which does not ask for another one' grep -q 'export:' <<<"$said"
check_exit 'and stop' 1 'efs salvage has exported its results.*efs clean out' "$EFS" stop out
check 'its command is one' advised efs clean
check 'and that was all' ended out

# --- stopped in order, without all results ---
fresh late
started "$JOB"; echo result >"$MNT/r"
mkdir -p "$OUT/r/taken"
check_exit 'time is up: how to go on' 1 "or continue: efs start $JOB\$" "$EFS" stop --deadline 1 late
check_exit 'status says that it was stopped' 1 '^late: stopped$' "$EFS" status late
check 'and what is not back' grep -q 'it was stopped, and not all results are exported. They are in ' <<<"$said"
check_not 'and of no dead daemon' grep -q 'its daemon is gone' <<<"$said"
check 'in JSON it is dead, as for a scheduler, and the reason is there' json "$(status_of late)" "(d['state'], d['left']) == ('dead', 'unsaved') and 'was stopped' in d['error']"
said=$("$EFS" status late 2>&1)
rm -r "$OUT/r"
check 'what status says to do' advised efs salvage
check 'brings it out' grep -qx result "$OUT/r"
check 'clean' "$EFS" clean late
fresh short
sed -i '/results-dir/a\  max-rate: 1 MB/s' "$JOB"
started "$JOB"; head -c 9000000 /dev/urandom >"$MNT/r"
check_exit 'time alone is no cause that could be removed' 1 'still in the buffer; export them: efs salvage short$' "$EFS" stop --deadline 1 short
check 'stop --no-stage-out' "$EFS" stop --no-stage-out short

# --- stopped in order, with all results, without the receipt ---
fresh unreceipted
started "$JOB"; echo result >"$MNT/r"
mkdir -p "$OUT/efs-receipt-unreceipted.json/taken"
check_exit 'what is not there is the receipt' 1 'All results are exported; the image .* stays. Remove it: efs clean unreceipted; or continue: ' "$EFS" stop --deadline 20 unreceipted
check_not 'and nothing else' grep -q 'The other results' <<<"$said"
check 'the result is there' grep -qx result "$OUT/r"
check_exit 'status says so, too' 0 '^unreceipted: kept' "$EFS" status unreceipted
check 'clean needs no force' "$EFS" clean unreceipted

# --- kept ---
fresh kept
started "$JOB"; echo result >"$MNT/r"
check 'stop --keep' "$EFS" stop --keep kept
check_exit 'of what is kept, all that should be back is' 0 "continue: efs start $JOB; export: efs salvage kept --all --to DIRECTORY; remove: efs clean kept\$" "$EFS" status kept
check_exit 'and that is not dropped with what is not' 1 'its buffer was kept in .*remove it: efs clean kept$' "$EFS" stop --no-stage-out kept
check_exit 'also where it is the only one' 1 'its buffer was kept in ' "$EFS" stop --no-stage-out
check 'it is there' grep -rqx result "$EFS_RUNTIME_DIR/kept/store/data"
check 'clean' "$EFS" clean kept

# --- a store that has lost data ---
dead broken
store=$EFS_RUNTIME_DIR/broken/store
cp "$store/meta/journal" "$S/journal"
printf 'X' | dd of="$store/meta/journal" bs=1 seek=3 conv=notrunc 2>/dev/null
check_exit 'a start on a damaged journal names the store' 1 "see the damage: efs check-image $store; export what is left: efs salvage $store" "$EFS" start "$JOB"
check_exit 'clean advises nothing that is refused' 1 'broken is not removed: .*damaged: efs check-image broken; or discard it: efs clean --force broken$' "$EFS" clean broken
cp "$S/journal" "$store/meta/journal"
check_exit 'whole again it can be brought out' 1 'Export the results: efs salvage broken; or continue: efs start ' "$EFS" clean broken
python3 - "$store/meta/journal" <<'PY'
import sys
with open(sys.argv[1], "r+b") as file:  # in a record that others follow
    at = file.read().index(b"input"); file.seek(at); file.write(b"I")
PY
check_exit 'a salvage says that no retry brings names that are lost' 1 'The journal has lost names. Restore the journal' "$EFS" salvage broken
check_not 'and calls no content lost' grep -qE 'results are lost|then retry' <<<"$said"
check_exit 'clean advises no start' 1 'broken is not removed: .*: efs check-image broken; export the rest: efs salvage broken; or discard it: efs clean --force broken$' "$EFS" clean broken
cp "$S/journal" "$store/meta/journal"
container=$(grep -rlx result "$store/data" | head -n 1)
rm "$container"
check_exit 'a start goes on without a container, and names the file' 0 '1 files cannot be read, first /' "$EFS" start "$JOB"
kill_both broken
check_exit 'clean does not advise one' 1 'efs check-image broken; export the rest: efs salvage broken; or discard it' "$EFS" clean broken
check_exit 'a salvage says that it is lost' 1 '^1 results are lost: their contents are gone' "$EFS" salvage broken
check_not 'and asks for no retry' grep -q 'then retry' <<<"$said"
check 'what it advises' advised efs clean --force
check 'is done' ended broken

# --- one message for many containers ---
mkdir "$S/disk"
findings() { field "$("$EFS" check-image --json "$NAME")" "len([f for f in d['findings'] if 'had been removed' in f['text']])"; }
# The daemon may sync the journal and free them before it is killed: then again.
for try in 1 2 3 4 5 6 7 8; do
  dead "removed$try" 'resources: []' "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/disk ] ]"
  started "$JOB"
  for i in {1..200}; do echo "$i" >"$MNT/f$i"; done; rm "$MNT"/f*
  kill_both "$NAME"
  [ "$(findings)" -le 100 ] || break
  "$EFS" clean --force "$NAME" >/dev/null 2>&1
done
check_exit 'removed files that were not freed yet' 3 'leftover: container [0-9]+ and [0-9]+ others: of a file that had been removed' "$EFS" check-image "$NAME"
check 'are one line' test "$(grep -c 'had been removed' <<<"$said")" = 1
check 'and in JSON all of them' test "$(findings)" -gt 100
journal=$(echo "$S"/disk/efs-*-"$NAME"/meta/journal)
python3 - "$journal" <<'PY'
import sys
with open(sys.argv[1], "r+b") as file:  # in the record of a name that others follow
    at = file.read().index(b"f100"); file.seek(at); file.write(b"F")
PY
check_exit 'a journal that is damaged' 1 'damage: journal: ' "$EFS" check-image "$NAME"
check_not 'what was made ahead is no damage of its own' grep -qE 'damage: container .*above the last of the journal \(0 bytes\)' <<<"$said"
check 'clean' "$EFS" clean --force "$NAME"

# --- root looks for an instance by its job file: the name that a user gave it is followed with the user's rights ---
if [ "$(id -u)" = 0 ] && id nobody >/dev/null 2>&1; then
  fresh theirs "resources: [ [ path: input ] ]"
  chown -R nobody "$S/theirs"
  mkdir -m 700 "$S/secret"; cp "$JOB" "$S/secret/theirs.yaml"
  started -u nobody "$JOB"
  mv "$JOB" "$JOB.old"; ln -s "$S/secret/theirs.yaml" "$JOB"
  check_exit 'a job file of root is no instance of a user whose name leads to it' 1 'no instance has the name, mount point or job file' "$EFS" stop "$S/secret/theirs.yaml"
  rm "$JOB"; ln -s theirs.yaml.old "$JOB"
  check_exit 'what the user can follow counts' 0 'complete' "$EFS" stop "$JOB.old"
  await 20 ended theirs
  rm "$JOB"; mv "$JOB.old" "$JOB"
  started -u nobody "$JOB"
  check_exit 'so does the name itself' 0 'complete' "$EFS" stop "$JOB"
else skip 'the job file of another user' 'needs root to become one'; fi
finish
