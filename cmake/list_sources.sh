#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Writes the lists that the build reads: sources.cmake of each layer, of the plugin and of the tests, and tests/parts.list, from
# which tests/run-all.sh and ctest have the parts of the tests. Run it after a source or a test script was added, renamed or
# removed. tests/lint/build_test.sh compares the lists with the tree.
#   cmake/list_sources.sh [TREE]
set -euo pipefail
cd "${1:-$(dirname "$0")/..}"

# write DIRECTORY [FIND_ARGUMENT...]: every .c and .cpp file below it, without main.cpp, as `set(sources ...)`.
write() {
  local directory=$1; shift
  {
    echo '# SPDX-License-Identifier: BSD-3-Clause'
    echo '# Made by cmake/list_sources.sh.'
    echo 'set(sources'
    (cd "$directory" && find . \( -name '*.cpp' -o -name '*.c' \) ! -name main.cpp "$@" -printf '  %P\n' | LC_ALL=C sort)
    echo ')'
  } >"$directory/sources.cmake.new"
  # A file that stays the same keeps its time: CMake does not run again.
  if cmp -s "$directory/sources.cmake.new" "$directory/sources.cmake"; then rm "$directory/sources.cmake.new"
  else mv "$directory/sources.cmake.new" "$directory/sources.cmake"; fi
}

for layer in base config store ledger fs fuse stage control queue image report record intercept daemon cli; do write "src/$layer"; done
write backends
write objects
write slurm-plugin
for part in unit model crash fault; do write "tests/$part" ! -path './slurm-plugin/*'; done
write tests/support -name '*.cpp'
write tests/mount ! -path './intercept_random/*' ! -name intercept_mpi.c

# LABEL PART: what tests/run-all.sh calls one by one.
{
  echo '# Made by cmake/list_sources.sh.'
  printf '%s\n' 'unit plain' 'address sanitizer' 'address killed' 'thread sanitizer' 'fuzz fuzzing'
  for label in slurm cli mount lint package; do
    for script in tests/"$label"/*_test.sh; do [ ! -e "$script" ] || echo "$label $(basename "$script" _test.sh)"; done
  done
  for script in tests/soak/*.sh; do echo "soak $(basename "$script" .sh)"; done
} >tests/parts.list
