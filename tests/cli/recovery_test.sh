#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# After the death of the daemon: resume, salvage, keep, deadline, clean, check-image.
#   recovery_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# work: a job's work: results in new files and directories, a link, a changed input, and one that is
# only read.
work() {
  mkdir -p "$MNT/d/deep"
  head -c 3000000 /dev/urandom >"$MNT/d/deep/big"; cksum <"$MNT/d/deep/big" >"$S/big.sum"
  echo result >"$MNT/result"; ln -s result "$MNT/link"; ln "$MNT/result" "$MNT/hard"
  echo more >>"$MNT/input/a"; cat "$MNT/input/sub/b" >/dev/null
  echo gone >"$MNT/gone"; rm "$MNT/gone"
}
worked() { grep -qx result "$1/result" && [ "$(readlink "$1/link")" = result ] && cksum <"$1/d/deep/big" | cmp -s - "$S/big.sum" && [ ! -e "$1/gone" ]; }
# everything_of DIRECTORY: its files with attributes and contents.
everything_of() { find "$1" -printf '%P %y %m %n %s %T@ %C@\n' | sort; find "$1" -type f -exec cksum {} + | sort; }
PERSISTENT='resources: [ [ path: input, flags: persistent ] ]'

# --- both processes die: the same job continues ---
fresh resume "$PERSISTENT"
started "$JOB"; work
kill_both resume
check_exit 'status says that it is dead' 1 'dead' "$EFS" status resume
check 'and JSON where the store is' json "$(status_of resume)" "d['state'] == 'dead' and d['left'] == 'in-use' and d['store'].endswith('/store') and not d['restarted']"
before=$(everything_of "$EFS_RUNTIME_DIR/resume")
check_exit 'check-image of a store that was killed' 0 'whole' "$EFS" check-image resume
check_not 'has nothing to say of its space' grep -q 'note: space' <<<"$said"
check 'changes nothing' test "$before" = "$(everything_of "$EFS_RUNTIME_DIR/resume")"
check 'it has counted what is there' json "$("$EFS" check-image --json resume)" "(d['files'], d['bytes']) == ($(find "$PFS/input" -type f | wc -l) + 2, $(find "$EFS_RUNTIME_DIR/resume/store/data" -type f -printf '%b\n' | awk '{n += $1} END {print n * 512}'))"
echo new >"$PFS/input/new"                      # came after the first stage-in
echo changed on the PFS >"$PFS/input/sub/b"     # clean in the buffer, outdated
check_exit 'start goes on' 0 'mounted' "$EFS" start "$JOB"
check 'with what the job had written' worked "$MNT"
check 'and the changed input' grep -qx more "$MNT/input/a"
check 'a missing input is staged in' grep -qx new "$MNT/input/new"
check 'an outdated one anew' grep -qx 'changed on the PFS' "$MNT/input/sub/b"
check 'hard links are links still' test "$(stat -c %h "$MNT/result")" = 2
check_exit 'salvage of a running instance is refused' 1 'running' "$EFS" salvage resume
check_exit 'so is check-image' 1 'running|in use' "$EFS" check-image resume
check_exit 'and clean' 1 'running' "$EFS" clean resume
check 'stop' "$EFS" stop resume
check 'brings all back' worked "$OUT"
check 'the changed input too' grep -qx more "$OUT/input/a"
check 'and nothing else is left' ended resume

# --- the worker dies, and a successor takes over; then both die, and the next start continues: the
#     same journal, twice ---
# a_worker NAME WORKER: another worker than WORKER answers.
a_worker() { local text; text=$(status_of "$1" 2>/dev/null) && json "$text" "d['worker_pid'] != $2 and d['state'] == 'running'"; }
both_ways() { # both_ways NAME [START_OPTION...], after job
  local worker mapper io; local options=("${@:2}")
  started "$JOB" "${options[@]}"; work
  io=$(field "$(status_of "$1")" 'd["io"]')
  exec 7<>"$MNT/nameless"; echo open >&7; rm "$MNT/nameless"
  worker=$(field "$(status_of "$1")" 'd["worker_pid"]')
  kill -KILL "$worker"
  check "$1: a successor takes over" await 20 a_worker "$1" "$worker"
  check "$1: it has replayed the journal, and removed what was made ahead" grep -qE 'event=recovered .*unknown_containers=[1-9]' "$EFS_RUNTIME_DIR/$1/efsd.log"
  check "$1: what was written is there" worked "$MNT"
  check "$1: and what is open without a name" grep -qx open "/proc/$$/fd/7"
  echo after >"$MNT/after"
  python3 -c 'import mmap, os, sys, time
fd = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT); os.ftruncate(fd, 8192); m = mmap.mmap(fd, 8192)
m[0:6] = b"stored"; m[4096:4102] = b"synced"; m.flush(4096, 4096)
open(sys.argv[2], "w").close()
time.sleep(100)' "$MNT/mapped" "$S/$1/mapped" & mapper=$!; pids+=("$mapper")
  check "$1: a program with a mapping" await 20 test -e "$S/$1/mapped"
  kill_both "$1"; exec 7>&-
  kill -KILL "$mapper"; wait "$mapper" 2>/dev/null; pids=()
  check_exit "$1: check-image" 3 'had been removed, and was still open' "$EFS" check-image "$1"
  check_exit "$1: start goes on" 0 'mounted' "$EFS" start "$JOB" "${options[@]}"
  if [ "$io" = passthrough ]; then check "$1: a store through a mapping is there" test "$(head -c 6 "$MNT/mapped")" = stored; fi
  check "$1: and one with msync" test "$(tail -c 4096 "$MNT/mapped" | head -c 6)" = synced
  check "$1: with what was written under both workers" bash -c "grep -qx after '$MNT/after'"
  check "$1: what was open without a name is gone" grep -qE 'event=recovered .*nameless=[12] ' "$EFS_RUNTIME_DIR/$1/efsd.log"
  check "$1: a worker of this one is replaced, too" await 20 replaced "$1"
  check "$1: what was written" worked "$MNT"
  check "$1: stop --keep" "$EFS" stop --keep "$1"
  check "$1: the mount point of ours is gone" test ! -e "$MNT"
  check "$1: start again" "$EFS" start "$JOB" "${options[@]}"
  check "$1: what was written, still" worked "$MNT"
  check "$1: stop" "$EFS" stop "$1"
  check "$1: all is back" worked "$OUT"
  check "$1: nothing is left" ended "$1"
}
replaced() { local worker; worker=$(field "$(status_of "$1")" 'd["worker_pid"]'); kill -KILL "$worker"; await 20 a_worker "$1" "$worker"; }
fresh twice
both_ways twice
fresh twicedisk
mkdir "$S/twicedisk/store"
job "$JOB" "$PERSISTENT" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/twicedisk/store ] ]"
both_ways twicedisk
fresh twicedaemon
both_ways twicedaemon -o daemon-io

