# SPDX-License-Identifier: BSD-3-Clause
# Completion of efs(1) for bash. Verbs and options are what `efs --help` says, so that they are those of the efs that
# is installed; instances are those that are running.

# _efs_help [VERB]: the help; nothing where efs cannot be run.
_efs_help() { "${_efs_program:-efs}" "$@" --help 2>/dev/null; }
_efs_verbs() { _efs_help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'; }
# -c,--config TEXT becomes -c and --config.
_efs_options() { _efs_help "$@" | sed -n '/^Options:/,/^$/s/^  \(-[^ ]*\).*/\1/p' | tr ',' '\n'; }
# Is it followed by a value?
_efs_takes_value() {
  case $2 in -*) _efs_help "$1" | grep -qE -e "^  (-[^ ]*,)?${2}(,-[^ ]*)? [A-Z]+" ;; *) return 1 ;; esac
}
# The daemon of another user answers: only what can be a name is offered.
_efs_instances() { "${_efs_program:-efs}" status --json 2>/dev/null | grep -o '"name":"[^"]*"' | sed 's/^"name":"//; s/"$//' | grep -xE '[A-Za-z0-9_][A-Za-z0-9._-]*'; }
# The backends of the running instances, where they have several.
_efs_backends() { "${_efs_program:-efs}" status --json 2>/dev/null | grep -o '"id":"[^"]*"' | sed 's/^"id":"//; s/"$//' | grep -xE '[A-Za-z0-9_][A-Za-z0-9._:/-]*' | sort -u; }
# The first positional argument of a verb: instance, job_file, ...
_efs_positional() { _efs_help "$1" | sed -n '/^Positionals:/,/^$/s/^  \([a-z_]*\)[ ,].*/\1/p' | head -n 1; }
# The values of an option, or of the first argument, where they are a fixed set: TEXT:{a,b} in the help.
_efs_choices() { _efs_help "$1" | sed -nE "s/^  (-[^ ]*,)?$2(,-[^ ]*)? [A-Z]+:\\{([^}]*)\\}.*/\\3/p" | tr ',' '\n'; }
# What --set takes: the keys of global-settings, and the values of those that have a fixed set.
_efs_keys() { "${_efs_program:-efs}" check --keys 2>/dev/null | awk '$1 == "global-settings"'; }
_efs_settings() { _efs_keys | awk '{ print $2 }'; }
_efs_setting_values() { _efs_keys | awk -v key="$1" '$2 == key && $3 ~ /[|]/ { gsub(/[|]/, "\n", $3); print $3 }'; }
# The kind of an option's value, where it is no fixed set and no instance. The test compares the three shells, and
# demands a kind for each option with a value.
_efs_value_kind() {
  case $1 in
    -c|--config|--output) echo job-file ;;
    -r|--root-dir|-m|--mount-dir|--results-dir|--to|--cache|--shared|--interleaving|--pfs) echo directory ;;
    -l|--log-file|--trace|--html|--textfile|--snapshot|--verify|--diff) echo file ;;
    -u|--user) echo user ;;
    -o|--options) echo mount-options ;;
    --set) echo setting ;;
    -i|-n|--name|--job|--mem|--memory|--memory-source|--node|--node-memory|--deadline|--timeout|--interval|--watch|--listen|--offset|--size|--skip) echo text ;;
  esac
}
_efs_mount_options() { _efs_help start | sed -n 's/^  -o,--options TEXT.*: //p' | tr ',' '\n'; }
# Does -i name an instance here? (For top it is the interval.)
_efs_names_instance() { [[ $2 == --instance ]] || { [[ $2 == -i ]] && _efs_help "$1" | grep -q -e '^  -i,--instance'; }; }
# Is the first argument of the verb, the word with this number, there already?
_efs_has_argument() {
  local j
  for ((j = $2 + 1; j < COMP_CWORD; j++)); do
    if [[ ${COMP_WORDS[j]} != -* ]]; then return 0; fi
    if _efs_takes_value "$1" "${COMP_WORDS[j]}"; then ((++j)); fi
  done
  return 1
}

