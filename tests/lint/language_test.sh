#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Comments, manual pages and documents name their actors (docs/dev/style.md): at most 3 sentences of 1,000 are marked.
#   language_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

# marked TREE: "SENTENCES MARKED"
marked() { python3 -S "$SOURCE/tests/lint/language.py" "$1" | tail -n 1; }

mkdir -p "$S/tree/man"
cat >"$S/tree/one.hpp" <<'END'
// The worker answers at once. Whoever asks must wait.
int one;  // nobody reads this
END
printf '.SH NAME\nThe page tells him nothing of use.\nThe worker answers at once.\n' >"$S/tree/man/one.1"
printf 'Of these there are many. The kernel asks.\n\n```\nwho is he of them\n```\n' >"$S/tree/one.md"
check 'marked sentences of comments, pages and documents are counted' test "$(marked "$S/tree")" = '7 4'
read -r sentences found < <(marked "$SOURCE")
check 'there are sentences to look at' test "$sentences" -gt 10000
check "at most 3 sentences of 1,000 are marked ($found of $sentences)" test $((found * 1000)) -le $((3 * sentences))
finish