# --- killed while staging in: published files are not staged in again ---
fresh halfway
for i in $(seq 1 600); do head -c 400000 /dev/zero | tr '\0' "$((i % 10))" >"$PFS/input/f$i"; done
CAPACITY="400 MiB" job "$JOB" 'resources: [ [ path: input ] ]'
"$EFS" start --set 'max-rate=20 MB/s' "$JOB" >"$S/halfway/said" 2>&1 & starter=$!; pids+=("$starter")
some() { local text; text=$(status_of halfway 2>/dev/null) && json "$text" "d['state'] == 'staging-in' and d['files_done'] > 20"; }
check 'a stage-in that takes its time' await 20 some
kill_both halfway; wait "$starter" 2>/dev/null; code=$?; pids=()
check 'the start fails' test $code = 1
check 'it says what became of it, how to go on, and where the log is' grep -qE "^efs: halfway: its daemon died while it staged in: efsd .*\. .*not lost .*efs start --set 'max-rate=20 MB/s' $JOB; .*efs clean halfway\. .*$EFS_RUNTIME_DIR/halfway/efsd.log\$" "$S/halfway/said"
check 'the image is whole but for the files on their way' bash -c "'$EFS' check-image halfway >/dev/null; [ \$? -eq 0 -o \$? -eq 3 ]"
started "$JOB"
check 'everything is there' bash -c "for i in \$(seq 1 600); do cmp -s $PFS/input/f\$i $MNT/input/f\$i || exit 1; done"
check 'and not all of it was staged again' grep -qE 'event=resume_plan .*kept_files=[1-9]' "$EFS_RUNTIME_DIR/halfway/efsd.log"
check 'stop' "$EFS" stop halfway

# --- salvage ---
fresh salvage "$PERSISTENT"
started "$JOB"; work
kill_both salvage
check_exit 'salvage --list' 0 'not exported: [1-9]' "$EFS" salvage --list salvage
check 'names each file, with what would become of it' grep -qE '^persistent +dirty +.* d/deep/big$' <<<"$said"
check 'and each link' grep -q ' link -> result$' <<<"$said"
check 'inputs that are as they were, too' grep -qE '^persistent +clean +.* input/sub/b$' <<<"$said"
check 'in JSON' json "$("$EFS" salvage --list --json salvage)" "{(e['path'], e['dirty']) for e in d['items']} >= {('result', True), ('input/a', True), ('input/sub/b', False)}"
check 'writes nothing' test -z "$(ls -A "$OUT")"
said=$("$EFS" salvage --json salvage 2>/dev/null); code=$?
check 'salvage' test $code -eq 0
check 'brings out what a stop would have' worked "$OUT"
check 'changed inputs too, unchanged ones not' bash -c "grep -qx more $OUT/input/a && ! test -e $OUT/input/sub/b"
check 'the receipt says what is verified and what as found' json "$said" "all(e['evidence'] == ('as-found' if e['path'] in ('result', 'hard', 'd/deep/big', 'input/a') else 'verified') for e in d['receipt']['entries'] if e['action'] == 'staged-out') and 'records verified' in d['receipt']['note']"
again=$("$EFS" salvage --json salvage 2>/dev/null)
check 'of what was out before, too' json "$again" "d['receipt']['totals']['kept'] >= 4 and all(e['evidence'] == ('as-found' if e['path'] in ('result', 'hard', 'd/deep/big', 'input/a') else 'verified') for e in d['receipt']['entries'] if e['action'] in ('staged-out', 'kept'))"
check 'and is a file' test -s "$OUT/efs-salvage-salvage.json"
check_exit '--all without --to is usage' 2 '--to' "$EFS" salvage --all salvage
ln -s "$OUT" "$S/salvage/way"
check_exit 'and so is --to with the same place' 2 'is the job.s results-dir.*another directory' "$EFS" salvage --all --to "$S/salvage/way" salvage
check_exit '--to with the place of the inputs is, too' 2 'is the job.s root-dir.*another directory' "$EFS" salvage --to "$PFS" salvage
check 'the inputs are as they were' grep -qx alpha "$PFS/input/a"
check 'by another name results-dir is as by its own' "$EFS" salvage --to "$S/salvage/way" salvage
check 'salvage --all --to' "$EFS" salvage --all --to "$S/salvage/all" salvage
check 'brings inputs as well' bash -c "cmp $PFS/input/sub/b $S/salvage/all/input/sub/b && grep -qx more $S/salvage/all/input/a"
check 'salvage by job file' "$EFS" salvage --list "$JOB"
check 'and by directory' "$EFS" salvage --list "$EFS_RUNTIME_DIR/salvage/store"
check_exit 'clean, when all is salvaged' 0 'removed' "$EFS" clean salvage
check 'takes the dead mount along' bash -c "! grep -qF ' $MNT ' /proc/self/mounts"
check 'and the store' ended salvage

