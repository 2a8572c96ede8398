#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A store that an efs of journal format 3 left: checked, salvaged, resumed. One of a newer efs is
# refused.
#   store_3_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
PFS=$S/pfs MNT=$S/mnt OUT=$S/out JOB=$S/job.yaml NAME=store-3 STORE=$EFS_RUNTIME_DIR/store-3/store

# left: the store, as if its processes had just died. It is in a tmpfs if root can mount one, as root's
# start made it.
left() {
  local file
  drop_store store-3 || return 1
  rm -rf "$PFS" "$OUT"; mkdir -p "$STORE"
  [ "$(id -u)" != 0 ] || mount -t tmpfs -o size=128m,mode=700 efs-store "$STORE" || return 1
  tar -C "$S" -xzf "$SOURCE/tests/fixtures/store-3.tar.gz" --no-same-owner || return 1
  mkdir -p "$STORE"/data/{{0..9},{a..f}}{{0..9},{a..f}}   # the empty ones are not in the fixture
  for file in "$EFS_RUNTIME_DIR/store-3/instance.json" "$STORE/meta/instance.json"; do
    sed -i "s|@TOP@|$S|; s|@BOOT@|$(cat /proc/sys/kernel/random/boot_id)|; s|\"uid\": 0|\"uid\": $(id -u)|" "$file" || return 1
  done
  sed -i -E "s|/tmp/efs-store\.[[:alnum:]]+|$S|" "$JOB"
}
# The inputs on this PFS are other files than those of the journal, so a start imports them anew: also
# the removed one, and with new times and sizes of their directories.
names_of() { grep -v '^input/removed' "$1" | sed -E 's#^([^|]*\|d\|.*)\|[0-9]+\|[0-9.]+\|$#\1|#'; }
listing_of() { (cd "$1" && find . -mindepth 1 -printf '%P|%y|%m|%U:%G|%n|%s|%T@|%l\n' | grep -v '^more/parts' | sort); }
sums_hold() { (cd "$MNT" && find . -type f -not -path ./more/parts -not -path ./input/removed -print0 | sort -z | xargs -0 cksum) | diff "$S/sums" -; }
format_of() { od -An -tu4 -j8 -N4 "$STORE/meta/journal" | tr -d ' '; }
everything_of() { find "$1" -printf '%P %y %m %n %s %T@ %C@\n' | sort; find "$1" -type f -exec cksum {} + | sort; }

# --- checked and salvaged as it is ---
check 'the store is there' left
before=$(everything_of "$EFS_RUNTIME_DIR/store-3")
check_exit 'check-image' 3 'format 3; a start or --repair makes it format 4' "$EFS" check-image store-3
check_exit 'clean refuses' 1 'not removed' "$EFS" clean store-3
check_exit 'salvage --list' 0 'd/deep/three' "$EFS" salvage --list store-3
check 'they change nothing' test "$before" = "$(everything_of "$EFS_RUNTIME_DIR/store-3")"
check_exit 'salvage' 0 'exported' "$EFS" salvage --to "$S/saved" store-3
check 'a changed input' grep -qx 'as the job left it' "$S/saved/input/changed"
check 'a new file' grep -qx 'with three names' "$S/saved/d/deep/three"
check 'its format stays' test "$(format_of)" = 3

# --- resumed ---
if [ "$(id -u)" = 0 ]; then
  check 'the store is there again' left
  started --name store-3 "$JOB"
  listing_of "$MNT" >"$S/now"
  check 'every name, type, mode, owner, size and time' diff <(names_of "$S/listing") <(names_of "$S/now")
  check 'every content' sums_hold
  check 'the log says that the journal was converted' grep -q 'event=journal_converted from=3 to=4' "$EFS_RUNTIME_DIR/store-3/efsd.log"
  check 'attributes' test "$(getfattr --only-values -n user.of "$MNT/d" 2>/dev/null)" = 'a directory'
  echo more >>"$MNT/d/after"
  kill_both store-3
  check 'its format is the present one' test "$(format_of)" = 4
  started --name store-3 "$JOB"
  check 'a start after that' grep -qx more "$MNT/d/after"
  check 'stop' "$EFS" stop store-3
  check 'exports new files' grep -qx 'with three names' "$OUT/d/deep/three"
  check 'and changed ones' grep -qx more "$OUT/d/after"
  check 'nothing is left' ended store-3
else
  skip 'a start' 'only root has a store of this kind'
fi

# --- a newer efs wrote it ---
check 'once more' left
# the version, and the checksum of this header with it
printf '\x05' | dd of="$STORE/meta/journal" bs=1 seek=8 conv=notrunc status=none
printf '\xd0\x17\x12\x6d\xb0\x0d\x91\x26' | dd of="$STORE/meta/journal" bs=1 seek=56 conv=notrunc status=none
before=$(everything_of "$STORE")
newer='format 5, and this efs reads 3 to 4\). Nothing was changed. Open the store with the efs that wrote it, or a newer one'
check_exit 'start refuses' 1 "$newer" timeout 30 "$EFS" start --name store-3 "$JOB"
check_not 'and speaks of no damage' grep -q damage <<<"$said"
check_exit 'so does check-image' 1 "$newer" "$EFS" check-image store-3
check_exit 'and --repair' 1 "$newer" "$EFS" check-image --repair store-3
check_exit 'and salvage' 1 "$newer" "$EFS" salvage store-3
check_exit 'and salvage --lost' 1 "$newer" "$EFS" salvage --lost --list store-3
check_exit 'and clean' 1 "$newer" "$EFS" clean store-3
check 'none of them changes it' diff <(echo "$before") <(everything_of "$STORE")
drop_store store-3
finish
