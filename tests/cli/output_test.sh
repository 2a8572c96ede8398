#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Output that cannot be written: every verb reports it, and none ends with 0 if its list is lost.
#   output_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
[ -c /dev/full ] || { skip 'output' 'no /dev/full'; finish; }

fresh output
started "$JOB"
mkdir "$S/queue"
# full NAME ARGUMENTS...: writes to a full disk; the message on standard error names it.
full() {
  local name=$1 code; shift
  "$@" >/dev/full 2>"$S/said"; code=$?
  if [ $code != 0 ] && grep -qE 'cannot write to standard output: No space left' "$S/said"; then ok; else fail "$name on a full disk" "exit $code: $(cat "$S/said")"; fi
}
for verb in status "status output" "ls -i output" "explain -i output input/a" "plan $JOB" "check $JOB" "check --show $JOB" top "top --once output" doctor "queue $S/queue"; do
  full "efs $verb" "$EFS" $verb
  full "efs --json $verb" "$EFS" ${verb%% *} --json ${verb#"${verb%% *}"}
done
for words in --help --version "start --help" "stop --help"; do full "efs $words" "$EFS" $words; done
full 'efsd --help' "$BIN/efsd" --help
full 'efsd --version' "$BIN/efsd" --version
full 'efs load -w' "$EFS" load -i output -w input/a
full 'efs wait --json' "$EFS" wait --json -i output
full 'efs set' "$EFS" set --json temporary -i output input/a
echo new >"$MNT/new"
full 'efs unload' "$EFS" unload -i output -w new
# A list larger than a buffer.
mkdir "$MNT/many"; (cd "$MNT/many" && seq -f 'a name that is as long as it takes %g' 400 | xargs -d '\n' touch)
full 'a long list' "$EFS" ls -i output
# unread HOW COMMAND...: prints how the command ends if no process reads its standard output; HOW:
# SIG_DFL or SIG_IGN.
unread() { python3 - "$@" <<'END'
import os, signal, subprocess, sys
read, write = os.pipe()
os.close(read)
how = getattr(signal, sys.argv[1])
print(subprocess.run(sys.argv[2:], stdout=write, preexec_fn=lambda: signal.signal(signal.SIGPIPE, how), restore_signals=False).returncode)
END
}
killed() { [ "$(unread SIG_DFL "$EFS" ls -i output)" = -13 ]; }
check 'who reads no more ends it by SIGPIPE, as other programs' killed
ignored() { [ "$(unread SIG_IGN "$EFS" ls -i output 2>"$S/said")" = 1 ] && grep -q 'standard output: Broken pipe' "$S/said"; }
check 'where that signal is ignored, with a message' ignored
if [ "$(id -u)" = 0 ]; then full 'with the rights of another user' "$EFS" plan -u nobody "$JOB" --set results-dir="$S/output/elsewhere"; fi
full 'efs stop, which has done its work' "$EFS" stop output
check 'has done it' ended output
check 'and the results are back' test -e "$OUT/many"
full 'efs clean' "$EFS" clean
full 'efs start' "$EFS" start "$JOB"
check 'has started it' mounted "$MNT"
check 'stop' "$EFS" stop output
# Standard output of efs run belongs to the program.
check 'efs run: the exit code is the program'\''s' bash -c '"$1" run "$2" -- true >/dev/full' - "$EFS" "$JOB"
check_exit 'whatever that is' 7 '' bash -c '"$1" run "$2" -- sh -c "exit 7" >/dev/full 2>/dev/null' - "$EFS" "$JOB"
finish