# --- a start after a salvage: the exported files are the PFS's version from then on ---
fresh onward "$PERSISTENT"
sed -i "s|results-dir: .*|results-dir: $PFS|; 1a\\  in-place: true" "$JOB"; OUT=$PFS
started "$JOB"; work
kill_both onward
check 'in place: salvage' "$EFS" salvage onward
started "$JOB"
check_exit 'explain knows what is back' 0 'results-dir has an earlier version of it' "$EFS" explain -i onward "$MNT/input/a"
echo again >>"$MNT/input/a"; echo again >>"$MNT/result"
check 'in place: what changes once more is no conflict' "$EFS" stop onward
check 'and is back' bash -c "grep -qx again $OUT/input/a && grep -qx again $OUT/result"
# A change by another writer in between is a conflict.
started "$JOB"; echo third >>"$MNT/input/a"
kill_both onward
check 'in place: salvage again' "$EFS" salvage onward
echo "from elsewhere, and longer" >>"$PFS/input/a"
started "$JOB"; echo fourth >>"$MNT/input/a"
check_exit 'a change on the PFS after the salvage is a conflict' 1 'conflict: input/a' "$EFS" stop onward
check 'given up' "$EFS" stop --no-stage-out onward

# --- a job file that depends on its circumstances ---
fresh around
job "$JOB" 'outputs: [ [ path: "$KIND-*", flags: persistent ] ]' 'resources: [ [ path: input ] ]'
KIND=kept "$EFS" start --set workers=3 "$JOB" >/dev/null 2>&1
echo result >"$MNT/kept-1"; echo scratch >"$MNT/other-1"
kill_both around
check_exit 'salvage without what was around' 0 'kept-1|salvag|1 ' "$EFS" salvage around
check 'brings out what it meant then' bash -c "grep -qx result $OUT/kept-1 && ! test -e $OUT/other-1"
check 'clean' "$EFS" clean around

# --- clean does not lose results ---
fresh careful
started "$JOB"; echo precious >"$MNT/r"
kill_both careful
check_exit 'clean refuses where results would be lost' 1 'salvage careful' "$EFS" clean
check 'the store is still there' "$EFS" salvage --list careful
check_exit 'clean --force does not' 0 'removed' "$EFS" clean --force careful
check 'nothing is left of it' ended careful
fresh over
started "$JOB"; echo out already >"$MNT/r"
kill_both over
sed -i 's/"left": "in-use"/"left": "over"/; /"checksum"/d' "$EFS_RUNTIME_DIR/over/instance.json"
check_exit 'what a stop had brought out, and had no time to remove, goes without --force' 0 'over: removed' "$EFS" clean over
check_exit 'salvage of nothing' 1 'left|no instance' "$EFS" salvage careful
check_exit 'clean of nothing' 0 'nothing' "$EFS" clean

# --- a store outside the instance's directory (a file system) ---
fresh disk
mkdir "$S/disk/store"
job "$JOB" "$PERSISTENT" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/disk/store ] ]"
started "$JOB"; work; sync "$MNT/d/deep/big"
closed() { ! find "$@" -perm /077 | grep .; }
check 'nobody else looks into it' closed "$S/disk/store/efs-0-disk" ! -type l
kill_both disk
check 'the store is found by the instance' "$EFS" salvage --list disk
rm -rf "${EFS_RUNTIME_DIR:?}/disk"; umount "$MNT"    # as after a restart of the machine
check 'and by the job file alone' "$EFS" salvage --list "$JOB"
check 'and by its directory' "$EFS" check-image "$S/disk/store/efs-0-disk"
sed 's/"boot_id": "[^"]*"/"boot_id": "another"/; /"checksum"/d' -i "$S/disk/store/efs-0-disk/meta/instance.json"
site=$S/disk/site.yaml lost=$S/disk/store/efs-0-disk
printf 'backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: %s ] ]\n' "$S/disk/store" >"$site"
check 'and in a directory of the site it is listed with the instances' json "$(EFS_SITE_FILE=$site "$EFS" ls --instances --json)" \
  "[(i['name'], i['directory'], i['state'], i['restarted'], i['lost']) for i in d if 'lost' in i] == [('disk', '$lost', 'dead', True, True)]"
check_exit 'with the way out' 1 "export: efs salvage $lost; remove: efs clean $lost" env EFS_SITE_FILE="$site" "$EFS" ls --instances
check 'not where the site has other directories' json "$("$EFS" ls --instances --json)" "not any('lost' in i for i in d)"
looks() { while :; do EFS_SITE_FILE=$site "$EFS" ls --instances; done >/dev/null 2>&1; }
set -m; looks & looker=$!; set +m
busy=0
for _ in 1 2 3 4 5 6 7 8 9 10 11 12; do "$EFS" start "$JOB" >"$S/started" 2>&1 && "$EFS" stop --keep disk >>"$S/started" 2>&1 || busy=1; rm -rf "${EFS_RUNTIME_DIR:?}/disk"; done
kill -- -"$looker"; wait "$looker" 2>/dev/null
check 'who looks at it keeps nobody from starting' test "$busy" = 0
sed 's/"boot_id": "[^"]*"/"boot_id": "another"/; /"checksum"/d' -i "$lost/meta/instance.json"
rm "$site"
check 'after a restart the receipt says so' bash -c "'$EFS' salvage --to $S/disk/to $JOB && grep -q 'restarted' $S/disk/to/efs-salvage-disk.json"
check 'what was synced is there' bash -c "cksum <$S/disk/to/d/deep/big | cmp -s - $S/big.sum"
started "$JOB"
check 'start goes on after a restart' worked "$MNT"
check 'stop' "$EFS" stop disk
check 'brings it back' worked "$OUT"
check 'the store is gone' bash -c "! ls -d $S/disk/store/efs-* 2>/dev/null"

