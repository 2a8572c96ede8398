#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A PFS shared with other writers: jobs that export the same names at the same time, attributes of
# directories, copies that others rewrite, and times of low resolution.
#   shared_pfs_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

PERSISTENT='resources: [ [ path: input, flags: persistent ] ]'
in_place() { fresh "$1" "$PERSISTENT"; sed -i 's|results-dir: .*|in-place: true|' "$JOB"; OUT=$PFS; }

# --- two jobs change the same inputs, in place, and stop at the same time: each name goes to one
#     job, and the other reports a conflict ---
files=150
in_place first; first_pfs=$PFS first_mnt=$MNT
for ((i = 0; i < files; i++)); do echo "input $i" >"$PFS/input/f$i"; done
started "$JOB"
in_place second; sed -i "s|root-dir: .*|root-dir: $first_pfs|" "$JOB"
started "$JOB"
for ((i = 0; i < files; i++)); do echo "of the first $i" >"$first_mnt/input/f$i"; echo "of the second $i" >"$MNT/input/f$i"; done
"$EFS" stop --json first >"$S/first.json" 2>"$S/first.err" & first=$!
"$EFS" stop --json second >"$S/second.json" 2>"$S/second.err"; second_code=$?
wait $first; first_code=$?
check 'what both stops claim is true' python3 -SE - "$S/first.json" "$S/second.json" "$first_pfs" "$files" <<'P'
import json, sys
def actions(file): return {e["path"]: e["action"] for e in json.load(open(file))["receipt"]["entries"]}
first, second = actions(sys.argv[1]), actions(sys.argv[2])
for i in range(int(sys.argv[4])):
    path = f"input/f{i}"
    said = first.get(path), second.get(path)
    there = open(f"{sys.argv[3]}/{path}").read()
    if sorted(said) != ["conflict", "staged-out"]: sys.exit(f"{path}: {said}")
    if there != f"of the {'first' if said[0] == 'staged-out' else 'second'} {i}\n": sys.exit(f"{path}: {said}, and there is {there}")
P
check 'one of them at least does not say that all is back' test "$first_code" = 3 -o "$second_code" = 3
for name in first second; do "$EFS" stop --no-stage-out "$name" >/dev/null 2>&1; done

# --- a reserved name that is never released: its job may be dead, or only slow ---
in_place claimed
echo beta >"$PFS/input/b"
started "$JOB"; echo job-a >"$MNT/input/a"; echo job-b >"$MNT/input/b"
claim=$PFS/input/.efs-claim-a96faf705af16834e6c632b61e964e1f.efs-partial   # to "a": XXH3-128 of that
ln -s another.efs-partial "$claim"
check_exit 'a result whose name another has a claim to stays in the buffer' 3 '^  failed: input/a: .*another node or job has claimed this name.*is its claim, of another.efs-partial' "$EFS" stop claimed
check 'and the PFS has what it had' grep -qx alpha "$PFS/input/a"
check 'the others are out' grep -qx job-b "$PFS/input/b"
rm "$claim"
check 'without the claim it goes out' "$EFS" stop claimed
check 'too' grep -qx job-a "$PFS/input/a"
check_not 'and no claim is left' compgen -G "$PFS/input/.efs-claim-*"

# --- the same with a deadline ---
in_place hurried
echo beta >"$PFS/input/b"
started "$JOB"; echo job-a >"$MNT/input/a"; echo job-b >"$MNT/input/b"
claim=$PFS/input/.efs-claim-a96faf705af16834e6c632b61e964e1f.efs-partial; ln -s another.efs-partial "$claim"
check_exit 'a stop with a deadline does not wait for a claim beyond that' 3 '^  not-saved: input/a: another node or job has claimed this name.*time was up$' "$EFS" stop --deadline 3 hurried
check 'what nobody else has is out' grep -qx job-b "$PFS/input/b"
rm "$claim"
check 'what was not saved is salvaged' "$EFS" salvage hurried
check 'too' grep -qx job-a "$PFS/input/a"
check 'and the rest dropped' "$EFS" clean --force hurried

