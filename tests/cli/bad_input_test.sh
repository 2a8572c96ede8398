#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Bad input: a clear error that names the object. Nothing is mounted, left behind or changed.
#   bad_input_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

nobody=65534
mkdir -p "$S/r" "$S/rn" && chown $nobody "$S/rn"   # the runtime directories: root's, and that of an ordinary user
as_nobody() { setpriv --reuid $nobody --regid $nobody --clear-groups --inh-caps=-all --bounding-set=-all env EFS_RUNTIME_DIR="$S/rn" "$@"; }
# The test may create and remove the mount point, which changes the times of its parent directory.
state_of() { local d; find "$S/$NAME" | sort; for d in pfs out mnt other; do [ ! -d "$S/$NAME/$d" ] || listing "$S/$NAME/$d"; done; }
untouched() {
  local now; now=$(state_of)
  [ "$before" = "$now" ] || { echo 'a file of the PFS, the results or the mount point has changed:'; diff <(echo "$before") <(echo "$now"); return 1; }
  ! grep -F "$S" /proc/self/mounts | grep -E 'efs' || return 1
  no_daemon && no_daemon "$S/rn" || { echo "a daemon is left: $(daemons) $(daemons "$S/rn")"; return 1; }
  [ -z "$(ls -A "$S/r")$(ls -A "$S/rn")" ] || { echo "instances are left: $(ls -A "$S/r" "$S/rn")"; return 1; }
}
# refused NAME CODE PATTERN COMMAND...: fails with the code and a message, and changes nothing.
refused() {
  local name=$1; shift
  before=$(state_of)
  check_exit "$name" "$@"
  check "$name: nothing is left or changed" untouched
  await 15 no_daemon && await 15 no_daemon "$S/rn"   # so that what one leaves does not fail the next ones
}
# all_refuse NAME PATTERN: start, run and plan report the problem with the inputs of $JOB.
all_refuse() {
  refused "$1: start" 1 "$2" "$EFS" start "$JOB"
  refused "$1: run" 1 "$2" "$EFS" run "$JOB" -- touch "$S/has_run"
  refused "$1: plan" 1 "$2" "$EFS" plan "$JOB"
  check "$1: the program did not run" test ! -e "$S/has_run"
}
# on_this_node NAME PATTERN [COMMAND...]: start, plan and check report what this node lacks; check
# runs as the user that COMMAND selects.
on_this_node() {
  local name=$1 pattern=$2 verb; shift 2
  for verb in start plan check; do refused "$name: $verb" 1 "$pattern" "$@" "$EFS" $verb "$JOB"; done
}
# invalid NAME PATTERN: every verb that reads a job file reports its problem.
invalid() {
  local verb
  for verb in check plan start; do refused "$1: $verb" 2 "$2" "$EFS" $verb "$JOB"; done
  refused "$1: run" 2 "$2" "$EFS" run "$JOB" -- touch "$S/has_run"
  check "$1: the program did not run" test ! -e "$S/has_run"
}

# --- inputs ---
fresh missing 'resources: [ [ path: input ], [ path: nosuch/file ] ]'
all_refuse 'a missing input' "$PFS/nosuch/file: does not exist"
refused 'a missing input, --json' 1 "$PFS/nosuch/file" "$EFS" start --json "$JOB"
check 'a missing input: the answer is JSON' json "$said" "d['ok'] is False and d['exit'] == 1"
fresh glob 'resources: [ [ path: "input/*.nc" ] ]'
all_refuse 'a pattern without a match' "$PFS/input/\*\.nc: no file matches"
fresh fifo 'resources: [ [ path: input/pipe ] ]'
mkfifo "$PFS/input/pipe"
all_refuse 'a FIFO as input' "$PFS/input/pipe: is a .*FIFO"
fresh noroot
PFS=$S/noroot/nowhere job "$JOB" 'resources: [ [ path: input ] ]'
all_refuse 'a missing root-dir' "$S/noroot/nowhere.*(No such file|not exist)"
fresh several 'resources: [ [ path: one ], [ path: two ], [ path: "*.three" ] ]'
refused 'all problems at once' 1 "$PFS/one" "$EFS" start "$JOB"
check 'all problems at once: the second' grep -q "$PFS/two" <<<"$said"
check 'all problems at once: the third' grep -qF "$PFS/*.three" <<<"$said"

