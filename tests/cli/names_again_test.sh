#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A name on the PFS that now belongs to another file: a file that got its old name back, partials of
# others, names that efs itself uses, and two jobs that export the same name.
#   names_again_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

in_place() { fresh "$@"; sed -i 's|results-dir: .*|in-place: true|' "$JOB"; OUT=$PFS; }
unloaded() { check "$NAME: unload $*" "$EFS" unload -i "$NAME" -w "$@"; }
stopped() { check "$NAME: stop" "$EFS" stop "$@" "$NAME"; }
has() { check "$NAME: $1 is $2" grep -qx "$2" "$OUT/$1"; }

# --- a file gets its name back after another file was exported under it ---
fresh back
started "$JOB"
echo v1 >"$MNT/ck"; unloaded ck
mv "$MNT/ck" "$MNT/old"; echo v2 >"$MNT/ck"; unloaded ck
mv -f "$MNT/old" "$MNT/ck"
check_exit 'explain knows' 0 'state +dirty' "$EFS" explain -i back ck
stopped
has ck v1

fresh exchange
started "$JOB"
echo v1 >"$MNT/ck"; unloaded ck
mv "$MNT/ck" "$MNT/old"; echo v2 >"$MNT/ck"; unloaded ck
check 'the two are exchanged' python3 -c 'import ctypes, os, sys; libc = ctypes.CDLL(None, use_errno=True)
sys.exit(libc.renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2))' "$MNT/ck" "$MNT/old"
stopped
has ck v1
has old v2

fresh link
started "$JOB"
echo v1 >"$MNT/ck"; ln "$MNT/ck" "$MNT/ck.bak"; unloaded ck
rm "$MNT/ck"; echo v2 >"$MNT/ck"; unloaded ck
ln -f "$MNT/ck.bak" "$MNT/ck"
stopped
has ck v1
has ck.bak v1

in_place inputs
started "$JOB"
mv "$MNT/input/a" "$MNT/input/z"; echo tmp >"$MNT/input/a"; unloaded input/a
has input/a tmp
mv -f "$MNT/input/z" "$MNT/input/a"
stopped
has input/a alpha

in_place directory
started "$JOB"
mv "$MNT/input" "$MNT/in.old"; mkdir "$MNT/input"; echo tmp >"$MNT/input/a"; unloaded input
rm -r "$MNT/input"; mv "$MNT/in.old" "$MNT/input"
stopped
has input/a alpha
has input/sub/b beta

# --- the same over several lives of an instance ---
fresh lives 'resources: [ [ path: input ] ]' 'outputs: [ [ path: tmp, flags: temporary ], [ path: "**" ] ]'
started "$JOB"
mkdir "$MNT/tmp"; echo v1 >"$MNT/ck"; stopped --keep
started "$JOB"
mv "$MNT/ck" "$MNT/tmp/old"; echo v2-newer >"$MNT/ck"; stopped --keep
has ck v2-newer
started "$JOB"
rm "$MNT/ck"; mv "$MNT/tmp/old" "$MNT/ck"
stopped
has ck v1

in_place salvaged
started "$JOB"
mv "$MNT/input/a" "$MNT/input/z"; echo tmp >"$MNT/input/a"
kill_both salvaged
check 'salvage' "$EFS" salvage salvaged
has input/a tmp
started "$JOB"
mv -f "$MNT/input/z" "$MNT/input/a"
stopped
has input/a alpha

fresh changed 'resources: [ [ path: input, flags: persistent ] ]'
started "$JOB"
mv "$MNT/input/a" "$MNT/mine"; stopped --keep
echo theirs-now >"$PFS/input/a"
started "$JOB"
check 'a new version of an input is staged in' grep -qx theirs-now "$MNT/input/a"
mv -f "$MNT/mine" "$MNT/input/a"
stopped
has input/a alpha

fresh loads
started "$JOB"
mv "$MNT/input/a" "$MNT/mine"
echo theirs-now >"$PFS/input/a"
check 'load' "$EFS" load -i loads -w input/a
mv -f "$MNT/mine" "$MNT/input/a"
stopped
has input/a alpha

fresh called
started "$JOB"
echo new >"$MNT/ck"; stopped --keep
has ck new
echo stale >"$OUT/final"; echo 'outputs: [ [ path: ck, as: final ] ]' >>"$JOB"
started "$JOB"
stopped
has final new

