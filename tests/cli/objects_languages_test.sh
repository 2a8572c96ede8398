#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# libefs-objects in other languages and vocabularies: small programs against the installed library and
# headers. Without a compiler or MPI a part is skipped.
#   objects_languages_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

check 'install' cmake --install "$BIN/.." --prefix "$S/prefix"
include=$S/prefix/include
library=$(find "$S/prefix" -name 'libefs-objects.so')
check 'the library is installed' test -s "$library"
libraries=(-L"${library%/*}" -lefs-objects)
export LD_LIBRARY_PATH=${library%/*}
CXX=${CXX:-c++} CC=${CC:-cc}
strict=(-Wall -Wextra -Wpedantic -Wshadow -Werror "-I$include")
# knows COMPILER STANDARD: the compiler is there and knows the standard
knows() { echo 'int main() {}' | "$1" -std="$2" -fsyntax-only -x "${3:-c++}" - 2>/dev/null; }

# --- C++: each standard that the compiler knows ---
check_cpp() {  # check_cpp COMPILER STANDARD FLAG...
  local program=$S/cpp-$1-$2 store=$S/store-$1-$2 compiler=$1 standard=$2; shift 2
  check "efs_objects.hpp is $standard ($compiler)" "$compiler" -std="$standard" "$@" "${strict[@]}" \
    "$SOURCE/tests/cli/objects_languages_check.cpp" -o "$program" "${libraries[@]}" || return
  check_exit "and its classes do what they promise ($compiler, $standard)" 0 '^turned$' "$program" "$store"
  check 'no draft is left' test -z "$(find "$store" -name '*.part')"
}
for standard in c++17 c++23; do
  if knows "$CXX" $standard; then check_cpp "$CXX" $standard; else skip "C++ ($standard)" "$CXX does not know it"; fi
done
grep -q '^mdspan$' <<<"$said" || skip 'a real std::mdspan' "the library of $CXX has none; a type with its members is tested"

# --- Fortran ---
FC=${FC:-gfortran}
PYTHON=${EFS_NUMPY_PYTHON:-python3}
source=$(find "$S/prefix" -name efs_objects.f90)
check 'the Fortran module is installed' test -s "$source"
check 'the documents say how to compile it' grep -q "gfortran .*${source#"$S/prefix/"}" "$SOURCE/docs/objects.md"
if command -v "$FC" >/dev/null; then
  check 'the Fortran module compiles' sh -c 'cd "$1" && shift && "$@"' _ "$S" \
    "$FC" -std=f2018 -Wall -Wextra -Wno-compare-reals -Werror -pedantic "$source" "$SOURCE/tests/cli/objects_languages_check.f90" -o "$S/fortran" "${libraries[@]}"
  check_exit 'and its calls do what they promise' 0 '^done$' "$S/fortran" "$S/store-fortran"
  check_exit 'a call without error= stops the program' 1 'cannot remove nosuch' "$S/fortran" "$S/store-stops" and-stop
  check 'its arrays are in Fortran order' grep -qa "'fortran_order': True, 'shape': (2, 3, 4)" "$S/store-fortran/b.npy"
  if "$PYTHON" -c 'import numpy' 2>/dev/null; then
    check 'NumPy has the same indices' "$PYTHON" -c 'import numpy, sys
b = numpy.load(sys.argv[1] + "/b.npy")
assert b[1, 1, 2] == 4 and b.flags.f_contiguous and numpy.load(sys.argv[1] + "/d.npy") == 2**63 - 1' "$S/store-fortran"
  else skip 'NumPy beside Fortran' "$PYTHON has no numpy; EFS_NUMPY_PYTHON names another Python"; fi
else skip 'Fortran' "$FC is not installed"; fi
finish
