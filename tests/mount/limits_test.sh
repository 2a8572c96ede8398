#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The daemon runs out of descriptors, memory, mappings or threads while programs work. Every call
# ends with success or a correct error, no process dies, no worker is replaced, and acknowledged
# data exists. Without the limit, everything works as before. EFS_PARTS names the parts: askers
# passthrough daemon mappings threads supervisor.
#   limits_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
PARTS=${EFS_PARTS:-askers passthrough daemon mappings threads supervisor}
user=64777   # a user without other processes: RLIMIT_NPROC counts them all

program() { timeout 120 python3 "$SOURCE/tests/mount/limits.py" "$@"; }
of_worker() { field "$(status_of "$NAME")" "d['$1']"; }
size_of() { awk -v key="$1:" '$1 == key {print $2 * 1024}' "/proc/$worker/status"; }
last_descriptor() { ls "/proc/$1/fd" | sort -n | tail -n 1; }

# limit NAME VALUE [PID]: sets the soft limit of the worker, or of another process. Runs as its
# user, because this process may lack CAP_SYS_RESOURCE.
limit() {
  local pid=${3:-$worker}
  local uid; uid=$(awk '/^Uid:/ {print $2}' "/proc/$pid/status")
  if [ "$uid" = 0 ]; then prlimit --pid "$pid" "--$1=$2:"; else setpriv --reuid "$uid" --regid "$uid" --clear-groups prlimit --pid "$pid" "--$1=$2:"; fi
}
hard_limit() {
  local key; case $1 in nofile) key="open files" ;; data) key="data size" ;; as) key="address space" ;; nproc) key="processes" ;; esac
  sed -n "s/^Max $key *[0-9a-z]* *\([0-9a-z]*\).*/\1/p" "/proc/${2:-$worker}/limits"
}
# lift NAME [PID]: sets the soft limit to its maximum.
lift() { limit "$1" "$(hard_limit "$1" "${2:-$worker}")" "${2:-$worker}"; }

# The verb answers, or gives a reason, in time.
answers() {
  timeout 30 "$EFS" "$@" >"$S/said" 2>&1; local code=$?
  [ $code -lt 124 ] || { echo "efs $*: $code"; cat "$S/said"; return 1; }
}
same_worker() { json "$(status_of "$NAME")" "d['worker_pid'] == $worker and d['takeovers'] == 0 and d['state'] == 'running' and not d['read_only']"; }
alive() { ! gone "$worker"; }

# begin NAME LINES... -- OPTIONS...: an instance with some work in it, and a program that runs until
# `over`.
begin() {
  local name=$1 lines=(); shift
  while [ "$1" != -- ]; do lines+=("$1"); shift; done
  shift
  CAPACITY='512 MiB' fresh "$name" 'resources: [ [ path: input ] ]' "${lines[@]}"
  [ -z "${as_user:-}" ] || { mkdir "$MNT"; chown "$user:$user" "$MNT" "$OUT"; }
  started "$JOB" "$@" || return 1
  worker=$(of_worker worker_pid)
  check "$NAME: work without limits" program "$MNT/files" "$S/$NAME.model" work 150
  program "$MNT/steady" "$S/$NAME.steady" steady "$S/$NAME.over" EMFILE ENFILE ENOMEM EAGAIN >"$S/$NAME.steady.said" 2>&1 & pids=($!)
}

