# SPDX-License-Identifier: BSD-3-Clause
# Completion of efs(1) for fish. Verbs and options are what `efs --help` says; instances are those that are running.

# NAME<tab>DESCRIPTION for each verb.
function _efs_verbs
    efs --help 2>/dev/null | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\)  *\(.*\)/\1\t\2/p'
end
# OPTION<tab>DESCRIPTION for each option of a verb; -c,--config TEXT gives two.
function _efs_options
    efs $argv --help 2>/dev/null | sed -n -e '/^Options:/,/^$/{' -e 's/^  \(-[^ ,]*\),\(-[^ ]*\)  *\(TEXT  *\)\{0,1\}\(.*\)/\1\t\4\n\2\t\4/p;t' \
        -e 's/^  \(-[^ ]*\)  *\(TEXT  *\)\{0,1\}\(.*\)/\1\t\3/p' -e '}'
end
function _efs_instances
    efs status --json 2>/dev/null | grep -o '"name":"[^"]*"' | sed 's/^"name":"//; s/"$//' | grep -xE '[A-Za-z0-9_][A-Za-z0-9._-]*'
end
# The backends of the running instances, where they have several.
function _efs_backends
    efs status --json 2>/dev/null | grep -o '"id":"[^"]*"' | sed 's/^"id":"//; s/"$//' | grep -xE '[A-Za-z0-9_][A-Za-z0-9._:/-]*' | sort -u
end
function _efs_positional
    efs $argv[1] --help 2>/dev/null | sed -n '/^Positionals:/,/^$/s/^  \([a-z_]*\)[ ,].*/\1/p' | head -n 1
end
# The values of an option, or of the first argument, where they are a fixed set: TEXT:{a,b} in the help.
function _efs_choices
    efs $argv[1] --help 2>/dev/null | sed -nE "s/^  (-[^ ]*,)?$argv[2](,-[^ ]*)? [A-Z]+:\{([^}]*)\}.*/\3/p" | tr ',' '\n'
end
# What --set takes: the keys of global-settings, and the values of those that have a fixed set.
function _efs_settings
    efs check --keys 2>/dev/null | awk '$1 == "global-settings" { print $2 }'
end
function _efs_setting_values
    efs check --keys 2>/dev/null | awk -v key="$argv[1]" '$1 == "global-settings" && $2 == key && $3 ~ /[|]/ { gsub(/[|]/, "\n", $3); print $3 }'
end
# The kind of an option's value, where it is no fixed set and no instance.
function _efs_value_kind
    switch "$argv[1]"
        case -c --config --output
            echo job-file
        case -r --root-dir -m --mount-dir --results-dir --to --cache --shared --interleaving --pfs
            echo directory
        case -l --log-file --trace --html --textfile --snapshot --verify --diff
            echo file
        case -u --user
            echo user
        case -o --options
            echo mount-options
        case --set
            echo setting
        case -i -n --name --job --mem --memory --memory-source --node --node-memory --deadline --timeout --interval --watch --listen --offset --size --skip
            echo text
    end
end
function _efs_mount_options
    efs start --help 2>/dev/null | sed -n 's/^  -o,--options TEXT.*: //p' | tr ',' '\n'
end
# Does -i name an instance here? (For top it is the interval.)
function _efs_names_instance
    test "$argv[2]" = --instance; and return
    test "$argv[2]" = -i; and efs $argv[1] --help 2>/dev/null | grep -q -e '^  -i,--instance'
end

function _efs_files
    complete -C "'' $argv[1]"
end
function _efs_job_files
    _efs_files $argv[1] | string match -r '^[^\t]*(?:\.ya?ml|/)(?:\t.*)?$'
end
# _efs_value VERB OPTION WORD: the offers for the value of an option; fails if OPTION takes none.
function _efs_value
    if _efs_names_instance $argv[1] $argv[2]
        _efs_instances
        return
    end
    if test "$argv[1] $argv[2]" = 'move --to'
        _efs_backends
        return
    end
    set -l kind (_efs_value_kind $argv[2])
    test "$argv[1] $argv[2]" = 'record -o'; and set kind job-file
    switch "$kind"
        case job-file
            _efs_job_files $argv[3]
        case directory
            __fish_complete_directories $argv[3]
        case file
            _efs_files $argv[3]
        case user
            __fish_complete_users
        case mount-options
            set -l before (string match -r '^.*,' -- $argv[3])
            string join \n -- $before(_efs_mount_options)
        case setting
            set -l key (string replace -r '=.*' '' -- $argv[3])
            if string match -q '*=*' -- $argv[3]
                string join \n -- $key=(_efs_setting_values $key)
            else
                string join \n -- (_efs_settings)=
            end
        case text
            true
        case '*'
            set -l choices (string match -q -- '-*' $argv[2]; and _efs_choices $argv[1] $argv[2])
            test -n "$choices"; and string join \n -- $choices
    end
end
# _efs_argument VERB FIRST WORD: the offers for an argument; FIRST is yes for the first one.
function _efs_argument
    set -l positional (_efs_positional $argv[1])
    set -l choices (_efs_choices $argv[1] "$positional")
    if test $argv[2] = yes -a -n "$choices"
        string join \n -- $choices
        return
    end
    switch "$positional"
        case job_file
            _efs_job_files $argv[3]
        case instance
            _efs_instances
        case image
            _efs_instances
            __fish_complete_directories $argv[3]
        case '?*'
            _efs_files $argv[3]
    end
end

function _efs
    set -l words (commandline -opc)
    set -l word (commandline -ct)
    set -e words[1]
    while set -q words[1]; and string match -q -- '-*' $words[1]
        set -e words[1]
    end
    if not set -q words[1]
        string match -q -- '-*' $word; and _efs_options; or _efs_verbs
        return
    end
    set -l verb $words[1]
    if contains -- "$verb" run record intercept; and set -l separator (contains -i -- -- $words)  # behind -- it is another program's line
        complete -C (string join ' ' -- (string escape -- $words[(math $separator + 1)..-1]) $word)
        return
    end
    if set -q words[2]; and _efs_value $verb $words[-1] $word
        return
    end
    if string match -q -- '-*' $word
        _efs_options $verb
        return
    end
    test (count $words) -eq 1; and set -l first yes; or set -l first no
    _efs_argument $verb $first $word
end

complete -c efs -f -a '(_efs)'
