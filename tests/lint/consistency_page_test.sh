#!/bin/bash
# man/efs-consistency.7 and the tests say the same: behind each sentence that promises something stands which test shows it,
# and each test that is named is there.
#   consistency_page_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

# The sentences of the sections that promise, one per line of the page, that no marker follows.
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

# named PAGE: "FILE<tab>NAME" of every marker.
named() {
  sed -n 's/^\.\\"tested //p' "$1" | python3 -c '
import re, sys
for line in sys.stdin:
    file, _, rest = line.partition(" ")
    names = re.findall(r"\047([^\047]+)\047", rest)
    for name in names: print(file + "\t" + name)
    if not names or re.sub(r"\047[^\047]+\047", "", rest).strip(): print(line.strip() + "\tbadly written")'
}

# has FILE NAME: a test case, a check of a script (or a whole line of it), or a line of another file of the tests.
has() {
  case $1 in
    *_test.cpp) grep -qF "TEST_CASE(\"$2" "$1" ;;
    *_test.sh) grep -v '^ *#' "$1" | python3 -c '
import sys
name = sys.argv[1]
sys.exit(not any("\047" + name + "\047" in line or "\"" + name + "\"" in line or line.strip() == name for line in sys.stdin))' "$2" ;;
    *) grep -v '^ *//' "$1" | grep -F -- "$2" >/dev/null ;;
  esac
}
missing() {
  local file name
  while IFS=$'\t' read -r file name; do
    if [ ! -f "$SOURCE/$file" ]; then echo "no file $file"; else has "$SOURCE/$file" "$name" || echo "$file has no '$name'"; fi
  done < <(named "$1")
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
# Every marker counts, but where two follow one sentence.
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
check 'a marker without a name is found' grep -qx 'no file tests/cli/life_test.sh nothing' <<<"$(missing "$S/page")"
sed 's/^TEST_CASE("power loss/TEST_CASE("/' "$SOURCE/tests/crash/crash_test.cpp" >"$S/crash_test.cpp"
check_not 'a name in a comment or an argument is none' has "$S/crash_test.cpp" 'power loss in random sequences'

# --- the page ---
check 'there are promises' test "$(wc -l <"$S/markers")" -gt 35
check 'behind every sentence that promises stands its test' nothing unproven "$page"
check 'every test that the page names exists' nothing missing "$page"
for kind in 'The worker dies' 'The supervisor dies' 'a tmpfs' 'page cache' 'MAP_SYNC' 'mapping' 'fsync'; do check "the page speaks of $kind" grep -qF "$kind" "$page"; done
finish