# --- in place, a renamed input that was exported is still a result ---
in_place moved 'resources: [ [ path: input ] ]' 'outputs: [ [ path: out ] ]'
started "$JOB"
mkdir "$MNT/out"; mv "$MNT/input/a" "$MNT/out/a"; stopped --keep
started "$JOB"
echo more >>"$MNT/out/a"
check_exit 'its class is that of what the job makes' 0 'class +persistent' "$EFS" explain -i moved out/a
stopped
check 'moved: what was appended is there' test "$(tail -n 1 "$PFS/out/a")" = more

# --- names from output rules ---
fresh given 'resources: [ [ path: input ] ]' 'outputs: [ [ path: ck, as: final ], [ path: "**" ] ]'
started "$JOB"
echo v1 >"$MNT/final"; unloaded final; mv "$MNT/final" "$MNT/old"
echo v2 >"$MNT/ck"; unloaded ck
has final v2
rm "$MNT/ck"; mv "$MNT/old" "$MNT/final"
stopped
has final v1
fresh taken 'resources: [ [ path: input ] ]' 'outputs: [ [ path: ck, as: final ], [ path: "**" ] ]'
started "$JOB"
echo v1 >"$MNT/ck"; unloaded ck; mv "$MNT/ck" "$MNT/old"
echo v2 >"$MNT/final"; unloaded final; rm "$MNT/final"
mv "$MNT/old" "$MNT/ck"
stopped
has final v1
in_place destroyed 'resources: [ [ path: input.dat, flags: persistent ] ]' 'outputs: [ [ path: new.dat, as: input.dat ], [ path: "**" ] ]'
echo orig >"$PFS/input.dat"
started "$JOB"
mv "$MNT/input.dat" "$MNT/z"; echo jobs >"$MNT/new.dat"; unloaded new.dat
rm "$MNT/new.dat"; mv "$MNT/z" "$MNT/input.dat"
check_exit 'what another result stands for is a conflict' 3 'conflict: input.dat' "$EFS" stop destroyed
rm "$PFS/input.dat"
stopped
has input.dat orig
in_place guarded 'resources: [ [ path: input.dat, flags: persistent ] ]' 'outputs: [ [ path: new.dat, as: input.dat ], [ path: "**" ] ]'
echo orig >"$PFS/input.dat"
started "$JOB"
rm "$MNT/input.dat"; echo jobs >"$MNT/new.dat"; echo "the user's newer version" >"$PFS/input.dat"
check_exit 'under the name of an input, too, a newer version is a conflict' 1 'conflict: new.dat' "$EFS" stop guarded
has input.dat "the user's newer version"
rm "$PFS/input.dat"
stopped
has input.dat jobs
in_place deleted 'resources: [ [ path: input.dat, flags: persistent ] ]' 'outputs: [ [ path: new.dat, as: input.dat ], [ path: "**" ] ]'
sed -i '/in-place/a\  deletions: propagate\n  on-conflict: overwrite' "$JOB"
echo orig >"$PFS/input.dat"
started "$JOB"
rm "$MNT/input.dat"; echo jobs >"$MNT/new.dat"; echo other >"$PFS/input.dat"
stopped
has input.dat jobs
fresh later 'resources: [ [ path: input ] ]' 'outputs: [ [ path: tmp, flags: temporary ], [ path: "**" ] ]'
started "$JOB"
mkdir "$MNT/tmp"; echo v1 >"$MNT/ck"; unloaded ck; mv "$MNT/ck" "$MNT/tmp/old"; stopped --keep
sed -i 's/^outputs:.*/outputs: [ [ path: tmp, flags: temporary ], [ path: ck, as: final ], [ path: "**" ] ]/' "$JOB"; echo stale >"$OUT/final"
started "$JOB"
mv "$MNT/tmp/old" "$MNT/ck"
stopped
has final v1

# --- after a salvage, all types of files ---
fresh kinds
started "$JOB"
echo 1 >"$MNT/ck1"; ln -s ck1 "$MNT/latest"; mkdir -m 700 "$MNT/d"; echo file >"$MNT/f"; stopped --keep
started "$JOB"
mv "$MNT/latest" "$MNT/previous"; echo 2 >"$MNT/ck2"; ln -s ck2 "$MNT/latest"
mv "$MNT/d" "$MNT/d.old"; mkdir -m 755 "$MNT/d"; mv "$MNT/f" "$MNT/g"; ln -s ck2 "$MNT/f"
kill_both kinds
check 'salvage' "$EFS" salvage kinds
started "$JOB"
mv -fT "$MNT/previous" "$MNT/latest"; rmdir "$MNT/d"; mv "$MNT/d.old" "$MNT/d"; mv -fT "$MNT/g" "$MNT/f"
stopped
check 'kinds: a link' test "$(readlink "$OUT/latest")" = ck1
check 'kinds: a directory' test "$(stat -c %a "$OUT/d")" = 700
check 'kinds: a file' test ! -L "$OUT/f" -a "$(cat "$OUT/f")" = file

