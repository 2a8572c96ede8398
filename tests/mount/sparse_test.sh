#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A sparse file that is set to its size first takes huge pages on the private tmpfs. Its last close gives back what is zero in it,
# and never what a program can still write to.
#   sparse_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
[ "$(id -u)" = 0 ] || { skip 'sparse files' 'a private tmpfs needs root'; finish; }
huge() { grep -F " $EFS_RUNTIME_DIR/$NAME/store " /proc/self/mounts | grep -q 'huge=within_size'; }

CAPACITY='192 MiB' fresh sparse 'resources: []'
for options in '' '-o daemon-io'; do
  started $options "$JOB" || continue
  if huge; then
    for case in closed reserved second_descriptor mapping whole race room; do
      check "${options:-passthrough}: $case" timeout 300 python3 -SE "$SOURCE/tests/mount/sparse.py" "$MNT" "$case"
    done
  else
    skip "${options:-passthrough}" 'the kernel has no huge pages for a tmpfs'
  fi
  check 'stop' "$EFS" stop --no-stage-out "$NAME"
done
finish
