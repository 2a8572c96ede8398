#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Files and directories of an ordinary user whose modes forbid their owner to write or read them.
# They are exported completely, with their attributes, and the directories on the PFS have their
# modes afterwards.
#   modes_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
[ "$(id -u)" = 0 ] && command -v setpriv >/dev/null || { skip 'modes' 'needs root and setpriv'; finish; }
user=64777
as_user() { setpriv --reuid $user --regid $user --clear-groups "$@"; }
# theirs NAME KIND LINES...: a job of the user, with results in place or elsewhere.
theirs() {
  local name=$1 kind=$2; shift 2
  fresh "$name" 'resources: [ [ path: input, flags: persistent ] ]'
  [ $kind = elsewhere ] || { sed -i 's|results-dir: .*|in-place: true|' "$JOB"; OUT=$PFS; }
  local line; for line in "$@"; do sed -i "/^global-settings:/a\\  $line" "$JOB"; done
  mkdir -p "$MNT"; chmod 755 "$S" "$S/$name"; chown -R $user:$user "$S/$name"
}
user_started() { check "$NAME: start" "$EFS" start --user $user "$JOB"; }
xattr_of() { python3 -c 'import os, sys; print(os.getxattr(sys.argv[1], sys.argv[2]).decode())' "$1" user.origin; }
set_xattr() { python3 -c 'import os, sys; os.setxattr(sys.argv[1], "user.origin", sys.argv[2].encode())' "$1" "$2"; }
mode_of() { stat -c %a "$1"; }
test_mode() { [ "$(mode_of "$1")" = "$2" ]; }

# --- extended attributes of a file that its owner may not write to ---
for kind in in-place elsewhere salvage; do
  theirs "xattr-$kind" ${kind/salvage/elsewhere}
  set_xattr "$PFS/input/a" precious; chmod 444 "$PFS/input/a"
  user_started
  as_user bash -c 'cd "$0" && chmod u+w input/a && echo 2 >>input/a && chmod u-w input/a && echo new >r && mkdir d && echo new >d/r' "$MNT"
  for name in r d/r; do set_xattr "$MNT/$name" mine; done
  as_user chmod 400 "$MNT/r"; as_user chmod 0 "$MNT/d/r"
  if [ $kind = salvage ]; then kill_both "$NAME"; check "$NAME: salvage" "$EFS" salvage "$NAME"; check "$NAME: clean" "$EFS" clean "$NAME"
  else check "$NAME: stop" "$EFS" stop "$NAME"; fi
  check "$NAME: of an input" test "$(xattr_of "$OUT/input/a")" = precious
  check "$NAME: of results" test "$(xattr_of "$OUT/r") $(xattr_of "$OUT/d/r")" = 'mine mine'
  check "$NAME: the modes" test "$(mode_of "$OUT/input/a") $(mode_of "$OUT/r") $(mode_of "$OUT/d/r")" = '444 400 0'
done

# --- a directory whose owner may not write in it ---
for kind in in-place elsewhere; do
  theirs "shut-$kind" $kind 'deletions: propagate'
  as_user mkdir -p "$PFS/input/away/deep"; echo gone >"$PFS/input/away/deep/f"; chown -R $user "$PFS/input/away"
  chmod 555 "$PFS/input/sub" "$PFS/input/away" "$PFS/input/away/deep"
  user_started
  as_user bash -c 'echo 1 >>"$0/input/sub/b"' "$MNT"
  as_user bash -c 'cd "$0" && chmod -R u+w input/away && rm -r input/away' "$MNT"
  check "$NAME: stop" "$EFS" stop "$NAME"
  check "$NAME: what is in it is the job's" grep -qx 1 "$OUT/input/sub/b"
  check "$NAME: it has its mode" test "$(mode_of "$OUT/input/sub")" = 555
  [ $kind = elsewhere ] || check "$NAME: what the job removed is gone" test ! -e "$PFS/input/away"