in_place removed 'resources: [ [ path: input, flags: persistent ] ]'
sed -i '/in-place/a\  deletions: propagate' "$JOB"
started "$JOB"
mv "$MNT/input/a" "$MNT/z"
kill_both removed
check_exit 'a salvage removes what was renamed' 0 'removed: input/a|1 removed' "$EFS" salvage removed
started "$JOB"
mv "$MNT/z" "$MNT/input/a"
stopped
has input/a alpha

# --- a result with several names replaced an input and is removed: by ctime alone its copy is not
#     recognised as foreign ---
in_place several 'resources: [ [ path: input, flags: persistent ] ]'
sed -i '/in-place/a\  deletions: propagate' "$JOB"
started "$JOB"
echo n >"$MNT/input/n"; ln "$MNT/input/n" "$MNT/input/n2"; stopped --keep
started "$JOB"
echo more >>"$MNT/input/n2"
check 'it is exchanged with an input' python3 -c 'import ctypes, sys
sys.exit(ctypes.CDLL(None).renameat2(-100, sys.argv[1].encode(), -100, sys.argv[2].encode(), 2))' "$MNT/input/n" "$MNT/input/sub/b"
kill_both several
check 'salvage' "$EFS" salvage several
started "$JOB"
mv "$MNT/input/sub/b" "$MNT/input/sub/q"
stopped
has input/n beta
has input/sub/q more
check_not 'several: its old name is gone' test -e "$PFS/input/sub/b"

# --- during an unload ---
in_place during
sed -i '/in-place/a\  max-rate: 2 MB/s' "$JOB"
started "$JOB"
# Twenty seconds. The load waits for those parts of it that the unload's threads are copying: a MiB
# each.
head -c 40000000 /dev/zero | tr '\0' J >"$MNT/input/a"
task=$("$EFS" unload -i during input/a)
check 'the partial of an unload' await 30 compgen -G "$PFS/input/a.*.efs-partial"
mv "$MNT/input/a" "$MNT/z"
check 'a load beside it' "$EFS" load -i during -w input/a
"$EFS" wait -i during "$task" >/dev/null
check 'what it brought there has another name by now' grep -q JJJ "$PFS/input/a"
stopped
has input/a alpha
check 'during: and is there under that' cmp -s "$PFS/z" <(head -c 40000000 /dev/zero | tr '\0' J)

# --- a receipt of a salvage over an exported file ---
fresh over
started "$JOB"
echo mine >"$MNT/efs-salvage-over.json"; unloaded efs-salvage-over.json
kill_both over
check_exit 'is told' 1 'efs-salvage-over.json: the receipt has this name' "$EFS" salvage over
has efs-salvage-over.json mine
started "$JOB"
stopped
has efs-salvage-over.json mine

# --- a newer version of an input that an unload removed from the buffer ---
in_place newer
started "$JOB"
check 'unload --remove' "$EFS" unload -i newer -w --remove input/a
echo "the user's newer version" >"$PFS/input/a"
echo jobs >"$MNT/input/a"
check_exit 'is a conflict' 1 'conflict: input/a' "$EFS" stop newer
has input/a "the user's newer version"
check 'to be solved' mv "$PFS/input/a" "$PFS/input/theirs"
stopped
has input/a jobs
in_place same 'resources: [ [ path: input, flags: persistent ] ]' 'outputs: []'
sed -i '/in-place/a\  deletions: propagate' "$JOB"
started "$JOB"
unloaded --remove input/a
check 'is no conflict where it is the same' bash -c "echo jobs >'$MNT/input/a'"
unloaded input/a
has input/a jobs
unloaded --remove input/a
stopped
has input/a jobs

# --- hard links, one of which was exported before ---
linked() { check "$NAME: $1 and $2 are one" test "$OUT/$1" -ef "$OUT/$2"; }
fresh twins
started "$JOB"
echo 1 >"$MNT/a"; ln "$MNT/a" "$MNT/b"; ln "$MNT/a" "$MNT/c"; unloaded a
unloaded b
linked a b
stopped --keep
linked a c
started "$JOB"
ln "$MNT/b" "$MNT/d"
check 'an entry of a name that is there already' "$EFS" unload -i twins -w a b c
stopped --keep
linked a d
started "$JOB"
rm "$OUT/c"; echo other >"$OUT/c"; ln "$MNT/c" "$MNT/e"; mv "$MNT/a" "$MNT/f"
stopped
for name in e f; do has $name 1; done

