#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The installed libefs: header, pkg-config, symbols; the example and every call on a real mount.
#   api_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

cc=${CC:-cc}
check 'install' cmake --install "$BIN/.." --prefix "$S/prefix"
pc=$(find "$S/prefix" -name efs.pc)
check 'efs.pc is installed' test -s "$pc"
export PKG_CONFIG_PATH=${pc%/*}
flags() { pkg-config "$@" efs; }
check 'pkg-config knows efs' flags --exists
check 'where it was installed, not where it was to be' test "$(realpath "$(flags --variable=includedir)")" = "$S/prefix/include"
library=$(find "$S/prefix" -name 'libefs.so')
check 'the library has a version' test "$(readelf -d "$library" | grep -c 'SONAME.*libefs.so.1]')" = 1
check 'and exports the functions of efs.h, no more' test "$(nm -D --defined-only "$library" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort | tr '\n' ' ')" = 'efs_cancel efs_fetch efs_last_error efs_load efs_move efs_status efs_strerror efs_unload efs_wait efs_wait_inputs '
check 'nothing else of it is visible' test -z "$(nm -D --defined-only "$library" | awk '$2 != "T" && $2 != "A"')"
check 'the man page is installed' test -s "$S/prefix/share/man/man3/efs-api.3"

export LD_LIBRARY_PATH=${library%/*}
check 'the header is C99' $cc -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c "$S/prefix/include/efs.h"
check 'and C++' c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only -x c++ "$S/prefix/include/efs.h"
for header in efs.h efs-api.h; do printf '#include <%s>\nchar *text(int code) { return efs_strerror(code); }\n' $header >"$S/header.c"
  check "$header by itself, with the types of echofs, in C" $cc -std=c99 -Wall -Wextra -Wpedantic -Werror -fsyntax-only $(flags --cflags) -x c "$S/header.c"
  check "$header in C++" c++ -std=c++11 -Wall -Wextra -Wpedantic -Werror -fsyntax-only $(flags --cflags) -x c++ "$S/header.c"
done
check 'a program for echofs compiles as it is' $cc -std=gnu99 -Wall -Wextra -Wpedantic -Werror "$SOURCE/tests/cli/echofs_program.c" -o "$S/echofs_program" $(flags --cflags --libs)
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

# --- a program for echofs ---
fresh ancestor 'backends: [ [ id: "nvml://", type: "DRAM", capacity: "64 MiB" ] ]'
echo gamma >"$PFS/input/c"
started "$JOB"
check 'it loads and unloads, by the path on the PFS and the id of the backend' env EFS_MOUNT="$MNT" "$S/echofs_program" nvml:// "$PFS/input/c"
check 'the file is there' cmp "$PFS/input/c" "$MNT/input/c"
echo latin >"$PFS/input/caf"$'\351'
check 'a path that is not UTF-8' env EFS_MOUNT="$MNT" "$S/echofs_program" nvml:// "$PFS/input/caf"$'\351'
check 'is the one that was meant' cmp "$PFS/input/caf"$'\351' "$MNT/input/caf"$'\351'
check_exit 'it is told what a path that is not there is' 1 '^load: No such path' env EFS_MOUNT="$MNT" "$S/echofs_program" nvml:// "$PFS/input/none"
check_exit 'and at once of a backend that is not there' 1 '^efs_load: Invalid argument' env EFS_MOUNT="$MNT" "$S/echofs_program" pmem:// "$PFS/input/c"
check 'stop' "$EFS" stop ancestor

# --- daemons that do not answer, and daemons that die ---
cat >"$S/slow.c" <<'EOF'
#include <efs.h>
#include <stdio.h>
int main(void) {  /* a load that takes a while, asked for again as often as it is lost */
  struct efs_iocb cb = EFS_IOCB_INIT(NULL, "slow", 0, 0);
  int code = efs_load(&cb);
  for (int times = 0; code == EFS_API_SUCCESS && times < 3; ++times) {
    code = efs_wait(&cb, -1);
    int status = efs_status(&cb);
    printf("wait %d status %d %s\n", code, status, efs_last_error());
    if (code != EFS_API_ELOST) break;
    code = efs_load(&cb);
  }
  if (code != EFS_API_SUCCESS) printf("%d %s\n", code, efs_last_error());
  return -code;
}
EOF
check 'a program that goes on after a takeover compiles' $cc -std=gnu99 -Wall -Wextra -Werror "$S/slow.c" -o "$S/slow" $(flags --cflags --libs)
worker_of() { field "$(status_of "$1")" 'd["worker_pid"]'; }
fresh another; started "$JOB"; stopped=$(worker_of another)
fresh waits; sed -i '/results-dir/a\  max-rate: 4 MB/s' "$JOB"; started "$JOB"
head -c 12000000 /dev/zero >"$PFS/slow"
kill -STOP "$stopped"
check_exit 'the worker of another instance is stopped' 0 '^wait 0 status 0' env EFS_MOUNT="$MNT" timeout 100 "$S/slow"
kill -CONT "$stopped"
check 'stop of it' "$EFS" stop another
if kernel_has_it; then
  rm "$MNT/slow"
  EFS_MOUNT=$MNT timeout 200 "$S/slow" >"$S/said" 2>&1 & program=$!; pids+=($program)
  runs() { json "$(status_of waits)" "any(t['task_state'] == 'running' for t in d['tasks'])"; }
  await 20 runs; kill -KILL "$(worker_of waits)"
  wait $program; code=$?; pids=()
  check 'the worker is killed under efs_wait' test $code = 0
  check_exit 'which says so' 0 '^wait -23 status -23 .*ask for it again' cat "$S/said"
  check 'and the load that is asked for again is done' grep -q '^wait 0 status 0' "$S/said"
  check 'all of it is there' cmp "$PFS/slow" "$MNT/slow"
else skip 'the worker is killed under efs_wait' 'takeover needs Linux 6.9'; fi
check 'stop' "$EFS" stop waits
check_exit 'without an instance' 1 'No instance' env EFS_MOUNT="$MNT" "$S/stage" a b
finish
