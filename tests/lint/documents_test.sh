#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The Markdown documents are true: the files, links, verbs and options in them exist, and each
# document keeps its length limit. Every check first proves that it finds a planted fault.
#   documents_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

faults() { python3 "$SOURCE/tests/lint/documents.py" "$1" "$EFS"; }
finds() { grep -qF "$1" <<<"$(faults "$S/tree")"; }

# --- the checks can fail ---
mkdir "$S/tree" && (cd "$SOURCE" && cp -r --parents README.md src/README.md src/stage/pfs src/fs/ops docs tests/README.md "$S/tree")
cat >>"$S/tree/docs/limits.md" <<'END'
[nothing](nowhere.md) and `fs/ops/none.cpp` and `efs start --no-such-option job.yaml` and `efs halt`.
END
yes word | head -n 1600 >>"$S/tree/src/README.md"
printf '\n| a | b |\n|---|---|\n| x | %s |\n' "$(yes word | head -n 81 | tr '\n' ' ')" >>"$S/tree/tests/README.md"
check 'a link to nothing is found' finds 'docs/limits.md: no file nowhere.md'
check 'a path of nothing is found' finds 'docs/limits.md: no file fs/ops/none.cpp'
check 'an option that no verb has is found' finds 'docs/limits.md: efs start has no option --no-such-option'
check 'a verb that does not exist is found' finds 'docs/limits.md: efs has no verb halt'
check 'a document that is too long is found' finds 'src/README.md: 2'
check 'a cell that is too long is found' finds 'tests/README.md: a cell of 81 words'

# --- the documents ---
check 'the documents are right' faults "$SOURCE"
finish
