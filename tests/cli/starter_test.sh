#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The state that a daemon inherits from its starter, and the errors that a starter reports if the
# daemon cannot run or the wait was interrupted.
#   starter_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

processes() { field "$(status_of "$1")" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])'; }
# every PROCESSES COMMAND...: the command, with the pid as the last argument, must succeed for each.
every() { local pid list=$1; shift; for pid in $list; do "$@" "$pid" || { echo "process $pid"; return 1; }; done; }
in_root() { [ "$(readlink "/proc/$1/cwd")" = / ]; }
nothing_of_starter() { ! ls -l "/proc/$1/fd" | grep -F "$S/here"; }
# No signal is ignored or blocked except the daemon's own: TERM, INT and HUP, SIGCHLD of the
# supervisor, XFSZ and IO of the worker.
signals_are_its_own() {
  python3 -SE - "$1" <<'END'
import signal, sys
fields = dict(line.split(":\t", 1) for line in open(f"/proc/{sys.argv[1]}/status") if ":\t" in line)
own = {signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGCHLD, signal.SIGXFSZ, signal.SIGIO}
for what in ("SigIgn", "SigBlk"):
    mask = int(fields[what], 16)
    others = [s.name for s in signal.Signals if mask >> (s - 1) & 1 and s not in own]
    if others: sys.exit(f"{what}: {others}")
if int(fields["SigIgn"], 16) >> (signal.SIGCHLD - 1) & 1: sys.exit("SIGCHLD is ignored")
END
}
soft_is_hard() { awk '/^Max (file size|cpu time|address space|data size) /{ line = $0; sub(/^Max [a-z ]*[a-z]  */, "", line); split(line, limit, " "); if (limit[1] != limit[2]) bad = 1 } END { exit bad }' "/proc/$1/limits"; }
owner_may() { local mask; mask=$(sed -n 's/^Umask:[[:space:]]*//p' "/proc/$1/status"); [ $((0$mask & 0700)) = 0 ] && [ $((0$mask & 077)) = $((055)) ]; }