# felt TEXT: a program met the limit, or the daemon did, and then freed resources.
felt() { grep -qE "$must_bite" <<<"$1" || { [ "$must_bite" = EMFILE ] && grep -q 'event=containers_closed' "$EFS_RUNTIME_DIR/$NAME/efsd.log"; }; }
# told_of EVENT: prints how often the worker's log has the event. told_again EVENT BEFORE: the log
# has it once more.
told_of() { grep -cE "event=$1( |$)" "$EFS_RUNTIME_DIR/$NAME/efsd.log"; }
told_again() { [ "$(told_of "$1")" -gt "$2" ] || { tail -n 5 "$EFS_RUNTIME_DIR/$NAME/efsd.log"; return 1; }; }
# under NAME LIMIT VALUE ERRNO...: the results of programs and clients while the worker has only
# VALUE. The limit must take effect: errors that match must_bite, or events in must_tell if the
# daemon copes. meet_it: work that must meet the limit in any case.
under() {
  local what=$1 name=$2 value=$3; shift 3
  local most=1500 text i event
  local -A told=()
  # The worker first uses its reserved memory: continue until that is used up.
  [ "${must_bite:-}" != ENOMEM ] || most=30000
  mkdir -p "$MNT/changed"; for i in $(seq 40); do echo "$what" >"$MNT/changed/$i"; done
  for event in ${must_tell:-}; do told[$event]=$(told_of "$event"); done
  check "$NAME, $what: the limit is set" limit "$name" "$value"
  [ -z "${meet_it:-}" ] || check "$NAME, $what: what must meet the limit ends with success or an honest error" "$meet_it"
  if text=$(program "$MNT/files" "$S/$NAME.model" work $most "$@" 2>&1); then ok; else fail "$NAME, $what: every error is one of $*" "$text"; fi
  echo "   $NAME, $what: $text"
  [ -z "${must_bite:-}" ] || check "$NAME, $what: the limit is felt" felt "$text"
  check "$NAME, $what: status is answered in time" answers status "$NAME"
  check "$NAME, $what: so is ls" answers ls -i "$NAME" files
  check "$NAME, $what: so is unload" answers unload --wait -i "$NAME" input/a
  check "$NAME, $what: also of changed files" unload_ends
  for event in ${must_tell:-}; do check "$NAME, $what: the limit is felt, and the log tells of it: $event" told_again "$event" "${told[$event]}"; done
  check "$NAME, $what: the worker lives" alive
  check "$NAME, $what: and so does the program" alive_too
  check "$NAME, $what: the limit is lifted" lift "$name"
  check "$NAME, $what: nobody took over, and nothing is read-only" await 20 same_worker
  check "$NAME, $what: work goes on without an error" program "$MNT/files" "$S/$NAME.model" work 100
  check "$NAME, $what: what was acknowledged is there" program "$MNT/files" "$S/$NAME.model" verify
  echo "$what" >"$MNT/unloaded-$name"
  check "$NAME, $what: unload works again" "$EFS" unload --wait -i "$NAME" "unloaded-$name" changed
  check "$NAME, $what: and brought it out" brought_out "unloaded-$name" "$what"
  check "$NAME, $what: and all that had been changed" brought_out changed/40 "$what"
}
# Ends with success or a correct error: the copy uses several threads, which may get no memory.
unload_ends() { timeout 60 "$EFS" unload --wait -i "$NAME" changed >"$S/said" 2>&1; local code=$?; [ $code -lt 124 ] || { echo "unload: $code"; cat "$S/said"; return 1; }; }
brought_out() { grep -qx "$2" "$OUT/$1" || { cat "$OUT/$1"; echo "in the mount:"; cat "$MNT/$1"; "$EFS" explain -i "$NAME" "$1"; tail -n 5 "$EFS_RUNTIME_DIR/$NAME/efsd.log"; return 1; }; }
alive_too() { ! gone "${pids[0]}" || { cat "$S/$NAME.steady.said"; return 1; }; }

