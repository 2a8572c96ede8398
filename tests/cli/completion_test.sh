#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Shell completion offers the verbs and options of this efs, and the running instances.
#   completion_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
PATH=$BIN:$PATH
. "$SOURCE/conf/completion/efs.bash"

# offered WORD...: the offers for the last word, on one line.
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
offers_only 'what doctor looks at' '--pmem' efs doctor --pm
offers_only 'instances, not files' '--instances' efs ls --instances
for verb in $verbs; do offers "every verb has --json: $verb" --json "$EFS" "$verb" --; done

fresh complete
touch "$S/complete/other.txt"
offers_only 'job files' "$S/complete/complete.yaml" efs start "$S/complete/com"
offers_only 'nothing but job files' '' efs start "$S/complete/oth"
mkdir -p "$MNT"
offers_only 'directories for --mount-dir' "$S/complete/mnt" efs start -m "$S/complete/mn"
offers_only 'files of the program that run starts' "$S/complete/other.txt" efs run "$JOB" -- cat "$S/complete/oth"
offers 'options of record' '-o --output --pfs --force' efs record -
offers_only 'the job file that record writes' "$S/complete/complete.yaml" efs record -o "$S/complete/com"
offers_only 'directories for --pfs' "$S/complete/mnt" efs record --pfs "$S/complete/mn"
offers_only 'files of the program that record starts' "$S/complete/other.txt" efs record -- cat "$S/complete/oth"
offers 'programs for run' bash efs run "$JOB" -- bas
offers_only 'nothing for a name that is yours to choose' '' efs start -n ''
offers_only 'no instance is running' '' efs stop ''
check 'an instance' "$EFS" start "$JOB"
offers_only 'a running instance to stop' complete efs stop ''
offers_only 'a running instance to look at' complete efs status com
offers_only 'by the path of efs' complete "$EFS" stop --no-stage-out ''
offers_only 'for the instance that a file lies in' complete efs ls -i ''
offers_only 'by its long name, too' complete efs load --instance com
offers_only 'and for an image' complete efs salvage comp
offers_only 'top has an interval' '' efs top -i ''
check 'stop' "$EFS" stop complete
offers_only 'none when it has ended' '' efs stop ''

# --- values from a fixed set ---
offers_only 'classes' 'persistent temporary default' efs set ''
offers_only 'a class that is begun' 'temporary' efs set --json te
offers_only 'behind an option with a value, too' 'persistent temporary default' efs set -i complete ''
offers_only 'files behind the class' "$S/complete/other.txt" efs set persistent "$S/complete/oth"
offers_only 'what the cache can' 'ls clean' efs cache ''
offers_only 'a setting' 'on-conflict=' efs start --set on-c
offers_only 'its values' 'on-conflict=fail on-conflict=keep-both on-conflict=overwrite' efs start --set on-conflict=
offers_only 'one that is begun' 'verify=read-back' efs run --set verify=r
offers_only 'as readline takes it apart' 'fail keep-both overwrite' efs start --set on-conflict =
offers_only 'a begun one, too' 'read-back' efs plan --set verify = r
offers_only 'none where any value will do' '' efs start --set workers=
# They are those of this efs: it says itself what it takes.
check 'efs lists its keys' test "$("$EFS" check --keys | awk '$1 == "resources" { print $2 }' | head -n 3 | tr '\n' ' ')" = 'path list as '
check 'as JSON, too' test "$("$EFS" check --keys --json | python3 -c 'import json,sys; print(*[[k["values"], k["default"], k["site"]] for k in json.load(sys.stdin)["keys"] if k["key"] == "transfer-size"][0])')" = 'size 2 MiB fix,limit'
job "$JOB" 'resources: [ [ path: input ] ]'
keys=$("$EFS" check --show --json "$JOB" | python3 -c 'import json,sys; print(*(v["key"] for v in json.load(sys.stdin)["values"] if v["section"] == "global-settings"))')
check 'the settings are those of this efs' test "$(_efs_settings | tr '\n' ' ')" = "$keys "
taken() { "$EFS" check --set "$1=zzzzzzzzzzzz" "$JOB" 2>&1 | sed -n 's/.*(one of: \(.*\))$/\1/p' | tr -d ','; }
check 'it says what a setting takes' test "$(taken verify)" = 'stream read-back'
for key in $keys; do
  case $key in in-place) continue ;; esac   # which has several words for yes
  check "the values of $key" test "$(_efs_setting_values "$key" | tr '\n' ' ')" = "$(taken "$key" | sed 's/.$/& /')"
