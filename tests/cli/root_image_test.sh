#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Root exports and checks a user's dead instance with that user's rights, whatever the user has put
# into the store and into the target directory.
#   root_image_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
if [ "$(id -u)" != 0 ] || ! id games >/dev/null 2>&1; then skip 'images of users' 'needs root and the user games'; finish; fi
efs() { timeout 40 "$EFS" "$@"; }
uid=$(id -u games)

# Files of root: no other user may read them, and they must not change.
mkdir -m 0700 "$S/roots"
echo "of root" >"$S/roots/file"; mkdir "$S/roots/dir"; echo "of root" >"$S/roots/dir/f"
before=$(listing "$S/roots")
untouched() { check "$1: nothing of root's has changed" test "$(listing "$S/roots")" = "$before"; }
# nothing_of_root NAME: neither the last output nor the exported files contain root's data.
nothing_of_root() { check_not "$1: nothing of root's comes out" grep -rqF 'of root' "$S/said" "$OUT"; }
# says NAME CODES PATTERN COMMAND...: as check_exit, with a pattern for the code; keeps the text for
# nothing_of_root.
says() {
  local name=$1 codes=$2 pattern=$3 got; shift 3
  said=$("$@" 2>&1); got=$?
  printf '%s' "$said" >"$S/said"
  if [[ ! $got =~ ^($codes)$ ]]; then fail "$name" "$*: exit $got, not $codes: $said"
  elif ! grep -qE -- "$pattern" <<<"$said"; then fail "$name" "$*: says nothing that matches $pattern: $said"
  else ok; fi
}

# theirs NAME: a dead instance of the user, with its store in the directory $STORE.
theirs() {
  fresh "$1"
  mkdir "$S/$1/disk"
  job "$JOB" "backends: [ [ id: nvml, type: NVRAM-NVML, daxfs: $S/$1/disk ] ]" 'resources: [ [ path: input ] ]'
  chown -R games "$S/$1"
  started --user games "$JOB"
  runuser -u games -- sh -c "mkdir '$MNT/d' && echo result >'$MNT/r' && echo deep >'$MNT/d/f' && ln -s r '$MNT/l'"
  kill_both "$1"
  STORE=$S/$1/disk/efs-$uid-$1
}
container_of_r() { find "$STORE/data" -type f -size 7c; }   # "result\n"

# --- the owner of the files ---
theirs plain
says 'check-image' 0 'whole' efs check-image plain
says 'by directory, too' 0 'whole' efs check-image "$STORE"
says 'salvage' 0 'not exported' efs salvage plain
check 'brings out what is there' bash -c "grep -qx result '$OUT/r' && grep -qx deep '$OUT/d/f' && test \"\$(readlink '$OUT/l')\" = r"
for name in r l d d/f efs-salvage-plain.json; do check "$name is the user's" test "$(stat -c %U "$OUT/$name")" = games; done
check 'the image is the user'"'"'s still' test -z "$(find "$STORE" ! -user games)"
mkdir -m 0755 "$S/closed"
says 'a directory that is closed to the user is closed to root as well' 1 'ermission denied' efs salvage --to "$S/closed" plain
check 'nothing is in it' test -z "$(ls -A "$S/closed")"
says 'nor is one made where he must not' 1 'ermission denied' efs salvage --to "$S/closed/new" plain
mkdir -m 1777 "$S/open"
says 'where everybody may write' 0 'salvaged' efs salvage --to "$S/open" --all plain
check 'it is the user who does' test -z "$(find "$S/open" -mindepth 1 ! -user games)"
check 'inputs as well' cmp "$PFS/input/sub/b" "$S/open/input/sub/b"
check 'clean' efs clean plain

# --- links in results-dir ---
theirs results
tag=.$(field "$(cat "$EFS_RUNTIME_DIR"/results/instance.json)" 'd["instance"][:12]')
runuser -u games -- sh -c "cd '$OUT' && ln -s '$S/roots/dir' d && ln -s '$S/roots/file' r && ln -s '$S/roots/file' 'r$tag.efs-partial' && ln -s '$S/roots/file' efs-salvage-results.json && ln -s '$S/roots/new' 'l$tag.efs-partial'"
says 'salvage over links' '[013]' '' efs salvage results
untouched 'links in results-dir'
check 'a name that was a link is the result' bash -c "test ! -L '$OUT/r' && grep -qx result '$OUT/r'"
check_not 'the receipt is no link either' test -L "$OUT/efs-salvage-results.json"
runuser -u games -- sh -c "cd '$S/results' && mv out out.was && ln -s '$S/roots/dir' out"
says 'results-dir itself' '[13]' 'ermission denied|not permitted' efs salvage results
untouched 'results-dir itself'
says '--to with a link of the user'"'"'s' '[13]' 'ermission denied|not permitted' efs salvage --to "$OUT" results
untouched '--to with a link'
check 'clean' efs clean --force results

