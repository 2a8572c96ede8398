#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The manual agrees with the programs: options of every verb with efs(1), options of the daemon and
# events of the log with efsd(8). (Unit tests compare the keys of job files.) Every check first
# proves that it works.
#   manual_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

verbs() { "$EFS" --help | sed -n '/^Subcommands:/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p'; }
# help_options VERB: prints the verb's options, from --help.
help_options() { "$EFS" "$1" --help | sed -n '/^Options:/,$p' | grep -oE '^  -[^ ]*' | tr ',' '\n' | tr -d ' ' | sort -u; }

# man_options FILE: prints "VERB OPTION" for every option of the section OPTIONS. Its subsections
# name their verbs.
man_options() {
  sed -e 's/\\-/-/g; s/\\f[A-Z]//g; s/"//g' "$1" | awk -v verbs="$(verbs | tr '\n' ' ')" '
    /^\.SH / { inside = ($2 == "OPTIONS"); next }
    !inside { next }
    /^\.SS / { sub(/^\.SS */, ""); if ($0 == "Every verb") names = verbs; else { gsub(/,| and /, " "); names = $0 } next }
    term { n = split(names, verb, " "); line = $0
           while (match(line, /(^|[ ,])--?[A-Za-z][-A-Za-z]*/)) { word = substr(line, RSTART, RLENGTH); gsub(/[ ,]/, "", word); for (i = 1; i <= n; i++) print verb[i], word; line = substr(line, RSTART + RLENGTH) } }
    { term = ($0 == ".TP") }' | sort -u
}
# differences PAGE: prints the options that only the help has, or only the page.
differences() {
  local verb
  for verb in $(verbs); do
    diff <(help_options "$verb") <(man_options "$1" | sed -n "s/^$verb //p") | sed -n "s/^< /$verb --help alone has /p; s/^> /the page alone has, for $verb, /p"
  done
}
missing_verbs() { local verb; for verb in $(verbs); do awk -v verb="$verb" '{gsub(/\\-/, "-")} /^\.SH /{inside = ($2 == "VERBS")} inside && term && $2 == verb {found = 1} {term = ($0 == ".TP")} END {exit !found}' "$1" || echo "no entry for $verb"; done; }

daemon_options() { grep -ohE '"--[a-z-]+"' "$1"/src/daemon/efsd.cpp | tr -d '"' | sort -u; }
daemon_manual() { sed -e 's/\\-/-/g' "$1" | awk '/^\.SH /{inside = ($2 == "OPTIONS")} inside && term {if (match($0, /--[a-z-]+/)) print substr($0, RSTART, RLENGTH)} {term = ($0 == ".TP")}' | sort -u; }
events() { grep -rohE 'event=[a-z_]+' "$1"/src "$1"/backends --include='*.cpp' | cut -d= -f2 | sort -u; }
manual_events() { awk '/^\.SH /{inside = ($2 == "LOG")} inside && term {print} {term = ($0 == ".TP")}' "$1" | sed 's/ "\? *(.*//; s/"[^"]*(.*//' | grep -oE '[a-z_]{4,}' | sort -u; }
# States: of the daemon; those that efs gives or compares, of an instance or of a node of a batch job; those that the
# plugin publishes. However the lines are broken.
states() { python3 -SE - "$1" <<'PYTHON'
import pathlib, re, sys
def text(pattern): return "\n".join(p.read_text() for p in sorted(pathlib.Path(sys.argv[1]).glob(pattern)))
word = r'"([a-z-]+)"'
cli, plugin = text("src/cli/*.cpp"), text("slurm-plugin/*.c")
found = set(re.findall(r'case State::\w+:\s*return ' + word, text("src/daemon/*.cpp")))
for given in re.findall(r'(?:\{\s*"state"\s*,|\["state"\]\s*=)([^,;{}]*)[;}]', cli):
    found.update(re.findall(word, given))
found.update(re.findall(r'\bstate\s*[!=]=\s*' + word, cli))
found.update(re.findall(r'value\(\s*"state"\s*,\s*""\s*\)\s*[!=]=\s*' + word, cli))
found.update(re.findall(r'\.state\s*=\s*' + word, cli))
found.update(re.findall(r'\?\s*' + word + r'\s*:\s*shown\(s\.state\)', cli))
name = r'\s*&?[\w>-]+\s*,'
found.update(re.findall(r'\b(?:efs_publish|efs_publish_more|publish|settle)\(' + name + name + r'\s*' + word, plugin))
found.update(re.findall(r'\bend_as\(' + name + name + r'\s*"[a-z-]+"\s*,\s*' + word, plugin))
print("\n".join(sorted(found)))
PYTHON
}
manual_states() { sed 's/\\-/-/g' "$1" | awk '/^\.SH /{inside = ($2 == "STATES")} inside && term && /^\.BR? /{print $2} {term = ($0 == ".TP")}' | sort -u; }
same() { local d; d=$(diff <(printf '%s\n' "$1") <(printf '%s\n' "$2")); [ -z "$d" ] || { echo "$d" | grep '^[<>]'; return 1; }; }
nothing() { [ -z "$1" ] || { echo "$1"; return 1; }; }

