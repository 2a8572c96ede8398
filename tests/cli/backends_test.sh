#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Several backends as one device: the place of files, ENOSPC and spill, df, explain, death of the
# daemon, salvage, loss of a backend.
#   backends_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

a_worker() { local text; text=$(status_of "$1" 2>/dev/null) && json "$text" "d['worker_pid'] != $2 and d['state'] == 'running'"; }
RULES='outputs: [ [ path: ckpt, backend: bulk ], [ path: "**" ] ]'
# two NAME ON-FULL [LINE...]: a job with 24 MiB of memory and a directory; `input` is in the first,
# `big` in the second.
two() {
  local name=$1 policy=$2; shift 2
  DISK=$S/$name/disk; mkdir -p "$DISK" "$S/$name/pfs/big"
  head -c 3000000 /dev/urandom >"$S/$name/pfs/big/b"
  fresh "$name" "backends: [ [ id: fast, type: DRAM, capacity: 24 MiB ], [ id: bulk, type: NVRAM-NVML, daxfs: $DISK, capacity: ${BULK:-64 MiB}, enforce: ${ENFORCE:-advisory} ] ]" \
    'resources: [ [ path: input ], [ path: big, backend: bulk ] ]' "${@:-$RULES}"
  sed -i "1a\\  on-full: $policy" "$JOB"
}
# backend_of PATH: the backend's id, from ls --json.
backend_of() { local text; text=$(cd "$MNT" && "$EFS" ls --json "$1") && field "$text" "d[0]['backend']"; }
is_in() { [ "$(backend_of "$1")" = "$2" ] || { echo "$1 is in $(backend_of "$1"), not in $2"; return 1; }; }
use_of() { field "$(status_of "$1")" "[b['used'] for b in d['backends'] if b['id'] == '$2'][0]"; }
available() { echo $(($(stat -f -c '%a * %S' "$1"))); }
total() { echo $(($(stat -f -c '%b * %S' "$1"))); }
# outlives NAME: data in the second backend survives the worker's death.
outlives() {
  local worker
  mkdir "$MNT/ckpt" && echo kept >"$MNT/ckpt/kept" && sync "$MNT/ckpt/kept" || return 1
  worker=$(field "$(status_of "$1")" 'd["worker_pid"]')
  kill -KILL "$worker"
  await 20 a_worker "$1" "$worker" && grep -qx kept "$MNT/ckpt/kept"
}
# nearly A B: the two differ by at most 2 MiB.
nearly() { local d=$(($1 - $2)); [ ${d#-} -le 2097152 ] || { echo "$1 and $2 are $d apart"; return 1; }; }
same() { cmp -s "$1" "$2"; }
MB=1048576

# --- invalid job files ---
fresh refused 'backends: [ [ id: a, capacity: 64 MiB ], [ id: a, capacity: 64 MiB ] ]' 'resources: [ [ path: input ] ]'
check_exit 'two backends of one id' 2 "backend 'a' is defined twice" "$EFS" check "$JOB"
job "$JOB" "backends: [ [ id: a, type: NVRAM-NVML, daxfs: $S/d ], [ id: b, type: NVRAM-NVML, daxfs: $S/d/ ] ]" 'resources: [ [ path: input ] ]'
check_exit 'two backends in one directory' 2 'two backends have the directory' "$EFS" check "$JOB"
job "$JOB" 'backends: [ [ id: a ], [ id: b ] ]' 'resources: [ [ path: input, backend: c ] ]'
check_exit 'an unknown backend' 2 "unknown backend 'c'" "$EFS" check "$JOB"
check_exit 'and two that share the memory' 2 'not both with a .capacity' "$EFS" check "$JOB"
job "$JOB" 'backends: [ [ id: a, capacity: 64 MiB ], [ id: b, capacity: 64 MiB ] ]' 'resources: [ [ path: input ] ]'
sed -i '1a\  new-files: c' "$JOB"
check_exit 'new files in no backend' 2 "unknown backend 'c'" "$EFS" check "$JOB"

# --- the plan ---
two plan error
check_exit 'plan says what goes where' 0 'backend bulk: 1 files, needs at most 2.8.* of 64 MiB.*' "$EFS" plan "$JOB"
check_exit 'and what the backends are' 0 'backend fast \(memory, the journal, new files\): 2 files' "$EFS" plan "$JOB"
check 'and so in JSON' json "$("$EFS" plan --json "$JOB")" "[b['id'] for b in d['backends']] == ['fast', 'bulk'] and [e['backend'] for e in d['entries'] if e['path'] == 'big/b'] == ['bulk']"
class=$(stat -f -c %T "$DISK"); case $class in tmpfs|ramfs) class=memory ;; *) class='page cache' ;; esac
check_exit 'and how durable each backend is' 0 "backend fast: memory: volatile.*" "$EFS" plan "$JOB"
check_exit 'the disk, too' 0 "backend bulk: $class: " "$EFS" plan "$JOB"
check 'as JSON' json "$("$EFS" plan --json "$JOB")" "d['durability'] == {'fast': 'memory', 'bulk': '$class'}"
check 'not on another machine than the node' json "$("$EFS" plan --json --at-submission "$JOB")" "'durability' not in d"
check 'the probe leaves nothing' test -z "$(ls -A "$DISK")"
head -c $((30 * MB)) /dev/zero >"$PFS/input/huge"
check_exit 'plan finds what does not fit its backend' 1 'inputs of backend fast need .* and it takes 24 MiB' "$EFS" plan "$JOB"
check_exit 'and so does start' 1 'inputs of backend fast need' "$EFS" start "$JOB"
check 'which leaves nothing in any backend' test -z "$(ls -A "$DISK")"
sed -i 's/on-full: error/on-full: spill/' "$JOB"
check_exit 'with spill it fits' 0 'backend bulk: 2 files.*1 of them because their own backend is full' "$EFS" plan "$JOB"
if started "$JOB"; then
  check 'and is there' same "$PFS/input/huge" "$MNT/input/huge"
  check 'in the other backend' is_in input/huge bulk
  check 'while what fits stays' is_in input/a fast
  check 'stop' "$EFS" stop plan
fi
check 'the directory is empty again' test -z "$(ls -A "$DISK")"

# everything MODE: with the daemon as root (with or without passthrough) and as an ordinary user.
everything() {
  local m=$1 start=("${@:2}") text before worker
  two "e$m" error
  "${start[@]}" "$JOB" >"$S/said" 2>&1 && ok || { fail "$m: start" "$(cat "$S/said")"; return; }
  mkdir "$MNT/ckpt"; echo c >"$MNT/ckpt/c"; echo n >"$MNT/n"
  check "$m: an input is in the first backend" is_in input/a fast
  check "$m: one that names the other is there" is_in big/b bulk
  check "$m: a new file is in that of new files" is_in n fast
  check "$m: one with a rule where the rule says" is_in ckpt/c bulk
  check_exit "$m: explain names the backend" 0 'it is in +bulk fsdax' bash -c "cd $MNT && $EFS explain ckpt/c"
  check_exit "$m: and the other" 0 'it is in +fast dram' bash -c "cd $MNT && $EFS explain n"
  check "$m: the container is in the directory" test "$(find "$DISK"/*/data -type f -size +2M | wc -l)" = 1
  mv "$MNT/n" "$MNT/ckpt/n"
  check "$m: a rename moves no content" is_in ckpt/n fast
  echo linked >"$MNT/l"; ln "$MNT/l" "$MNT/ckpt/l"
  check "$m: nor does a link" is_in ckpt/l fast
  check_exit "$m: status lists the backends" 0 'backend +bulk: fsdax' "$EFS" status "e$m"
  check_exit "$m: and how their data become durable" 0 'backend +fast: dram .*; volatile, lost at a restart of the node' "$EFS" status "e$m"
  check "$m: metrics say so for each" grep -qF "efs_backend_info{instance=\"e$m\",backend=\"fast\",durability=\"memory\"} 1" <("$EFS" metrics "e$m")
  counted() { python3 -c 'import json, sys; sys.exit(json.load(sys.stdin)["backends"][1]["used"] < 3000000)' <<<"$(status_of "e$m")"; }
  await 10 counted    # of an advisory capacity, which is looked at now and then
  check "$m: and the use of each" json "$(status_of "e$m")" "[b['capacity'] for b in d['backends']] == [24 << 20, 64 << 20] and d['backends'][1]['used'] >= 3000000 and d['durability'] == 'memory' and d['backends'][0]['journal'] and d['backends'][0]['new_files']"
  check "$m: df shows the sum of the capacities" test "$(total "$MNT")" = $((88 * MB))
  text=$(status_of "e$m")
  check "$m: and what a new file can have" nearly "$(available "$MNT")" "$(field "$text" "d['backends'][0]['available']")"
  # A full backend gives ENOSPC, whatever space the other has. The other continues.
  check_exit "$m: a full backend is ENOSPC" 1 'No space left' dd if=/dev/zero of="$MNT/fill" bs=64k count=600
  check "$m: df says that there is no room" test "$(available "$MNT")" -lt $((MB / 4))
  check "$m: the other backend takes what is its own" dd if=/dev/zero of="$MNT/ckpt/more" bs=1M count=8 status=none
  check "$m: which is there" is_in ckpt/more bulk
  check "$m: space comes back" rm "$MNT/fill"
  # load uses the backend of the job file
  head -c 100000 /dev/urandom >"$PFS/big/later"; echo later >"$PFS/later"
  check "$m: load" bash -c "cd $MNT && $EFS load --wait big/later later"
  check "$m: goes where its resource says" is_in big/later bulk
  check "$m: and else where new files go" is_in later fast
  # the worker dies, and a successor finds all files
  exec 7<>"$MNT/ckpt/held"; echo held >&7
  worker=$(field "$(status_of "e$m")" 'd["worker_pid"]')
  kill -KILL "$worker"
  check "$m: a successor takes over" await 20 a_worker "e$m" "$worker"
  echo on >&7; exec 7>&-
  check "$m: with what is in the second backend" test "$(cat "$MNT/ckpt/held")" = $'held\non'
  check "$m: which is known still" is_in ckpt/held bulk
  echo after >"$MNT/ckpt/after"
  check "$m: and takes new files" is_in ckpt/after bulk
  check_exit "$m: stop" 0 '' "$EFS" stop "e$m"
  check "$m: results of both backends are back" bash -c "grep -qx c $OUT/ckpt/c && grep -qx n $OUT/ckpt/n && [ \$(stat -c %s $OUT/ckpt/more) = $((8 * MB)) ]"
  check "$m: the directory is empty" test -z "$(ls -A "$DISK")"
  check "$m: nothing else is left" ended "e$m"
}

# --- spill: new files go to the next backend ---
spilling() {
  local m=$1 start=("${@:2}") i
  two "s$m" spill
  "${start[@]}" "$JOB" >"$S/said" 2>&1 && ok || { fail "$m: start with spill" "$(cat "$S/said")"; return; }
  check "$m: df shows what all backends take" test "$(available "$MNT")" -gt $((60 * MB))
  check_exit "$m: one file does not outgrow its backend" 1 'No space left' dd if=/dev/zero of="$MNT/fill" bs=64k count=600
  echo more >"$MNT/more"
  check "$m: the next file goes to the next backend" is_in more bulk
  for i in $(seq 1 60); do echo "$i" >"$MNT/f$i" || break; done
  check "$m: and so do many" is_in f60 bulk
  check "$m: they hold what was written" bash -c "for i in \$(seq 1 60); do [ \"\$(cat $MNT/f\$i)\" = \$i ] || exit 1; done"
  check "$m: df does not call it full" test "$(available "$MNT")" -gt $((30 * MB))
  rm "$MNT/fill"
  goes_back() { rm -f "$MNT/again"; echo again >"$MNT/again"; is_in again fast; }
  check "$m: when there is room again, new files go back" await 20 goes_back   # the kernel lets go of a file of its own a moment later
  check_exit "$m: stop" 0 '' "$EFS" stop "s$m"
  check "$m: all is back" bash -c "grep -qx more $OUT/more && grep -qx 60 $OUT/f60 && grep -qx again $OUT/again"
}

if [ "$(id -u)" = 0 ]; then
  everything root "$EFS" start
  spilling root "$EFS" start
  everything daemon "$EFS" start -o daemon-io
  # root starts a job for an ordinary user: root's tmpfs, the user's directory, passthrough to both.
  two owned spill
  chown -R 65534:65534 "$S/owned"
  if started -u nobody "$JOB"; then
    before=$(field "$(status_of owned)" "d['counters']['passthrough_opens']")
    check 'as a user: both backends can be written' setpriv --reuid 65534 --regid 65534 --clear-groups bash -c "mkdir $MNT/ckpt && echo c >$MNT/ckpt/c && echo n >$MNT/n && cat $MNT/ckpt/c $MNT/n"
    if kernel_has_it; then
      check 'as a user: passthrough' json "$(status_of owned)" "d['io'] == 'passthrough'"
      check 'as a user: without the daemon' json "$(status_of owned)" "d['counters']['passthrough_opens'] >= $before + 4 and d['counters']['written_bytes'] == 0"
      check 'as a user: and no backing file was refused' bash -c "! grep -q passthrough_refused $EFS_RUNTIME_DIR/owned/efsd.log"
      check 'no writeback cache beside passthrough' grep -q 'passthrough=true writeback_cache=false' "$EFS_RUNTIME_DIR/owned/efsd.log"
    else
      skip 'passthrough into both backends' 'the kernel is older than 6.9'
    fi
    check 'as a user: stop' "$EFS" stop owned
  fi
  # one backend counts bytes and the other does not: each inode has its own data path
  ENFORCE=strict two mixed error
  if started "$JOB"; then
    check 'a backend that counts knows of what was staged in' test "$(use_of mixed bulk)" -ge 3000000
    mkdir "$MNT/ckpt"; echo c >"$MNT/ckpt/c"; echo n >"$MNT/n"
    check 'it is served by the daemon' json "$(status_of mixed)" "[b['io'] for b in d['backends']][1] == 'daemon' and d['counters']['written_bytes'] == 2"
    check 'and ends where it says' bash -c "! dd if=/dev/zero of=$MNT/ckpt/fill bs=1M count=80 status=none && [ \$(stat -c %s $MNT/ckpt/fill) -le $((64 * MB - 3000000)) ] && [ \$(stat -c %s $MNT/ckpt/fill) -ge $((55 * MB)) ]"
    check 'the other backend goes on' bash -c "echo more >>$MNT/n && [ \$(wc -l <$MNT/n) = 2 ]"
    check 'stop' "$EFS" stop mixed
  fi
else
  skip 'private tmpfs, passthrough, takeover' 'not root'
  everything user "$EFS" start
  spilling user "$EFS" start
fi
if [ "$(id -u)" = 0 ]; then
  # The same as an ordinary user, in a mount namespace with a /dev/fuse that every user may open, as
  # on machines that offer FUSE to users.
  if [ -u "$(command -v fusermount3)" ]; then
    mkdir "$S/dev"
    check 'as an ordinary user' "$SOURCE/tests/own_mounts.py" bash -c "mount -t tmpfs -o mode=755,size=64k dev $S/dev && mknod -m 666 $S/dev/fuse c 10 229 && mount --bind $S/dev/fuse /dev/fuse &&
      exec setpriv --reuid 65534 --regid 65534 --clear-groups --inh-caps=-all env -u EFS_RUNTIME_DIR HOME=/ bash $SOURCE/tests/cli/backends_test.sh $BIN"
  else
    skip 'as an ordinary user' 'no fusermount3 that is set-uid'
  fi
fi

# --- both processes die ---
two dead spill
if started "$JOB"; then
  mkdir "$MNT/ckpt"; head -c 2000000 /dev/urandom >"$MNT/ckpt/c"; cksum <"$MNT/ckpt/c" >"$S/c.sum"; echo n >"$MNT/n"; echo more >>"$MNT/input/a"
  whole() { cksum <"$1/ckpt/c" | cmp -s - "$S/c.sum" && grep -qx n "$1/n"; }
  # The only store of this instance has the name of the second backend's store.
  fresh dead.1 "backends: [ [ id: bulk, type: NVRAM-NVML, daxfs: $S/dead/disk ] ]" 'resources: [ [ path: input ] ]'
  check_exit 'a store that is a backend of another instance is refused' 1 'is a backend of another instance' "$EFS" start --name dead.1 "$JOB"
  PFS=$S/dead/pfs MNT=$S/dead/mnt OUT=$S/dead/out JOB=$S/dead/dead.yaml NAME=dead
  check 'which goes on' grep -qx n "$MNT/n"
  kill_both dead
  check_exit 'check-image looks at both' 0 'whole' "$EFS" check-image dead
  check 'and counts the containers of both' json "$("$EFS" check-image --json dead)" "d['files'] == 5 and d['containers'] >= 5"
  sed -e 's/\(\[ id: fast[^]]*\]\), \(\[ id: bulk[^]]*\]\)/\2, \1/' -e '1a\  name: dead' "$JOB" >"$S/turned.yaml"
  check_exit 'another backend for the journal is refused' 1 'left its data in' "$EFS" start "$S/turned.yaml"
  sed -e 's/: bulk/: other/g' -e '1a\  name: dead' "$JOB" >"$S/turned.yaml"
  check_exit 'so are other backends behind it' 1 'with the backends fast, bulk, and this job file has fast, other' "$EFS" start "$S/turned.yaml"
  sed -e 's/, \[ id: bulk[^]]*\]//' -e '/big/d' -e '/ckpt/d' -e '1a\  name: dead' "$JOB" >"$S/turned.yaml"
  check_exit 'and fewer' 1 'with the backends fast, bulk, and this job file has fast;' "$EFS" start "$S/turned.yaml"
  check_exit 'start goes on' 0 'mounted' "$EFS" start "$JOB"
  check 'with what both hold' whole "$MNT"
  check 'where it was' is_in ckpt/c bulk
  check 'inputs too' same "$PFS/big/b" "$MNT/big/b"
  check 'keep' "$EFS" stop --keep dead
  check 'brings it back' whole "$OUT"
  check_exit 'and leaves it' 0 'whole' "$EFS" check-image dead
  check_exit 'for the next start' 0 'mounted' "$EFS" start "$JOB"
  check 'which has all' whole "$MNT"
  echo late >"$MNT/ckpt/late"
  kill_both dead
  # The same container is in two backends: a copy.
  file=$(find "$DISK"/*/data -type f -size +1M -printf '%P\n' | head -n 1)
  if [ "$(id -u)" = 0 ]; then
    cp -p "$DISK"/*/data/"$file" "$EFS_RUNTIME_DIR/dead/store/data/$file"
    check_exit 'a container in two backends is damage' 1 'is in two backends, fast and bulk' "$EFS" check-image dead
    check_exit 'and no start guesses' 1 'is in two backends' "$EFS" start "$JOB"
    rm "$EFS_RUNTIME_DIR/dead/store/data/$file"
  fi
  rm -rf "$OUT"; mkdir "$OUT"
  check_exit 'salvage brings out of both' 0 'salvaged' "$EFS" salvage dead
  check 'what was not back' grep -qx late "$OUT/ckpt/late"
  check_exit 'clean' 0 'removed' "$EFS" clean dead
  check 'empties the directory' test -z "$(ls -A "$DISK")"
fi

# --- workers die while files are created and spilled in both; then both processes die ---
two storm spill
if started "$JOB"; then
  mkdir "$MNT/ckpt" "$MNT/new"
  dd if=/dev/zero of="$MNT/fill" bs=64k count=240 status=none   # 15 of 24 MiB: it gets full on the way
  writer() { local i; for i in $(seq 1 120); do head -c 100000 /dev/zero | tr '\0' "$((i % 10))" >"$MNT/new/$i" && echo "$i" >"$MNT/ckpt/$i" && rm -f "$MNT/ckpt/$((i - 5))" || return 1; done; }
  writer & job=$!; pids+=($job)
  reached() { [ "$(ls "$MNT/new" | wc -l)" -ge "$1" ]; }
  for many in 10 35 75 95; do
    worker=$(field "$(status_of storm)" 'd["worker_pid"]')
    await 20 reached $many || fail "storm: file $many is made"
    kill -KILL "$worker"
    await 20 a_worker storm "$worker" || fail 'storm: a successor takes over'
  done
  wait $job; code=$?; pids=()
  check 'the writer notices nothing' test $code = 0
  there() { local i; for i in $(seq 1 120); do [ "$(stat -c %s "$1/new/$i")" = 100000 ] && [ -z "$(tr -d "$((i % 10))" <"$1/new/$i" | tr -d '\0')" ] || { echo "$i is not whole"; return 1; }; done; [ "$(ls "$1/ckpt" | wc -l)" = 5 ]; }
  check 'every file is there and whole' there "$MNT"
  check 'in the first backend' is_in new/1 fast
  check 'and then in the second' is_in new/120 bulk
  kill_both storm
  check_exit 'no container is in both, none is missing' 0 'whole' "$EFS" check-image storm
  check_exit 'start goes on' 0 'mounted' "$EFS" start "$JOB"
  check 'with all' there "$MNT"
  check 'stop' "$EFS" stop storm
  check 'brings all' there "$OUT"
fi

# --- a full backend, and both processes die ---
two full error
if started "$JOB"; then
  dd if=/dev/zero of="$MNT/fill" bs=64k count=600 status=none 2>/dev/null
  kill_both full
  check_exit 'start goes on with a full backend' 0 'mounted' "$EFS" start "$JOB"
  rm "$MNT/fill"
  check 'stop' "$EFS" stop full
fi

# --- loss of a backend ---
two lost error
if started "$JOB"; then
  mkdir "$MNT/ckpt"; echo c >"$MNT/ckpt/c"; echo n >"$MNT/n"
  kill_both lost
  mv "$DISK"/efs-* "$S/aside"
  check_exit 'start without it is refused' 1 'backend bulk \(.*\) of the instance that left .* is gone' "$EFS" start "$JOB"
  check 'and makes nothing in its place' test -z "$(ls -A "$DISK")"
  check_exit 'check-image says so' 1 'backend: bulk .*gone' "$EFS" check-image lost
  check_exit 'salvage brings out the rest and names what is missing' 3 'ckpt/c.*gone|gone.*ckpt/c' "$EFS" salvage lost
  check 'what is there is back' grep -qx n "$OUT/n"
  check 'and nothing is made up' test ! -e "$OUT/ckpt/c"
  mkdir "$DISK/$(basename "$(field "$(cat "$EFS_RUNTIME_DIR/lost/instance.json")" "d['members'][1]['path']")")" && chmod 700 "$DISK"/efs-*
  check_exit 'something else in its place is refused' 1 'is not of the instance' "$EFS" start "$JOB"
  rmdir "$DISK"/efs-*/* "$DISK"/efs-* 2>/dev/null; rm -rf "$DISK"/efs-*
  mv "$S/aside" "$(field "$(cat "$EFS_RUNTIME_DIR/lost/instance.json")" "d['members'][1]['path']")"
  check_exit 'when it is back, start goes on' 0 'mounted' "$EFS" start "$JOB"
  check 'with all' grep -qx c "$MNT/ckpt/c"
  check 'stop' "$EFS" stop lost
  check 'brings it' grep -qx c "$OUT/ckpt/c"
fi

two away error
if started "$JOB"; then
  mkdir "$MNT/ckpt"; echo c >"$MNT/ckpt/c"
  kill_both away
  mv "$DISK"/efs-* "$S/aside"
  check_exit 'clean keeps the journal of what may come back' 1 'away is not removed: 1 files are in a missing backend: bulk' "$EFS" clean away
  mv "$S/aside" "$(field "$(cat "$EFS_RUNTIME_DIR/away/instance.json")" "d['members'][1]['path']")"
  check_exit 'when it is back, start goes on' 0 'mounted' "$EFS" start "$JOB"
  check 'with all' grep -qx c "$MNT/ckpt/c"
  check 'stop' "$EFS" stop away
fi

# --- a user's setting for other programs does not turn a disk into persistent memory ---
fresh forced "backends: [ [ id: bulk, type: NVRAM-NVML, daxfs: $S/forced/disk ] ]" 'resources: [ [ path: input ] ]' "$RULES"; mkdir -p "$S/forced/disk"
check 'start, where libpmem is told that all memory is persistent' env PMEM_IS_PMEM_FORCE=1 "$EFS" start "$JOB"
check 'what a sync promises hangs on the kernel alone' json "$(status_of forced)" "d['durability'] != 'persistent memory'"
check 'stop' "$EFS" stop --no-stage-out forced

# --- require-dax ---
refuses_dax() { # refuses_dax NAME BACKENDS
  fresh "$1" "$2" 'resources: [ [ path: input ] ]'
  check_exit "$1: a start that needs persistent memory refuses a disk" 1 "backend bulk has 'require-dax: true', and $S/dax is not persistent memory.*mount it with -o dax" "$EFS" start "$JOB"
  check "$1: and leaves nothing" test -z "$(ls -A "$S/dax")" -a ! -e "$EFS_RUNTIME_DIR/$1"
}
mkdir -p "$S/dax"
DAX="[ id: bulk, type: NVRAM-NVML, daxfs: $S/dax, require-dax: true, capacity: 64 MiB ]"
refuses_dax dax-alone "backends: [ $DAX ]"
refuses_dax dax-second "backends: [ [ id: fast, type: DRAM, capacity: 24 MiB ], $DAX ]"
fresh dax-there "backends: [ $DAX ]" 'resources: [ [ path: input ] ]'
check 'persistent memory is taken' env PMEM_IS_PMEM_FORCE=1 EFS_TEST_PMEM=1 "$EFS" start "$JOB"
check 'and shown' json "$(status_of dax-there)" "d['durability'] == 'persistent memory'"
check_exit 'for people, too' 0 'backend +fsdax \(persistent memory.*; real DAX' "$EFS" status dax-there
check 'stop' "$EFS" stop --no-stage-out dax-there

# --- the disk first, and new files in memory: a restart of the machine keeps the names and loses
#     the data in memory ---
DISK=$S/restart/disk; mkdir -p "$DISK"
fresh restart "backends: [ [ id: bulk, type: NVRAM-NVML, daxfs: $DISK ], [ id: fast, type: DRAM, capacity: 24 MiB ] ]" 'resources: [ [ path: input ] ]' "$RULES"
sed -i '1a\  new-files: fast' "$JOB"
if started "$JOB"; then
  mkdir "$MNT/ckpt"; echo c >"$MNT/ckpt/c"; sync "$MNT/ckpt/c"; echo n >"$MNT/n"; sync "$MNT/n"
  check 'a new file is in memory' is_in n fast
  check 'an input is not' is_in input/a bulk
  check 'the worse one is told' json "$(status_of restart)" "d['durability'] == 'memory' and d['backends'][0]['durability'] != 'memory' and d['backends'][1]['new_files']"
  kill_both restart
  check_exit 'start goes on with both' 0 'mounted' "$EFS" start "$JOB"
  check 'and has all' bash -c "grep -qx c $MNT/ckpt/c && grep -qx n $MNT/n && grep -qx alpha $MNT/input/a"
  kill_both restart
  fusermount3 -uz "$MNT" 2>/dev/null || umount -l "$MNT" 2>/dev/null
  if [ "$(id -u)" = 0 ]; then await 20 umount "$EFS_RUNTIME_DIR/restart/store.1"; else rm -rf "/dev/shm/efs-$(id -u)-restart.1"; fi
  sed -i 's/"boot_id": "[^"]*"/"boot_id": "another"/; /"checksum"/d' "$DISK"/*/meta/instance.json "$EFS_RUNTIME_DIR/restart/instance.json"
  check_exit 'after a restart of the machine, memory is missing' 1 'backend fast .*is gone.*the machine was restarted' "$EFS" start "$JOB"
  check 'and nothing is mounted in its place' bash -c "! grep -qF $EFS_RUNTIME_DIR/restart/store.1 /proc/self/mounts"
  check_exit 'salvage names what is lost' 3 'n: its content was in a backend that is gone' "$EFS" salvage restart
  check 'and brings what the disk has' grep -qx c "$OUT/ckpt/c"
  check 'and no empty file' test ! -e "$OUT/n"
  check_exit 'clean' 0 'removed' "$EFS" clean --force restart
  check 'leaves nothing on the disk' test -z "$(ls -A "$DISK")"
fi

# --- the journal is lost: the containers in the other backend are kept unless the user discards
#     them ---
two orphan error
if started "$JOB"; then
  mkdir "$MNT/ckpt"; echo c >"$MNT/ckpt/c"
  kill_both orphan
  fusermount3 -uz "$MNT" 2>/dev/null || umount -l "$MNT" 2>/dev/null
  if [ "$(id -u)" = 0 ]; then await 20 drop_store orphan; else rm -rf "/dev/shm/efs-$(id -u)-orphan" "${EFS_RUNTIME_DIR:?}/orphan"; fi
  check_exit 'data without a journal are not overwritten' 1 'holds the data of an earlier instance, whose journal' "$EFS" start "$JOB"
  check 'and stay' test -n "$(find "$DISK"/*/data -type f -size +0)"
  # After a restart of the machine no journal can name them.
  sed -i 's/"boot_id": "[^"]*"/"boot_id": "another"/; /"checksum"/d' "$DISK"/*/instance.json
  check_exit 'after a restart of the machine they are dropped' 0 'mounted' "$EFS" start "$JOB"
  check 'and all is new' test ! -e "$MNT/ckpt"
  check 'and what comes there now is whose it should be' outlives orphan
  check 'stop' "$EFS" stop orphan
fi

# --- a clean after a salvage dies at any point: also after the journal is gone and before the other
#     backend is ---
if [ "$(id -u)" = 0 ] && kernel_has_it; then
  RANDOM=${EFS_SEED:=$((RANDOM))}; echo "seed $EFS_SEED (EFS_SEED=$EFS_SEED repeats it)"
  fresh half "backends: [ { id: bulk, type: NVRAM-NVML, daxfs: $DISK, capacity: 64 MiB }, { id: fast, type: DRAM, capacity: 32 MiB } ]" 'resources: [ [ path: input ] ]' 'outputs: [ { path: o, backend: fast }, { path: "**" } ]'
  half_deaths=0
  for round in {1..8}; do
    "$EFS" start "$JOB" >"$S/said" 2>&1 || { fail "half $round: start" "$(cat "$S/said")"; break; }
    mkdir -p "$MNT/o"; echo r >"$MNT/o/f"; echo g >"$MNT/g"
    kill_both half
    "$EFS" salvage half >"$S/said" 2>&1 || fail "half $round: salvage" "$(cat "$S/said")"
    bash -c 'kill -STOP $$; exec "$@"' clean "$EFS" clean half >/dev/null 2>&1 & one=$!
    await 20 grep -q '^State:.*T' "/proc/$one/status"
    "$BIN/efs-kill-at" "$one" $((RANDOM % 2500 + 500)) & killer=$!
    await 20 grep -q '^TracerPid:.*[1-9]' "/proc/$one/status"
    kill -CONT "$one"
    wait "$killer" 2>/dev/null && half_deaths=$((half_deaths + 1))
    wait "$one" 2>/dev/null
    [ -e "$EFS_RUNTIME_DIR/half" ] || continue
    [ $((round % 2)) = 0 ] || "$EFS" clean half >"$S/said" 2>&1 || fail "half $round: clean goes on" "$(cat "$S/said")"
  done
  check 'half: clean died on its way' test $half_deaths -gt 2
  [ ! -e "$EFS_RUNTIME_DIR/half" ] || check 'half: at last' "$EFS" clean half
  check 'half: nothing is left' test ! -e "$EFS_RUNTIME_DIR/half" -a -z "$(ls -A "$DISK")"
else
  skip 'a clean that dies' 'not root'
fi

# --- a stop had exported all files, and both processes died after one backend was gone: nothing is
#     missing ---
two over error
if started "$JOB"; then
  mkdir "$MNT/ckpt"; echo c >"$MNT/ckpt/c"
  check 'stop --keep' "$EFS" stop --keep over
  sed -i 's/"left": "kept"/"left": "over"/; /"checksum"/d' "$EFS_RUNTIME_DIR/over/instance.json"
  if [ "$(id -u)" = 0 ]; then await 20 umount "$EFS_RUNTIME_DIR/over/store"; else rm -rf "/dev/shm/efs-$(id -u)-over"; fi
  check 'the other still has its data' test -n "$(find "$DISK"/*/data -type f -size +0)"
  check_exit 'a start removes the rest' 0 'mounted' "$EFS" start "$JOB"
  check 'and all is new there, too' test ! -e "$MNT/ckpt"
  check 'and what comes there now is whose it should be' outlives over
  check 'stop --keep' "$EFS" stop --keep over
  check_exit 'start' 0 'mounted' "$EFS" start "$JOB"
  check 'has what was kept' grep -qx kept "$MNT/ckpt/kept"
  check 'stop' "$EFS" stop over
  check 'the results are back' bash -c "grep -qx c $OUT/ckpt/c && grep -qx kept $OUT/ckpt/kept"
fi

# --- a removal of a backend dies before its last step ---
two rest error
if started "$JOB"; then
  mkdir "$MNT/ckpt"; echo c >"$MNT/ckpt/c"
  kill_both rest
  member=$(ls -d "$DISK"/efs-*)
  touch "$member/lock" "$member/other"
  find "$member" -mindepth 1 ! -name lock ! -name other -delete
  check 'clean' "$EFS" clean --force rest
  check 'leaves what it does not know' test -e "$member/other" -a -e "$member/lock"
  rm "$member/other"
fi
two rest error
if started "$JOB"; then
  kill_both rest
  find "$member" -mindepth 1 ! -name lock -delete
  check 'clean' "$EFS" clean --force rest
  check 'a lock alone goes' test ! -e "$member"
fi
finish
