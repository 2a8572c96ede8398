#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# man/efs-posix.7 and the tests agree: each case that the page names exists, each case is named, and
# the declared differences are the page's exceptions.
#   posix_page_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
parity=$BIN/efs-parity
[ -x "$parity" ] || { fail 'efs-parity is built' "$parity is not there"; finish; }
"$parity" --list | cut -d' ' -f1 | sort >"$S/cases"

# Prints the words behind a marker, one per line.
named() { sed -n "s/^\.\\\\\"$2 //p" "$1" | tr ' ' '\n' | grep .; }
# Prints the exceptions: the names before the first bracket in the tags of that section.
exceptions() { sed -n '/^\.SH EXCEPTIONS/,/^\.SH SEE/p' "$1" | sed -n 's/^\([a-z0-9\\, -]*\) (\(both\|daemon\|passthrough\|writeback\)\(, on ext4\)\{0,1\})$/\1/p' | tr -d '\\' | tr ',' '\n' | tr -d ' ' | sort -u; }
differences() { sed -n 's/^\([^#:]*\): .*/\1/p' "$1"/tests/mount/expect-*.txt | sort -u; }

unknown_cases() {
  local pattern one
  while read -r pattern; do
    one=; while read -r name; do case $name in $pattern) one=yes; break ;; esac; done <"$S/cases"
    [ -n "$one" ] || echo "no case $pattern"
  done < <(named "$1" cases)
}
unnamed_cases() {
  local name pattern found; mapfile -t patterns < <(named "$1" cases)
  while read -r name; do
    found=; for pattern in "${patterns[@]}"; do case $name in $pattern) found=yes; break ;; esac; done
    [ -n "$found" ] || echo "$name is not named"
  done <"$S/cases"
}
unknown_tests() { local file; for file in $(named "$1" test); do [ -x "$SOURCE/$file" ] || echo "no test $file"; done; }
other_exceptions() { diff <(exceptions "$1") <(differences "$2") | grep '^[<>]'; }
nothing() { local said; said=$("$@"); [ -z "$said" ] || { echo "$said"; return 1; }; }

page=$SOURCE/man/efs-posix.7
# --- the checks can fail ---
cp "$page" "$S/page"
printf '.\\"cases no-such-case\n.\\"test tests/none_test.sh\n' >>"$S/page"
check 'an unknown case is found' grep -qx 'no case no-such-case' <<<"$(unknown_cases "$S/page")"
check 'an unknown test is found' grep -qx 'no test tests/none_test.sh' <<<"$(unknown_tests "$S/page")"
grep -v 'cases acl-' "$page" >"$S/page"
check 'an unnamed case is found' grep -qx 'acl-set is not named' <<<"$(unnamed_cases "$S/page")"
sed '/^inode\\-flags (both)/d' "$page" >"$S/page"
check 'an undeclared difference is found' grep -qx '> inode-flags' <<<"$(other_exceptions "$S/page" "$SOURCE")"
sed 's/^inode\\-flags (both)/inode\\-flags, acl\\-set (both)/' "$page" >"$S/page"
check 'an exception that is none is found' grep -qx '< acl-set' <<<"$(other_exceptions "$S/page" "$SOURCE")"

# --- the tree ---
check 'there are cases' test "$(wc -l <"$S/cases")" -gt 200
check 'every case that the page names exists' nothing unknown_cases "$page"
check 'every test that the page names exists' nothing unknown_tests "$page"
check 'every case is named in the page' nothing unnamed_cases "$page"
check 'the exceptions are the declared differences' nothing other_exceptions "$page" "$SOURCE"
finish
