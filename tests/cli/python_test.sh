#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The Python package efs: tests/python with each Python from 3.9 on that has NumPy; the installed package.
#   python_test.sh BIN_DIR
# EFS_NUMPY_PYTHON names one more Python, EFS_PYTHONS a list of them.
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

export PYTHONDONTWRITEBYTECODE=1
unset PYTHONPATH
library=$(find "$BIN/../lib" -name libefs-objects.so.1)
check 'the library is built' test -e "$library"
usable() { "$1" -c 'import sys, numpy; sys.exit(sys.version_info < (3, 9))' 2>/dev/null; }
# The Pythons with NumPy, one for each minor version.
pythons() {
  local python minor seen=
  for python in ${EFS_NUMPY_PYTHON:-} ${EFS_PYTHONS:-} python3 /usr/bin/python3 "$HOME"/.pyenv/versions/3.*/bin/python3; do
    minor=$("$python" -c 'import sys; print("%d.%d" % sys.version_info[:2])' 2>/dev/null) || continue
    [[ " $seen " != *" $minor "* ]] && usable "$python" || continue
    seen+=" $minor"; echo "$python"
  done
}
found=$(pythons)
small=()
if [ "$(id -u)" = 0 ]; then
  mkdir "$S/small"
  small=("$SOURCE/tests/own_mounts.py" sh -c 'mount -t tmpfs -o size=2m,mode=755 small "$EFS_TEST_SMALL" && exec "$@"' sh)
  export EFS_TEST_SMALL=$S/small
fi
count() {  # count NAME OUTPUT: each case counts
  local good bad left
  check "tests/python has cases for $1" grep -qE '^[1-9][0-9]* passed' <<<"$2"
  read -r good bad left < <(grep -E '^[0-9]+ passed' <<<"$2" | tail -n 1 | tr -cd '0-9 \n')
  passed=$((passed + ${good:-0})) skipped=$((skipped + ${left:-0}))
  grep -E '^SKIP ' <<<"$2"
  [ "${bad:-1}" = 0 ] || { fail "tests/python: $1" "$(grep -vE '^(SKIP|FAIL) ' <<<"$2" | tail -n 20)"; grep -E '^FAIL ' <<<"$2"; }
}
run=$SOURCE/tests/python/run.py
for python in $found; do
  count "$("$python" --version)" "$(EFS_OBJECTS_LIBRARY=$library PYTHONPATH=$SOURCE/python EFS_TEST_DIRECTORY=$S ${small[@]+"${small[@]}"} "$python" "$run" 2>&1)"
done
[ -n "$found" ] || skip 'the cases of tests/python' 'no Python from 3.9 on has numpy; EFS_NUMPY_PYTHON names one'

# --- on mounts: mappings, hard links and exchanged directories ---
for python in $(head -n 1 <<<"$found"); do
  for options in '' daemon-io; do
    CAPACITY='512 MiB' fresh "python$options" 'outputs: [ [ path: "**", flags: temporary ] ]'
    count "a mount ($options)" "$(EFS_OBJECTS_LIBRARY=$library PYTHONPATH=$SOURCE/python "$EFS" run ${options:+-o $options} "$JOB" -- sh -c 'EFS_TEST_DIRECTORY=$EFS_MOUNT "$@"' sh "$python" "$run" '[dp]*_test.py' 2>&1)"
  done
done

# --- installed ---
check 'install' cmake --install "$BIN/.." --prefix "$S/prefix"
package=$(find "$S/prefix" -type d -path '*/dist-packages/efs')
check 'the package is installed, with its types' test -s "$package/__init__.py" -a -e "$package/py.typed"
for python in $(head -n 1 <<<"$found"); do
  check 'it finds the library of its prefix' env PYTHONPATH="${package%/efs}" "$python" -c '
import sys, efs
assert efs.__file__.startswith(sys.argv[1]), efs.__file__
efs.Store(sys.argv[1] + "/store")["a"] = [1, 2]
assert sys.argv[1] + "/lib" in open("/proc/self/maps").read()' "$S/prefix"
done
finish
