#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# No function is too long, has too many branches or too many parameters.
#   complexity_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
export PYTHONPATH=${EFS_PREFIX:-/opt/efs-deps}/python${PYTHONPATH:+:$PYTHONPATH}
python3 -c 'import lizard' 2>/dev/null || { skip 'complexity of the functions' "lizard is not installed: 'make deps' gets it"; finish; exit; }
count() { python3 "$SOURCE/tests/lint/complexity.py" "$@"; }

mkdir -p "$S/long" "$S/branches" "$S/parameters" "$S/many" "$S/good" "$S/none"
body() { for ((i = 0; i < $1; i++)); do echo "  if (a == $i) { ++a; }"; done; }
printf 'int f(int a) {\n%s\n  return a;\n}\n' "$(for i in $(seq 60); do echo '  ++a;'; done)" >"$S/long/f.cpp"
printf 'int f(int a) {\n%s\n  return a;\n}\n' "$(body 15)" >"$S/branches/f.cpp"
echo 'int f(int a, int b, int c, int d, int e, int g) { return a + b + c + d + e + g; }' >"$S/parameters/f.hpp"
printf 'int f(int a) {\n%s\n  return a;\n}\n' "$(body 10)" >"$S/many/f.cpp"
echo 'int f(int a) { return a; }' | tee "$S/good/f.cpp" >"$S/many/g.cpp"
check_exit 'a function that is too long' 1 '63 lines' count "$S/long"
check_exit 'one with too many branches' 1 '16 branches' count "$S/branches"
check_exit 'one with too many parameters' 1 '6 parameters' count "$S/parameters"
check_exit 'too many with many branches' 1 'more than 2%' count "$S/many"
check_exit 'no functions at all' 1 '^0 functions' count "$S/none"
check 'a good one' count "$S/good"
check 'the functions of the tree' count "$SOURCE/src" "$SOURCE/backends" "$SOURCE/objects" "$SOURCE/slurm-plugin"
count "$SOURCE/src" "$SOURCE/backends" "$SOURCE/objects" "$SOURCE/slurm-plugin" | tail -n 1
finish
