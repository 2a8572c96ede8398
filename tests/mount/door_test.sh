#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The door that programs open which intercept (src/base/intercept_door.hpp): its name, its answers,
# epochs, clients, takeovers, and the death of both processes; with passthrough and without.
#   door_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

for io in passthrough daemon; do
  options=()
  if [ $io = daemon ]; then options=(-o daemon-io)
  elif [ "$(id -u)" != 0 ] || ! kernel_has_it; then skip 'the door with passthrough' 'not root, or a kernel before 6.9'; continue; fi
  fresh "door-$io" "resources: [ [ path: input, flags: persistent ] ]"
  echo no >"$PFS/input/.efs-door"
  check_exit "$NAME: start skips that name" 0 "every mount keeps" "$EFS" start "${options[@]}" "$JOB"
  check "$NAME" python3 "$SOURCE/tests/mount/door.py" "$EFS" "$NAME" "$MNT" "$io"
  check "$NAME: clean" "$EFS" clean --force "$NAME"
done
finish