end() {
  : >"$S/$NAME.over"
  wait "${pids[0]}"; local code=$?; pids=()
  check "$NAME: the program that worked all the time: $(tail -n 1 "$S/$NAME.steady.said")" test $code -eq 0
  check "$NAME: no snapshot is said to fail twice in a row" said_once
  cp "$EFS_RUNTIME_DIR/$NAME/efsd.log" "$S/$NAME.log"
  check "$NAME: nothing died" bash -c "! grep -E 'event=(takeover|given_up|apply_failed|session_failed)' $S/$NAME.log"
  check "$NAME: stop" "$EFS" stop "$NAME"
  check "$NAME: all is brought out" program "$OUT/files" "$S/$NAME.model" results
  check "$NAME: of the other program, too" program "$OUT/steady" "$S/$NAME.steady" results
  check "$NAME: it has ended" await 20 ended "$NAME"
}
# Between two lines about failing snapshots, one line reports that they work again.
said_once() {
  local lines; lines=$(grep -oE 'event=snapshot_(failed|again)' "$EFS_RUNTIME_DIR/$NAME/efsd.log")
  ! grep -qzP 'snapshot_failed\n[^\n]*snapshot_failed' <<<"$lines" || { echo "$lines"; return 1; }
}

# The only free descriptor is that of the waiting accept4() (which has no name in /proc yet).
# Clients are answered all the same, one after the other, and a stop request is received.
askers() {
  fresh askers 'resources: [ [ path: input ] ]'
  started "$JOB" || return
  worker=$(of_worker worker_pid)
  check 'askers: no descriptor is left' limit nofile "$(($(next_descriptor "$worker") + 1))"
  local i
  for i in $(seq 5); do check "askers: number $i is answered" answers status "$NAME"; done
  check 'askers: the limit is lifted' lift nofile
  check 'askers: stop' "$EFS" stop "$NAME"
}
# Descriptors and memory; most work of a program is between the program and the kernel.
of_both_kinds() {
  must_bite=EMFILE under descriptors nofile $(($(last_descriptor "$worker") + 1)) EMFILE ENFILE
  must_bite=ENOMEM under memory data $(($(size_of VmData) + 65536)) ENOMEM EAGAIN
  must_bite=ENOMEM under 'less memory than it has' data $(($(size_of VmData) / 2)) ENOMEM EAGAIN
}
passthrough() {
  begin passthrough -- || return
  if kernel_has_it; then check 'passthrough is what it is' test "$(of_worker io)" = passthrough; else skip 'passthrough' 'the kernel is older than 6.9'; fi
  of_both_kinds
  end
}
daemon() {
  begin daemon -- -o daemon-io || return
  of_both_kinds
  end
}
# A write far from the begin of a file needs a mapping of 128 MiB. Without one, the daemon writes by
# calls.
write_far_away() {
  await 20 dd if=/dev/zero of="$MNT/far" bs=1 count=1 seek=1G status=none || { echo 'no write in 20 seconds'; return 1; }
  await 20 rm -f "$MNT/far"
}
# Mappings of containers and of the journal.
mappings() {
  PMEM_IS_PMEM_FORCE=1 EFS_TEST_PMEM=1 begin mappings -- -o daemon-io || return
  must_tell=not_mapped meet_it=write_far_away under mappings as $(($(size_of VmSize) + 65536)) ENOMEM EAGAIN
  must_bite=ENOMEM under 'fewer mappings than it has' as $(($(size_of VmSize) / 2)) ENOMEM EAGAIN
  end
}
# A limit of threads applies to the worker: it runs as the user, without the rights that exempt from
# it. Other processes of the user must not be exempt either.
threads_are_limited() {
  local uid rights; uid=$(awk '/^Uid:/ {print $2}' "/proc/$worker/status") rights=$(awk '/^CapEff:/ {print $2}' "/proc/$worker/status")
  [ "$uid" = $user ] && (((0x$rights & (1 << 21 | 1 << 24)) == 0)) || { echo "user $uid, rights $rights"; return 1; }
  setpriv --reuid $user --regid $user --clear-groups prlimit --nproc=64 bash -c '(exit 0)' || return 1
  ! setpriv --reuid $user --regid $user --clear-groups prlimit --nproc=1 bash -c '(exit 0)' 2>/dev/null
}
# As many concurrent requests as the worker may have threads, each of which takes milliseconds:
# allocating and freeing a file. So no thread of the worker is free, and another one is needed. The
# scheduler decides how far they overlap; repeats if necessary.
crowd() { local before; before=$(told_of no_thread); await 20 crowd_is_told "$before"; }
crowd_is_told() {
  python3 - "$MNT/crowd" <<'END'
import errno, os, sys, threading
count = max(16, min(64, 2 * os.cpu_count()))  # as session_threads() in src/daemon/mount_service.cpp
together, problems = threading.Barrier(count), []

def work(name):
    fd = os.open(name, os.O_CREAT | os.O_RDWR, 0o644)
    for _ in range(3):
        together.wait(60)
        try:
            os.posix_fallocate(fd, 0, (256 << 20) // count)
            os.ftruncate(fd, 0)
        except OSError as problem:
            if problem.errno != errno.EAGAIN: problems.append(str(problem))
    os.close(fd)
    os.unlink(name)

threads = [threading.Thread(target=work, args=(f"{sys.argv[1]}-{i}",)) for i in range(count)]
for thread in threads: thread.start()
for thread in threads: thread.join()
if problems: sys.exit(problems[0])
END
  [ $? = 0 ] && told_again no_thread "$1"
}
# The worker's threads: as root there is no limit. Existing threads do the slow work that would use
# new ones.
threads() {
  command -v setpriv >/dev/null || { skip threads 'needs setpriv'; return; }
  as_user=yes begin threads -- --user $user || return
  check 'threads: such a limit holds' threads_are_limited
  # With at most two processors, a pool beside programs starts with one thread and requests no
  # other.
  local crews=; [ "$(nproc)" -le 2 ] || crews=no_thread_for_staging
  must_tell="no_thread no_thread_for_asker $crews" meet_it=crowd under threads nproc 1 EAGAIN
  check 'threads: no more for the end either' limit nproc 1
  end
}
# Prints the lowest free descriptor number.
next_descriptor() { ls "/proc/$1/fd" | sort -n | awk '$1 == next_one {++next_one} END {print next_one + 0}'; }
opens() { field "$(status_of "$NAME")" 'str(d["counters"]["opens"]) + " " + str(d["counters"]["passthrough_opens"])'; }
# only_by_daemon OPENS PASSTHROUGH OPENS PASSTHROUGH: hardly any of the files opened in between have
# passthrough.
only_by_daemon() { [ $(($3 - $1)) -gt 50 ] && [ $(($4 - $2)) -lt $((($3 - $1) / 2)) ]; }
# The same while the process works and uses more descriptors at times: the lowest of several
# samples.
lowest_descriptor() { local i; for i in $(seq 100); do next_descriptor "$1"; done | sort -n | head -n 1; }
# Without descriptors the supervisor registers no container: the daemon's path serves it.
supervisor() {
  begin supervisor -- || return
  local pid; pid=$(of_worker supervisor_pid)
  check 'supervisor: no more descriptors than it has' limit nofile "$(lowest_descriptor "$pid")" "$pid"
  local before; before=$(opens)
  check 'supervisor: work goes on' program "$MNT/files" "$S/$NAME.model" work 300
  check "supervisor: the limit is felt ($before, then $(opens): all opens, with passthrough)" only_by_daemon $before $(opens)
  check 'supervisor: the limit is lifted' lift nofile "$pid"
  check 'supervisor: little memory' limit data $(($(awk '$1 == "VmData:" {print $2 * 1024}' "/proc/$pid/status") / 2)) "$pid"
  check 'supervisor: work goes on' program "$MNT/files" "$S/$NAME.model" work 300
  check 'supervisor: the limit is lifted' lift data "$pid"
  check 'supervisor: all is there' program "$MNT/files" "$S/$NAME.model" verify
  end
}

[ "$(id -u)" = 0 ] || { skip 'limits' 'needs root'; finish; }
for part in $PARTS; do $part; done
finish
