#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# libefs-objects in other languages and vocabularies: small programs against the installed library and
# headers. Without a compiler a part is skipped. objects_mpi_test.sh has MPI.
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
echo '#include <efs_objects.hpp>
void f(eo::Store& store, eo::View<double>& view) { store.protect("v", view); }' >"$S/view.cpp"
check_exit 'a view cannot be protected' 1 'restore\(\) writes to the memory' "$CXX" -std=c++17 "-I$include" -fsyntax-only "$S/view.cpp"

# --- Fortran ---
FC=${FC:-gfortran}
PYTHON=$(numpy_python)
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

# --- pMEMCPY's vocabulary, without MPI ---
check 'pmemcpy.h needs no MPI' "$CXX" -std=c++17 -DPMEMCPY_NO_MPI "${strict[@]}" "$SOURCE/tests/cli/objects_pmemcpy_check.cpp" -o "$S/pmemcpy" "${libraries[@]}"
check_exit 'its calls do what they promise' 0 '^done$' "$S/pmemcpy" "$S/store-pmemcpy"
check 'its arrays are published' test -s "$S/store-pmemcpy/M.npy" -a -s "$S/store-pmemcpy/last.npy"
check_exit 'a draft that cannot be published is reported' 0 'pmemcpy: cannot publish last' "$S/pmemcpy" "$S/store-lost" lose
talk=$SOURCE/tests/cli/objects_pmemcpy_talk.cpp
counted=$(python3 -S - "$talk" <<'END'
import re, sys
lines = [line for line in open(sys.argv[1]) if line.strip() and not line.startswith("//")]
token = r'(?<=include )<[^>]*>|"[^"]*"|\w+|::|[^\w\s]'
print(len(lines), sum(len(re.findall(token, line)) for line in lines))
END
)
check "the program of pMEMCPY's talk has 16 lines and at most 132 tokens ($counted)" test "${counted% *}" = 16 -a "${counted#* }" -le 132

# --- Phoenix's vocabulary ---
phoenix() { PHOENIX_STORE=$S/store-phoenix "$@"; }
check 'phoenix.h is C99' "$CC" -std=c99 -D_GNU_SOURCE "${strict[@]}" "$SOURCE/tests/cli/objects_phoenix_check.c" -o "$S/phoenix" "${libraries[@]}"
check 'and C++' "$CXX" -std=c++11 "${strict[@]}" -x c++ "$SOURCE/tests/cli/objects_phoenix_check.c" -x none -o "$S/phoenix++" "${libraries[@]}"
check_exit 'three commits' 0 '^done$' phoenix "$S/phoenix"
check_exit 'another program restores the last one' 0 '^done$' phoenix "$S/phoenix++" 3
check_exit 'and the next restores its commit' 0 '^done$' phoenix "$S/phoenix" 4
check 'versioning keeps two' test "$(ls "$S/store-phoenix/phoenix" | tr '\n' ' ')" = '00000004 00000005 '
check_exit 'the only good commit stays until a new one is in its place' 0 '^done$' env PHOENIX_STORE="$S/store-damaged" "$S/phoenix" damaged
if [ "$(id -u)" = 0 ]; then
  check_exit 'old commits that cannot be removed for a time' 0 '^done$' env PHOENIX_STORE="$S/store-locked" "$S/phoenix" locked
else skip 'commits of another user' 'needs root'; fi

finish