done
theirs shut-moved in-place 'deletions: propagate'
chmod 555 "$PFS/input/sub"
user_started
as_user bash -c 'cd "$0" && chmod u+w input/sub && mv input/sub/b input/sub/c && chmod u-w input/sub' "$MNT"
check 'shut-moved: stop' "$EFS" stop "$NAME"
check 'shut-moved: it has its new name, and no other' test "$(ls "$PFS/input/sub")" = c
check 'shut-moved: the directory has its mode' test "$(mode_of "$PFS/input/sub")" = 555

# --- a directory that its owner may not even read, exported before ---
theirs unreadable elsewhere
user_started
as_user bash -c 'cd "$0" && mkdir z && echo 1 >z/f && chmod 300 z' "$MNT"
check 'unreadable: stop --keep' "$EFS" stop --keep "$NAME"
user_started
as_user bash -c 'echo 2 >"$0/z/f"' "$MNT"
check 'unreadable: stop' "$EFS" stop "$NAME"
check 'unreadable: the second one is there' grep -qx 2 "$OUT/z/f"
check 'unreadable: its mode' test "$(mode_of "$OUT/z")" = 300

# --- a directory on the PFS that belongs to another user stays unchanged; efs reports what it
#     cannot write ---
theirs foreign in-place
chmod 755 "$PFS/input/sub"; chown root "$PFS/input/sub"; chown root "$PFS/input/sub/b"; chmod 666 "$PFS/input/sub/b"
user_started
as_user bash -c 'echo 1 >>"$0/input/sub/b"' "$MNT"
check_exit 'foreign: is told' 1 'input/sub/b: .*Permission denied' "$EFS" stop "$NAME"
check 'foreign: its mode' test "$(mode_of "$PFS/input/sub")" = 755
"$EFS" stop --no-stage-out foreign

# --- a directory that would lose its set-group-ID bit if the user changed its mode ---
theirs group in-place
chown $user:100 "$PFS/input/sub"; chmod 2555 "$PFS/input/sub"
user_started
as_user bash -c 'echo 1 >>"$0/input/sub/b"' "$MNT"
check_exit 'group: is told' 1 'input/sub/b: .*Permission denied' "$EFS" stop "$NAME"
check 'group: its mode' test "$(mode_of "$PFS/input/sub")" = 2555
chmod 2755 "$PFS/input/sub"
check 'group: stop' "$EFS" stop "$NAME"
check 'group: its mode is what it was' test "$(mode_of "$PFS/input/sub")" = 2755

# --- the temporary mode that a killed stage-out gave a directory is not the PFS's mode ---
theirs opened in-place
sed -i '/^global-settings:/a\  max-rate: 1 MiB/s' "$JOB"; chmod 555 "$PFS/input/sub"
user_started
as_user bash -c 'head -c 6000000 /dev/zero >"$0/input/sub/b"' "$MNT"
"$EFS" stop "$NAME" >/dev/null 2>&1 & stopping=$!
check 'opened: a stop lets itself in' await 20 test_mode "$PFS/input/sub" 755
kill_both "$NAME"; wait "$stopping"
sed -i '/max-rate/d' "$JOB"
user_started
check 'opened: the next start gives it back' test "$(mode_of "$PFS/input/sub")" = 555
check 'opened: and the job sees no other' test "$(mode_of "$MNT/input/sub")" = 555
as_user chmod 550 "$MNT/input/sub"
check 'opened: stop' "$EFS" stop "$NAME"
check 'opened: the directory has the mode of the job' test "$(mode_of "$PFS/input/sub")" = 550

# --- unload from a directory that its owner may not read ---
theirs passage elsewhere
user_started
as_user bash -c 'cd "$0" && mkdir z && echo 1 >z/f && echo 2 >z/g && chmod 300 z' "$MNT"
check 'passage: unload' as_user env EFS_RUNTIME_DIR="$EFS_RUNTIME_DIR" "$EFS" unload -i passage -w z/f
check 'passage: unload --remove' "$EFS" unload -i passage -w --remove z/g
check_not 'passage: it is removed' test -e "$MNT/z/g"
check 'passage: stop' "$EFS" stop "$NAME"
check 'passage: it is there' grep -qx 2 "$OUT/z/g"
finish