done

# --- every option with a value has a kind, a fixed set or an instance; no other option has a kind ---
# valued: "VERB OPTION" for each form of each option with a value
valued() {
  local verb
  for verb in $verbs; do
    "$EFS" "$verb" --help | sed -n '/^Options:/,/^$/s/^  \(-[^ ]*\)  *[A-Z][A-Z]*[: ].*/\1/p' | tr ',' '\n' | sed "s/^/$verb /"
  done
}
# kinds FILE: the options that a completion has a kind for
kinds() { sed -n '/^\(function \)\{0,1\}_efs_value_kind/,/^\(}\|end\)/p' "$1" | grep -E '^ +(case )?-' | sed 's,).*,,' | grep -oE -e '-[-a-z]+' | sort -u; }
valued=$(valued)
check 'there are options with a value' test "$(wc -l <<<"$valued")" -ge 40
while read -r verb option; do
  check "$verb $option: completion knows what its value is" test -n "$(_efs_value_kind "$option")$(_efs_choices "$verb" "$option")$(_efs_names_instance "$verb" "$option" && echo instance)"
done <<<"$valued"
known=$(cut -d' ' -f2 <<<"$valued" | sort -u)
for shell in efs.bash _efs efs.fish; do
  check "$shell names no option that efs does not have" test -z "$(comm -13 <(echo "$known") <(kinds "$SOURCE/conf/completion/$shell"))"
  check "$shell names as many as bash" test "$(kinds "$SOURCE/conf/completion/$shell")" = "$(kinds "$SOURCE/conf/completion/efs.bash")"
done
options=$(_efs_mount_options)
check 'there are mount options' test "$(wc -l <<<"$options")" -ge 12
for option in $options; do check "efs(1) has the mount option $option" grep -qE "^\.(B|BR|TP|BI) .*${option%%=*}" <(sed 's/\\-/-/g; s/\\fB//g' "$SOURCE/man/efs.1"); done
offers_only 'a mount option behind others' 'nosuid,placement=on nosuid,placement=off' efs start -o nosuid,pl
offers 'directories for --to' "$S/complete/out" efs salvage --to "$S/complete/ou"

if command -v zsh >/dev/null; then
  check 'zsh reads its completion' zsh -n "$SOURCE/conf/completion/_efs"
  zsh_says() { zsh -fc '. "$0"; shift 0; "$@"' "$SOURCE/conf/completion/_efs" "$@" 2>&1; }
  for verb in $verbs; do check "zsh knows the verb $verb" grep -q "^$verb:." <<<"$(zsh_says _efs_verbs)"; done
  check 'zsh knows the options of a verb' grep -q '^--no-stage-out:drop' <<<"$(zsh_says _efs_options stop)"
  check 'both forms of an option' test "$(zsh_says _efs_options start | grep -cE '^(-c|--config):the job file')" -eq 2
  check 'zsh knows the classes' test "$(zsh_says _efs_choices set class | tr '\n' ' ')" = 'persistent temporary default '
  check 'and the settings' test "$(zsh_says _efs_settings | tr '\n' ' ')" = "$keys "
  for key in $keys; do check "zsh knows the values of $key" test "$(zsh_says _efs_setting_values "$key" | tr '\n' ' ')" = "$(_efs_setting_values "$key" | tr '\n' ' ')"; done
  check 'zsh knows where an instance is named' zsh_says _efs_names_instance ls -i
  check_not 'and where not' zsh_says _efs_names_instance top -i
  check 'zsh knows what a verb takes' test "$(zsh_says _efs_positional stop)" = instance
  check 'and the mount options' test "$(zsh_says _efs_mount_options)" = "$options"
  for option in $known; do check "zsh knows the value of $option" test "$(zsh_says _efs_value_kind "$option")" = "$(_efs_value_kind "$option")"; done
