#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Rules that no compiler checks: the layers include downwards only, the examples are valid job
# files, no file names the place of its development, and no test keeps the mounts of another one.
# Every check first proves that it works, in a copy with a planted violation.
#   layers_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"

# The layers that a layer may include besides itself.
rules='base:
config: base
backends: base
store: base
ledger: base
fs: base backends store ledger
fuse: base backends fs
stage: base backends config ledger fs
control: base
queue: base
image: base config backends store ledger fs stage
report: base stage
recorder:
intercept: base
record: base config recorder
cli: base config control stage queue image report record recorder
daemon: base config backends store fs fuse stage control queue image report
api: base control
objects:'

# bad_includes TREE: prints every include of a layer that the including layer may not use, and every
# unknown layer. The first directory of an include is a layer or, if there is no such directory, a
# library.
bad_includes() {
  (cd "$1" && { ls src; echo backends; echo objects; } && echo && grep -rE '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' src backends objects --include='*.cpp' --include='*.hpp' --include='*.h' --include='*.c') |
    rules=$rules awk '
      BEGIN { n = split(ENVIRON["rules"], rule, "\n"); for (i = 1; i <= n; i++) { split(rule[i], part, ":"); allowed[part[1]] = " " part[2] " "; ours[part[1]] } }
      !body { if ($0 == "") body = 1; else ours[$0]; next }
      { file = $0; sub(/:.*/, "", file); layer = file; sub(/^src\//, "", layer); sub(/\/.*/, "", layer)
        target = $0; sub(/^[^:]*:[^"<]*["<]/, "", target); sub(/[">].*/, "", target)
        if (target ~ /(^|\/)\.\.\//) { print file ": " target ": a path with .."; next }
        if (!(layer in allowed)) { print file ": the layer " layer " has no rule"; next }
        if (target !~ /\//) next   # the system, or the same directory
        sub(/\/.*/, "", target)
        if (target != layer && target in ours && index(allowed[layer], " " target " ") == 0) print file ": " layer " must not include " target }'
}
# The parts of layer stage that a part may include besides itself: earlier parts in this order; "."
# stands for the shared files.
stage_parts='pfs copy plan . versions import export resume live'
bad_stage_includes() {
  (cd "$1/src/stage" && grep -rE '^[[:space:]]*#[[:space:]]*include[[:space:]]*"stage/' . --include='*.cpp' --include='*.hpp') |
    parts=$stage_parts awk '
      BEGIN { n = split(ENVIRON["parts"], part, " "); for (i = 1; i <= n; i++) rank[part[i]] = i }
      { file = $0; sub(/:.*/, "", file); sub(/^\.\//, "", file); from = file; if (!sub(/\/.*/, "", from)) from = "."
        target = $0; sub(/^[^"]*"stage\//, "", target); sub(/".*/, "", target); to = target; if (!sub(/\/.*/, "", to)) to = "."
        if (!(from in rank) || !(to in rank)) { print file ": " target ": a part without a rank"; next }
        if (rank[to] > rank[from] || (from == "export" && to == "import")) print file ": " from " must not include " to }'
}
no_bad_stage_includes() { local bad; bad=$(bad_stage_includes "$1"); [ -z "$bad" ] || { echo "$bad"; return 1; }; }
no_bad_includes() { local bad; bad=$(bad_includes "$1"); [ -z "$bad" ] || { echo "$bad"; return 1; }; }

# Lists the files of a tree: those that git would commit, or all files outside a checkout.
files_of() {
  if git -C "$1" rev-parse --git-dir >/dev/null 2>&1; then git -C "$1" ls-files -z -co --exclude-standard
  else (cd "$1" && find . \( -name '.git' -o -name 'build*' \) -prune -o -type f -print0); fi
}
workshop='/w''ork/'   # in two parts, so that this file does not hold it
foreign_paths() { (cd "$1" && files_of . | xargs -0 grep -InE -- "(^|[^[:alnum:]_./}-])$workshop" 2>/dev/null); }
no_foreign_paths() { ! foreign_paths "$1"; }

bad_examples() {
  local file
  for file in "$1"/conf/*.yaml; do "$EFS" check --at-submission "$file" >/dev/null 2>&1 || echo "$file"; done
}
no_bad_examples() { local bad; bad=$(bad_examples "$1"); [ -z "$bad" ] || { for bad in $bad; do "$EFS" check --at-submission "$bad"; done; return 1; }; }

# A separate namespace of a test has copies of the mounts of all concurrent tests, and the stops of
# those tests would wait for its end.
foreign_mounts() { grep -rnE '^[^#]*\bunshare +(-[-a-zA-Z]* +)*(-m|--mount)\b' "$1/tests" --include='*.sh' | grep -vE '(-m|--mount) true\b' | sed 's/$/   (tests\/own_mounts.py)/'; }
no_foreign_mounts() { ! foreign_mounts "$1" | grep .; }

# A wrapper of an object could forget to forward a member that has a body.
members_with_bodies() {
  find "$1/src" "$1/backends" \( -name '*.hpp' -o -name '*.cpp' \) -exec awk '
    !whole && /^[[:space:]]*virtual / { whole = $0; where = FILENAME ":" FNR; next_line = 1 }
    whole && !next_line { whole = whole $0 }
    { next_line = 0 }
    whole ~ /[;{]/ { if (whole !~ /= (0|default);/) print where ": " whole; whole = "" }' {} +
}
no_members_with_bodies() { ! members_with_bodies "$1" | grep .; }

# A container may be no file: only the code that seals a container or links it into the cache of inputs
# may ask for its descriptor. (The layer fuse asks for it too, for passthrough.)
container_descriptors() {
  (cd "$1" && grep -rnE '(^|[^_[:alnum:]])descriptor\(\)' src/fs src/stage src/image --include='*.cpp' --include='*.hpp' | grep -vE '^(src/fs/seal|src/stage/import/cache)\.cpp:')
}
no_container_descriptors() { ! container_descriptors "$1" | grep .; }

# What is behind the handles of the PFS is known to the PfsIo that makes them. Other code of efs asks it.
pfs_descriptors() {
  (cd "$1" && grep -rnE '\bPfsNumbers\b|stage/pfs/posix_handle\.hpp' src --include='*.cpp' --include='*.hpp' | grep -vE '^src/stage/pfs/(pfs_io\.cpp|(pfs|posix)_handle\.hpp):')
}
no_pfs_descriptors() { ! pfs_descriptors "$1" | grep .; }

# --- the checks can fail ---
copy=$S/copy
mkdir -p "$copy/tests" && cp -r "$SOURCE/src" "$SOURCE/backends" "$SOURCE/objects" "$SOURCE/conf" "$copy" || exit 2
# planted NAME PATTERN CHECK FILE TEXT: with the text in the file, the check's output matches;
# without it, the output does not match.
planted() {
  local name=$1 pattern=$2 finder=$3 file=$copy/$4 text=$5
  printf '%s\n' "$text" >"$file"
  check "the check finds $name" grep -qE "$pattern" <<<"$($finder "$copy")"
  rm "$file"
  check_not "the check finds $name only where it is" grep -qE "$pattern" <<<"$($finder "$copy")"
}
planted 'base that includes fs' 'base must not include fs' bad_includes src/base/planted.hpp '#include "fs/filesystem.hpp"'
planted 'fuse that includes stage' 'fuse must not include stage' bad_includes src/fuse/planted.cpp '#include "stage/plan/planner.hpp"'
planted 'stage that includes fuse' 'stage must not include fuse' bad_includes src/stage/planted.cpp '  #  include <fuse/session.hpp>'
planted 'fs that includes fuse' 'fs must not include fuse' bad_includes src/fs/ops/planted.cpp '#include "fuse/session.hpp"'
planted 'fs that includes stage' 'fs must not include stage' bad_includes src/fs/planted.hpp '#include "stage/plan/planner.hpp" // why not'
planted 'fs that includes daemon' 'fs must not include daemon' bad_includes src/fs/planted.cpp '#include "daemon/instance.hpp"'
planted 'fs that includes config' 'fs must not include config' bad_includes src/fs/planted.cpp '#include "config/load.hpp"'
planted 'a ledger that includes store' 'ledger must not include store' bad_includes src/ledger/planted.cpp '#include "store/journal.hpp"'
planted 'a backend that includes store' 'backends must not include store' bad_includes backends/planted.cpp '#include "store/journal.hpp"'
planted 'store that includes backends' 'store must not include backends' bad_includes src/store/planted.cpp '#include "backends/backend.hpp"'
planted 'control that includes config' 'control must not include config' bad_includes src/control/planted.cpp '#include "config/load.hpp"'
planted 'cli that includes fs' 'cli must not include fs' bad_includes src/cli/planted.cpp '#include "fs/filesystem.hpp"'
planted 'cli that includes daemon' 'cli must not include daemon' bad_includes src/cli/planted.cpp '#include "daemon/instance.hpp"'
planted 'objects that include base' 'objects must not include base' bad_includes objects/planted.cpp '#include "base/result.hpp"'
planted 'a way around by ..' 'a path with \.\.' bad_includes src/fs/planted.cpp '#include "../fuse/session.hpp"'
planted 'a PFS that knows of results' 'pfs must not include export' bad_stage_includes src/stage/pfs/planted.cpp '#include "stage/export/receipt.hpp"'
planted 'a stage-out that knows of stage-ins' 'export must not include import' bad_stage_includes src/stage/export/planted.cpp '#include "stage/import/cache.hpp"'
planted 'what all of stage shares and knows of a part' '\. must not include live' bad_stage_includes src/stage/planted.hpp '#include "stage/live/load.hpp"'
mkdir "$copy/src/newlayer"
planted 'a layer without a rule' 'newlayer has no rule' bad_includes src/newlayer/planted.cpp '#include "base/log.hpp"'
planted 'a path of the workshop' 'planted.hpp' foreign_paths src/base/planted.hpp "constexpr auto where = \"${workshop}main/x\";"
planted 'a namespace with the mounts of other tests' 'planted.sh' foreign_mounts tests/planted.sh 'unsha''re -m --propagation private sleep 1'   # in two parts, too
planted 'a member that can be forgotten' 'planted.hpp' members_with_bodies src/base/planted.hpp '  virtual int secure() { return 0; }'
planted 'a descriptor between layers' 'planted.cpp' container_descriptors src/stage/export/planted.cpp '  const auto fd = container->descriptor();'
planted 'a descriptor of the PFS' 'planted.cpp' pfs_descriptors src/stage/export/planted.cpp '#include "stage/pfs/posix_handle.hpp"'
planted 'the number of a handle' 'planted.hpp' pfs_descriptors src/image/planted.hpp '  return stage::PfsNumbers::number_of(file);'
planted 'a bad example' 'planted.yaml' bad_examples conf/planted.yaml 'resorces: []'

# --- the tree ---
check 'there are sources to look at' test "$(grep -rlE '#include "base/' "$SOURCE/src" "$SOURCE/backends" | wc -l)" -gt 20
check 'includes go downwards' no_bad_includes "$SOURCE"
check 'the parts of stage include downwards only' no_bad_stage_includes "$SOURCE"
check 'no path of the workshop' no_foreign_paths "$SOURCE"
check 'no test keeps the mounts of another one' no_foreign_mounts "$SOURCE"
check 'virtual members are pure' no_members_with_bodies "$SOURCE"
check 'no layer works on the descriptor of a container' no_container_descriptors "$SOURCE"
check 'the two that may are where the check looks' test "$(grep -l 'descriptor()' "$SOURCE/src/fs/seal.cpp" "$SOURCE/src/stage/import/cache.cpp" | wc -l)" = 2
check 'no other code knows what is behind a handle of the PFS' no_pfs_descriptors "$SOURCE"
check 'the one that may is where the check looks' grep -q 'stage/pfs/posix_handle.hpp' "$SOURCE/src/stage/pfs/pfs_io.cpp"
check 'there are examples' test "$(ls "$SOURCE"/conf/*.yaml | wc -l)" -ge 4
check 'every example is a valid job file' no_bad_examples "$SOURCE"
finish
