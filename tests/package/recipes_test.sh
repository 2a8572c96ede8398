#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The recipes for Spack and for an OCI image agree with the build: names of libraries, options, files.
# Neither Spack nor a builder of images runs here.
#   recipes_test.sh BUILD_DIR
set -uo pipefail
build=$(cd "${1:?usage: $0 BUILD_DIR}" && pwd)
. "$(dirname "$0")/../cli/lib.sh" "$build/bin"

# --- Spack ---
recipe=$SOURCE/conf/spack/package.py
told=$("$SOURCE/tests/package/spack.py" "$recipe" 2>&1) && ok || fail 'Python reads the recipe' "$told"
sed 's/variant(/varying(/' "$recipe" >"$S/package.py"
check_not 'a directive that Spack does not have is found' "$SOURCE/tests/package/spack.py" "$S/package.py"
# libraries: what the build looks for, by the names of Spack
libraries() {
  sed -nE 's/^(find_package|pkg_check_modules)\(([A-Za-z0-9_-]+).*/\2/p' "$SOURCE/cmake/dependencies.cmake" | grep -vxE 'PkgConfig|Threads' |
    sed 's/^pmem$/pmdk/; s/^fuse3$/libfuse/; s/_/-/' | tr '[:upper:]' '[:lower:]' | sort
}
check 'the build needs libraries' test "$(libraries | wc -l)" -ge 6
check 'the recipe has each of them, and no other' test "$(sed -n 's/^dependency \([a-z0-9-]*\).*/\1/p' <<<"$told" | sort)" = "$(libraries)"
oldest=$(sed -n 's/.*fuse3>=\([0-9.]*\).*/\1/p' "$SOURCE/cmake/dependencies.cmake")
check 'with the oldest libfuse that the build accepts' grep -qx "dependency libfuse@$oldest:" <<<"$told"
cmake_version=$(sed -n 's/^cmake_minimum_required(VERSION \(.*\))/\1/p' "$SOURCE/CMakeLists.txt")
check 'and the oldest CMake' grep -q "\"cmake@$cmake_version:\"" "$recipe"
mapfile -t options < <(sed -n 's/^option //p' <<<"$told")
check 'CMake accepts its options' cmake -S "$SOURCE" -B "$S/spack" --no-warn-unused-cli "${options[@]}"
check 'and makes no tests and no plugin' test ! -e "$S/spack/tests" -a ! -e "$S/spack/slurm-plugin/CMakeFiles/spank_efs.dir"
for option in "${options[@]}"; do
  name=${option#-D}; name=${name%%:*}
  check "the build knows $name" grep -rqw "$name" "$SOURCE/CMakeLists.txt" "$SOURCE/cmake/dependencies.cmake" "$SOURCE/slurm-plugin/CMakeLists.txt"
done

# --- the image ---
image=$SOURCE/conf/oci/Containerfile
for option in $(grep -oE -e '--(build|preset [a-z]+)( |$)' "$image" | sort -u | sed 's/--//; s/preset //'); do
  check "the build has $option" grep -qE "\"name\": \"$option\"|--$option\b" "$SOURCE/CMakePresets.json" "$SOURCE/cmake/deps.sh"
done
for file in $(grep -oE '(cmake|conf|docs)/[A-Za-z./-]+[a-z]' "$image" | sort -u); do check "there is $file" test -e "$SOURCE/$file"; done
check 'deps.sh --build knows every package of the build' bash -c '! sed -n "/^build=(/,/)/p" "$0/cmake/deps.sh" | grep -E "clang|catch2|zsh"' "$SOURCE"
check 'no name of a registry is in it' bash -c "! grep -E '^(ARG BASE=|FROM )[^ ]*[.][^ ]*/' '$image'"
finish
