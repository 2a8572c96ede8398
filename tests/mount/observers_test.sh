#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A worker dies after an observing file (status file, access log, trace) has become unwritable, or
# after files of the instance's configuration have changed or are gone. The successor serves
# programs all the same, as the first worker did.
#   observers_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$1"
kernel_has_it || { skip 'takeovers without observers' 'needs Linux 6.9'; finish; }

# Writes and reads until the file END exists; ROUNDS has the number of rounds. Ends with an error at
# the first failing call.
cat >"$S/program.py" <<'PROGRAM'
import os, sys
mount, end, rounds = sys.argv[1:]
kept = os.open(f"{mount}/kept", os.O_RDWR | os.O_CREAT, 0o644)
told = os.open(rounds, os.O_WRONLY | os.O_CREAT, 0o644)
count = 0
while not os.path.exists(end):
    count += 1
    text = b"%d\n" % count
    assert os.pwrite(kept, text, 0) == len(text) and os.pread(kept, 100, 0) == text
    name = f"{mount}/new.{count % 5}"
    with open(name, "wb") as file: file.write(text)
    with open(name, "rb") as file: assert file.read() == text
    os.rename(name, name + ".renamed")
    assert os.stat(name + ".renamed").st_size == len(text) and f"new.{count % 5}.renamed" in os.listdir(mount)
    os.unlink(name + ".renamed")
    os.pwrite(told, text, 0)
PROGRAM

status() { status_of "$NAME" 2>/dev/null; }
log() { cat "$EFS_RUNTIME_DIR/$NAME/efsd.log"; }
# begin [START_OPTION...]: starts the instance of fresh(), and the program on it.
begin() {
  mkdir "$MNT"
  [[ "$*" != *--user* ]] || chown 65534:65534 "$MNT" "$OUT"
  started "$JOB" "$@" || return 1
  chmod 1777 "$MNT"
  python3 "$S/program.py" "$MNT" "$S/$NAME/end" "$S/$NAME/rounds" >"$S/$NAME/said" 2>&1 & program=$!; pids+=("$program")
  await 20 test -s "$S/$NAME/rounds"
}
count() { cat "$S/$NAME/rounds" || echo 0; }
# goes_on BEFORE N: true also if the program has ended.
goes_on() { gone "$program" || is_going_on "$@"; }
is_going_on() { [ "$(count)" -gt $(($1 + 3)) ] && json "$(status)" "d.get('takeovers') == $2 and d['state'] == 'running'"; }
worker() { field "$(status)" 'd["worker_pid"]'; }
# dies N [PID]: kills the worker, for the Nth time. The program continues.
dies() {
  local before; before=$(count)
  kill -KILL "${2:-$(worker)}"
  await 20 goes_on "$before" "$1"
  if is_going_on "$before" "$1"; then ok; else fail "$NAME: programs go on, and the takeover is counted" "$(cat "$S/$NAME/said"; log | tail -n 5)"; fi
}
# over [STOP_OPTION...]: ends the program and the instance.
over() {
  local code last
  touch "$S/$NAME/end"
  wait "$program"; code=$?
  pids=()
  if [ $code = 0 ]; then ok; else fail "$NAME: no call fails" "$(cat "$S/$NAME/said")"; fi
  last=$(count)
  check "$NAME: stop" timeout 60 "$EFS" stop "$@" "$NAME"
  check "$NAME: results are back" test "$(cat "$OUT/kept")" = "$last"
}

# --- observing files ---
full() {  # the file system of the runtime directory
  local runtime=$EFS_RUNTIME_DIR
  fresh full
  mkdir "$S/small" && mount -t tmpfs -o size=1m,mode=755 none "$S/small" || { skip "$NAME" 'cannot mount a tmpfs'; return; }
  EFS_RUNTIME_DIR=$S/small/r
  begin
  # (Blocks of the log are part of the full space.)
  head -c 2M /dev/zero >"$S/small/fill" 2>/dev/null
  check_not "$NAME: nothing can be written there" sh -c "echo x >'$S/small/more'"
  dies 1
  dies 2
  rm -f "$S/small/fill" "$S/small/more"
  check "$NAME: the status file is written when there is room" await 20 eval 'json "$(cat "$EFS_RUNTIME_DIR/full/status.json")" "d[\"state\"] == \"running\" and d[\"worker_pid\"] == $(worker)"'
  head -c 2M /dev/zero >"$S/small/fill" 2>/dev/null
  over
  await 20 ended full
  umount "$S/small"
  EFS_RUNTIME_DIR=$runtime
}

