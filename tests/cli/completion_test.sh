#!/bin/bash
# Completion of the shell's command line: what is offered is what this efs has, and the instances that are running.
#   completion_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
PATH=$BIN:$PATH
. "$SOURCE/conf/completion/efs.bash"

# offered WORD...: what is offered for the last word, on one line.
offered() {
  COMP_WORDS=("$@") COMP_CWORD=$(($# - 1)) COMPREPLY=()
  _efs 2>/dev/null
  echo "${COMPREPLY[@]}"
}
# offers NAME EXPECTED WORD...: every word of EXPECTED is offered.
offers() {
  local name=$1 expected=$2 got word; shift 2
  got=" $(offered "$@") "
  for word in $expected; do [[ $got == *" $word "* ]] || { fail "$name" "no $word in:$got"; return; }; done
  ok
}
# offers_only NAME EXPECTED WORD...
offers_only() {
  local name=$1 expected=$2 got; shift 2
  got=$(offered "$@")
  if [ "$got" = "$expected" ]; then ok; else fail "$name" "offered: $got"; fi
}

verbs=$("$EFS" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p' | tr '\n' ' ')
check 'there are verbs' test "$(wc -w <<<"$verbs")" -ge 6
check 'run, start and stop are among them' bash -c '[[ " $1 " == *" run "* && " $1 " == *" start "* && " $1 " == *" stop "* ]]' _ "$verbs"
offers 'all verbs' "$verbs" efs ''
offers_only 'a verb that is begun' 'check check-image' efs ch
offers_only 'what is no verb' '' efs nosuch
offers 'options of efs' '--help --version -V' efs -
offers 'options of a verb' '-c --config --results-dir --json -o' efs start -
offers_only 'an option that is begun' '--no-stage-out' efs stop --no
offers_only 'instances, not files' '--instances' efs ls --instances
for verb in $verbs; do offers "every verb has --json: $verb" --json "$EFS" "$verb" --; done

fresh complete
touch "$S/complete/other.txt"
offers_only 'job files' "$S/complete/complete.yaml" efs start "$S/complete/com"
offers_only 'nothing but job files' '' efs start "$S/complete/oth"
mkdir -p "$MNT"
offers_only 'directories for --mount-dir' "$S/complete/mnt" efs start -m "$S/complete/mn"
offers_only 'files of the program that run starts' "$S/complete/other.txt" efs run "$JOB" -- cat "$S/complete/oth"
offers 'programs for run' bash efs run "$JOB" -- bas
offers_only 'nothing for a name that is yours to choose' '' efs start -n ''
offers_only 'no instance is running' '' efs stop ''
check 'an instance' "$EFS" start "$JOB"
offers_only 'a running instance to stop' complete efs stop ''
offers_only 'a running instance to look at' complete efs status com
offers_only 'by the path of efs' complete "$EFS" stop --no-stage-out ''
check 'stop' "$EFS" stop complete
offers_only 'none when it has ended' '' efs stop ''

if command -v zsh >/dev/null; then
  check 'zsh reads its completion' zsh -n "$SOURCE/conf/completion/_efs"
  zsh_says() { zsh -fc '. "$0"; shift 0; "$@"' "$SOURCE/conf/completion/_efs" "$@" 2>&1; }
  for verb in $verbs; do check "zsh knows the verb $verb" grep -q "^$verb:." <<<"$(zsh_says _efs_verbs)"; done
  check 'zsh knows the options of a verb' grep -q '^--no-stage-out:drop' <<<"$(zsh_says _efs_options stop)"
  check 'both forms of an option' test "$(zsh_says _efs_options start | grep -cE '^(-c|--config):the job file')" -eq 2
  check 'zsh knows what a verb takes' test "$(zsh_says _efs_positional stop)" = instance
else
  skip 'completion for zsh' 'zsh is not installed'
fi
finish