# --- only the store remains: a restart of the machine has emptied /run ---
fresh orphan "$PERSISTENT"
mkdir "$S/orphan/store"
job "$JOB" "$PERSISTENT" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/orphan/store ] ]"
started "$JOB"; work
kill_both orphan
store=$S/orphan/store/efs-0-orphan
check_exit 'clean takes a store by its directory, where its instance is there' 1 'orphan is not removed: .*no other copy.*efs clean --force orphan' "$EFS" clean "$store"
rm -rf "${EFS_RUNTIME_DIR:?}/orphan"; umount "$MNT"
check_exit 'and where it is not' 1 "$store is not removed: .*no other copy.*efs salvage $store; .*efs clean --force $store" "$EFS" clean "$store"
check_exit 'or by the job file' 1 "$store is not removed" "$EFS" clean "$JOB"
check_exit 'salvage --list says what is in it' 0 '^persistent +dirty +7 B +result$' "$EFS" salvage --list "$store"
check_exit 'salvage by that directory says how to remove it' 0 "until: efs clean $store\$" "$EFS" salvage "$store"
check 'and has brought it out' worked "$OUT"
check_exit 'which works' 0 "$store: removed" "$EFS" clean "$store"
check 'and leaves nothing' test -z "$(ls -A "$S/orphan/store")"

# --- power loss erased a container: readers get an error ---
fresh emptied "$PERSISTENT"
mkdir "$S/emptied/store"
job "$JOB" "$PERSISTENT" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/emptied/store ] ]"
started "$JOB"; echo whole >"$MNT/whole"; echo "without a sync" >"$MNT/lost"
kill_both emptied
rm "$(grep -rlx 'without a sync' "$S/emptied/store/efs-0-emptied/data" | head -n 1)"
check_exit 'without power loss a start does not call it empty' 0 '1 files cannot be read, first /lost' "$EFS" start "$JOB"
kill_both emptied
sed 's/"boot_id": "[^"]*"/"boot_id": "another"/; /"checksum"/d' -i "$S/emptied/store/efs-0-emptied/meta/instance.json"
started "$JOB"
check_exit 'explain tells whose content power loss took' 0 'power loss took it' "$EFS" explain -i emptied "$MNT/lost"
check_exit 'so does the stop, which fails for it' 3 'lost.*power loss took it' "$EFS" stop emptied
check 'and the receipt' json "$(cat "$OUT/efs-receipt-emptied.json")" "[e['path'] for e in d['entries'] if 'power loss' in e.get('reason', '')] == ['lost']"
check 'the rest is back' grep -qx whole "$OUT/whole"
check 'and no empty file in the place of the lost one' test ! -e "$OUT/lost"
"$EFS" stop --deadline 60 emptied >/dev/null 2>&1
started "$JOB"
check_exit 'the start after this one remembers it' 1 'lost.*power loss took it' "$EFS" stop emptied
"$EFS" stop --no-stage-out emptied >/dev/null 2>&1

# --- keep ---
fresh keep "$PERSISTENT"
started "$JOB"; work
check 'stop --keep' "$EFS" stop --keep keep
check 'stages out' worked "$OUT"
check 'status calls it kept' json "$(status_of keep)" "d['state'] == 'kept'"
check 'and so does ls --instances' json "$("$EFS" ls --instances --json)" "[(i['name'], i['state']) for i in d] == [('keep', 'kept')]"
check_exit 'for people, too' 0 '^keep: kept' "$EFS" ls --instances
check 'clean without a name leaves it' bash -c "'$EFS' clean; '$EFS' status keep"
out=$(stat -c '%i %z' "$OUT/result" "$OUT/d/deep/big")
started "$JOB"
check 'the next start has everything in place' worked "$MNT"
check 'and staged nothing in' grep -qE 'event=resume_plan missing_files=0' "$EFS_RUNTIME_DIR/keep/efsd.log"
echo second >"$MNT/second"
check 'stop --keep again' "$EFS" stop --keep keep
check 'brings what is new' grep -qx second "$OUT/second"
check 'and not again what was back' test "$(stat -c '%i %z' "$OUT/result" "$OUT/d/deep/big")" = "$out"
mkdir -p "$S/elsewhere/input"
check_exit 'another job under this name is refused' 1 'another job' "$EFS" start -r "$S/elsewhere" "$JOB"
check 'clean by name' "$EFS" clean keep
check 'removes it' ended keep
fresh keepfails "$PERSISTENT"
started "$JOB"; echo result >"$MNT/result"
check 'stop --keep' "$EFS" stop --keep keepfails
echo new >"$PFS/input/new"; mv "$PFS/input" "$PFS/aside"
check_exit 'a start on it whose input is gone fails' 1 'input' "$EFS" start "$JOB"
check 'and it is kept as before' json "$(status_of keepfails)" "d['state'] == 'kept'"
mv "$PFS/aside" "$PFS/input"
started "$JOB"
check 'the next start has everything in place' grep -qx result "$MNT/result"
check 'and what is new' grep -qx new "$MNT/input/new"
check 'stop' "$EFS" stop keepfails
fresh kinds "$PERSISTENT"
mkdir "$PFS/input/grows" "$PFS/input/stuck"; echo f >"$PFS/input/grows/f"; echo s >"$PFS/input/stuck/s"; echo x >"$PFS/input/x"
sed -i "s|results-dir: .*|in-place: true\n  deletions: propagate|" "$JOB"
started "$JOB"
rm -r "$MNT/input/sub"; echo result >"$MNT/result"
mkdir "$PFS/input/sub/new"   # meanwhile
check 'stop --keep of a job that removed a directory' "$EFS" stop --keep kinds
rm "$PFS/input/x"; mkdir "$PFS/input/x"; echo c >"$PFS/input/x/c"
rm -r "$PFS/input/grows"; echo file >"$PFS/input/grows"
check 'a start on it, with inputs of another kind now' "$EFS" start "$JOB"
check 'a directory that the job removed is back with what is new in it' test -d "$MNT/input/sub/new"
check 'what became a directory is one' grep -qx c "$MNT/input/x/c"
check 'what became a file is one' grep -qx file "$MNT/input/grows"
check 'what the job made' grep -qx result "$MNT/result"
echo mine >"$MNT/input/stuck/own"
kill_both kinds
rm -r "$PFS/input/stuck"; echo file >"$PFS/input/stuck"
check_exit 'where the job has changed what is in it, the start says how to go on' 1 'input/stuck: is a file on the PFS now, and a directory in the buffer' "$EFS" start "$JOB"
check 'with a way out' grep -q 'efs salvage kinds --to' <<<"$said"
rm "$PFS/input/stuck"; mkdir "$PFS/input/stuck"
started "$JOB"
check 'as it was, it goes on' grep -qx mine "$MNT/input/stuck/own"
check 'stop' "$EFS" stop kinds
fresh elsewhere "$PERSISTENT"
started "$JOB"; echo result >"$MNT/result"
kill_both elsewhere
check 'start with another mount-dir' "$EFS" start -m "$S/elsewhere/other" "$JOB"
check 'has what was there' grep -qx result "$S/elsewhere/other/result"
check_not 'the dead mount is gone' mounted "$MNT"
check_not 'with the directory that efs made' test -e "$MNT"
check 'stop' "$EFS" stop elsewhere
fresh keeps "$PERSISTENT"
started "$JOB"; echo result >"$MNT/result"
check 'stop --keep' "$EFS" stop --keep keeps
check_exit 'a second stop says that it was kept' 1 'keeps has been stopped, and its buffer was kept.*efs clean keeps' "$EFS" stop keeps
check_exit 'clean without a name has nothing to do' 0 'nothing to remove' "$EFS" clean
check_exit 'with --kept it has' 0 'keeps: removed' "$EFS" clean --kept
check 'removes it' ended keeps
fresh inplace
job "$JOB" "$PERSISTENT"; sed -i "s|results-dir: .*|in-place: true|" "$JOB"
started "$JOB"; echo one >>"$MNT/input/a"
check 'stop --keep in place' "$EFS" stop --keep inplace
started "$JOB"; echo two >>"$MNT/input/a"
check 'a second round is no conflict' "$EFS" stop inplace
check 'and has both changes' bash -c "printf 'alpha\none\ntwo\n' | cmp - $PFS/input/a"