else
  skip 'completion for zsh' 'zsh is not installed'
fi

if command -v fish >/dev/null; then
  check 'fish reads its completion' fish -N "$SOURCE/conf/completion/efs.fish"
  export XDG_CONFIG_HOME=$S/fish XDG_DATA_HOME=$S/fish
  # fish_says COMMAND: its output, with the completion loaded; fish_offers LINE: the offers for the last word, sorted
  fish_says() { fish -N -c 'source $argv[1]; eval $argv[2]' "$SOURCE/conf/completion/efs.fish" "$1" 2>&1; }
  fish_offers() { fish_says "complete -C '$1'" | cut -f1 | sort | tr '\n' ' '; }
  sorted() { tr ' ' '\n' | grep . | sort -u | tr '\n' ' '; }
  check 'fish offers the verbs' test "$(fish_offers 'efs ')" = "$(sorted <<<"$verbs")"
  for verb in $verbs; do
    check "fish offers the options of $verb" test "$(fish_offers "efs $verb -")" = "$(_efs_program=efs _efs_options "$verb" | sorted)"
  done
  check 'fish has the descriptions' grep -qP '^--no-stage-out\tdrop' <<<"$(fish_says 'complete -C "efs stop --no"')"
  fish_kinds() { fish_says "for option in $(tr '\n' ' ' <<<"$known"); string join ' ' -- \$option (_efs_value_kind \$option); end"; }
  check 'fish knows the same values as bash' test "$(fish_kinds)" = "$(for option in $known; do echo "$option $(_efs_value_kind "$option")"; done | sed 's/ $//')"
  check 'fish knows the classes' test "$(fish_offers 'efs set ')" = 'default persistent temporary '
  check 'the settings' test "$(fish_offers 'efs start --set on-c')" = 'on-conflict= '
  check 'their values' test "$(fish_offers 'efs start --set on-conflict=')" = "$(sed 's/[^ ]*/on-conflict=&/g' <<<'fail keep-both overwrite') "
  check 'the mount options' test "$(fish_offers 'efs start -o nosuid,pl')" = 'nosuid,placement=off nosuid,placement=on '
  check 'job files' test "$(fish_offers "efs start $S/complete/")" = "$(printf '%s ' "$S"/complete/*/ "$S/complete/complete.yaml" | sorted)"
  check 'files of the program that run starts' grep -q other.txt <<<"$(fish_offers "efs run $JOB -- cat $S/complete/oth")"
  check 'start for fish' "$EFS" start "$JOB"
  check 'a running instance' test "$(fish_offers 'efs stop ')" = 'complete '
  check 'the instance of -i' test "$(fish_offers 'efs ls -i ')" = 'complete '
  check 'stop for fish' "$EFS" stop complete
else
  skip 'completion for fish' 'fish is not installed'
fi
# The daemon of another user may answer with any name.
mkdir "$S/stub"
cat >"$S/stub/efs" <<'EOF'
#!/bin/sh
echo '[{"name":"good"},{"name":"x$(touch${IFS}$OWNED)"}]'
EOF
chmod +x "$S/stub/efs"
export OWNED=$S/owned
said=$(PATH=$S/stub:$PATH bash -c '. "$1"; _efs_offer "$(_efs_instances) $2" ""; echo "${COMPREPLY[0]} ${#COMPREPLY[@]}"' - "$SOURCE/conf/completion/efs.bash" 'y$(touch${IFS}$OWNED)')
check 'a name that cannot be one is not offered' test "$said" = 'good 2'
check 'and no words are run' test ! -e "$OWNED"

finish