# _efs_offer WORDS START: not by compgen -W, which would run $(commands) in the words.
_efs_offer() {
  local one all
  read -rd '' -a all <<<"$1"
  COMPREPLY=()
  for one in "${all[@]}"; do [[ $one != "$2"* ]] || COMPREPLY+=("$one"); done
}
# KEY=VALUE: readline takes it apart at the =, where that is in COMP_WORDBREAKS.
_efs_setting() {
  local key=$1 word=$2 whole=$3
  if [[ -z $key ]]; then
    compopt -o nospace 2>/dev/null
    mapfile -t COMPREPLY < <(compgen -S = -W "$(_efs_settings)" -- "$word")
  else
    _efs_offer "$(_efs_setting_values "$key")" "$word"
    [[ -z $whole ]] || COMPREPLY=("${COMPREPLY[@]/#/$key=}")
  fi
}

# A list with commas: the word after the last comma is completed.
_efs_mount_option() {
  local begun=${1##*,}
  compopt -o nospace 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -P "${1%"$begun"}" -W "$(_efs_mount_options)" -- "$begun")
}

_efs_files() { compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen "$@"); }
_efs_job_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -X '!*.yaml' -- "$1"; compgen -f -X '!*.yml' -- "$1"; compgen -d -- "$1")
}

_efs() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} verb= verb_at i
  local _efs_program=${COMP_WORDS[0]/#\~/$HOME}
  COMPREPLY=()
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ ${COMP_WORDS[i]} == -* ]] || { verb=${COMP_WORDS[i]}; break; }
  done
  if [[ -z $verb ]]; then
    if [[ $word == -* ]]; then mapfile -t COMPREPLY < <(compgen -W "$(_efs_options)" -- "$word")
    else mapfile -t COMPREPLY < <(compgen -W "$(_efs_verbs)" -- "$word"); fi
    return
  fi
  verb_at=$i
  if [[ $verb == run || $verb == record || $verb == intercept ]]; then  # behind -- it is another program's line
    for ((i++; i < COMP_CWORD; i++)); do
      [[ ${COMP_WORDS[i]} == -- ]] || continue
      if ((COMP_CWORD == i + 1)); then _efs_files -c -- "$word"; else _efs_files -f -- "$word"; fi
      return
    done
  fi
  local before=${COMP_WORDS[COMP_CWORD-2]:-}
  if [[ $previous == --set && $word == *=* ]]; then _efs_setting "${word%%=*}" "${word#*=}" whole; return; fi
  if [[ $previous == --set ]]; then _efs_setting '' "$word" ''; return; fi
  if [[ $word == = && $before == --set ]]; then _efs_setting "$previous" '' ''; return; fi
  if [[ $previous == = && ${COMP_WORDS[COMP_CWORD-3]:-} == --set ]]; then _efs_setting "$before" "$word" ''; return; fi
  if _efs_names_instance "$verb" "$previous"; then _efs_offer "$(_efs_instances)" "$word"; return; fi
  if [[ $verb == record && $previous == -o ]]; then _efs_job_files "$word"; return; fi
  if [[ $verb == move && $previous == --to ]]; then _efs_offer "$(_efs_backends)" "$word"; return; fi
  case $(_efs_value_kind "$previous") in
    job-file) _efs_job_files "$word"; return ;;
    directory) _efs_files -d -- "$word"; return ;;
    file) _efs_files -f -- "$word"; return ;;
    user) mapfile -t COMPREPLY < <(compgen -u -- "$word"); return ;;
    mount-options) _efs_mount_option "$word"; return ;;
    text) return ;;
  esac
  if _efs_takes_value "$verb" "$previous"; then _efs_offer "$(_efs_choices "$verb" "$previous")" "$word"; return; fi
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_efs_options "$verb")" -- "$word")
    return
  fi
  local argument choices
  argument=$(_efs_positional "$verb")
  choices=$(_efs_choices "$verb" "$argument")
  if [[ -n $choices ]] && ! _efs_has_argument "$verb" "$verb_at"; then _efs_offer "$choices" "$word"; return; fi
  case $argument in
    job_file) _efs_job_files "$word" ;;
    instance) _efs_offer "$(_efs_instances)" "$word" ;;
    image)
      compopt -o filenames 2>/dev/null
      _efs_offer "$(_efs_instances)" "$word"
      mapfile -t -O ${#COMPREPLY[@]} COMPREPLY < <(compgen -d -- "$word") ;;
    *) _efs_files -f -- "$word" ;;
  esac
}
complete -F _efs efs