# --- files with names like partials ---
fresh partials
started "$JOB"
echo precious >"$MNT/x.efs-partial"; echo x >"$MNT/x"
unloaded --remove x.efs-partial
stopped
has x x
has x.efs-partial precious
rm "$OUT/x.efs-partial"
in_place named 'resources: [ [ path: x, flags: persistent ], [ path: x.efs-partial ] ]'
echo user >"$PFS/x.efs-partial"; echo in >"$PFS/x"
started "$JOB"
rm "$MNT/x.efs-partial"; echo more >>"$MNT/x"
stopped
has x.efs-partial user
has x more
rm "$PFS/x.efs-partial"

# --- names that efs itself uses in results-dir ---
fresh own
started "$JOB"
echo mine >"$MNT/efs-salvage-own.json"
kill_both own
check_exit 'no receipt of a salvage takes its place' 1 'efs-salvage-own.json: the receipt has this name' "$EFS" salvage own
check_exit 'which stays' 1 'not removed' "$EFS" clean own
started "$JOB"
stopped
has efs-salvage-own.json mine
fresh status
sed -i "/results-dir/a\\  status-file: $OUT/status.json" "$JOB"
started "$JOB"
echo mine >"$MNT/status.json"
check_exit 'nor does a result take that of the status file of the job' 1 "status.json: the job's status file has this name" "$EFS" stop status
check_exit 'it is left' 1 'status.json' "$EFS" stop --deadline 10 status
check 'and goes elsewhere' "$EFS" salvage --to "$S/status/elsewhere" status
check 'whole' grep -qx mine "$S/status/elsewhere/status.json"
check 'clean' "$EFS" clean status

# --- two jobs with results of one name ---
fresh one; first=$JOB first_mnt=$MNT both=$OUT
sed -i '/results-dir/a\  max-rate: 1 MB/s' "$first"
fresh two; sed -i "s|results-dir: .*|results-dir: $both\n  max-rate: 1 MB/s|" "$JOB"
started "$first"; started "$JOB"
echo AAAA >"$first_mnt/x"; head -c 3000000 /dev/zero >"$first_mnt/z1"
echo BBBB >"$MNT/x"; head -c 4000000 /dev/zero >"$MNT/z2"
"$EFS" stop two >"$S/two.said" 2>&1 & second=$!
check 'the partial of one' await 30 compgen -G "$both/x.*.efs-partial"
check 'and the other stops' "$EFS" stop one
wait "$second"; code=$?
check 'both have succeeded' test "$code" = 0
checksum() { field "$(cat "$both/efs-receipt-$1.json")" '[e["checksum"] for e in d["entries"] if e["path"] == "x"][0]'; }
check 'each has the checksum of its own' test "$(checksum one)" != "$(checksum two)"
check 'and one of the two is there, whole' grep -qxE 'AAAA|BBBB' "$both/x"

# --- extended attributes that do not fit ---
if [ "$(id -u)" = 0 ] && command -v mkfs.ext4 >/dev/null && command -v setfattr >/dev/null; then
  fresh full
  truncate -s 8M "$S/full/image"; mkfs.ext4 -q -b 4096 -m 0 -O ^has_journal "$S/full/image"
  if mount -o loop "$S/full/image" "$OUT" 2>/dev/null; then
    started "$JOB"
    echo data >"$MNT/f"; setfattr -n user.big -v "$(head -c 2000 /dev/zero | tr '\0' x)" "$MNT/f"; echo hello >"$MNT/g"
    dd if=/dev/zero of="$OUT/fill" bs=4096 count=$(($(stat -f -c %a "$OUT") - 1)) status=none; sync -f "$OUT"
    check_not 'a full PFS' "$EFS" stop full
    rm "$OUT/fill"; sync -f "$OUT"
    stopped
    has f data
    has g hello
    check 'with all attributes' test "$(getfattr --absolute-names --only-values -n user.big "$OUT/f" | wc -c)" = 2000
    umount "$OUT"
  else
    skip 'attributes on a full PFS' 'no loop device can be mounted'
  fi
else
  skip 'attributes on a full PFS' 'needs root, mkfs.ext4 and setfattr'
fi

finish
