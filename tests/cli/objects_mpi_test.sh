#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# libefs-objects with MPI: the collective calls, and the vocabularies of pMEMCPY and Phoenix with
# several ranks, against the installed library and headers.
#   objects_mpi_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
MPICC=${MPICC:-mpicc} MPICXX=${MPICXX:-mpicxx} MPIRUN=${MPIRUN:-mpirun}
# A package that only runs programs of Open MPI has compilers that find no header.
for program in "$MPICC" "$MPICXX"; do
  "$program" -E -x c - <<<'#include <mpi.h>' >/dev/null 2>&1 || { skip 'MPI' "$program does not compile: make mpi-deps"; finish; }
done
command -v "$MPIRUN" >/dev/null || { skip 'MPI' "$MPIRUN is not installed: make mpi-deps"; finish; }

check 'install' cmake --install "$BIN/.." --prefix "$S/prefix"
include=$S/prefix/include
library=$(find "$S/prefix" -name 'libefs-objects.so')
libraries=(-L"${library%/*}" -lefs-objects)
export LD_LIBRARY_PATH=${library%/*}
# Open MPI's old C++ bindings have warnings.
strict=(-DOMPI_SKIP_MPICXX -Wall -Wextra -Wpedantic -Wshadow -Werror "-I$include")
talk=$SOURCE/tests/cli/objects_pmemcpy_talk.cpp
# As root, and with more ranks than processors.
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
run_ranks() { timeout 60 "$MPIRUN" -n "$@"; }
check 'efs_objects_mpi.h is C99' "$MPICC" -std=c99 -D_GNU_SOURCE "${strict[@]}" "$SOURCE/tests/cli/objects_mpi_check.c" -o "$S/mpi" "${libraries[@]}"
check_exit 'the collective calls, 2 ranks' 0 '^done$' run_ranks 2 "$S/mpi" "$S/store-2"
check_exit 'and 3 ranks' 0 '^done$' run_ranks 3 "$S/mpi" "$S/store-3"
check 'no draft is left' test -z "$(find "$S/store-2" "$S/store-3" -name '*.part')"
check_exit 'a restart of 3 ranks by 2: parts of arrays, not the memory of a rank' 0 \
  'cannot restore run: 3 ranks wrote it and this program has 2. Start 3 ranks' run_ranks 2 "$S/mpi" "$S/store-3" restart
check 'efs_objects_mpi.hpp compiles alone' "$MPICXX" -std=c++17 "${strict[@]}" -fsyntax-only -x c++ "$include/efs_objects_mpi.hpp"
check "the talk's program compiles unchanged" "$MPICXX" -std=c++17 "${strict[@]}" "$talk" -o "$S/talk" "${libraries[@]}"
check 'and runs' run_ranks 2 "$S/talk" "$S/store-talk"
check 'its object has the values of both ranks' test "$(od -An -t f8 -v -j 128 "$S/store-talk/A.npy" | tr -s ' ' '\n' | grep -cx 1)" = 2
check 'and nothing else is there' test "$(ls "$S/store-talk")" = A.npy
check "pMEMCPY's calls compile with MPI" "$MPICXX" -std=c++17 "${strict[@]}" "$SOURCE/tests/cli/objects_pmemcpy_check.cpp" -o "$S/pmemcpy-mpi" "${libraries[@]}"
check_exit 'and do what they promise' 0 '^done$' run_ranks 2 "$S/pmemcpy-mpi" "$S/store-pmemcpy-mpi"
check_not 'a draft that MPI_Finalize cannot publish fails the program' run_ranks 2 "$S/pmemcpy-mpi" "$S/store-lost-mpi" lose

# --- on mounts ---
for options in '' daemon-io; do
  fresh "mounted$options" 'outputs: [ [ path: objects ] ]'
  check_exit "the collective calls on a mount ($options)" 0 '^done$' "$EFS" run ${options:+-o $options} "$JOB" -- \
    sh -c "timeout 60 $MPIRUN -n 2 $S/mpi \$EFS_MOUNT/objects && timeout 60 $MPIRUN -n 2 $S/talk \$EFS_MOUNT/objects/talk"
  check 'and the array of both ranks is exported' cmp "$OUT/objects/made.npy" "$S/store-2/made.npy"
  check "and that of the talk's program" cmp "$OUT/objects/talk/A.npy" "$S/store-talk/A.npy"
done

# --- Phoenix ---
phoenix() { PHOENIX_STORE=$S/store-phoenix-mpi run_ranks 2 "$@"; }
check 'phoenix.h is C99 with MPI' "$MPICC" -std=c99 -D_GNU_SOURCE -DPHOENIX_MPI "${strict[@]}" "$SOURCE/tests/cli/objects_phoenix_check.c" -o "$S/phoenix-mpi" "${libraries[@]}"
check_exit 'commits of 2 ranks' 0 '^done$' phoenix "$S/phoenix-mpi"
check_exit 'are restored by 2 ranks' 0 '^done$' phoenix "$S/phoenix-mpi" 3
check_exit 'the only good commit stays until a new one is in its place' 0 '^done$' env PHOENIX_STORE="$S/store-damaged-mpi" timeout 60 "$MPIRUN" -n 2 "$S/phoenix-mpi" damaged
finish
