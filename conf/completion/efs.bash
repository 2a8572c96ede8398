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
_efs_instances() { "${_efs_program:-efs}" status --json 2>/dev/null | grep -o '"name":"[^"]*"' | sed 's/^"name":"//; s/"$//'; }
# The first positional argument of a verb: instance, job_file, ...
_efs_positional() { _efs_help "$1" | sed -n '/^Positionals:/,/^$/s/^  \([a-z_]*\)[ ,].*/\1/p' | head -n 1; }

_efs_files() { compopt -o filenames 2>/dev/null; mapfile -t COMPREPLY < <(compgen "$@"); }
_efs_job_files() {
  compopt -o filenames 2>/dev/null
  mapfile -t COMPREPLY < <(compgen -f -X '!*.yaml' -- "$1"; compgen -f -X '!*.yml' -- "$1"; compgen -d -- "$1")
}

_efs() {
  local word=${COMP_WORDS[COMP_CWORD]} previous=${COMP_WORDS[COMP_CWORD-1]} verb= i
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
  if [[ $verb == run ]]; then  # behind -- it is another program's line
    for ((i++; i < COMP_CWORD; i++)); do
      [[ ${COMP_WORDS[i]} == -- ]] || continue
      if ((COMP_CWORD == i + 1)); then _efs_files -c -- "$word"; else _efs_files -f -- "$word"; fi
      return
    done
  fi
  case $previous in
    -c|--config) _efs_job_files "$word"; return ;;
    -r|--root-dir|-m|--mount-dir|--results-dir) _efs_files -d -- "$word"; return ;;
    -l|--log-file) _efs_files -f -- "$word"; return ;;
    -u|--user) mapfile -t COMPREPLY < <(compgen -u -- "$word"); return ;;
    -o|--options) mapfile -t COMPREPLY < <(compgen -W 'nosuid nodev noexec noatime ro daemon-io mode= fsname=' -- "$word"); return ;;
  esac
  if _efs_takes_value "$verb" "$previous"; then return; fi
  if [[ $word == -* ]]; then
    mapfile -t COMPREPLY < <(compgen -W "$(_efs_options "$verb")" -- "$word")
    return
  fi
  case $(_efs_positional "$verb") in
    job_file) _efs_job_files "$word" ;;
    action) [[ $previous == cache ]] && mapfile -t COMPREPLY < <(compgen -W 'ls clean' -- "$word") || _efs_files -f -- "$word" ;;
    instance) mapfile -t COMPREPLY < <(compgen -W "$(_efs_instances)" -- "$word") ;;
    *) _efs_files -f -- "$word" ;;
  esac
}
complete -F _efs efs