# --- inputs that the user may not read ---
fresh unreadable
chmod 600 "$PFS/input/sub/b"
mkdir "$MNT" && chown $nobody "$MNT" "$OUT"
refused 'an unreadable input, an ordinary user' 1 "$PFS/input/sub/b: is not readable" as_nobody "$EFS" start "$JOB"
refused 'an unreadable input, root for a user' 1 "$PFS/input/sub/b: is not readable" "$EFS" start --user $nobody "$JOB"
chmod 644 "$PFS/input/sub/b"; chmod 700 "$PFS/input/sub"
refused 'an unreadable directory, an ordinary user' 1 "$PFS/input/sub: .*(Permission denied|EACCES)" as_nobody "$EFS" start "$JOB"
refused 'an unreadable directory, root for a user' 1 "$PFS/input/sub: .*(Permission denied|EACCES)" "$EFS" start --user $nobody "$JOB"
chmod 755 "$PFS/input/sub"; chown root "$OUT"
refused 'results-dir of somebody else, an ordinary user' 1 "$OUT.*not writable" as_nobody "$EFS" start "$JOB"
refused 'results-dir of somebody else, root for a user' 1 "$OUT.*not writable" "$EFS" start --user $nobody "$JOB"
chown $nobody "$OUT"; chown root "$MNT"
refused 'a mount point of somebody else' 1 "$MNT.*(somebody else|another user|not permitted)" "$EFS" start --user $nobody "$JOB"
refused 'an unknown user' 1 'nosuchuser' "$EFS" start --user nosuchuser "$JOB"
refused 'another user without being root' 1 'root' as_nobody "$EFS" start --user 1 "$JOB"
chmod 600 "$JOB"
refused 'an unreadable job file' 2 "$JOB.*(Permission denied|cannot be read)" as_nobody "$EFS" start "$JOB"

# --- directories ---
fresh noparent
MNT=$S/noparent/a/b job "$JOB" 'resources: [ [ path: input ] ]'
on_this_node 'a mount-dir without a parent' "$S/noparent/a/b"
fresh nonempty
mkdir "$MNT"; echo precious >"$MNT/precious"
on_this_node 'a mount-dir that is not empty' "$MNT:? is not empty"
check 'elsewhere it may be' "$EFS" check --at-submission "$JOB"
check 'and for the plan, too' "$EFS" plan --at-submission "$JOB"
check_exit 'its line is named' 1 "^$JOB:3: mount-dir $MNT is not empty" "$EFS" check "$JOB"
check_exit 'in JSON, too' 1 . "$EFS" check --json "$JOB"
check 'as one problem' json "$said" "[(p['line'], d['ok'], d['exit']) for p in d['problems']] == [(3, False, 1)]"
check 'a mount-dir that is not empty: its file' grep -qx precious "$MNT/precious"
fresh mountfile
touch "$MNT"
on_this_node 'a mount-dir that is a file' "$MNT"
fresh foreign
mkdir -m 777 "$MNT"; chmod -R a+rwX "$S/foreign"
on_this_node 'a mount-dir of somebody else' "$MNT:? .*belongs to (another user|somebody else)" as_nobody
fresh subdirectory 'resources: [ [ path: input ] ]' 'outputs: [ [ path: "sub/*.dat" ] ]'
mkdir -m 555 "$OUT/sub"; chmod 777 "$OUT"; mkdir "$MNT"; chown $nobody "$MNT"
check_exit 'an output whose directory takes nothing: plan' 1 "$OUT/sub.*takes no result of the output sub/\*.dat: Permission denied" as_nobody "$EFS" plan "$JOB"
refused 'an output whose directory takes nothing: start' 1 "$OUT/sub.*takes no result" as_nobody "$EFS" start "$JOB"
check_exit 'root can plan with the rights of the user' 1 "$OUT/sub.*takes no result" "$EFS" plan -u $nobody "$JOB"
check 'and with its own' "$EFS" plan "$JOB"
check_exit 'a user cannot plan with those of root' 1 'only root' as_nobody "$EFS" plan -u 0 "$JOB"
chown $nobody "$OUT/sub"; check 'one of the user is changed by the stage-out' "$EFS" plan -u $nobody "$JOB"
rmdir "$OUT/sub"; touch "$OUT/sub"
check_exit 'a file in the place of such a directory' 1 "$OUT/sub.*is not a directory" "$EFS" plan "$JOB"
fresh results
OUT=$S/results/file; touch "$OUT"; job "$JOB" 'resources: [ [ path: input ] ]'
all_refuse 'a results-dir that is a file' "$OUT.*not a directory"
fresh readonly
mount -t tmpfs -o ro,size=1m readonly "$OUT"
all_refuse 'a read-only results-dir' "$OUT.*(not writable|Read-only)"
umount "$OUT"
fresh occupied
mkdir "$EFS_RUNTIME_DIR/occupied"; touch "$EFS_RUNTIME_DIR/occupied/mine"
check_exit 'a name that is taken' 1 'occupied.*--name' "$EFS" start "$JOB"
check 'a name that is taken: it stays' test -d "$EFS_RUNTIME_DIR/occupied"
rm -r "$EFS_RUNTIME_DIR/occupied"
refused 'a runtime directory of somebody else' 1 "$S/rn.*EFS_RUNTIME_DIR" env EFS_RUNTIME_DIR="$S/rn" "$EFS" start "$JOB"
refused 'a runtime directory without a parent' 1 "$S/no/where" env EFS_RUNTIME_DIR="$S/no/where" "$EFS" start "$JOB"
long=$S/$(printf 'x%.0s' {1..100}); mkdir "$long"
refused 'a runtime directory with a path too long for a socket' 1 "too long" env EFS_RUNTIME_DIR="$long" "$EFS" start "$JOB"
check 'it stays empty' bash -c "[ -z \"\$(ls -A $long)\" ]"