# For an input that the job removed, results-dir decides whether it is imported again; an unreadable
# results-dir is no answer.
fresh looks "$PERSISTENT"
started "$JOB"; rm "$MNT/input/sub/b"
check 'stop --keep' "$EFS" stop --keep looks
mkdir -p "$OUT/input"; ln -s sub "$OUT/input/sub"    # a loop
check_exit 'a result that cannot be looked at is no start' 1 'input/sub/b cannot be compared with the buffer of an earlier instance' "$EFS" start "$JOB"
rm "$OUT/input/sub"
started "$JOB"
check 'when it can the input is back' cmp "$MNT/input/sub/b" "$PFS/input/sub/b"
check 'stop' "$EFS" stop looks

# A killed stage-out in place leaves partials among the inputs: the next start does not import them.
CAPACITY='256 MiB' fresh halves "$PERSISTENT"
for i in $(seq 1 40); do head -c 500000 /dev/urandom >"$PFS/input/h$i"; done
sed -i "s|results-dir: .*|in-place: true\n  max-rate: 5 MB/s|" "$JOB"
started "$JOB"
for i in $(seq 1 40); do head -c 500000 /dev/urandom >"$MNT/input/h$i"; done
sums=$(cd "$MNT/input" && cksum h? h??)
text=$(status_of halves); both="$(field "$text" 'd["supervisor_pid"]') $(field "$text" 'd["worker_pid"]')"    # now, for the moment is short
"$EFS" stop halves >/dev/null 2>&1 & stopper=$!; pids+=("$stopper")
check 'a stage-out in place that is under way' await 20 compgen -G "$PFS/input/*.efs-partial"
# shellcheck disable=SC2086
kill -KILL $both; for process in $both; do await 20 gone "$process"; done; wait "$stopper" 2>/dev/null; pids=()
check 'killed, it leaves partials' compgen -G "$PFS/input/*.efs-partial"
started --set "max-rate=100 GB/s" "$JOB"
check_not 'which are on no mount' compgen -G "$MNT/input/*.efs-partial"
check 'stop' "$EFS" stop halves
check 'every byte is back' test "$(cd "$PFS/input" && cksum h? h??)" = "$sums"
check_not 'and no partial is left' compgen -G "$PFS/input/*.efs-partial"

# --- deadline ---
CAPACITY='512 MiB' fresh late 'resources: [ [ path: input ] ]' 'outputs: [ [ path: first, flags: persistent ], [ path: "**", flags: persistent ] ]'
check_exit 'a job file with an order of outputs' 0 'good' "$EFS" check "$JOB"
started "$JOB"
mkdir "$MNT/first"; echo important >"$MNT/first/z"
for i in 1 2 3; do head -c 60000000 /dev/zero >"$MNT/a$i"; done
said=$("$EFS" stop --json --deadline 0.0001 late 2>/dev/null); code=$?
check 'stop --deadline that is too short does not succeed' test $code -ne 0
check 'lists what is not saved' json "$said" "d['receipt']['totals']['not-saved'] > 0 and 'image' in d"
check 'each result is in the list, back or not saved' json "$said" "{e['path'] for e in d['receipt']['entries'] if e['action'] in ('staged-out', 'not-saved')} >= {'first/z', 'a1', 'a2', 'a3'}"
check 'the daemon is gone' no_daemon
check 'the image is kept' json "$(status_of late)" "d['left'] == 'unsaved'"
check 'salvage brings it out' "$EFS" salvage late
check 'all of it' bash -c "grep -qx important $OUT/first/z && for i in 1 2 3; do cmp $OUT/a\$i <(head -c 60000000 /dev/zero) || exit 1; done"
check 'clean' "$EFS" clean late
# The deadline expires half way: the first files in the order are exported, although others are
# smaller. The rest is in the store.
fresh bites 'resources: [ [ path: input ] ]' 'outputs: [ [ path: first, flags: persistent ], [ path: "**", flags: persistent ] ]'
sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"
started "$JOB"
mkdir "$MNT/first"; head -c 4000000 /dev/urandom >"$MNT/first/z"
for i in {1..40}; do head -c 2000000 /dev/urandom >"$MNT/a$i"; done
sums=$(cd "$MNT" && cksum first/z a*) first=$(cksum <"$MNT/first/z")
said=$(timeout 30 "$EFS" stop --json --deadline 8 bites 2>/dev/null); code=$?
check 'a deadline half way does not succeed' test $code -ne 0 -a $code -ne 124
check 'what goes first is back' test "$(cksum <"$OUT/first/z")" = "$first"
check 'and listed so' json "$said" "[e['action'] for e in d['receipt']['entries'] if e['path'] == 'first/z'] == ['staged-out']"
check 'what had no time left is listed' json "$said" "[e for e in d['receipt']['entries'] if e['action'] == 'not-saved' and e['path'].startswith('a')] != []"
check 'no name leads to half a file' bash -c "cd '$OUT' && for f in a*; do case \$f in *.efs-partial | 'a*') ;; *) [ \$(stat -c %s \$f) = 2000000 ] || exit 1 ;; esac; done"
check 'salvage brings out the rest' "$EFS" salvage bites
check 'every byte' test "$(cd "$OUT" && cksum first/z a*)" = "$sums"
check 'clean' "$EFS" clean bites
fresh intime
started "$JOB"; echo r >"$MNT/r"
check 'stop --deadline that is long enough' "$EFS" stop --deadline 100 intime
check 'is a stop' grep -qx r "$OUT/r"