# --- files that the user puts into the store ---
theirs planted
# planted NAME FILE COMMAND: moves FILE of the store aside; COMMAND creates a replacement as the
# user; then all verbs run.
planted() {
  local name=$1 file=$2
  runuser -u games -- sh -c "mv '$file' '$file.was' && $3"
  for verb in 'check-image' 'check-image --repair' 'salvage --list' 'salvage'; do
    says "$name: $verb ends" '[0-3]' '' efs $verb planted
    nothing_of_root "$name: $verb"
  done
  says "$name: by directory" '[0-3]' '' efs check-image "$STORE"
  nothing_of_root "$name: by directory"
  untouched "$name"
  runuser -u games -- sh -c "rm -rf '$file' && mv '$file.was' '$file'"
}
mkdir "$S/roots.store"; cp -a "$STORE/." "$S/roots.store"; chown -R 0:0 "$S/roots.store"
roots_store=$(listing "$S/roots.store")
for part in meta/journal meta/instance.json meta/job.yaml meta/lock; do
  planted "$part is a link" "$STORE/$part" "ln -s '$S/roots/file' '$STORE/$part'"
  planted "$part is a link to nothing" "$STORE/$part" "ln -s '$S/roots/new' '$STORE/$part'"
  planted "$part is a pipe" "$STORE/$part" "mkfifo '$STORE/$part'"
  planted "$part is a directory" "$STORE/$part" "mkdir '$STORE/$part'"
done
planted 'the journal is a link to one of root'"'"'s' "$STORE/meta/journal" "ln -s '$S/roots.store/meta/journal' '$STORE/meta/journal'"
planted 'meta is a link' "$STORE/meta" "ln -s '$S/roots.store/meta' '$STORE/meta'"
planted 'data is a link' "$STORE/data" "ln -s '$S/roots.store/data' '$STORE/data'"
container=$(container_of_r)
planted 'a directory of containers is a link' "$(dirname "$container")" "ln -s '$S/roots' '$(dirname "$container")'"
planted 'a container is a link' "$container" "ln -s '$S/roots/file' '$container'"
planted 'a container is a pipe' "$container" "mkfifo '$container'"
planted 'the store is a link' "$STORE" "ln -s '$S/roots.store' '$STORE'"
planted 'the instance says that root'"'"'s is its own' "$EFS_RUNTIME_DIR/planted/instance.json" "sed 's|$STORE|$S/roots.store|; /\"checksum\"/d' '$EFS_RUNTIME_DIR/planted/instance.json.was' >'$EFS_RUNTIME_DIR/planted/instance.json'"
check 'root'"'"'s store is as it was' test "$(listing "$S/roots.store")" = "$roots_store"
runuser -u games -- ln -s "$S/roots/file" "$STORE/meta/journal.new"
says 'a leftover that is a link' 3 'journal.new' efs check-image planted
says 'is removed' 0 'whole' efs check-image --repair planted
untouched 'a leftover that is a link'
check 'what was repaired is the user'"'"'s' test -z "$(find "$STORE" ! -user games)"

# A root-owned directory that users may write to, as the top of a store: root would follow the
# users' statements with root's rights.
mkdir -m 0777 "$S/shared"
runuser -u games -- cp -r "$STORE/meta" "$STORE/data" "$S/shared"
says 'what users have put into a directory of root'"'"'s is no image of root'"'"'s' 1 'not belong to' efs salvage --list "$S/shared"
says 'nor is it checked as one' 1 'not belong to' efs check-image "$S/shared"
mkdir -p "$S/nest/store"; chmod 0777 "$S/nest/store"; chown games "$S/nest"
runuser -u games -- cp -r "$STORE/meta" "$STORE/data" "$S/nest/store"
says 'nor one in an instance of theirs' 1 'not belong to' efs check-image "$S/nest"

# --- names that would control root's terminal ---
check 'clean' efs clean --force planted
theirs names
check 'a start' efs start --user games "$JOB"
runuser -u games -- sh -c "echo controls >\"$MNT/\$(printf 'x\033]0;title\007\ny')\""
says 'explain names it' 0 'x\\033\]0;title\\007\\012y' efs explain -i names "$(printf 'x\033]0;title\007\ny')"
check_not 'explain: nothing in it controls the terminal' grep -q $'[\033\007]' "$S/said"
says 'a load of what is not there' 0 . efs load -i names "$(printf 'z\033]0;title\007')"
says 'status names its task' 0 'z\\033\]0;title\\007' efs status names
check_not 'status: nothing in it controls the terminal' grep -q $'[\033\007]' "$S/said"
kill_both names
rm "$(find "$STORE/data" -type f -size 9c)"
for verb in 'check-image' 'salvage'; do
  says "$verb names it" '[13]' 'x\\033\]0;title\\007\\012y' efs $verb names
  check_not "$verb: nothing in it controls the terminal" grep -q $'[\033\007]' "$S/said"
done
check 'clean' efs clean --force names
finish