# --- attributes of directories ---
# shows DIRECTORY: the attributes that a job can set, mode and time.
shows() { python3 -SE -c 'import os, sys; p = sys.argv[1]; s = os.stat(p); print({n: os.getxattr(p, n) for n in sorted(os.listxattr(p)) if n.startswith(("user.", "system.posix_acl"))}, oct(s.st_mode), s.st_mtime_ns)' "$1"; }
adorn() { setfacl -d -m u:1234:rwx "$1" && setfacl -m u:1234:rx "$1" && python3 -SE -c 'import os, sys; os.setxattr(sys.argv[1], "user.project", sys.argv[2].encode()); os.utime(sys.argv[1], ns=(0, 10**18))' "$1" "$2"; }
if command -v setfacl >/dev/null && in_place cut && adorn "$PFS/input/sub" one 2>/dev/null; then
  has_files() { json "$(cat "$EFS_RUNTIME_DIR/cut/status.json" 2>/dev/null)" "d['state'] == 'staging-in' and d['files_done'] >= $1"; }
  mkdir "$PFS/input/z"; head -c 30000000 /dev/zero >"$PFS/input/z/large"
  sed -i "s|^resources.*|resources: [ [ path: input/sub, flags: persistent, priority: 10 ], [ path: input/z, flags: persistent ] ]|; /^global-settings:/a\\  max-rate: 1 MiB/s" "$JOB"; before=$(shows "$PFS/input/sub")
  "$EFS" start "$JOB" >/dev/null 2>&1 & starting=$!
  check 'a start that stages in has the first of two directories' await 20 has_files 1
  kill_both cut; wait $starting
  sed -i '/max-rate/d' "$JOB"
  started "$JOB"
  check 'after a stage-in that was cut off a directory that had all its files has its attributes' test "$(shows "$MNT/input/sub")" = "$before"
  chmod 751 "$MNT/input/sub"
  check 'stop' "$EFS" stop cut
  check 'and the PFS has them still' grep -q "'user.project': b'one'.*system.posix_acl_default\|system.posix_acl_default.*'user.project': b'one'" <<<"$(shows "$PFS/input/sub")"

  in_place kept; adorn "$PFS/input/sub" one
  started "$JOB"; check 'stop --keep' "$EFS" stop --keep kept
  adorn "$PFS/input/sub" two; chmod 700 "$PFS/input/sub"; python3 -SE -c 'import os, sys; os.utime(sys.argv[1], ns=(0, 10**18))' "$PFS/input/sub"
  started "$JOB"
  check 'a start on what was kept takes what has changed of a directory' test "$(shows "$MNT/input/sub")" = "$(shows "$PFS/input/sub")"
  check 'stop' "$EFS" stop kept

  in_place twice; started "$JOB"; chmod 700 "$MNT/input/sub"; chmod 711 "$PFS/input/sub"
  check_exit 'attributes of a directory that somebody has changed on the PFS are not replaced' 1 '^  conflict: input/sub: its mode, owner, ACLs or extended attributes changed on the PFS' "$EFS" stop twice
  check 'and stay' test "$(stat -c %a "$PFS/input/sub")" = 711
  check 'what the job made of them is dropped' "$EFS" stop --no-stage-out twice
  in_place series; started "$JOB"; chmod 700 "$MNT/input/sub"; check 'stop --keep' "$EFS" stop --keep series
  started "$JOB"; chmod 750 "$MNT/input/sub"; check 'a directory that was brought out before is the job'"'"'s' "$EFS" stop --keep series
  check 'and is out' test "$(stat -c %a "$PFS/input/sub")" = 750
  chmod 711 "$PFS/input/sub"; started "$JOB"; touch -d @1500000000 "$MNT/input/sub"; check 'of one that got its times only' "$EFS" stop series
  check 'the PFS keeps the mode' test "$(stat -c '%a %Y' "$PFS/input/sub")" = '711 1500000000'
  in_place brought; started "$JOB"; chmod 700 "$MNT/input/sub"; kill_both brought; check 'salvage' "$EFS" salvage brought
  check 'brings out what the job made of a directory' test "$(stat -c %a "$PFS/input/sub")" = 700
  started "$JOB"; chmod 750 "$MNT/input/sub"; check 'what a salvage made of it is the job'"'"'s' "$EFS" stop brought
  check 'too' test "$(stat -c %a "$PFS/input/sub")" = 750
else
  skip 'attributes of directories' 'no setfacl, or no such attributes in /tmp'
fi

# --- a new name of an exported result whose copy was rewritten with the same size and time ---
in_place relinked
started "$JOB"; echo job-11 >"$MNT/input/a"; check 'stop --keep' "$EFS" stop --keep relinked
python3 -SE -c 'import os, sys; p = sys.argv[1]; s = os.stat(p); open(p, "r+").write("OTHER-"); os.utime(p, ns=(s.st_atime_ns, s.st_mtime_ns))' "$PFS/input/a"
started "$JOB"; ln "$MNT/input/a" "$MNT/input/b"
check 'stop' "$EFS" stop relinked
check 'has what the job made' grep -qx job-11 "$PFS/input/b"

# --- a PFS with times in whole seconds ---
if [ "$(id -u)" = 0 ] && truncate -s 16M "$S/image" && mke2fs -q -t ext4 -I 128 "$S/image" >/dev/null 2>&1 && mkdir "$S/coarse" && mount -o loop "$S/image" "$S/coarse" 2>/dev/null; then
  in_place coarse; mkdir -p "$S/coarse/pfs/input"; sed -i "s|root-dir: .*|root-dir: $S/coarse/pfs|" "$JOB"; PFS=$S/coarse/pfs
  echo old-1 >"$PFS/input/a"
  started "$JOB"
  echo NEW-1 >"$PFS/input/a"; echo job-1 >"$MNT/input/a"   # most likely in the second in which the start would have read it
  check_exit 'a rewrite of the same size right behind the start is a conflict' 1 '^  conflict: input/a: it changed on the PFS' "$EFS" stop coarse
  check 'and stays' grep -qx NEW-1 "$PFS/input/a"
  check 'what the job made is dropped' "$EFS" stop --no-stage-out coarse
  umount "$S/coarse"
else
  skip 'a PFS that keeps whole seconds' 'not root, or no loop devices'
fi
finish
