#!/bin/bash
# libefs as it is installed: header, pkg-config, symbols; the example and every call against a real mount.
#   api_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

cc=${CC:-cc}
check 'install' cmake --install "$BIN/.." --prefix "$S/prefix"
pc=$(find "$S/prefix" -name efs.pc)
check 'efs.pc is installed' test -s "$pc"
export PKG_CONFIG_PATH=${pc%/*}
flags() { pkg-config --define-variable=prefix="$S/prefix" "$@" efs; }
check 'pkg-config knows efs' flags --exists
library=$(find "$S/prefix" -name 'libefs.so')
check 'the library has a version' test "$(readelf -d "$library" | grep -c 'SONAME.*libefs.so.1]')" = 1
check 'and exports the functions of efs.h, no more' test "$(nm -D --defined-only "$library" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort | tr '\n' ' ')" = 'efs_cancel efs_last_error efs_load efs_status efs_strerror efs_unload efs_wait '
check 'nothing else of it is visible' test -z "$(nm -D --defined-only "$library" | awk '$2 != "T" && $2 != "A"')"
check 'the man page is installed' test -s "$S/prefix/share/man/man3/efs-api.3"

export LD_LIBRARY_PATH=${library%/*}
check 'the header is C99' $cc -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c "$S/prefix/include/efs.h"
check 'and C++' c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c++ "$S/prefix/include/efs.h"
check 'the example compiles' $cc -std=gnu99 -Wall -Wextra -Wpedantic -Werror "$SOURCE/conf/api/stage.c" -o "$S/stage" $(flags --cflags --libs)
check 'the checker compiles' $cc -std=gnu99 -Wall -Wextra -Werror "$SOURCE/tests/cli/api_check.c" -o "$S/api_check" $(flags --cflags --libs)

for options in '' daemon-io; do
  fresh "api$options"
  sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"   # so that 60 MB take a while
  head -c 123456 /dev/urandom >"$PFS/next.dat"
  check_exit "the example in a job ($options)" 0 '123456 bytes counted' "$EFS" run ${options:+-o $options} "$JOB" -- "$S/stage" next.dat answer
  check 'its result' grep -qx '123456 bytes' "$OUT/answer"
  check_exit 'the example tells what is wrong' 1 'nosuch.*does not exist' "$EFS" run ${options:+-o $options} "$JOB" -- "$S/stage" nosuch answer
  check "start ($options)" "$EFS" start ${options:+-o $options} "$JOB"
  check "every call ($options)" timeout 100 env EFS_MOUNT="$MNT" "$S/api_check" "$PFS" "$MNT" "$OUT"
  check "stop ($options)" "$EFS" stop "$NAME"
done
check_exit 'without an instance' 1 'No instance' env EFS_MOUNT="$MNT" "$S/stage" a b
finish
