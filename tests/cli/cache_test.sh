#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The cache of inputs with real mounts. The second job reads nothing from the PFS, no job sees
# another job's writes, and no user gains a right by the cache.
#   cache_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

stopped() { check "stop $1" "$EFS" stop "$1"; }
# read_now NAME: bytes that the stage-in read from the PFS, and bytes that its worker read in total
# (the kernel's count).
read_now() { field "$(status_of "$1")" 'd["staged_in"]["bytes_read"]'; }
rchar() { sed -n 's/^rchar: //p' "/proc/$(field "$(status_of "$1")" 'd["worker_pid"]')/io"; }
# reused NAME BYTES: all inputs came from the cache, and the worker read fewer bytes than the inputs
# have.
reused() { [ "$(read_now "$1")" = 0 ] && [ "$(field "$(status_of "$1")" 'd["staged_in"]["bytes_reused"]')" = "$2" ] && [ "$(rchar "$1")" -lt $(($2 / 2)) ]; }
was_read() { [ "$(read_now "$1")" -ge "$2" ] && [ "$(rchar "$1")" -ge "$2" ]; }
# in_place FILE: a job and the cache share the container of this PFS file.
cached() { "$EFS" cache ls --cache "$CACHE" --json; }
in_place() { json "$(cached)" "any(f['path'] == '$1' and f['in_use'] for f in d['files'])"; }
idle() { json "$(cached)" "any(f['path'] == '$1' and not f['in_use'] for f in d['files'])"; }
absent() { json "$(cached)" "all(f['path'] != '$1' for f in d['files'])"; }
taken_over() { json "$(status_of one)" "d['takeovers'] == 1 and d['state'] == 'running'"; }
# The cache rejects files that changed less than two seconds ago: a file's stamps must show the next
# change.
settle() { local file; for file; do until [ "$(date +%s%N)" -gt $(($(stat -c %.9Z "$file" | tr -d .) + 2000000000)) ]; do read -rt 0.05 <> <(:) || :; done; done; }
# cache_job NAME STORE [LINE...]: a job on the common PFS, with the store in a directory or DRAM.
PFS=$S/pfs CACHE=$S/cache
cache_job() {
  local name=$1 store=$2; shift 2
  MNT=$S/$name OUT=$S/$name-out JOB=$S/$name.yaml
  mkdir -p "$OUT"
  { printf 'global-settings:\n  root-dir: %s\n  mount-dir: %s\n  results-dir: %s\n  cache: %s\n' "$PFS" "$MNT" "$OUT" "$CACHE"
    [ $# = 0 ] || printf '  %s\n' "$@"
    printf 'backends:\n  - id: b\n'
    if [ "$store" = DRAM ]; then printf '    type: DRAM\n    capacity: 128 MiB\n'; else printf '    type: NVRAM-NVML\n    daxfs: %s\n    capacity: %s\n' "$store" "${CAPACITY:-all}"; fi
    printf 'resources:\n  - path: %s\n    reusable: true\n' "${RESOURCE:-input}"; } >"$JOB"
}

if [ "$(id -u)" != 0 ]; then skip 'everything' 'needs root, for mounts with passthrough and for other users'; finish; fi
size=$((20 << 20))
mkdir -p "$PFS/input" "$PFS/many" "$CACHE" "$S/store"; chmod 1777 "$CACHE" "$S/store"; chmod 755 "$PFS" "$PFS"/*
head -c $size /dev/urandom >"$PFS/input/a"
for n in 1 2 3 4; do head -c 1M /dev/urandom >"$PFS/many/$n"; done
cp "$PFS/input/a" "$S/a"
settle "$PFS/input/a" "$PFS"/many/*

# --- two jobs in turn, on a disk and on a memory file system, and with a capacity that the kernel
#     enforces ---
mkdir "$S/mem"; mount -t tmpfs -o size=512m,mode=1777 mem "$S/mem"
for kind in disk memory counted; do
  case $kind in disk) store=$S/store CACHE=$S/cache CAPACITY=all ;; memory) store=$S/mem CACHE=$S/mem CAPACITY=all ;; counted) store=$S/store CACHE=$S/cache CAPACITY='64 MiB' ;; esac
  [ $kind = counted ] && check 'clean --all' "$EFS" cache clean --all --cache "$CACHE"
  cache_job one "$store"; [ $kind != counted ] || sed -i 's/capacity: 64 MiB/&\n    enforce: strict/' "$JOB"
  started "$JOB"
  check "$kind: the first job reads the PFS" was_read one $size
  check "$kind: its input is in the cache, in place" in_place "$PFS/input/a"
  stopped one
  check "$kind: it stays when the job is over" idle "$PFS/input/a"
  started "$JOB"
  check "$kind: the second job reads nothing" reused one $size
  check "$kind: in place" in_place "$PFS/input/a"
  check "$kind: it has the same" cmp "$PFS/input/a" "$MNT/input/a"
  check "$kind: and its times" test "$(stat -c %y "$MNT/input/a")" = "$(stat -c %y "$PFS/input/a")"
  check "$kind: used is told" json "$(status_of one)" "d['used'] >= $size"
  # A reader with the file open, the first writer, and a mapping.
  exec 8<"$MNT/input/a"
  printf changed | dd of="$MNT/input/a" conv=notrunc status=none
  check "$kind: who had it open sees what is written" test "$(head -c 7 <&8)" = changed
  exec 8<&-
  check "$kind: the cache has a copy" idle "$PFS/input/a"
  stopped one
  check "$kind: the receipt tells it" json "$(cat "$OUT/efs-receipt-one.json")" "d['staged_in']['bytes_read'] == 0 and d['staged_in']['bytes_reused'] == $size"
  started "$JOB"
  check "$kind: the third reads nothing" reused one $size
  check "$kind: and sees nothing of the second" cmp "$S/a" "$MNT/input/a"
  check "$kind: truncation" truncate -s 5 "$MNT/input/a"
  stopped one
  started "$JOB"
  check "$kind: is not seen either" cmp "$S/a" "$MNT/input/a"
  check "$kind: touch" touch -d '2001-01-01' "$MNT/input/a"
  check "$kind: a store through a mapping" python3 -c 'import mmap,sys
with open(sys.argv[1], "r+b") as f: m = mmap.mmap(f.fileno(), 0); m[100:107] = b"changed"; m.flush()' "$MNT/input/a"
  stopped one
  started "$JOB"
  check "$kind: still nothing is read" reused one $size
  check "$kind: nor that" cmp "$S/a" "$MNT/input/a"
  stopped one
done
"$EFS" cache clean --all --cache "$S/mem" >/dev/null
umount "$S/mem"
CACHE=$S/cache CAPACITY=all

# --- a file system full of evictable files ---
mkdir "$S/mem2"; mount -t tmpfs -o size=48m,mode=1777 mem "$S/mem2"
CACHE=$S/mem2; cache_job one "$S/mem2"; started "$JOB"; stopped one
check 'it is there, and nobody has it' idle "$PFS/input/a"
mkdir "$PFS/other"; head -c 36M /dev/urandom >"$PFS/other/b"
RESOURCE=other cache_job wide "$S/mem2"
started "$JOB"
check 'the cache gives way to an input that would not fit' absent "$PFS/input/a"
check 'which is there' cmp "$PFS/other/b" "$MNT/other/b"
stopped wide
"$EFS" cache clean --all --cache "$CACHE" >/dev/null; rm "$PFS/other/b"
umount "$S/mem2"; CACHE=$S/cache

# --- a store on its own file system: copies on the node ---
cache_job dram DRAM
started "$JOB"
check 'DRAM: nothing is read' test "$(read_now dram)" = 0
check 'DRAM: the same' cmp "$S/a" "$MNT/input/a"
check 'DRAM: the cache is not in place there' idle "$PFS/input/a"
printf changed | dd of="$MNT/input/a" conv=notrunc status=none
stopped dram
check 'the one verb that removes' "$EFS" cache clean --all --cache "$CACHE"
started "$JOB"
check 'DRAM: what is not there is read' was_read dram $size
check 'DRAM: and kept' idle "$PFS/input/a"
stopped dram
started "$JOB"
check 'DRAM: unchanged' cmp "$S/a" "$MNT/input/a"
check 'DRAM: and read no more' test "$(read_now dram)" = 0
stopped dram

# --- two instances at once ---
cache_job one "$S/store"; started "$JOB"; one=$MNT
cache_job two "$S/store"; started "$JOB"; two=$MNT
check 'two at once: neither reads' test "$(read_now one)$(read_now two)" = 00
printf changed | dd of="$one/input/a" conv=notrunc status=none
check 'what one writes the other does not see' cmp "$S/a" "$two/input/a"
printf CHANGED | dd of="$two/input/a" conv=notrunc status=none
check 'nor the other way round' test "$(head -c 7 "$one/input/a")" = changed
stopped one; stopped two

# --- files that changed on the PFS are read again ---
changed() { started "$JOB" && check "$1: it is read" was_read one "$(stat -c %s "$PFS/input/a")"; check "$1: and right" cmp "$PFS/input/a" "$MNT/input/a"; stopped one; settle "$PFS/input/a"; started "$JOB" && stopped one; }
cache_job one "$S/store"
before=$(stat -c %y "$PFS/input/a")
printf other | dd of="$PFS/input/a" conv=notrunc status=none; touch -d "$before" "$PFS/input/a"; changed 'content with the old mtime'
echo more >>"$PFS/input/a"; changed 'a larger file'
cp -p "$PFS/input/a" "$PFS/input/new"; printf third | dd of="$PFS/input/new" conv=notrunc status=none; touch -d "$before" "$PFS/input/a" "$PFS/input/new"; mv "$PFS/input/new" "$PFS/input/a"; changed 'another inode'
cp "$PFS/input/a" "$S/a"; settle "$PFS/input/a"

# --- death ---
started "$JOB"; stopped one   # it is there
started "$JOB"
check 'before the death: in place' in_place "$PFS/input/a"
worker=$(field "$(status_of one)" 'd["worker_pid"]')
exec 8<"$MNT/input/a"; head -c 1 <&8 >/dev/null
kill -KILL "$worker"
check 'a takeover' await 20 taken_over
printf changed | dd of="$MNT/input/a" conv=notrunc status=none
check 'after a takeover the first write parts them, too' test "$(head -c 6 <&8)" = hanged
exec 8<&-
check 'and the cache has a copy' idle "$PFS/input/a"
stopped one
started "$JOB"
check 'which is right' cmp "$S/a" "$MNT/input/a"
check 'and read from' reused one "$(stat -c %s "$S/a")"
kill_both one
check 'what a dead instance has in place stays' in_place "$PFS/input/a"
check_exit 'and its image is whole' 0 '; whole' "$EFS" check-image one
sealed=$(find "$S/store" -path '*/data/*' -type f -links 2 -print -quit)
chmod 600 "$sealed"
check_exit 'one without the seal is nobody'"'"'s' 1 'damage: input/a: container .* has lost its label' "$EFS" check-image one
chmod 700 "$sealed"; echo unfinished >"$sealed.made"; mv "$sealed.made" "$(dirname "$(dirname "$sealed")")/c8/00000000000000c8"
check_exit 'a container that no record knows is a leftover' 3 'leftover: container 200' "$EFS" check-image one
check_exit '--repair removes it, and no more' 0 '; whole' "$EFS" check-image --repair one
check 'what is shared is still in place' in_place "$PFS/input/a"
cache_job two "$S/store"; started "$JOB"
check 'another job gets a copy' test "$(read_now two)" = 0
check 'a whole one' cmp "$S/a" "$MNT/input/a"
stopped two
cache_job one "$S/store"
started "$JOB"
printf changed | dd of="$MNT/input/a" conv=notrunc status=none
kill_both one
check 'clean' "$EFS" clean --force one
check 'efs clean leaves the cache alone' idle "$PFS/input/a"
started "$JOB"
check 'what it wrote is not in the cache' cmp "$S/a" "$MNT/input/a"
stopped one
check 'an empty cache' "$EFS" cache clean --all --cache "$CACHE"
# Kills during the copy that a first open for writing waits for: the program sees a pause, and the
# cache loses nothing.
mkdir "$PFS/huge"; head -c 400M /dev/urandom >"$PFS/huge/h"; sum=$(cksum <"$PFS/huge/h"); settle "$PFS/huge/h"
RESOURCE=huge cache_job one "$S/store"
started "$JOB"
worker=$(field "$(status_of one)" 'd["worker_pid"]')
copying() { grep -q "$CACHE/efs-cache-0/#.*(deleted)" <<<"$(ls -l "/proc/$worker/fd")"; }
printf changed | dd of="$MNT/huge/h" conv=notrunc status=none & pids=($!)
if await 20 copying; then
  kill -KILL "$worker"
  if wait "${pids[0]}"; then ok; else fail 'the writer goes on'; fi
  check 'after a takeover' await 20 taken_over
else fail 'the copy is never seen'; fi
pids=()
check 'what it wrote is there' test "$(head -c 7 "$MNT/huge/h")" = changed
check 'not in the cache' idle "$PFS/huge/h"
stopped one
started "$JOB"
check 'the cache has it whole' test "$(cksum <"$MNT/huge/h")" = "$sum"
check 'and nothing was read' test "$(read_now one)" = 0
stopped one
rm -r "$PFS/huge"
check 'without it' "$EFS" cache clean --all --cache "$CACHE"
# Kills during the first stage-in: all files in the cache are complete.
RESOURCE=large cache_job one "$S/store" 'max-rate: 30 MB/s'
mkdir -p "$PFS/large"; for n in 1 2 3 4; do head -c 8M /dev/urandom >"$PFS/large/$n"; done; settle "$PFS"/large/*
"$EFS" start "$JOB" >"$S/start.log" 2>&1 & pids=($!)
check 'a stage-in that has begun to fill the cache' await 20 bash -c "ls '$CACHE/efs-cache-0/'*.key"
for pid in $(daemons); do kill -KILL "$pid"; done; for pid in $(daemons); do await 20 gone "$pid"; done
wait "${pids[0]}"; pids=()
check 'is cleaned up' "$EFS" clean --force one
RESOURCE=large cache_job one "$S/store"
started "$JOB"
for n in 1 2 3 4; do check 'the next one has all' cmp "$PFS/large/$n" "$MNT/large/$n"; done
check 'some of it from the cache' json "$(status_of one)" "0 < d['staged_in']['bytes_reused'] <= 32 << 20"
stopped one

# --- capacity ---
check 'an empty cache again' "$EFS" cache clean --all --cache "$CACHE"
RESOURCE=many cache_job cap "$S/store" 'cache-capacity: 2500 KiB'
started "$JOB"
for n in 1 2 3 4; do check "capacity: input $n" cmp "$PFS/many/$n" "$MNT/many/$n"; done
check 'no more than the capacity' json "$(cached)" "len(d['files']) == 2 and d['used'] <= 2500 << 10"
stopped cap
printf x >>"$CACHE/efs-cache-0/$(ls "$CACHE/efs-cache-0" | grep -v -e key -e state | head -n 1)"
started "$JOB"
for n in 1 2 3 4; do check "a damaged entry is not given: input $n" cmp "$PFS/many/$n" "$MNT/many/$n"; done
stopped cap

# --- efs load ---
RESOURCE=many cache_job later "$S/store"
started "$JOB"; stopped later
sed -i 's/path: many/path: input/; s/reusable: true/&\n  - path: many\/1\n    reusable: true/' "$JOB"
started "$JOB"
rm "$MNT/many/1"
check 'efs load' "$EFS" load -w -i later many/1
check 'takes it from the cache' in_place "$PFS/many/1"
stopped later

# --- users ---
RESOURCE=many cache_job mine "$S/store"; chmod 777 "$OUT"
user=games
install -d -o $user "$S/user"; sed "s|mount-dir: .*|mount-dir: $S/user|" "$JOB" >"$S/user.yaml"
check 'a job of a user' "$EFS" start -u $user -n user "$S/user.yaml"
check 'he has a cache of his own' test "$(stat -c '%U %a' "$CACHE/efs-cache-$(id -u $user)")" = "$user 700"
check 'and reads for himself' test "$(read_now user)" = $((4 << 20))
stopped user
check 'the second reads nothing' "$EFS" start -u $user -n user "$S/user.yaml"
check 'not a byte' test "$(read_now user)" = 0
stopped user
chmod 600 "$PFS/many/1"
check_exit 'what he cannot read any more is refused, although it is cached' 1 'many/1: is not readable' "$EFS" start -u $user -n user "$S/user.yaml"
chmod 644 "$PFS/many/1"
as_user() { setpriv --reuid "$(id -u $user)" --regid "$(id -g $user)" --clear-groups --inh-caps=-all --bounding-set=-all "$@"; }
check_exit 'he sees his own' 0 '4 files' as_user "$EFS" cache ls --cache "$CACHE"
check_exit 'he cannot see that of root' 1 'only root' as_user "$EFS" cache ls --cache "$CACHE" -u root
check_not 'the directory is closed to him' as_user ls "$CACHE/efs-cache-0"
check_exit 'root sees his' 0 "efs-cache-$(id -u $user): 4 files" "$EFS" cache ls --cache "$CACHE" -u $user
check_exit 'a path is removed' 0 'removed 1 file' "$EFS" cache clean --cache "$CACHE" -u $user "$PFS/many/1"
check_exit 'and what is below one' 0 'removed 3 files' "$EFS" cache clean --cache "$CACHE" -u $user "$PFS/many/"
# An attack: the user's entry and directory lead to files of root.
own=$CACHE/efs-cache-$(id -u $user)
echo secret >"$S/secret"; chmod 600 "$S/secret"
as_user ln -s "$S/secret" "$own/$(printf %032d 1)"; as_user ln -s "$S/secret" "$own/$(printf %032d 1).key"
check 'root removes what is there' "$EFS" cache clean --all --cache "$CACHE" -u $user
check 'and nothing elsewhere' grep -q secret "$S/secret"
rm -r "$own"; as_user ln -s "$S" "$own"
check_not 'a link is no cache' "$EFS" cache ls --cache "$CACHE" -u $user
rm "$own"
rm -r "$CACHE/efs-cache-0"; as_user mkdir -m 700 "$CACHE/efs-cache-0"
started "$JOB"
check "a directory of another user's is not used" was_read mine $((4 << 20))
check 'and the log says so' grep -q 'event=cache_unusable .*not this user' "$EFS_RUNTIME_DIR/mine/efsd.log"
stopped mine
rm -r "$CACHE/efs-cache-0"

# --- messages ---
fresh plain 'resources: [ [ path: input, reusable: true ] ]'
check_exit 'check: without a cache it has no effect' 0 "no effect, as no cache is configured" "$EFS" check "$JOB"
check_exit 'plan: likewise' 0 'without effect, as no cache' "$EFS" plan "$JOB"
check_exit 'plan with a cache' 0 "2 files, .* cache below $CACHE" "$EFS" plan --set cache="$CACHE" "$JOB"
check_exit 'the environment names it, too' 0 "cache below $CACHE" env EFS_CACHE="$CACHE" "$EFS" plan "$JOB"
check_exit 'ls of none' 2 'no cache is configured' "$EFS" cache ls
check_exit 'ls where none is' 1 'no cache of' "$EFS" cache ls --cache "$S"
check_exit 'clean needs to know what' 2 'or --all' "$EFS" cache clean --cache "$CACHE"
check_exit 'but not twice' 2 'do not go together' "$EFS" cache clean --all --cache "$CACHE" /a
check_exit 'no such action' 2 . "$EFS" cache drop
finish
