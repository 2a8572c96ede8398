#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# man/efs-consistency.7 and the tests agree: a marker behind each sentence with a promise names the
# test that shows it, and each named test exists.
#   consistency_page_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

# Prints the sentences of the sections with promises, one per line of the page, that no marker
# follows.
unproven() {
  awk '
    function due() { if (sentence != "") print "not tested: " sentence; sentence = "" }
    /^\.SH / { due(); promises = /THE PROMISE|HAS TO SYNC|IS VERIFIED/; next }
    !promises { next }
    /^\.\\"tested [^ ]+ \047/ { sentence = ""; begun = ""; next }
    /^\.\\"/ { next }
    /^\.(SS|PP|TP|IP)/ { due(); begun = ""; tag = /^\.TP/; next }
    { due() }
    tag { tag = 0; next }
    /[a-z)]\. [A-Z]/ { print "two sentences in a line: " $0 }
    { begun = begun (begun == "" ? "" : " ") $0 }
    /\.$/ { sentence = begun; begun = "" }
    END { due() }' "$1"
}

# missing PAGE [SOURCES]: prints the names in markers that do not exist: a test case, a check of a
# script (or a whole line of it), or a line of another file of the tests.
missing() { python3 - "$1" "${2:-$SOURCE}" <<'END'
import functools, os, re, sys
page, sources = sys.argv[1:]

@functools.cache
def lines(path, comment):
    return [line for line in open(path).read().splitlines() if not line.lstrip(" ").startswith(comment)]

# The text of a C++ file, with adjacent string literals joined: a long name takes several lines.
@functools.cache
def joined(path): return re.sub(r"TEST_CASE\(\s+", "TEST_CASE(", re.sub(r'"\s*\n\s*"', "", open(path).read()))

def has(path, name):
    if path.endswith("_test.cpp"): return f'TEST_CASE("{name}' in joined(path)
    if path.endswith("_test.sh"): return any(f"'{name}'" in line or f'"{name}"' in line or line.strip() == name for line in lines(path, "#"))
    return any(name in line for line in lines(path, "//"))

for line in open(page):
    if not line.startswith('.\\"tested '): continue
    file, _, rest = line[len('.\\"tested '):].rstrip("\n").partition(" ")
    names = re.findall("'([^']+)'", rest)
    if not names or re.sub("'[^']+'", "", rest).strip(): print(f"{file} {rest}: badly written")
    if not os.path.isfile(f"{sources}/{file}"): print(f"no file {file}")
    else:
        for name in names:
            if not has(f"{sources}/{file}", name): print(f"{file} has no '{name}'")
END
}
nothing() { local said; said=$("$@"); [ -z "$said" ] || { echo "$said"; return 1; }; }

page=$SOURCE/man/efs-consistency.7
# --- the checks can fail ---
for marker in $(grep -n '^\.\\"tested' "$page" | cut -d: -f1 | sed -n '1p;10p;$p'); do
  sed "$marker s/tested [^ ]*/tested tests\/none_test.sh/" "$page" >"$S/page"
  check "a test that is not there is found (line $marker)" grep -qx 'no file tests/none_test.sh' <<<"$(missing "$S/page")"
  sed "$marker s/'[^']*'/'none such'/" "$page" >"$S/page"
  check "a name that is not there is found (line $marker)" grep -q "has no 'none such'" <<<"$(missing "$S/page")"
done
# Every marker counts, unless two follow one sentence.
awk '/^\.\\"tested/ { if (!behind) print NR; behind = 1; next } { behind = 0 }' "$page" >"$S/markers"
first=$(grep -n '^\.SH NO PROMISE' "$page" | cut -d: -f1)
unnoticed=
while read -r line; do
  [ "$line" -lt "$first" ] || break
  awk -v from="$line" 'NR < from || passed { print; next } /^\.\\"tested/ { next } { passed = 1; print }' "$page" >"$S/page"
  [ -n "$(unproven "$S/page")" ] || unnoticed+=" $line"
done <"$S/markers"
check "a sentence without a test is found, whichever it is$unnoticed" test -z "$unnoticed"
sed "s/^Names, attributes, and links are records with checksums\.$/& They never fail./" "$page" >"$S/page"
check 'a sentence that hides behind another is found' grep -q 'two sentences in a line' <<<"$(unproven "$S/page")"
printf '.\\"tested tests/cli/life_test.sh nothing\n' | cat "$page" - >"$S/page"
check 'a marker without a name is found' grep -qx 'tests/cli/life_test.sh nothing: badly written' <<<"$(missing "$S/page")"
mkdir "$S/tests" && printf "# check 'in a comment'\ncheck 'for real' true\n" >"$S/tests/one_test.sh"
printf '// in a comment\nREQUIRE(run("in an argument"));\nTEST_CASE("for real") {\n' >"$S/tests/one_test.cpp"
for file in one_test.sh one_test.cpp; do
  printf '.\\"tested tests/%s '"'in a comment' 'in an argument' 'for real'"'\n' "$file" >"$S/page"
  printf "tests/$file has no '%s'\n" 'in a comment' 'in an argument' >"$S/expected"
  check "a name in a comment or an argument is none ($file)" cmp "$S/expected" <(missing "$S/page" "$S")
done

# --- the page ---
check 'there are promises' test "$(wc -l <"$S/markers")" -gt 35
check 'behind every sentence that promises stands its test' nothing unproven "$page"
check 'every test that the page names exists' nothing missing "$page"
for kind in 'The worker dies' 'The supervisor dies' 'a tmpfs' 'page cache' 'MAP_SYNC' 'mapping' 'fsync'; do check "the page speaks of $kind" grep -qF "$kind" "$page"; done
finish
