#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# --json: every verb prints one line with one document, also on failure.
#   json_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# answers NAME CODE EXPRESSION VERB ARGUMENT...: checks the exit code, the single line, and its
# content.
answers() {
  local name=$1 code=$2 expression=$3 got; shift 3
  timeout 60 "$EFS" "$@" --json >"$S/answer" 2>"$S/beside"; got=$?
  if [ $got -ne "$code" ]; then fail "$name" "exit $got, not $code: $(cat "$S/answer" "$S/beside")"
  elif [ "$(wc -l <"$S/answer")" != 1 ]; then fail "$name" "not one line: $(cat "$S/answer")"
  else check "$name" json "$(cat "$S/answer")" "$expression"; fi
}
refusal="isinstance(d, dict) and d['ok'] is False and d['error'] and d['code']"
usage="$refusal and d['exit'] == 2"

fresh json
for verb in $("$EFS" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'); do
  answers "$verb: an unknown option" 2 "$usage" "$verb" --nosuchoption
done
for verb in run start plan check; do answers "$verb: a job file that is not there" 2 "d['ok'] is False and d['problems']" $verb "$S/nosuch.yaml" $([ $verb != run ] || echo true); done
answers 'run: no program' 2 "$usage" run "$JOB"
for verb in 'status nosuch' 'stop nosuch' 'salvage nosuch' 'check-image nosuch' 'clean nosuch' 'top nosuch' 'load -i nosuch x' 'unload -i nosuch x' 'wait -i nosuch' 'cancel -i nosuch 1' 'ls -i nosuch' 'explain -i nosuch x' 'set -i nosuch default x' "cache ls --cache $S/nosuch" "queue $S/nosuch"; do
  answers "$verb" 1 "$refusal" $verb
done
answers 'stop of nothing' 2 "$usage" stop ''
answers 'status of a job that is not known' 1 "$refusal" status --job 4711 --shared "$S"
answers 'check' 0 "d['ok']" check "$JOB"
answers 'plan' 0 "d['ok']" plan "$JOB"
answers 'clean' 0 "d['ok']" clean
# The findings about this node do not matter here.
"$EFS" doctor --json >"$S/answer" 2>/dev/null
check 'doctor' test "$(wc -l <"$S/answer")" = 1
check 'doctor: is a document' json "$(cat "$S/answer")" "d['checks']"

answers 'start' 0 "d['ok'] and d['state'] == 'running'" start "$JOB"
answers 'start again' 1 "$refusal" start "$JOB"
echo x >"$MNT/x"; echo y >"$MNT/y"
answers 'status' 0 "d['name'] == 'json'" status json
answers 'status of all' 0 "isinstance(d, list)" status -a
answers 'top' 0 "isinstance(d, list)" top
answers 'ls' 0 "{'x', 'y', 'input/a'} <= {item['path'] for item in d}" ls -i json
answers 'ls of a name that is not there' 1 "$refusal" ls -i json nosuch
answers 'ls of one that is and one that is not' 1 "$refusal" ls -i json x nosuch
answers 'explain' 0 "d['path'] == 'x'" explain -i json x
answers 'explain of two' 0 "[item['path'] for item in d] == ['x', 'y']" explain -i json x y
answers 'explain of one that is and one that cannot be' 1 "$refusal" explain -i json x /etc/passwd
answers 'set' 0 "d['ok']" set -i json temporary x
answers 'set of a name that is not there' 1 "$refusal" set -i json temporary nosuch
answers 'load' 0 "d['task'] == 1" load -i json input/a
answers 'load -w' 0 "d['task'] == 2 and d['outcome']['ok']" load -w -i json input/a
answers 'load -w of a name that is not there' 1 "d['task'] == 3 and not d['outcome']['ok']" load -w -i json nosuch
answers 'unload -w' 0 "d['outcome']['ok']" unload -w -i json x
answers 'wait for one' 0 "d['task'] == 1" wait -i json 1
answers 'wait for two' 0 "[one['task'] for one in d] == [1, 2]" wait -i json 1 2
answers 'wait for one that there is and one that there is not' 1 "d[0]['ok'] is False and d[1]['task'] == 1" wait -i json 99 1
answers 'wait for all, of which there are none' 0 "d == []" wait -i json
answers 'wait for a word' 2 "$usage" wait -i json x
answers 'cancel of what has ended' 1 "$refusal" cancel -i json 1
answers 'cancel of several' 1 "$refusal and [one['task'] for one in d['tasks']] == [1, 99]" cancel -i json 1 99
for verb in 'salvage --list' check-image clean; do answers "$verb of one that runs" 1 "d['ok'] is False" $verb json; done
answers 'stop --keep' 0 "d['ok']" stop --keep json
answers 'status of what was kept' 0 "d['state'] == 'kept'" status json
answers 'stop of what was kept' 1 "$refusal" stop json
answers 'salvage --list' 0 "d['ok']" salvage --list json
# Creates an object for a log line: the rest of a killed salvage.
left=$S/out/x.$(field "$(cat "$EFS_RUNTIME_DIR/json/instance.json")" 'd["instance"][:12]').efs-partial
mkdir "$S/out"; touch "$left"
answers 'salvage' 0 "d['ok'] and d['receipt']" salvage --to "$S/out" --all json
check 'salvage: the leftover is gone' test ! -e "$left"
answers 'check-image' 0 "d['ok']" check-image json
answers 'clean of it' 0 "d['ok']" clean json
# Output of run, after the program's own output.
for program in true false nosuchprogram "$JOB"; do
  "$EFS" run --json "$JOB" -- $program >"$S/answer" 2>/dev/null
  check "run of $program" test "$(wc -l <"$S/answer")" = 1
  check "run of $program: is a document" json "$(cat "$S/answer")" "d['ok'] is ($([ $program = true ] && echo True || echo False)) and 'stop' in d"
done
finish
