#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Every C and C++ file of the tree has the format of clang-format.
#   format_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
formatter=$(command -v clang-format-19) || { skip 'format of the sources' 'clang-format 19 is not installed'; finish; exit; }

sources() { find "$1" \( -name '.git' -o -name 'build*' \) -prune -o \( -name '*.[ch]pp' -o -name '*.[ch]' \) -type f -print0; }
# unformatted TREE: prints each file that clang-format would change. (Its --dry-run also reports changes to the same text.)
unformatted() {
  sources "$1" | xargs -0 -n 40 -P 2 bash -c '
    for file in "${@:3}"; do "$1" --style="file:$2" "$file" | cmp -s - "$file" || echo "$file"; done' _ \
    "$formatter" "$SOURCE/.clang-format" | sort
}

mkdir -p "$S/tree"
printf 'int main() {\n  if (true) return 1;\n  return 0;\n}\n' >"$S/tree/bad.cpp"
printf 'int main() {\n  return 0;\n}\n' >"$S/tree/good.hpp"
check 'a file of another format is found' test "$(unformatted "$S/tree")" = "$S/tree/bad.cpp"
check 'there are files to look at' test "$(sources "$SOURCE" | tr '\0' '\n' | wc -l)" -gt 400
comma() { grep -rnE --include='*.[ch]pp' 'return [^;{]*\), (true|false|nullptr|std::nullopt|[A-Za-z]*\{\});$' "$@"; }
echo '  return f(), true;' >"$S/tree/comma.cpp"
check 'a return that does something else first is found' comma "$S/tree"
check_not 'there is none' comma "$SOURCE/src" "$SOURCE/backends"
bad=$(unformatted "$SOURCE")
[ -z "$bad" ] || echo "$bad"
check 'all files have the format of .clang-format' test -z "$bad"
finish