# The client and the worker both died, and no process continues: that stop's deadline does not apply
# to the next one.
fresh alone
sed -i '/results-dir/a\  deadline: 2' "$JOB"
started "$JOB"; echo r >"$MNT/r"
worker=$(field "$(status_of alone)" 'd["worker_pid"]')
(cd "$MNT" && exec sleep 600) & holder=$!; pids+=($holder)
"$EFS" stop alone >/dev/null 2>&1 & asker=$!
check 'alone: a stop has begun' await 20 grep -q 'state=unmounting' "$EFS_RUNTIME_DIR/alone/efsd.log"
kill -KILL $asker "$worker" 2>/dev/null; wait $asker 2>/dev/null
check 'alone: a successor takes over' await 20 a_worker alone "$worker"
read -rt 2.5 <> <(:) || :   # longer than that stop would have had
kill $holder; wait $holder 2>/dev/null
check 'alone: the next stop has its own time' "$EFS" stop alone
check 'alone: it brings all out' grep -qx r "$OUT/r"

fresh contested "$PERSISTENT"
sed -i "s|results-dir: .*|in-place: true|" "$JOB"
started "$JOB"; echo mine >>"$MNT/input/a"; echo theirs >"$PFS/input/a"
check_exit 'a conflict names the ways out' 1 'efs set temporary PATH.*--deadline.*--to DIRECTORY' "$EFS" stop contested
check_exit 'status tells why it is unsaved' 0 'conflict: input/a' "$EFS" status contested
check_exit 'with a deadline it is a conflict still' 1 'conflict: input/a' "$EFS" stop --deadline 600 contested
check_not 'and not for want of time' grep -qi 'time was up' <<<"$said"
check_not 'no stop can be tried again' grep -q 'retry: efs stop' <<<"$said"
check 'a salvage can' grep -q 'efs salvage contested' <<<"$said"
check 'elsewhere it succeeds' "$EFS" salvage --to "$S/contested/to" contested
check 'clean' "$EFS" clean contested
fresh ahead "$PERSISTENT"
sed -i "s|results-dir: .*|in-place: true\n  deadline: 60|" "$JOB"
"$EFS" start -f "$JOB" >"$S/ahead/said" 2>&1 & starter=$!; pids+=("$starter")
is_running() { json "$(status_of "$1" 2>/dev/null)" "d['state'] == 'running'"; }
check 'a start in the foreground' await 20 is_running ahead
echo mine >>"$MNT/input/a"; echo theirs >"$PFS/input/a"
"$EFS" stop ahead >/dev/null 2>&1
wait "$starter"; code=$?; pids=()
check 'whose results are not back does not succeed' test $code = 1
check 'and says how to get them' grep -q 'efs salvage ahead' "$S/ahead/said"
check 'clean' "$EFS" clean --force ahead

# --- a full store: the kind of its end is recorded all the same ---
CAPACITY='32 MiB' fresh full "$PERSISTENT"
started "$JOB"; echo r >"$MNT/r"
fill() { dd if=/dev/zero of="$MNT/fill" bs=64k; dd if=/dev/zero of="$MNT/fill2" bs=4k; ! dd if=/dev/zero of="$MNT/fill3" bs=4k count=1; } 2>/dev/null
check 'a store that is full' fill
"$EFS" stop --deadline 0.0001 full >/dev/null 2>&1
check 'stop --deadline: the image is unsaved' json "$(status_of full)" "d['left'] == 'unsaved'"
started "$JOB"
kill_both full
check 'in use again, and dead' json "$(status_of full)" "d['left'] == 'in-use'"
started "$JOB"
check 'stop --keep' "$EFS" stop --keep full
check 'and it is kept' json "$(status_of full)" "d['state'] == 'kept'"
check 'with a manifest in the store that says so' grep -q '"left": "kept"' "$EFS_RUNTIME_DIR/full/store/meta/instance.json"
check 'clean without a name leaves it' bash -c "'$EFS' clean; '$EFS' status full"
# The job file sets the capacity; a smaller one does not affect existing files.
CAPACITY='48 MiB' job "$JOB" "$PERSISTENT"
started "$JOB"
check 'what it had' grep -qx r "$MNT/r"
check 'a larger capacity makes room' test "$(df --output=size -m "$MNT" | tail -n 1)" -ge 40
check 'for more' dd if=/dev/zero of="$MNT/fill3" bs=64k count=128 status=none
check 'stop --keep' "$EFS" stop --keep full
CAPACITY='32 MiB' job "$JOB" "$PERSISTENT"
if [ "$(id -u)" = 0 ]; then check_exit 'a smaller one is told' 0 '^efs: warning: full: its store was left with a capacity of 48 MiB and does not get smaller' "$EFS" start "$JOB"; else started "$JOB"; fi
check 'and changes nothing' test "$(df --output=size -m "$MNT" | tail -n 1)" -ge 40
kill_both full
check_exit 'check-image tells that it holds more than that' 0 'note: space: the containers have ' "$EFS" check-image full
started "$JOB"
check 'stop' "$EFS" stop full
check 'all is brought out' test "$(stat -c %s "$OUT/fill3")" = 8388608

