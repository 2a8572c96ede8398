#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Stores on mounts: the worker is killed while programs view and fill, a program is killed in its draft;
# then the store is staged out or salvaged, and read there. Bundles and versions of 100000 arrays.
#   objects_mounts_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

export LD_LIBRARY_PATH=$BIN/../lib
program=$S/objects_mounts_check
check 'the checker compiles' "${CC:-cc}" -std=c99 -D_POSIX_C_SOURCE=200809L -Wall -Wextra -Werror -O1 "-I$SOURCE/objects" "$SOURCE/tests/cli/objects_mounts_check.c" -o "$program" "-L$BIN/../lib" -lefs-objects
PYTHON=$(numpy_python)
rules='outputs: [ [ path: "**/*.part", flags: temporary ], [ path: objects ] ]'

state() { "$EFS" status --json "$NAME"; }
worker() { local pid; read -r pid _ <"/proc/$supervisor/task/$supervisor/children"; [ -n "$pid" ] && echo "$pid"; }
# A successor that has answered a lookup of a new name.
asked=0
replaced() { local pid; pid=$(worker) && [ "$pid" != "$1" ] && asked=$((asked + 1)) && [ ! -e "$MNT/.never$asked" ]; }
begun() { grep -qx begun "$1"; }

# The views keep their bytes and the draft is published whole.
workers_die() {  # workers_die NAME
  local i pid holder
  mkfifo "$S/$NAME/go"
  "$program" hold <"$S/$NAME/go" >"$S/$NAME/hold" 2>&1 & holder=$!; pids+=("$holder")
  exec 7>"$S/$NAME/go"
  check "$1: a program views and fills" await 20 begun "$S/$NAME/hold"
  for i in 1 2 3; do
    pid=$(worker)
    read -rt "0.0$((RANDOM % 90 + 10))" <> <(:)   # any moment will do
    check "$1: kill $i" kill -KILL "$pid"
    check "$1: a successor after kill $i" await 20 replaced "$pid"
  done
  check "$1: the program still fills" kill -0 "$holder"
  echo >&7; exec 7>&-
  if wait "$holder"; then ok; else fail "$1: it ends well" "$(cat "$S/$NAME/hold")"; fi
  pids=()
  check "$1: three takeovers" json "$(state)" "d['takeovers'] == 3"
  check "$1: it has filled more than once" grep -qE '^([2-9]|[1-9][0-9]+) rounds' "$S/$NAME/hold"
  check_exit "$1: another process reads all" 0 '^with made$' "$program" read
}

program_dies() {  # program_dies NAME: in the middle of its draft
  local writer
  "$program" leave >"$S/$NAME/leave" 2>&1 & writer=$!; pids+=("$writer")
  check "$1: a program has begun a draft" await 20 begun "$S/$NAME/leave"
  kill -KILL $writer; wait $writer 2>/dev/null; pids=()
  check "$1: its draft is there" test "$(find "$MNT" -name '*.part' | wc -l)" = 1
}

cat >"$S/read.py" <<'END'
import os, sys
import numpy as np
row, column = np.indices((512, 1024))
grid = row * 1024.0 + column
def load(name): return np.load(os.path.join(sys.argv[1], name), mmap_mode="r")
assert (load("grid.npy") == grid).all() and (load("run/00000007/u.npy") == grid).all()
assert (load("made.npy") == grid + 1e6).all()
assert (load("few.npz")["row"] == grid[3]).all() and (load("run/00000007/small.npz")["small/row"] == grid[3]).all()
END
read_there() {  # read_there NAME DIRECTORY: what came out of the buffer
  check "$1: no draft among the results" test -z "$(find "$2" -name '*.part' -o -name '*unfinished*')"
  check_exit "$1: libefs-objects reads the results, and finds the version good" 0 '^with made$' "$program" read "$2/objects"
  if "$PYTHON" -c 'import numpy' 2>/dev/null; then check "$1: NumPy reads the results" "$PYTHON" "$S/read.py" "$2/objects"
  else skip "$1: NumPy reads the results" "$PYTHON has no numpy; EFS_NUMPY_PYTHON names another Python"; fi
}

for options in passthrough daemon-io; do
  fresh "$options" "$rules"
  if [ $options = daemon-io ]; then started "$JOB" -o daemon-io; else started "$JOB"; fi
  if [ $options = passthrough ] && kernel_has_it && [ "$(id -u)" = 0 ]; then check 'passthrough: I/O' json "$(state)" "d['io'] == 'passthrough'"; fi
  export EFS_MOUNT=$MNT
  supervisor=$(field "$(state)" "d['supervisor_pid']")
  check "$options: a store is filled" "$program" fill
  if kernel_has_it; then workers_die $options; else skip "$options: takeover" 'needs Linux 6.9'; fi
  program_dies $options
  if [ $options = passthrough ]; then
    check_exit '100000 arrays' 0 '^100000 arrays' "$program" many 100000
    echo "on the mount: $said"
    check 'stop' "$EFS" stop $options
    read_there 'staged out' "$OUT"
    check 'the bundle of 100000 arrays came, too' test -s "$OUT/objects/many.npz" -a -s "$OUT/objects/many/00000001/small.npz"
  else
    kill_both $options
    check_exit 'salvage' 0 'staged out' "$EFS" salvage $options
    read_there salvaged "$OUT"
    check 'clean' "$EFS" clean $options
  fi
done
spoiled=$OUT/objects/run/00000007/u.npy
printf x | dd of="$spoiled" bs=1 seek=5000 conv=notrunc status=none
check_exit 'a damaged result is found' 1 'u: the checksum is not that of the manifest' "$program" read "$OUT/objects"

check_exit 'a store of 5000 files' 0 '^eo_open of 5000' "$program" open "$S/thousands" 5000
echo "in a directory: $said"
if [ -d /dev/shm ] && directory=$(mktemp -d "/dev/shm/$(basename "$S").XXXXXX"); then
  check_exit 'on tmpfs' 0 '^eo_open of 5000' "$program" open "$directory/store" 5000
  echo "on tmpfs: $said"
  rm -rf "$directory"
else skip 'a store of 5000 files on tmpfs' 'no /dev/shm'; fi
finish