# --- inherited state that the daemon drops ---
fresh starter
mkdir "$S/here"
sed -i '/^global-settings/a\  status-file: at/status.json' "$JOB"; mkdir "$S/here/at"
# start_oddly JOB: starts with another directory, descriptor, signals, limits and umask.
start_oddly() {
  (cd "$S/here" && exec 9<. && trap '' CHLD HUP PIPE USR1 INT QUIT TERM && umask 0755 && ulimit -S -t 9000 && ulimit -S -v 30000000 && ulimit -S -f 100000 &&
    exec python3 -SE -c 'import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGCHLD, signal.SIGALRM}); signal.signal(signal.SIGXFSZ, signal.SIG_IGN); os.execv(sys.argv[1], sys.argv[1:])' "$EFS" start "$1")
}
check 'start' start_oddly "$JOB"
both=$(processes starter)
check 'it is in no directory of the starter' every "$both" in_root
check 'and has no descriptor' every "$both" nothing_of_starter
check 'signals are its own' every "$both" signals_are_its_own
check 'soft limits are for programs' every "$both" soft_is_hard
check 'the umask takes nothing from the owner' every "$both" owner_may
check 'a relative path is relative to the starter'\''s directory' await 10 test -s "$S/here/at/status.json"
if kernel_has_it && [ "$(id -u)" = 0 ]; then
  worker=${both#* }
  kill -KILL "$worker"
  replaced() { local now; now=$(field "$(status_of starter)" 'd["worker_pid"]') && [ "$now" != "$worker" ]; }
  check 'a successor' await 20 replaced
  check 'is like it' every "$(processes starter)" in_root
  told() { json "$(cat "$S/here/at/status.json")" "d['worker_pid'] != $worker"; }
  check 'and so is the path, for it' await 10 told
else skip 'a successor' 'needs root and Linux 6.9'; fi
check 'nor does it keep the start from its directory: it is removed' rm -r "$S/here"
check 'stop' "$EFS" stop starter
if [ "$(id -u)" = 0 ]; then
  fresh victim
  check 'a start by what is to be killed first' bash -c 'echo 700 >/proc/self/oom_score_adj && exec "$@"' - "$EFS" start "$JOB"
  is_as_others() { [ "$(cat "/proc/$1/oom_score_adj")" = 0 ]; }
  check 'is not' every "$(processes victim)" is_as_others
  check 'stop of it' "$EFS" stop victim
  # A file system that was the working directory of efs start, and the mount of another job.
  if mkdir "$S/alone" && mount -t tmpfs alone "$S/alone"; then
    fresh first; first=$MNT
    check 'start from a file system' bash -c 'cd "$1" && "$2" start "$3"' - "$S/alone" "$EFS" "$JOB"
    check 'which can be unmounted' umount "$S/alone"
    fresh second
    check 'start from a mount' bash -c 'cd "$1" && "$2" start "$3"' - "$first" "$EFS" "$JOB"
    check 'whose job can be stopped' "$EFS" stop first
    check 'stop of the second' "$EFS" stop second
  else skip 'a file system to start from' 'no tmpfs can be mounted'; fi
fi

# --- a daemon that cannot run ---
fresh cannot
mkdir "$S/bin"; cp "$EFS" "$S/bin/efs"
without() { PATH=/usr/bin:/bin timeout 60 "$S/bin/efs" "$@"; }
# cannot NAME PATTERN: both the start and the doctor report it.
cannot() {
  check_exit "$1: the start says so" 1 "$2" without start "$JOB"
  check "$1: and leaves nothing" ended cannot
  check_exit "$1: the doctor finds it" 1 "^problem +efsd: .*($2)" without doctor
}
cannot 'no efsd' 'neither beside efs.*nor in PATH'
printf 'not a program' >"$S/bin/efsd"
cannot 'one that is not executable' 'cannot start .*efsd: Permission denied'
chmod 755 "$S/bin/efsd"
cannot 'one that is no program of this machine' 'Exec format error'
# An ELF file of another architecture.
python3 -SE -c 'import sys; data = bytearray(open(sys.argv[1], "rb").read()); data[18:20] = (0xffee).to_bytes(2, "little"); open(sys.argv[2], "wb").write(data)' "$BIN/efsd" "$S/bin/efsd"
cannot 'another architecture' 'Exec format error.*another architecture'
# A missing library: the needed name is replaced by another of the same length.
python3 -SE -c 'import sys; data = open(sys.argv[1], "rb").read(); open(sys.argv[2], "wb").write(data.replace(b"libfuse3.so", b"libfuseX.so"))' "$BIN/efsd" "$S/bin/efsd"
cannot 'a library that is missing' 'ended with 127: .*libfuseX.so'
printf '#!/bin/sh\nkill -KILL $$\n' >"$S/bin/efsd"
cannot 'killed before it has a log' 'was killed by signal 9'
printf '#!/bin/sh\n[ "$1" != --version ] || { echo efsd 0.0.0; exit; }\necho gone wrong >&2; exit 1\n' >"$S/bin/efsd"
check_exit 'what it says on standard error' 1 'gone wrong' without start "$JOB"
check_exit 'another version: the doctor finds it' 1 '^problem +efsd: .*0\.0\.0' without doctor
printf '#!/bin/sh\necho begun; exec sleep 600\n' >"$S/bin/efsd"
check_exit 'one that prints and then hangs: the doctor says so' 1 '^problem +efsd: .*does not end within.*begun' without doctor
printf '#!/bin/sh\nexec sleep 600 >&- 2>&-\n' >"$S/bin/efsd"
check_exit 'one that closes its output and then hangs, too' 1 '^problem +efsd: .*does not end within' without doctor
# A library prints a warning while the daemon starts; afterwards the daemon has closed the starter's
# pipe.
printf '#!/bin/sh\n[ "$1" = --version ] || echo a warning of a library >&2\nexec %s "$@"\n' "$BIN/efsd" >"$S/bin/efsd"
check_exit 'a warning is shown' 0 'a warning of a library' without start "$JOB"
has_no_pipe() { ! ls -l "/proc/$1/fd" | grep -E ' [012] -> pipe:'; }
check 'and the pipe is not kept' every "$(processes cannot)" has_no_pipe
check 'stop behind it' "$EFS" stop cannot

# --- an interrupted start ---
fresh interrupted
head -c 4000000 /dev/zero >"$PFS/input/large"
sed -i '/^global-settings/a\  max-rate: 1 MB/s' "$JOB"
is_staging() { json "$(status_of interrupted 2>/dev/null)" "d['state'] == 'staging-in'"; }
for signal in TERM KILL; do
  "$EFS" start "$JOB" >/dev/null 2>&1 & starter=$!
  check "$signal: it stages in" await 20 is_staging
  kill -$signal "$starter"; wait "$starter" 2>/dev/null
  check "$signal: the same command works right behind it" "$EFS" start "$JOB"
  check "$signal: all is there" cmp "$PFS/input/large" "$MNT/input/large"
  check "$signal: stop" "$EFS" stop interrupted
done
"$EFS" start "$JOB" >/dev/null 2>&1 & starter=$!
check 'one that is not interrupted' await 20 is_staging
check_exit 'keeps its name' 1 'is there already' "$EFS" start "$JOB"
kill "$starter"; wait "$starter" 2>/dev/null
check 'and when nobody wants it the name is free' await 8 ended interrupted
finish