# --- damaged stores ---
fresh damaged
started "$JOB"; work
kill_both damaged
store=$EFS_RUNTIME_DIR/damaged/store
echo unfinished >"$store/data/c8/00000000000000c8"
check_exit 'check-image finds a container that no record knows' 3 'leftover: container 200' "$EFS" check-image damaged
check 'says it in JSON' json "$("$EFS" check-image --json damaged)" "d['exit'] == 3 and d['findings'][0]['severity'] == 'leftover'"
check_exit '--repair removes it' 0 'whole' "$EFS" check-image --repair damaged
container=$(grep -rlx result "$store/data" | head -n 1)
ln "$container" "$store/data/ff/0000000000000fff"
check_exit 'a container with two names in the store is damage' 1 'damage: container .*would share' "$EFS" check-image damaged
rm "$store/data/ff/0000000000000fff"
mv "$container" "$S/kept-aside"
check_exit 'a missing container is damage' 1 'damage: .*missing' "$EFS" check-image damaged
check_exit '--repair invents nothing' 1 'damage' "$EFS" check-image --repair damaged
mv "$S/kept-aside" "$container"
check_exit 'whole again' 0 'whole' "$EFS" check-image damaged
cp "$store/meta/journal" "$S/journal"
printf 'X' | dd of="$store/meta/journal" bs=1 seek=3 conv=notrunc 2>/dev/null
check_exit 'a damaged header' 1 'damage: journal' "$EFS" check-image damaged
check_exit 'is no start' 1 'journal' "$EFS" start "$JOB"
check 'and nothing was removed' test -e "$store/meta/journal"
cp "$S/journal" "$store/meta/journal"
mv "$store/meta/journal" "$S/journal-aside"
check_exit 'containers without a journal' 1 'containers of an earlier instance, but its journal .* is missing' "$EFS" start "$JOB"
check 'are not begun anew with' bash -c "[ ! -e '$store/meta/journal' ] && grep -rqlx result '$store/data'"
check_exit 'clean does not take them for nothing' 1 'damaged is not removed: [0-9]+ containers have content.*journal.*efs clean --force damaged' "$EFS" clean damaged
mv "$S/journal-aside" "$store/meta/journal"
python3 - "$store/meta/journal" <<'PY'
import sys
with open(sys.argv[1], "r+b") as file:  # in the record of a name that others follow
    at = file.read().index(b"hard"); file.seek(at); file.write(b"H")
PY
check_exit 'a record that is damaged, and good ones follow' 1 'good records follow' "$EFS" start "$JOB"
check_exit 'a salvage does not call that all' 3 'good records follow' "$EFS" salvage damaged
check 'but brings out what was before' grep -qx result "$OUT/result"
check_exit 'clean does not remove it' 1 'damaged is not removed.*good records follow.*--force' "$EFS" clean damaged
check_exit 'nor does clean without a name' 1 'damaged is not removed' "$EFS" clean
cp "$S/journal" "$store/meta/journal"
started "$JOB"
check 'with the journal back it goes on' worked "$MNT"
kill_both damaged
: >"$store/meta/removed"
started "$JOB"
check 'the mark of a removal counts without a journal only' worked "$MNT"
rm "$store/meta/removed"
cp "$store/meta/journal" "$S/journal"
echo last >"$MNT/last"
check 'stop --keep' "$EFS" stop --keep damaged
cp "$store/meta/journal" "$S/journal-kept"; cp "$S/journal" "$store/meta/journal"
check_exit 'a journal older than that of the stop' 1 'damage: journal: it ends at record .*older than its store' "$EFS" check-image damaged
check_exit 'is no start' 1 'it ends at record .*older than its store' "$EFS" start "$JOB"
check 'and nothing was removed' grep -rqx last "$store/data"
before=$(find "$OUT" -ls)
check_exit 'a salvage puts nothing older in the place of what was brought out' 1 'all its results were exported, and now the journal is .*older than its store.*efs salvage --to DIR damaged' "$EFS" salvage damaged
check 'nothing has changed there' test "$(find "$OUT" -ls)" = "$before"
check_exit 'elsewhere it brings out what there is, and does not call it all' 3 'ends before records that it had' "$EFS" salvage --to "$S/damaged/to" damaged
cp "$S/journal-kept" "$store/meta/journal"
container=$(grep -rlx last "$store/data" | head -n 1)
mv "$container" "$S/kept-aside"; mkfifo "$container"
check_exit 'a pipe in the place of a container is damage' 1 'damage: last: its container .* is not a regular file' "$EFS" check-image damaged
check_exit 'which a start names' 0 '1 files cannot be read, first /last' "$EFS" start "$JOB"
check_exit 'and no program waits for' 1 'needs cleaning' timeout 20 cat "$MNT/last"
kill_both damaged
rm "$container"; mv "$S/kept-aside" "$container"
started "$JOB"
check 'with the last one it goes on' grep -qx last "$MNT/last"
check 'stop' "$EFS" stop damaged

