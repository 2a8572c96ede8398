#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The life of an instance from outside: start, status, run, stop, and every other end.
#   life_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

alone() { [ -z "$(ls -A /run/efs 2>/dev/null)" ]; }   # no instance of the machine itself, which verbs would see too
worker_of() { field "$(status_of "$1")" 'd["worker_pid"]'; }
supervisor_of() { field "$(status_of "$1")" 'd["supervisor_pid"]'; }
# hold COMMAND...: runs in the background; returns when its marker file exists. Its pid is in
# $holder.
hold() { rm -f "$S/held"; (cd "${HOLD_IN:-/}" && exec bash -c "$1"'; touch '"$S/held"'; exec sleep 1000') & holder=$!; pids+=("$holder"); await 10 test -e "$S/held"; }
release() { kill "$holder"; wait "$holder" 2>/dev/null; pids=(); }
ended() { [ ! -e "$EFS_RUNTIME_DIR/$1" ] && no_daemon; }

# --- nothing runs ---
if alone; then
  check_exit 'status of none' 0 'no instance is running' "$EFS" status
  check_exit 'status --json of none' 0 '^\[\]$' "$EFS" status --json
  check_exit 'stop of none names the way out' 1 'efs start' "$EFS" stop
else
  skip 'no instance at all' 'instances of the machine run in /run/efs'
fi
check_exit 'status of an unknown name' 1 'nosuch' "$EFS" status nosuch
check_exit 'stop of an unknown name' 1 'nosuch' "$EFS" stop nosuch
for verb in run start plan check status stop; do check_exit "$verb --help" 0 "$verb" "$EFS" $verb --help; done
check_exit 'no verb is usage' 2 . "$EFS"
check_exit 'an unknown verb is usage' 2 . "$EFS" stat