page=$SOURCE/man/efs.1 daemon=$SOURCE/man/efsd.8
# --- the checks can fail ---
check 'there are verbs' test "$(verbs | wc -l)" -ge 6
check 'there are options' test "$(man_options "$page" | wc -l)" -ge 40
sed 's/^\.B \\-\\-no\\-stage\\-out/.B \\-\\-nostageout/' "$page" >"$S/page"
check 'an option that the page does not have is found' grep -q 'stop --help alone has --no-stage-out' <<<"$(differences "$S/page")"
check 'an option that the help does not have is found' grep -q 'alone has, for stop, --nostageout' <<<"$(differences "$S/page")"
sed '/^\.SH VERBS/,/^\.SH OPTIONS/s/^\.B stop$/.B halt/' "$page" >"$S/page"
check 'a verb without an entry is found' grep -q 'no entry for stop' <<<"$(missing_verbs "$S/page")"
sed 's/^\.BR staged_in /.BR staged_into /' "$daemon" >"$S/page"
sed 's/^\.B unsaved$/.B saved/' "$page" >"$S/page1"
check_not 'a state that the page does not have is found' same "$(states "$SOURCE")" "$(manual_states "$S/page1")"
sed '/^\.B given\\-up$/,/^\.TP/d' "$page" >"$S/page2"
check_not 'nor one of a batch job' same "$(states "$SOURCE")" "$(manual_states "$S/page2")"
mkdir -p "$S/tree/src/cli" "$S/tree/slurm-plugin"
printf 'publish(site,\n    job,\n "one-more", text);' >"$S/tree/slurm-plugin/watch.c"
printf 'record["state"] =\n  lost ? "another"\n : "third";\nreturn {.name = name, .state =\n "fourth"};' >"$S/tree/src/cli/status.cpp"
check 'states are found however the lines are broken' same $'another\nfourth\none-more\nthird' "$(states "$S/tree")"
check_not 'an event that the page does not have is found' same "$(events "$SOURCE")" "$(manual_events "$S/page")"

# --- the manual ---
check 'every verb has its entry' nothing "$(missing_verbs "$page")"
check 'efs(1) and --help have the same options' nothing "$(differences "$page")"
check 'efs(1) has every state' same "$(states "$SOURCE")" "$(manual_states "$page")"
check 'there are states' test "$(states "$SOURCE" | wc -l)" -ge 18
check 'efsd(8) and efsd have the same options' same "$(daemon_options "$SOURCE")" "$(daemon_manual "$daemon")"
check 'efsd(8) has every event of the log, and no other' same "$(events "$SOURCE")" "$(manual_events "$daemon")"
if command -v man >/dev/null; then
  for file in "$SOURCE"/man/*.[1-9]; do
    check "$(basename "$file") is clean" nothing "$(MANWIDTH=100 MANROFFSEQ='' man --warnings -E UTF-8 -l -Tutf8 -Z "$file" 2>&1 >/dev/null)"
    for other in $(sed -n '/^\.SH SEE ALSO/,$s/^\.BR \(efs[a-z-]*\|spank_efs\) (\([0-9]\)).*/\1.\2/p' "$file"); do check "$(basename "$file"): $other exists" test -e "$SOURCE/man/$other"; done
  done
else skip 'pages are clean' 'no man here'; fi
finish
