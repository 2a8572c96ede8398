#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The walks through the code in docs/dev (write.md, export.md) are as the code is. Every check first
# proves that it finds a planted fault.
#   walks_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

faults() { python3 "$SOURCE/tests/lint/walks.py" "$1"; }
finds() { grep -qF "$1" <<<"$(faults "$S/tree")"; }

# --- the checks can fail ---
mkdir "$S/tree" && (cd "$SOURCE" && cp -r --parents docs/dev src/fuse src/fs src/stage backends "$S/tree")
sed -i 's|`Filesystem::file`|`Filesystem::folder`|; s|^9\. |10. |; s|src/fuse/session.cpp|src/fuse/sessions.cpp|' "$S/tree/docs/dev/write.md"
sed -i 's|`ResultWriter::write`|`ResultWriter::write_one`|' "$S/tree/docs/dev/export.md"
printf '18. `src/stage/buffer.cpp` `StagingBuffer::refuse_writers`: none.\n' >>"$S/tree/docs/dev/export.md"
check 'a function that does not exist is found' finds 'src/fs/filesystem.cpp does not define Filesystem::folder'
check 'a number left out is found' finds 'write.md: step 10: has number 10, is the 9th'
check 'a file that does not exist is found' finds 'write.md: step 2: no file src/fuse/sessions.cpp'
check 'a step that nothing calls is found' finds 'export.md: step 5: no earlier step calls ResultWriter::write_one'
check 'a walk that is too long is found' finds 'export.md: more than 17 files'

# --- the walks ---
check 'the walks are as the code is' faults "$SOURCE"
finish
