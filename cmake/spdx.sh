#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Puts the line of the licence at the head of each source, script and CMake file that has none.
#   cmake/spdx.sh [--check] [TREE]       --check: only names the files that have none
set -euo pipefail
check=
if [ "${1:-}" = --check ]; then check=1; shift; fi
cd "${1:-$(dirname "$0")/..}"
tag='SPDX-License-Identifier: BSD-3-Clause'

# line FILE: the line as a comment of its language; fails for other files
line() {
  case $1 in
    *.cpp | *.hpp) echo "// $tag" ;;
    *.c | *.h) echo "/* $tag */" ;;
    *.sh | *.py | *.bash | *.cmake | *CMakeLists.txt | *Makefile) echo "# $tag" ;;
    *.* | *LICENSE) return 1 ;;
    *) head -c 2 "$1" | grep -q '#!' && echo "# $tag" ;;
  esac
}
files() {
  if git rev-parse --git-dir >/dev/null 2>&1; then git ls-files -co --exclude-standard
  else find . \( -name .git -o -name 'build*' \) -prune -o -type f -printf '%P\n'; fi
}
while IFS= read -r file; do
  [ -f "$file" ] && [ ! -L "$file" ] && text=$(line "$file") || continue
  if head -n 3 "$file" | grep -qF "$tag"; then continue; fi
  if [ -n "$check" ]; then echo "$file"; continue; fi
  if head -c 2 "$file" | grep -q '#!'; then sed -i "1a $text" "$file"
  elif [ -s "$file" ]; then sed -i "1i $text" "$file"
  else echo "$text" >"$file"; fi
done < <(files)