# --- start, status, stop ---
fresh one
json_start=$("$EFS" start --json "$JOB" 2>/dev/null); code=$?
check 'start' test $code -eq 0
check 'start --json' json "$json_start" "d['ok'] and d['state'] == 'running' and d['name'] == 'one' and d['mount'] == '$MNT'"
check 'start returns when the inputs are there' cmp "$PFS/input/sub/b" "$MNT/input/sub/b"
check 'status --json is a list' json "$("$EFS" status --json)" "any(x['name'] == 'one' for x in d)"
for which in one "$MNT" "$MNT/" "$JOB"; do check "status by $which" json "$(status_of "$which")" "d['name'] == 'one' and d['state'] == 'running'"; done
check 'status by a relative job file' json "$(cd "$S/one" && "$EFS" status --json one.yaml)" "d['name'] == 'one'"
check_exit 'status shows mount and I/O' 0 'I/O +passthrough' "$EFS" status one
check 'status has the figures' json "$(status_of one)" "d['capacity'] >= 100 << 20 and 0 < d['used'] < d['capacity'] and d['counters']['requests'] > 0"
check 'an output can be written' bash -c "echo result >$MNT/out.txt && mkdir $MNT/d && echo deep >$MNT/d/e"
before=$(listing "$PFS")
# To enlarge the table later, the kernel makes a process with several threads wait each time.
check 'the worker has its table of descriptors large from the start' test "$(sed -n 's/^FDSize:[[:space:]]*//p' "/proc/$(worker_of one)/status")" -ge 2048
# Each wake-up of a waiting thread is a voluntary switch. Other processes may access the mount, so
# one quiet second of several suffices; a thread that polls would leave none.
switches() { cat /proc/{"$(field "$1" 'd["worker_pid"]')","$(field "$1" 'd["supervisor_pid"]')"}/task/*/status | sed -n 's/^voluntary_ctxt_switches:[[:space:]]*//p' | awk '{ n += $1 } END { print n }'; }
quiet() {
  local now= status before i; status=$(status_of one)
  for i in 1 2 3 4 5 6; do
    before=$now now=$(switches "$status")
    [ -z "$now" ] && return 1
    [ "$now" = "$before" ] && return 0
    sleep 1
  done
  return 1
}
check 'an idle instance does not wake up' quiet
( : >"$S/lock"; exec 8>>"$S/lock" 9>"$S/other"; flock 8; MNT=$S/second/mnt fresh second; "$EFS" start "$JOB" ) >/dev/null 2>&1
check 'a lock of the script that started it is the script'"'"'s alone' flock -n "$S/lock" true
check 'nor has it anything else of that' eval "! readlink /proc/$(worker_of second)/fd/* /proc/$(supervisor_of second)/fd/* | grep -F '$S/other'"
check 'stop of that' "$EFS" stop second
json_stop=$("$EFS" stop --json one 2>/dev/null); code=$?
check 'stop' test $code -eq 0
check 'stop --json has the receipt' json "$json_stop" "d['ok'] and d['staged_out'] and d['receipt']['totals']['staged-out'] >= 2 and d['receipt']['totals']['failed'] == 0"
check 'the receipt is a file, too' json "$(cat "$OUT/efs-receipt-one.json")" "any(e['path'] == 'out.txt' and e['bytes'] == 7 for e in d['entries'])"
check 'results are back when stop returns' grep -qx result "$OUT/out.txt"
check 'results in new directories' grep -qx deep "$OUT/d/e"
check 'the inputs did not come back' test ! -e "$OUT/input/a"
check 'the PFS is as it was' test "$before" = "$(listing "$PFS")"
check 'no mount after stop' test ! -e "$MNT"
check 'no daemon when stop returns' ended one

# --- a job without results, and without a results-dir ---
fresh nothing; rmdir "$OUT"
started "$JOB"
check 'stop after a job that wrote nothing' "$EFS" stop nothing
check 'its receipt has a place' json "$(cat "$OUT/efs-receipt-nothing.json")" "d['verdict'] == 'complete' and d['totals']['staged-out'] == 0"

# --- several instances ---
fresh two; two_job=$JOB two_mnt=$MNT two_out=$OUT
fresh three
started "$two_job"; started "$JOB"
check_exit 'stop of several names them' 1 'three.*two' "$EFS" stop
check 'status of several' json "$("$EFS" status --json)" "{'two', 'three'} <= {x['name'] for x in d}"
check_exit 'the same name again is refused' 1 'two.*(--name|efs stop)' "$EFS" start "$two_job"
check 'the first one did not mind' cmp "$PFS/input/a" "$two_mnt/input/a"
check_exit 'the same mount point again is refused' 1 "$two_mnt" "$EFS" start -n other "$two_job"
check 'the first one did not mind that either' cmp "$PFS/input/a" "$two_mnt/input/a"
echo 2 >"$two_mnt/two"; echo 3 >"$MNT/three"
check 'stop by mount point' "$EFS" stop "$two_mnt"
check 'stop by job file' "$EFS" stop "$JOB"
check 'each has its own results' bash -c "grep -qx 2 $two_out/two && grep -qx 3 $OUT/three && ! test -e $OUT/two"

# --- run ---
fresh run
check_exit 'run gives 0' 0 . "$EFS" run "$JOB" -- sh -c 'echo r >"$EFS_MOUNT/zero"'
check 'EFS_MOUNT is the mount point' grep -qx r "$OUT/zero"
check_exit "run gives the program's code" 7 . "$EFS" run "$JOB" -- sh -c 'echo r >"$EFS_MOUNT/seven"; exit 7'
check 'results of a failed program are back' grep -qx r "$OUT/seven"
check_exit 'run of a program that is not there' 127 'nosuchprogram' "$EFS" run "$JOB" -- nosuchprogram
check_exit 'run of what is no program' 126 'run.yaml' "$EFS" run "$JOB" -- "$JOB"
check_exit 'run of a program that a signal ends' 143 . "$EFS" run "$JOB" -- sh -c 'echo r >"$EFS_MOUNT/killed"; kill -TERM $$'
check 'results of a killed program are back' grep -qx r "$OUT/killed"
check_exit 'the program of run may stop it itself' 0 'run: stage-out complete' "$EFS" run "$JOB" -- sh -c 'echo r >"$EFS_MOUNT/own" && "$0" stop run >/dev/null' "$EFS"
check 'and its results are back' grep -qx r "$OUT/own"
check_exit 'but not give them up' 125 "overruled by another stop --no-stage-out" "$EFS" run "$JOB" -- sh -c 'echo r >"$EFS_MOUNT/dropped" && "$0" stop --no-stage-out run' "$EFS"
check_exit 'or keep the buffer' 0 . "$EFS" run "$JOB" -- sh -c 'echo r >"$EFS_MOUNT/own2" && "$0" stop --keep run >/dev/null' "$EFS"
check 'which has been brought out, too' grep -qx r "$OUT/own2"
check 'clean' "$EFS" clean run
check_exit 'options of the program are not ours' 0 '^words -n --json$' "$EFS" run "$JOB" -- echo words -n --json
said=$("$EFS" run "$JOB" -- printf '<%s>\n' '[a,b]' '[]' '' '{}' '[ab]*' '%%' '[0-9]' -- '[x]' 2>/dev/null)
check 'its arguments are as given' grep -qxF '<[a,b]><[]><><{}><[ab]*><%%><[0-9]><--><[x]>' <<<"$(tr -d '\n' <<<"$said")"
check_exit 'one argument in brackets' 0 '^\[1,2\]' "$EFS" run "$JOB" -- printf '%s\n' '[1,2]'
check_exit 'without --, too' 0 '^\[1,2\]' "$EFS" run "$JOB" printf '%s\n' '[1,2]'
check_exit "the job file may be the environment's" 0 '^words' env EFS_CONFIG="$JOB" "$EFS" run -- echo words
check 'the output of run is the program'"'"'s alone' test "$("$EFS" run "$JOB" -- sh -c 'echo 42; echo r >"$EFS_MOUNT/42"' 2>/dev/null)" = 42
check 'what became of the results is told beside it' grep -q '^receipt: ' <<<"$("$EFS" run "$JOB" -- true 2>&1 >/dev/null)"
check 'set-id programs work for the program as for its caller' test "$("$EFS" run "$JOB" -- grep NoNewPrivs /proc/self/status 2>/dev/null)" = "$(grep NoNewPrivs /proc/self/status)"
if [ "$(id -u)" = 0 ]; then
  mkdir "$MNT"; chown 65534 "$MNT" "$OUT"
  check_exit 'what root runs for a user is that user' 0 '^Uid:[[:space:]]65534[[:space:]]65534[[:space:]]65534' "$EFS" run -u 65534 "$JOB" -- cat /proc/self/status
  check 'and cannot gain privilege' grep -qE '^NoNewPrivs:[[:space:]]*1$' <<<"$said"
  rmdir "$MNT"; chown 0 "$OUT"
fi
check 'run --json' json "$("$EFS" run --json "$JOB" -- sh -c 'exit 3' 2>/dev/null)" "d['program_exit'] == 3 and d['stop_exit'] == 0 and d['stop']['staged_out']"
check 'run --json is one document' json "$("$EFS" run --json "$JOB" -- true 2>/dev/null)" "d['ok'] and d['exit'] == 0 and d['stop']['exit'] == 0"
said=$("$EFS" run --json "$JOB" -- sh -c 'exec 3<"$EFS_MOUNT"; sleep 600 <&3 >/dev/null 2>&1 & echo $! >'"$S/holder" 2>/dev/null); code=$?
check 'run --json with a stop that fails' test $code -eq 125
check 'is one document with the reason' json "$said" "d['ok'] is False and d['exit'] == 125 and d['program_exit'] == 0 and d['stop_exit'] == 1 and d['stop']['ok'] is False and 'in use' in d['stop']['error']"
check 'the reason names the holder' json "$said" "'\n  $(cat "$S/holder") ' in d['stop']['error']"
kill -KILL "$(cat "$S/holder")"; await 10 gone "$(cat "$S/holder")"
check 'the instance is still there to be stopped' "$EFS" stop "$NAME"
check_exit 'run without a program is usage' 2 . "$EFS" run "$JOB"
check 'nothing stays after run' ended run
"$EFS" run "$JOB" -- sh -c 'trap "echo t >\"\$EFS_MOUNT/term\"; exit 9" TERM; touch '"$S/here"'; while :; do sleep 0.05; done' >/dev/null 2>&1 & runner=$!; pids+=($runner)
await 10 test -e "$S/here"; kill -TERM $runner; wait $runner; code=$?; pids=()
check 'a signal to run goes to the program' test $code -eq 9
check 'and its results are back' grep -qx t "$OUT/term"

fresh readonly
mount -t tmpfs -o size=4m readonly "$OUT"
check_exit 'run gives 125 when the results cannot be written' 125 'efs stop readonly' "$EFS" run "$JOB" -- sh -c "echo r >\"\$EFS_MOUNT/r\" && mount -o remount,ro $OUT"
check 'the instance keeps them' json "$(status_of readonly)" "d['state'] == 'unsaved'"
check 'the mount is gone meanwhile' bash -c "! grep -qF ' $MNT ' /proc/self/mounts"
mount -o remount,rw "$OUT"
check 'stop again brings them' "$EFS" stop readonly
check 'all of them' grep -qx r "$OUT/r"
umount "$OUT"

fresh full
mount -t tmpfs -o size=1m full "$OUT"
check_exit 'run gives 125 when the results do not fit' 125 'No space left|full' "$EFS" run "$JOB" -- sh -c 'for i in 1 2 3 4; do head -c 1000000 /dev/urandom >"$EFS_MOUNT/f$i"; cksum <"$EFS_MOUNT/f$i" >>'"$S/sums"'; done'
check 'the error tells the command to retry' grep -q 'efs stop full' <<<"$said"
check 'what fits is there' test "$(ls "$OUT" | grep -c '^f[1-4]$')" -eq 1
check 'no partial file is left on the full file system' bash -c "! find $OUT -name '*.efs-partial' | grep ."
said=$("$EFS" stop full 2>&1); code=$?   # 3 where some files fitted, 1 where none did
check 'a second stop fails again while it is full' test $code -eq 1 -o $code -eq 3
check 'and names files and the way out' grep -qE 'f[1-4]: .*[Nn]o space' <<<"$said"
check 'status tells the state' json "$(status_of full)" "d['state'] == 'unsaved'"
mount -o remount,size=16m "$OUT"
check 'stop after it was enlarged' "$EFS" stop full
check 'brings everything' bash -c "for i in 1 2 3 4; do cksum <$OUT/f\$i; done | cmp - $S/sums"
umount "$OUT"

# --- memory without a declared capacity: plan and daemon compute the same capacity ---
fresh roomy 'backends: [ [ id: ram, type: DRAM ] ]' 'resources: [ [ path: input ] ]'
planned=$(field "$("$EFS" plan --json "$JOB")" "d['capacity']")
check 'plan knows the default capacity' test "${planned:-0}" -ge $((16 << 20))
check 'start' "$EFS" start "$JOB"
# Available memory changes in between, so the two differ a little.
check 'it is what the instance has' json "$(status_of roomy)" "abs(d['capacity'] - $planned) <= $planned // 4"
check 'stop' "$EFS" stop roomy

# --- a busy mount ---
fresh busy
started "$JOB"
hold "exec 9<$MNT/input/a"
check_exit 'stop of a busy mount names the holder' 1 "$holder .*input/a" "$EFS" stop busy
check 'the mount goes on' cmp "$PFS/input/a" "$MNT/input/a"
check 'as a running one' json "$(status_of busy)" "d['state'] == 'running'"
release
HOLD_IN=$MNT hold :
check_exit 'stop names who sits in a directory' 1 "$holder .*directory" "$EFS" stop busy
check_exit 'stop --json of a busy mount' 1 "$holder" "$EFS" stop --json busy
check 'is JSON' json "$said" "d['ok'] is False and d['exit'] == 1"
release
python3 -c 'import socket, sys, time
s = socket.socket(socket.AF_UNIX); s.bind(sys.argv[1]); open(sys.argv[2], "w").close(); time.sleep(1000)' "$MNT/input/sock" "$S/bound" & holder=$!; pids+=("$holder")
check 'a socket is bound' await 20 test -e "$S/bound"
check_exit 'stop names it, and whose it is' 1 "$holder python3.* .socket bound at $MNT/input/sock" "$EFS" stop busy
release
if [ "$(id -u)" = 0 ]; then
  mkdir "$MNT/on" && mount -t tmpfs on "$MNT/on"
  check_exit 'stop names a mount in it' 1 "a mount at $MNT/on .umount" "$EFS" stop busy
  check_not 'and not itself' grep -qE '[0-9] efs \(' <<<"$said"
  umount "$MNT/on"
  truncate -s 1M "$MNT/image"
  if loop=$(losetup -f --show "$MNT/image" 2>/dev/null); then
    check_exit 'stop names a loop device' 1 "loop device $loop on $MNT/image" "$EFS" stop busy
    losetup -d "$loop"; check 'it is detached' await 20 bash -c "! losetup '$loop'"
  else skip 'stop names a loop device' 'there is none'; fi
else skip 'stop names mounts and loop devices' 'needs root'; fi
echo late >"$MNT/late"
check 'stop works when they are gone, also from within the mount' sh -c 'cd "$1" && exec "$2" stop busy' sh "$MNT" "$EFS"
check 'and nothing was lost' grep -qx late "$OUT/late"

# --- standard input, output and error closed, as in a daemon or from cron ---
fresh closed
for what in '<&-' '>&-' '<&- >&-' '<&- >&- 2>&-'; do
  check "start with $what" bash -c "exec timeout 20 $EFS start $JOB $what"
  check "stop with $what" bash -c "exec timeout 20 $EFS stop closed $what"
  check "run with $what" bash -c "exec timeout 20 $EFS run $JOB -- sh -c 'echo r >\"\$EFS_MOUNT/r\"' $what"
  check "its result is back, with $what" rm "$OUT/r"
  await 10 ended closed || "$EFS" stop --no-stage-out closed
done

# --- without stage-out ---
fresh drop
started "$JOB"; echo x >"$MNT/x"
check 'stop --no-stage-out' "$EFS" stop --no-stage-out drop
check 'brings nothing' bash -c "[ -z \"\$(ls -A $OUT)\" ]"
check 'ends the instance' ended drop

# --- a second mount ---
if [ "$(id -u)" = 0 ]; then
  fresh second
  mkdir "$S/second/else" "$S/second/p" "$S/second/q"
  started "$JOB"; echo x >"$MNT/x"
  check 'a bind mount' mount --bind "$MNT" "$S/second/else"
  check_exit 'is a second place, which is named' 1 "mounted at a second place, $S/second/else" timeout 20 "$EFS" stop second
  check 'unmounted' umount "$S/second/else"
  check 'it is in the way no longer' timeout 20 "$EFS" stop second
  check 'and nothing was lost' grep -qx x "$OUT/x"
  check_exit 'a second place that the program of run made' 125 "mounted at a second place, $S/second/else" timeout 20 "$EFS" run "$JOB" -- sh -c "mount --bind \"\$EFS_MOUNT\" $S/second/else; echo y >\"\$EFS_MOUNT/y\""
  check 'unmounted ' umount "$S/second/else"
  check 'a stop goes on from there' timeout 20 "$EFS" stop second
  check 'and nothing was lost ' grep -qx y "$OUT/y"
  mount -t tmpfs p "$S/second/p" && mount --make-shared "$S/second/p" && mount --rbind "$S/second/p" "$S/second/q" && mkdir "$S/second/p/mnt"
  check 'start where mounts propagate' "$EFS" start -m "$S/second/p/mnt" "$JOB"
  check 'they do' mounted "$S/second/q/mnt"
  check 'what propagates is in nobody'"'"'s way' timeout 20 "$EFS" stop second
  await 20 no_daemon   # until then the supervisor holds the directory of the mount
  umount -R "$S/second/q"; umount "$S/second/p"
else
  skip 'a second place' 'bind mounts need root'
fi

# --- ends other than a stop ---
fresh outside
started "$JOB"; echo x >"$MNT/x"
check 'umount from outside' umount "$MNT"
check 'ends the instance' await 20 ended outside
check 'and stages out' grep -qx x "$OUT/x"

fresh term
started "$JOB"; echo x >"$MNT/x"
kill -TERM "$(worker_of term)"
check 'SIGTERM ends the instance' await 20 ended term
check 'and stages out ' grep -qx x "$OUT/x"

fresh killed
started "$JOB"; echo x >"$MNT/x"; sync "$MNT/x"
supervisor=$(supervisor_of killed); worker=$(worker_of killed)
kill -KILL "$worker"
replaced() { local now; now=$(worker_of killed) && [ -n "$now" ] && [ "$now" != "$worker" ]; }
check 'kill -9 of the worker: another one takes over' await 20 replaced
check 'with what was there' timeout 20 grep -qx x "$MNT/x"
check 'and it is counted' json "$(status_of killed)" "d['takeovers'] == 1 and d['supervisor_pid'] == $supervisor"
check_exit 'for people, too' 0 '^ *takeovers +1 ' "$EFS" status killed
worker=$(worker_of killed)
kill -KILL "$supervisor"
check 'kill -9 of the supervisor ends the worker' await 20 gone "$worker"
if mounted "$MNT"; then umount "$MNT"; fi
check 'the directory below answers' timeout 5 ls "$MNT"
check_exit 'status tells that it is dead and where the data is' 1 "dead|$EFS_RUNTIME_DIR/killed/store" "$EFS" status killed
check_exit 'so does stop' 1 "$EFS_RUNTIME_DIR/killed/store" "$EFS" stop killed
check 'the data is still there' bash -c "grep -rqx x $EFS_RUNTIME_DIR/killed/store"
started "$JOB"
check 'start goes on with it' grep -qx x "$MNT/x"
check 'stop' "$EFS" stop killed
check 'brings it back' grep -qx x "$OUT/x"

fresh orphan
started "$JOB"; echo x >"$MNT/x"
supervisor=$(supervisor_of orphan); worker=$(worker_of orphan)
kill -KILL "$supervisor"
check 'kill -9 of the supervisor ends its worker' await 20 gone "$worker"
timeout 5 stat "$MNT/x" >"$S/stat" 2>&1; code=$?
check 'the mount does not hang' test $code -eq 1
if mounted "$MNT"; then check 'it says ENOTCONN' grep -q 'not connected' "$S/stat"; check 'it can be unmounted' umount "$MNT"; else skip 'what a dead mount says' 'the kernel has unmounted it'; fi
check_exit 'status tells that it is dead' 1 'dead' "$EFS" status orphan
check 'its store can be dropped' drop_store orphan

# --- the flags of the ancestor, mount options, mount(8) ---
fresh flags
other=$S/flags/other; mkdir -p "$other/input"; echo other >"$other/input/a"
"$EFS" start -c "$JOB" -r "$other" -m "$S/flags/there" -l "$S/flags/log" -o noatime,fsname=mine,mode=0711,noexec -d -f >/dev/null 2>&1 & runner=$!; pids+=($runner)
answers() { json "$(status_of flags)" "d['state'] == 'running'"; }
check '-f runs' await 20 answers
check '-r wins over the file' grep -qx other "$S/flags/there/input/a"
check '-m wins over the file; -o reaches the mount' grep -q "^mine $S/flags/there fuse.efs [^ ]*nosuid,nodev,noexec,noatime" /proc/self/mounts
check 'the root directory has the mode of -o' test "$(stat -c %a "$S/flags/there")" = 711
check '-l names the log, -d writes into it' test -s "$S/flags/log"
check '-f stays' kill -0 $runner
check 'stop' "$EFS" stop flags
check '-f ends with the instance' await 10 gone $runner
wait $runner; code=$?; pids=()
check '-f gives 0' test $code -eq 0
check_exit 'an unknown -o option' 2 'nosiud.*nosuid' "$EFS" start "$JOB" -o nosiud
check 'starts nothing' ended flags
started "$JOB" -o ro
check_not '-o ro' touch "$MNT/x"
check 'stop of a read-only one' "$EFS" stop flags
started "$JOB" -o daemon-io
check '-o daemon-io' json "$(status_of flags)" "d['io'] == 'daemon' and 'io_reason' in d"
check 'stop of it' "$EFS" stop flags

fresh helper
mkdir "$MNT"
helper() { env "PATH=$BIN:$PATH" sh "$SOURCE/src/cli/mount.fuse.efs" "$JOB" "$MNT" "$@"; }
check 'mount.fuse.efs -f does all but mount' helper -n -f -t fuse.efs
check 'so nothing is there' ended helper
check 'mount.fuse.efs' helper -n -t fuse.efs -o rw,nosuid -o noatime
check 'mounts there, with the options of every -o' grep -q " $MNT fuse.efs [^ ]*nosuid[^ ]*noatime" /proc/self/mounts
check 'with the inputs' cmp "$PFS/input/a" "$MNT/input/a"
check 'stop by mount point ' "$EFS" stop "$MNT"
check 'a mount point that was there stays' test -d "$MNT"

# --- a login with a permanently low limit of open files ---
for most in 1024 512; do
  fresh "few-$most"; mkdir "$PFS/input/many"; for i in {1..300}; do echo "$i" >"$PFS/input/many/$i"; done
  check "few-$most: start" bash -c "ulimit -n $most; exec '$EFS' start '$JOB'"
  check "few-$most: all inputs may be read" test "$(cat "$MNT"/input/many/* | sort -n | uniq | wc -l)" = 300
  check "few-$most: many files are made" bash -c "cd '$MNT' && for i in {1..700}; do echo \$i >\$i || exit 1; done"
  check "few-$most: unload" "$EFS" unload -i "few-$most" -w '[1-9]' '[1-9]?'
  check "few-$most: stop" "$EFS" stop "few-$most"
  check "few-$most: all are out" test "$(cat "$OUT"/[1-9]* | sort -n | uniq | wc -l)" = 700
done
fresh fewer
check_exit 'fewer than an instance needs are no start' 1 'hard limit on open files is 511.*needs 512: .*LimitNOFILE' bash -c "ulimit -n 511; exec '$EFS' start '$JOB'"
check 'fewer: nothing is left' ended fewer
# --- two instances on one mount point ---
fresh second
point=$MNT
fresh first
head -c 6000000 /dev/zero >"$PFS/input/large"
sed -i "s|^  mount-dir: .*|  mount-dir: $point|; /^global-settings:/a\\  max-rate: 1 MiB/s" "$JOB"
"$EFS" start "$JOB" >"$S/first.said" 2>&1 & starting=$!
staging_in() { json "$("$EFS" status --json first 2>/dev/null)" "d['state'] == 'staging-in'"; }
check 'one that stages in' await 20 staging_in
check_exit 'keeps another from its mount point' 1 'first is about to be mounted there' "$EFS" start "$S/second/second.yaml"
wait "$starting"; check 'and is mounted' test $? -eq 0
check_exit 'as nobody else is' 1 . "$EFS" start "$S/second/second.yaml"
check 'stop' "$EFS" stop first

finish
