#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Power loss and injected faults (tests/crash, tests/fault) reach every operation: a step of
# tests/crash/scenarios.cpp calls each public member of Filesystem and of Staging, and each step is
# in a scenario. Kills of a worker (tests/takeover/operations.cpp) reach every request of the
# kernel.
#   scenario_coverage_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

# Exempt members: those without an effect on a store; those that run at its start, which every life
# of a scenario has; those that only a successor runs, with the same effect as a journal's size
# limit in every scenario; those that call free_removed() when space is short, or reserve pages behind the end; and those that only a
# mount uses: what it puts off is a container without a record, as after a fill of the pool.
EXEMPT='open open_files note_daemon_path exists inherited_orphans compact_inherited failed backend recovery attach share_with watch forget_all lost_its_content is_written is_counted_quiet needs_no_sync read_moves_atime every_walk_counts count may_be_mapped open_for_writing write_back invalidate_entries free_removed_if await_release await_removed operation owes_space with_room pool_is_low put_off remove_put_off path_below carries_privilege room is_remote has_remote remote_in_rename remote_files remote_totals path_of note_fetch_failure directory_of files_in room_to_spare add make_room use_room_maker fit_at_once keep_reserve has_room_maker reserved_bytes'

# members FILE CLASS: prints the names of the public members.
members() {
  awk -v class="class $2 " '
    index($0, class) == 1 && /\{/ { inside = 1 }
    inside && /^ private:/ { exit }
    inside' "$1" | grep -v '^ *//' | grep -oE '[a-z_]+\(' | sed 's/($//' | sort -u
}
# declared FILE CLASS: prints the members that are declared there, not only mentioned in a default
# or a type.
declared() { local one; for one in $(members "$1" "$2"); do grep -qE "^  [A-Za-z_:<>,& ]+[ >&]$one\(" "$1" && echo "$one"; done; }
not_called() { # not_called SCENARIOS HEADER CLASS
  local one flat; flat=$(sed -z 's/\n *\././g' "$1")   # a call may begin on the line of its object
  for one in $(declared "$2" "$3"); do
    case " $EXEMPT " in *" $one "*) continue ;; esac
    grep -qE "(filesystem|staging|Staging\(life\.filesystem\))\.$one\(" <<<"$flat" || echo "$3::$one is in no step"
  done
}
# Every file of src/fs/ops must define a member that a step calls, or one that such a member calls.
not_reached() {
  local file one found
  for file in "$SOURCE"/src/fs/ops/*.cpp; do
    found=
    for one in $(grep -oE 'Filesystem::[a-z_]+\(' "$file" | sed 's/.*:://; s/($//' | sort -u); do
      if grep -qE "filesystem\.$one\(" "$1" || grep -rqE "[^:a-z_]$one\(" "$SOURCE/src/fs/ops" --include='*.cpp'; then found=yes; fi
    done
    [ -n "$found" ] || echo "$(basename "$file") is not reached"
  done
}
unused_steps() {  # what is drawn at random may not come
  local one fixed; fixed=$(sed '/^Scenario random_operations(/,/^}/d' "$1" | cat - "$SOURCE/tests/crash/crash_test.cpp")
  for one in $(grep -oE '^Step [a-z_]+\(' "$1" | sed 's/^Step //; s/($//' | sort -u); do
    [ "$(grep -cE "[^a-z_]$one\(" <<<"$fixed")" -gt 1 ] || echo "step $one is in no scenario"
  done
}
# The kernel's requests, and the program's call that causes each. forget has no answer; statx is
# sent only to callers that need more than getattr has.
declare -A SENT_BY=([lookup]='"d/s"' [forget]= [forget_multi]= [getattr]='stat\(' [setattr]='chmod\(' [readlink]='readlink\(' [mknod]='mknod\(' [mkdir]='mkdir\(' [unlink]='unlink\(' [rmdir]='rmdir\(' [symlink]='symlink\(' [rename]='rename\('
  [link]='::link\(' [open]='O_RDONLY\)' [create]='O_CREAT' [tmpfile]='O_TMPFILE' [statx]= [read]='read_all\(' [write]='pwrite\(' [release]='close\(' [fsync]='fsync\(' [fsyncdir]='"fsync of a directory"' [opendir]='opendir\(' [readdir]='readdir\(' [readdirplus]='readdir\(' [releasedir]='closedir\('
  [statfs]='statfs\(' [getxattr]='getxattr\(' [listxattr]='listxattr\(' [setxattr]='setxattr\(' [removexattr]='removexattr\(' [fallocate]='fallocate\(' [lseek]='lseek\(' [ioctl]='ioctl\(')
not_killed() { # not_killed ADAPTER OPERATIONS: the requests under which no worker is killed
  local one
  for one in $(grep -oE 'ops\.[a-z_]+ = callback<' "$1" | sed 's/ops\.//; s/ =.*//'); do
    [ -n "${SENT_BY[$one]+known}" ] || { echo "$one is not known here"; continue; }
    [ -z "${SENT_BY[$one]}" ] || grep -qE -- "${SENT_BY[$one]}" "$2" || echo "$one is sent by no operation"
  done
}
nothing() { local said; said=$("$@"); [ -z "$said" ] || { echo "$said"; return 1; }; }

