#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# efs intercept and efs run --intercept: the library is preloaded, and the program is told when it
# cannot be. A stand-in of the library notes the programs that loaded it.
#   intercept_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# efs finds the library beside its own directory.
mkdir -p "$S/prefix/bin" "$S/prefix/lib"
cp "$BIN/efs" "$BIN/efsd" "$S/prefix/bin"
if [ -e "$BIN/../lib/efs" ]; then ln -s "$(readlink -f "$BIN/../lib/efs")" "$S/prefix/lib/efs"; fi
EFS=$S/prefix/bin/efs
LIBRARY=$S/prefix/lib/libefs-intercept.so
fresh intercept
if [ -e "$S/prefix/lib/efs/libefs-intercept.so" ]; then skip 'no library' 'efs is installed with it'
else
  check_exit 'no library' 1 'libefs-intercept.so: the library of efs intercept is missing' "$EFS" intercept -- touch "$S/ran"
  check_exit 'efs run does not start without it' 1 'is missing' "$EFS" run --intercept "$JOB" -- touch "$S/ran"
  check_not 'no program runs then' test -e "$S/ran"
fi

COMPILER=${CC:-cc}
command -v "$COMPILER" >/dev/null || { skip 'the library is preloaded' 'no C compiler'; finish; }
cat >"$S/stand_in.c" <<'C'
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
__attribute__((constructor)) static void note(void) {
  const char* log = getenv("STAND_IN_LOG");
  int fd = log == NULL ? -1 : open(log, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
  if (fd >= 0) {
    dprintf(fd, "%s\n", program_invocation_short_name);
    close(fd);
  }
}
C
"$COMPILER" -D_GNU_SOURCE -shared -fPIC "$S/stand_in.c" -o "$LIBRARY" || { fail 'the stand-in is compiled'; finish; }
cp "$LIBRARY" "$S/other.so"
export STAND_IN_LOG=$S/log
touch "$S/log" && chmod 666 "$S/log"
# loaded_by NAME: this program, and nothing else since the last call, loaded the stand-in
loaded_by() { local got; got=$(sort -u "$S/log" | tr '\n' ' '); : >"$S/log"; [ "$got" = "$1 " ] || { echo "loaded by: $got"; return 1; }; }

# --- the program ---
check 'a program' "$EFS" intercept -- true
check 'loads the library' loaded_by true
check_exit 'and its children' 0 '^deep$' "$EFS" intercept -- sh -c 'exec env echo deep'
check 'all of them' bash -c 'grep -q "^sh$" "$1" && grep -q "^env$" "$1" && grep -q "^echo$" "$1"' - "$S/log"
said=$(echo in | "$EFS" intercept -- cat 2>/dev/null); check 'standard input and output are its own' test "$said" = in
check_exit 'its exit code' 3 '' "$EFS" intercept -- sh -c 'exit 3'
check_exit 'a signal' 143 '' "$EFS" intercept -- sh -c 'kill $$'
check_exit 'no such program' 127 'nosuch: No such file' "$EFS" intercept -- "$S/nosuch"
check_exit 'a program that cannot be run' 126 'Permission denied' "$EFS" intercept -- "$S/stand_in.c"
check_exit 'no program' 2 'command is required' "$EFS" intercept
said=$("$EFS" intercept --json -- "$S/nosuch" 2>/dev/null); check 'as JSON' json "$said" 'd["ok"] is False and d["exit"] == 127'

# --- the environment ---
value() { "$EFS" intercept "$@" -- printenv EFS_INTERCEPT EFS_INTERCEPT_SKIP 2>/dev/null | tr '\n' ' '; }
quiet() { "$EFS" intercept -- "$@" 2>/dev/null; }
check 'LD_PRELOAD' test "$(quiet printenv LD_PRELOAD)" = "$LIBRARY"
check 'other libraries stay in front' test "$(LD_PRELOAD=$S/other.so quiet printenv LD_PRELOAD)" = "$S/other.so:$LIBRARY"
check 'also with blanks' test "$(LD_PRELOAD="$S/other.so $S/other.so" quiet printenv LD_PRELOAD)" = "$S/other.so $S/other.so:$LIBRARY"
check 'once is enough' test "$(quiet "$EFS" intercept -- printenv LD_PRELOAD)" = "$LIBRARY"
check 'in its place' test "$(LD_PRELOAD=$LIBRARY:$S/other.so quiet printenv LD_PRELOAD)" = "$LIBRARY:$S/other.so"
check 'no option: nothing is set' test "$(value)" = ''
check 'a value of the environment stays' test "$(EFS_INTERCEPT=off value)" = 'off '
check '--stats' test "$(value --stats)" = 'stats '
check '--verify and --skip' test "$(value --verify --skip git,gcc)" = 'verify git,gcc '
check 'an option wins' test "$(EFS_INTERCEPT=off value --stats)" = 'stats '
check_exit 'not both' 2 'excludes' "$EFS" intercept --stats --verify -- true
check_exit 'an empty list' 2 'empty' "$EFS" intercept --skip '' -- true

# --- programs that the library cannot reach ---
warns() { check_exit "$1: a warning" 0 "is not intercepted: $2" "$EFS" intercept -- "$3"; check "$1: one" test "$(grep -c 'not intercepted' <<<"$said")" = 1; }
silent() { check_exit "$1: no warning" 0 '' "$EFS" intercept -- "$2"; check_not "$1: none" grep 'not intercepted' <<<"$said"; }
true=$(command -v true) # a builtin has no path
case $true in /*) ;; *) true=/bin/true ;; esac
silent 'an ordinary program' "$true"
printf '#! %s -x\n' "$true" >"$S/script" && chmod +x "$S/script"
silent 'a script' "$S/script"
if echo 'int main(void) { return 0; }' >"$S/static.c" && "$COMPILER" -static "$S/static.c" -o "$S/static" 2>/dev/null; then
  warns 'a static program' 'it is linked statically' "$S/static"
  printf '#!%s\n' "$S/static" >"$S/script"
  warns 'its script' 'it is linked statically' "$S/script"
  (cd "$S" && PATH=$S:$PATH && warns 'by the path' 'it is linked statically' static)
else skip 'a static program' 'no static C library'; fi
cp "$true" "$S/foreign" && printf '\267' | dd of="$S/foreign" bs=1 seek=18 conv=notrunc status=none   # e_machine of aarch64
said=$("$EFS" intercept -- "$S/foreign" 2>&1)
check 'a program for another processor' grep -q 'is not intercepted: it is not an x86-64 program' <<<"$said"
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  cp "$true" "$S/set-id" && chown 12345 "$S/set-id" && chmod 4755 "$S/set-id"
  case $(stat -f -c %T "$S")$(findmnt -no OPTIONS -T "$S") in *nosuid*) skip 'a set-user-ID program' "$S is mounted nosuid" ;; *)
    warns 'a set-user-ID program' 'it is set-user-ID' "$S/set-id"
    check_not 'which does not load it' grep -q set-id "$S/log"
    check_exit 'but does without new privileges' 0 '' setpriv --no-new-privs "$EFS" intercept -- "$S/set-id"
    check 'then it loads' grep -q set-id "$S/log"
    chown 0:12345 "$S/set-id" && chmod 2755 "$S/set-id"
    warns 'a set-group-ID program' 'it is set-group-ID' "$S/set-id" ;;
  esac
  if command -v setcap >/dev/null && cp "$true" "$S/capable" && setcap cap_net_raw+ep "$S/capable" 2>/dev/null; then
    check_exit 'file capabilities' 0 'it has file capabilities' setpriv --reuid 12345 --regid 12345 --clear-groups "$EFS" intercept -- "$S/capable"
  else skip 'file capabilities' 'no setcap, or no such attributes here'; fi
else skip 'programs that gain privilege' 'needs root and setpriv'; fi
if grep -q ' - fuse\.efs ' /proc/self/mountinfo; then skip 'nothing is mounted' 'another instance is'
else check_exit 'nothing is mounted' 0 'no file system of efs is mounted' "$EFS" intercept -- true; fi

# --- efs run ---
: >"$S/log"
check_exit 'efs run' 0 '' "$EFS" run --intercept --stats --skip git "$JOB" -- sh -c 'echo "$LD_PRELOAD $EFS_INTERCEPT $EFS_INTERCEPT_SKIP $EFS_MOUNT"; "$0" intercept -- cat "$EFS_MOUNT/input/a"' "$EFS"
check 'prepares the program' grep -qxF "$LIBRARY stats git $MNT" <<<"$said"
check 'which works' grep -qx alpha <<<"$said"
check_not 'and is not warned in a job' grep -q 'warning' <<<"$said"
check_not 'the daemon does not load the library' grep -q efsd "$S/log"
check_exit 'efs run without the option' 0 '' env -u LD_PRELOAD "$EFS" run "$JOB" -- printenv EFS_MOUNT
check_not 'preloads nothing' env -u LD_PRELOAD "$EFS" run "$JOB" -- printenv LD_PRELOAD
for option in --stats --verify '--skip x'; do check_exit "$option needs --intercept" 2 'requires --intercept' "$EFS" run $option "$JOB" -- true; done
if [ "$(id -u)" = 0 ]; then
  fresh user && chown -R 12345:12345 "$S/user"
  : >"$S/log"
  check 'as a user' "$EFS" run --intercept -u 12345 "$JOB" -- cat "$MNT/input/a"
  check 'the program alone loads it' loaded_by cat
fi
finish