# --- several backends, the first in memory: a restart leaves the others without a journal ---
fresh two
mkdir "$S/two/store"
job "$JOB" "$PERSISTENT" "backends: [ [ id: mem, type: DRAM, capacity: 64 MiB ], [ id: nvml, type: NVRAM-NVML, daxfs: $S/two/store ] ]"
started "$JOB"; echo some >"$MNT/some"
printf 'backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: %s ] ]\n' "$S/two/store" >"$S/two/site.yaml"
of_site() { EFS_SITE_FILE=$S/two/site.yaml "$EFS" ls --instances --json; }
check 'what runs is listed once' json "$(of_site)" "[i['name'] for i in d] == ['two']"
kill_both two
check 'and so is what has died' json "$(of_site)" "[i['name'] for i in d] == ['two']"
umount "$MNT"; umount "$EFS_RUNTIME_DIR"/two/store*; rm -rf "${EFS_RUNTIME_DIR:?}/two"
lost=$S/two/store/efs-0-two.1
check 'what a restart has left of it is listed' json "$(of_site)" "[(i['directory'], i['lost'], 'gone with the journal' in i['error']) for i in d] == [('$lost', True, True)]"
check 'and doctor has it' json "$(EFS_SITE_FILE=$S/two/site.yaml "$EFS" doctor --json)" "any('$lost' in c['what'] and c['advice'].startswith('rm -r') for c in d['checks'])"
rm -r "$lost" "$S/two/site.yaml"

# --- a restart of the machine does not explain damage to synced data ---
fresh older "$PERSISTENT"
disk=$S/older
[ "$(stat -f -c %T "$disk")" != tmpfs ] || disk=$(mktemp -d -p /var/tmp)    # memory has nothing that survives
mkdir "$disk/store"
job "$JOB" "$PERSISTENT" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $disk/store ] ]"
started "$JOB"; work
sync "$MNT/result"; echo more >"$MNT/more"
kill_both older
store=$disk/store/efs-0-older
sed 's/"boot_id": "[^"]*"/"boot_id": "another"/; /"checksum"/d' -i "$store/meta/instance.json"
cp "$store/meta/journal" "$S/journal"
python3 - "$store/meta/journal" <<'PY'
import sys
with open(sys.argv[1], "r+b") as file:
    at = file.read().index(b"hard"); file.seek(at); file.write(b"H")
PY
check_exit 'damage of what was synced, after a restart' 1 'damage: journal: .*had reached the medium' "$EFS" check-image "$store"
check_exit 'is no start' 1 'had reached the medium' "$EFS" start "$JOB"
check 'and nothing was removed' grep -rqx more "$store/data"
check_exit 'a salvage does not call it all' 3 'had reached the medium' "$EFS" salvage older
cp "$S/journal" "$store/meta/journal"
started "$JOB"
check 'with the journal as it was it goes on' worked "$MNT"
check 'stop' "$EFS" stop older
rm -r "$disk"

# --- parts of another instance: only their own ids distinguish them ---
fresh other; started "$JOB"; work; kill_both other
fresh swapped; started "$JOB"; work; kill_both swapped
store=$EFS_RUNTIME_DIR/swapped/store other=$EFS_RUNTIME_DIR/other/store
put_in() {  # put_in PART WHAT
  mv "$store/$1" "$store/$1.own"; cp -a "$other/$1" "$store/$1"
  check_exit "$2 of another instance: check-image" 1 'damage: .*another instance' "$EFS" check-image swapped
  check_exit "$2 of another instance: salvage" 1 'another instance' "$EFS" salvage swapped
  check_exit "$2 of another instance: no start" 1 'another instance' "$EFS" start "$JOB"
  check "$2 of another instance: nothing was removed" diff -r --no-dereference "$other/$1" "$store/$1"
  rm -r "$store/$1"; mv "$store/$1.own" "$store/$1"
}
put_in meta/journal 'a journal'
put_in data containers
started "$JOB"
check 'with its own it goes on' worked "$MNT"
check 'stop' "$EFS" stop swapped
check 'and the other' "$EFS" clean --force other

# --- snapshots in a running daemon ---
fresh grown
started "$JOB"
echo kept >"$MNT/kept"
check 'many changes' python3 - "$MNT/kept" <<'PY'
import os, sys
for i in range(500): os.setxattr(sys.argv[1], "user.big", bytes([i % 250 + 1]) * 60000)
PY
check 'the journal has been replaced by a snapshot' test "$(stat -c %s "$EFS_RUNTIME_DIR/grown/store/meta/journal")" -lt 20000000
kill_both grown
started "$JOB"
check 'which recovers' python3 - "$MNT/kept" <<'PY'
import os, sys
v = os.getxattr(sys.argv[1], "user.big"); sys.exit(v != bytes([499 % 250 + 1]) * 60000 or open(sys.argv[1]).read() != "kept\n")
PY
check 'stop' "$EFS" stop grown

# --- a worker that its user stops by a signal: a program's call that waits for it cannot be killed
#     ---
if [ "$(id -u)" = 0 ] && id nobody >/dev/null 2>&1; then
  fresh asleep
  chown -R nobody "$S/asleep"
  started -u nobody --mount-dir "$MNT" "$JOB"
  as_nobody() { setpriv --reuid nobody --clear-groups "$@"; }
  text=$(status_of asleep)
  supervisor=$(field "$text" 'd["supervisor_pid"]') worker=$(field "$text" 'd["worker_pid"]')
  check_not 'a user cannot stop the supervisor' as_nobody kill -STOP "$supervisor"
  as_nobody "$SOURCE/tests/cli/stuck.py" "$MNT" "$worker" >"$S/asleep/stuck" & user=$!; pids+=($user)
  check 'but the worker, which is his, so that nobody can kill who waits for it' await 100 test -s "$S/asleep/stuck"
  check 'it goes on, and he ends' await 40 gone $user
  check 'it has the files that it had' grep -qx alpha "$MNT/input/a"
  check 'the log says so' grep -q "event=worker_continued pid=$worker " "$EFS_RUNTIME_DIR/asleep/efsd.log"
  check 'nobody has taken over' json "$(status_of asleep)" 'd["takeovers"] == 0'
  as_nobody kill -STOP "$worker"
  check 'a stop does not wait for ever, either' timeout 60 "$EFS" stop asleep
else skip 'a worker that its own user stops' 'needs root and the user nobody'; fi

finish