removed() {  # removed KEY EVENT: the directory of that file
  fresh "no-$1"
  sed -i "/results-dir/a\\  $1: $S/$NAME/watch/file" "$JOB"
  mkdir "$S/$NAME/watch"
  begin
  rm -r "$S/$NAME/watch"
  dies 1
  check "$NAME: the log says so" await 10 eval "log | grep -q 'event=$2 file=\"$S/$NAME/watch/file\"'"
  dies 2
  over
}

again() {  # the directories come back
  fresh again
  sed -i "/results-dir/a\\  status-file: $S/again/watch/status\\n  access-log: $S/again/watch/log\\n  trace: $S/again/watch/trace" "$JOB"
  mkdir "$S/again/watch"
  begin
  rm -r "$S/again/watch"
  dies 1
  check 'status tells of a log that cannot be opened' await 10 eval 'json "$(status)" "\"error\" in d[\"access_log\"] and \"error\" in d[\"trace\"]"'
  check 'the log says that once' await 10 eval 'log | grep -q "event=event_file_not_opened .*watch/trace" && [ "$(log | grep -c "event=event_file_not_opened .*watch/log")" = 1 ]'
  mkdir "$S/again/watch"
  check 'a status file is written when it can be again' await 10 eval 'json "$(cat "$S/again/watch/status")" "d[\"state\"] == \"running\""'
  check 'an access log is' await 10 grep -q ': OK' "$S/again/watch/log"
  check 'a trace is, with its header' await 10 eval 'head -n 1 "$S/again/watch/trace" | grep -q "^# epoch" && grep -q ":rename:" "$S/again/watch/trace"'
  check 'status tells of no error then' json "$(status)" "'error' not in d['access_log'] and 'error' not in d['trace']"
  over
}

hangs() {  # the file system of all three: an instance's, both of whose processes are stopped
  local place text both pid STALL_BELOW
  fresh place 'resources: []'
  check "$NAME: start" "$EFS" start "$JOB"
  place=$MNT STALL_BELOW=$MNT text=$(status)
  both="$(field "$text" 'd["supervisor_pid"]') $(field "$text" 'd["worker_pid"]')"
  fresh hangs
  sed -i "/results-dir/a\\  status-file: $place/status\\n  access-log: $place/log\\n  trace: $place/trace" "$JOB"
  begin
  pid=$(worker)
  stall "$pid" || fail "$NAME: nobody is about to write there"
  stall $both || fail "$NAME: the place hangs"
  dies 1 "$pid"
  dies 2
  kill -CONT $both
  check "$NAME: all is written when the place answers" await 20 eval 'json "$(cat "$place/status")" "d[\"worker_pid\"] == $(worker)" && grep -q ":rename:" "$place/trace"'
  over
  check 'the place: stop' "$EFS" stop --no-stage-out place
}

# --- files of the configuration ---
site() {  # site NAME COMMAND: what becomes of the site file, in $site
  fresh "site-$1"
  local site=$S/$NAME/site.yaml
  mkdir -m 777 "$S/$NAME/log"
  printf 'global-settings: {access-log: %s/log/first}\nlimits: {workers: 8}\n' "$S/$NAME" >"$site"
  sed -i '/results-dir/a\  workers: 4' "$JOB"
  EFS_SITE_FILE=$site begin "${@:3}"
  eval "$2"
  dies 1
  dies 2
  check "$NAME: the successor goes by the one of the start" json "$(status)" "d['access_log']['file'] == '$S/$NAME/log/first'"
  over
}

no_job_file() {  # no_job_file NAME START_OPTION...: the instance's directory was cleaned up, and the job file has changed
  fresh "$1"
  begin "${@:2}"
  cmp "$JOB" "$EFS_RUNTIME_DIR/$NAME/job.yaml" && ok || fail "$NAME: it is there for people"
  rm "$EFS_RUNTIME_DIR/$NAME/job.yaml" "$JOB"
  dies 1
  dies 2
  over --merge
}

full
removed status-file status_file_failed
removed access-log event_file_not_opened
removed trace event_file_not_opened
again
hangs
site bad 'echo "limits: [" >"$site"'
site gone 'rm "$site"'
site lowered 'echo "limits: {workers: 2}" >"$site"'
site changed 'printf "global-settings: {access-log: %s/log/second}\n" "$S/$NAME" >"$site"'
site user 'echo "limits: [" >"$site"' --user 65534
no_job_file cleaned
no_job_file cleaned-user --user 65534
finish