scenarios=$SOURCE/tests/crash/scenarios.cpp filesystem=$SOURCE/src/fs/filesystem.hpp staging=$SOURCE/src/fs/staging.hpp
# --- the checks can fail ---
sed 's/filesystem\.link(/filesystem.lnk(/' "$scenarios" >"$S/scenarios"
check 'an operation that no step calls is found' grep -qx 'Filesystem::link is in no step' <<<"$(not_called "$S/scenarios" "$filesystem" Filesystem)"
sed 's/staging\.publish_over(/staging.publish(/' "$scenarios" >"$S/scenarios"
check 'so is one of the staging' grep -qx 'Staging::publish_over is in no step' <<<"$(not_called "$S/scenarios" "$staging" Staging)"
sed 's/^  \/\/ Data$/  Status conjure(std::uint64_t ino);/' "$filesystem" >"$S/filesystem"
check 'and one that is new' grep -qx 'Filesystem::conjure is in no step' <<<"$(not_called "$scenarios" "$S/filesystem" Filesystem)"
printf 'Step forgotten(const std::string& path) {\n' | cat "$scenarios" - >"$S/scenarios"
check 'a step that no scenario has is found' grep -qx 'step forgotten is in no scenario' <<<"$(unused_steps "$S/scenarios")"
adapter=$SOURCE/src/fuse/adapter.cpp operations=$SOURCE/tests/takeover/operations.cpp
sed 's/^  ops\.lseek = /  ops.poll = callback<Operation::other, handle::poll>;\n&/' "$adapter" >"$S/adapter"
check 'a new request is found' grep -qx 'poll is not known here' <<<"$(not_killed "$S/adapter" "$operations")"
grep -v lseek "$operations" >"$S/operations"
check 'and one under which no worker is killed' grep -qx 'lseek is sent by no operation' <<<"$(not_killed "$adapter" "$S/operations")"

# --- the tree ---
check 'there are operations' test "$(declared "$filesystem" Filesystem | wc -l)" -gt 30 -a "$(declared "$staging" Staging | wc -l)" -gt 25
check 'every operation is in a step' nothing not_called "$scenarios" "$filesystem" Filesystem
check 'every member of the staging is, too' nothing not_called "$scenarios" "$staging" Staging
check 'every file of operations is reached' nothing not_reached "$scenarios"
check 'every step is in a scenario' nothing unused_steps "$scenarios"
check 'there are requests' test "$(grep -cE 'ops\.[a-z_]+ = callback<' "$adapter")" -gt 30
check 'a worker is killed under each' nothing not_killed "$adapter" "$operations"
finish