fresh logs
mkdir "$S/logs/there"; ln -s there/log "$S/logs/link"
refused 'a log-file that is a directory' 1 "log-file $S/logs/there: Is a directory" "$EFS" start -l "$S/logs/there" "$JOB"
refused 'a log-file in a directory that is not there' 1 "log-file $S/logs/nosuch/log: No such file" "$EFS" start -l "$S/logs/nosuch/log" "$JOB"
refused 'a log-file that is a link' 1 "log-file $S/logs/link: " "$EFS" run -l "$S/logs/link" "$JOB" -- touch "$S/has_run"
check 'a log-file that is a link: the program did not run' test ! -e "$S/has_run"
check 'a log-file that can be written' "$EFS" start -l "$S/logs/there/log" "$JOB"
check 'is its owner'"'"'s alone' test "$(stat -c %a "$S/logs/there/log")" = 600
check 'and is written to' grep -q 'event=mounted' "$S/logs/there/log"
check 'stop' "$EFS" stop logs

# --- capacity and backends ---
CAPACITY='1 MiB' fresh tiny
invalid 'a capacity below the least' "'capacity' is '1 MiB', out of range .*at least 16 MiB"
CAPACITY='64 MiB' fresh toosmall
head -c 100M /dev/zero >"$PFS/input/big"
all_refuse 'inputs that do not fit' '(64 MiB|capacity).*'
check 'inputs that do not fit: both figures' grep -qE '(100|95\.).*(MiB|MB)' <<<"$said"
fresh daxfs 'backends: [ [ id: pm, type: NVRAM-NVML, capacity: 64 MiB, daxfs: /nosuch/dax ] ]' 'resources: [ [ path: input ] ]'
on_this_node 'a daxfs that is not there' '/nosuch/dax:? is (no|not a) directory'

