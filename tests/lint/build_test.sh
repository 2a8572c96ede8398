#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The build knows every source and every test, and the table of locks every mutex. Every check is first shown to find what it
# looks for, in a copy with a planted violation.
#   build_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

# copy DIRECTORY: the files of the tree that the checks read
copy() {
  mkdir -p "$1" && (cd "$SOURCE" && tar cf - CMakeLists.txt cmake src backends objects slurm-plugin tests bench docs) | tar xf - -C "$1"
}
# lists TREE: the lists as they are there
lists() { (cd "$1" && find . \( -name sources.cmake -o -name parts.list \) -print0 | sort -z | xargs -0 cat); }
# stale_lists TREE: what cmake/list_sources.sh would change in a copy
stale_lists() {
  rm -rf "$S/lists" && mkdir "$S/lists" && (cd "$1" && tar cf - cmake src backends objects slurm-plugin tests) | tar xf - -C "$S/lists" &&
    "$S/lists/cmake/list_sources.sh" && diff <(lists "$1") <(lists "$S/lists") | grep '^[<>]'
}
# unnamed TREE: sources that no list names and no CMakeLists.txt does
unnamed() {
  local file
  (cd "$1" && find src backends objects slurm-plugin tests bench \( -name '*.cpp' -o -name '*.c' \) ! -path 'tests/fuzz/*' ! -name intercept_mpi.c ! -path 'tests/cli/*' ! -path 'tests/slurm/*' ! -path 'bench/peers/*' | sort) | while read -r file; do
    grep -qwF "$(basename "$file")" "$1"/CMakeLists.txt "$1"/{tests,slurm-plugin}/CMakeLists.txt $(find "$1" -name sources.cmake) || echo "$file"
  done
}
# without_licence TREE: files without the line of the licence
without_licence() { "$SOURCE/cmake/spdx.sh" --check "$1"; }
globs() { grep -nE 'GLOB' "$1"/CMakeLists.txt "$1"/{tests,slurm-plugin}/CMakeLists.txt; }
locks() { "$SOURCE/tests/lint/locks.py" "$1"; }
nothing() { [ -z "$1" ] || { echo "$1"; return 1; }; }

# --- the checks can fail ---
copy "$S/copy"
touch "$S/copy/src/base/planted.cpp"
check 'a source that is in no list is found' grep -q '^>   planted.cpp' <<<"$(stale_lists "$S/copy")"
rm "$S/copy/src/base/planted.cpp"
touch "$S/copy/tests/cli/planted_test.sh"
check 'a test that is in no list is found' grep -q '^> cli planted' <<<"$(stale_lists "$S/copy")"
rm "$S/copy/tests/cli/planted_test.sh"
touch "$S/copy/tests/takeover/planted.cpp"
check 'a source of no target is found' grep -q 'planted.cpp' <<<"$(unnamed "$S/copy")"
echo 'file(GLOB sources *.cpp)' >>"$S/copy/CMakeLists.txt"
check 'a glob is found' grep -q GLOB <<<"$(globs "$S/copy")"
printf 'class Planted {\n  Mutex mutex_;  // rank 90 (leaf)\n  Mutex other_;\n};\n' >"$S/copy/src/base/planted.hpp"
check 'a mutex that the table lacks is found' grep -q 'Planted::mutex_ has rank 90' <<<"$(locks "$S/copy")"
check 'a mutex without a rank is found' grep -q 'Planted::other_ says no rank' <<<"$(locks "$S/copy")"

check 'a file without the line of the licence is found' grep -q 'src/base/planted.hpp' <<<"$(without_licence "$S/copy")"

# --- the tree ---
check 'there are sources' test "$(cat "$SOURCE"/src/*/sources.cmake | grep -c '\.cpp$')" -gt 200
check 'the lists are those of the tree (cmake/list_sources.sh)' nothing "$(stale_lists "$SOURCE")"
check 'each source belongs to a target' nothing "$(unnamed "$SOURCE")"
check 'each file has the line of the licence (cmake/spdx.sh)' nothing "$(without_licence "$SOURCE")"
check 'no list is a glob' nothing "$(globs "$SOURCE")"
check 'docs/dev/locks.md has every mutex with its rank' nothing "$(locks "$SOURCE")"
if command -v ctest >/dev/null && [ -e "$BIN/../tests/CTestTestfile.cmake" ]; then
  known=$(ctest --test-dir "$BIN/.." -N | sed -n 's/^ *Test *#[0-9]*: //p' | sort)
  check 'ctest has the parts of run-all.sh' test "$known" = "$(sed -n '/^[a-z]/s/ /./p' "$SOURCE/tests/parts.list" | sort)"
else skip 'ctest' 'no ctest, or a build without tests'; fi
finish