# --- job files ---
fresh bad
cp "$JOB" "$S/good.yaml"
said=$("$EFS" check "$JOB" 2>&1); code=$?
check 'the good one is good' test $code -eq 0
with() { { cat "$S/good.yaml"; printf '%s\n' "$@"; } >"$JOB"; }
rm "$JOB"; invalid 'no job file' "$JOB.*(No such file|cannot be read|not exist)"
mkdir "$JOB"; invalid 'a directory as job file' "$JOB"; rmdir "$JOB"
: >"$JOB"; invalid 'an empty job file' "$JOB:1:1"
printf 'global-settings:\n  root-dir: [\n' >"$JOB"; invalid 'no YAML' "$JOB:[23]:[0-9]+: "
printf 'global-settings:\n\troot-dir: /x\n' >"$JOB"; invalid 'a tabulator' "$JOB:2:[0-9]+: "
head -c 4096 /dev/urandom >"$JOB"; invalid 'noise' "$JOB:[0-9]+:[0-9]+: "
head -c 2M /dev/zero | tr '\0' '#' >"$JOB"; invalid 'a huge job file' "$JOB.*1 MiB"
sed 's/results-dir/resutls-dir/' "$S/good.yaml" >"$JOB"; invalid 'an unknown key' "$JOB:4:3: .*resutls-dir.*did you mean 'results-dir'"
sed 's/^resources/resorces/' "$S/good.yaml" >"$JOB"; invalid 'an unknown section' "$JOB:9:1: .*resorces.*did you mean 'resources'"
sed 's/type: DRAM/type: DARM/' "$S/good.yaml" >"$JOB"; invalid 'an unknown type' "$JOB:7:11: .*DARM.*DRAM"
sed 's/128 MiB/128 MoB/' "$S/good.yaml" >"$JOB"; invalid 'a bad size' "$JOB:8:15: .*128 MoB"
sed 's/128 MiB/99999999999999 TiB/' "$S/good.yaml" >"$JOB"; invalid 'a size beyond 64 bits' "$JOB:8:15: .*99999999999999"
sed '/root-dir/d' "$S/good.yaml" >"$JOB"; invalid 'no root-dir' "$JOB:[0-9]+:[0-9]+: .*root-dir"
sed '/results-dir/d' "$S/good.yaml" >"$JOB"; invalid 'no results-dir' "$JOB:[0-9]+:[0-9]+: .*results-dir"
sed "s|results-dir: .*|results-dir: $PFS|" "$S/good.yaml" >"$JOB"; invalid 'results over inputs' "$JOB:4:16: .*in-place"
sed "s|mount-dir: .*|mount-dir: $PFS/m|" "$S/good.yaml" >"$JOB"; invalid 'a mount-dir in root-dir' "$JOB:3:14: .*root-dir"
sed 's|path: input|path: ../input|' "$S/good.yaml" >"$JOB"; invalid 'an input outside of root-dir' "$JOB:9:[0-9]+: .*input.*root-dir"
sed 's|path: input|path: input, backend: other|' "$S/good.yaml" >"$JOB"; invalid 'an unknown backend' "$JOB:9:[0-9]+: .*other.*ram"
sed 's|path: input|path: input, flags: permanent|' "$S/good.yaml" >"$JOB"; invalid 'a bad flag' "$JOB:9:[0-9]+: .*permanent.*persistent"
with 'resources: [ [ path: input ] ]'; invalid 'a section twice' "$JOB:10:1: .*resources"
sed -e 's/results-dir/resutls-dir/' -e 's/type: DRAM/type: DARM/' "$S/good.yaml" >"$JOB"; invalid 'two problems: the first' "$JOB:4:3: .*resutls-dir"
check 'two problems: the second in the same answer' grep -qE "$JOB:7:11: .*DARM" <<<"$said"
check_exit 'check --json' 2 '"problems"' "$EFS" check --json "$JOB"
check 'check --json has line, column and suggestion' json "$said" "any(p['line'] == 4 and p['column'] == 3 and 'results-dir' in p['suggestion'] for p in d['problems'])"

# --- usage ---
fresh usage
refused 'an unknown option' 2 'nosuchoption' "$EFS" start --nosuchoption "$JOB"
refused 'a bad name' 2 '\.\./x' "$EFS" start -n ../x "$JOB"
refused 'a relative parent in -n' 2 'name' "$EFS" start -n .. "$JOB"
refused 'an unknown mount option' 2 'nosiud.*nosuid' "$EFS" start -o nosiud "$JOB"
refused 'a mount option with a comma trick' 2 . "$EFS" start -o 'allow_root=1' "$JOB"

# --- a file's name now belongs to a directory, and the reverse: the message gives the remedy ---
for was in file directory; do
  fresh "was-$was"; started "$JOB"
  if [ $was = file ]; then echo old >"$OUT/r"; mkdir "$MNT/r"; echo new >"$MNT/r/f"; way='r: something that is not a directory has its name: move that away'
  else mkdir "$OUT/r"; echo old >"$OUT/r/f"; echo new >"$MNT/r"; way='r: a directory has its name: move that away'; fi
  check_exit "was-$was: is told" 1 "$way" "$EFS" stop "was-$was"
  mv "$OUT/r" "$OUT/old"
  check "was-$was: and then it is brought out" "$EFS" stop "was-$was"
  check "was-$was: what is there is the job's" grep -rqx new "$OUT/r"
done
finish
