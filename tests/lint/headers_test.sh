#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Each source compiles by itself, not only in a unity build, and includes its own header first. So each header compiles alone.
#   headers_test.sh BIN_DIR
# The headers of the system are read once, into a precompiled header: alone they take clang most of the time. So a header that
# lacks one of those is found only where no source includes it first. The seed chooses one of twenty sources. EFS_HEADERS_ALONE=1
# compiles all without the precompiled header.
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
COMMANDS=$BIN/../compile_commands.json
CLANG=$(command -v clang++-19 || command -v clang++)
if [ -z "$CLANG" ] || [ ! -r "$COMMANDS" ]; then
  skip 'headers alone' 'needs clang++-19 and a build directory with compile_commands.json'
  finish
fi
SOURCE=$(realpath "$SOURCE")

# Flags of the layer that uses all others.
flags=$(python3 - "$COMMANDS" <<'END'
import json, shlex, sys
for command in json.load(open(sys.argv[1])):
    if "efs-daemon" not in command["command"]: continue
    words, kept = shlex.split(command["command"]), ["-fsyntax-only", "-Wno-everything", "-std=c++23"]
    while words:
        word = words.pop(0)
        if word in ("-isystem", "-I", "-D"): kept += [word, words.pop(0)]
        elif word.startswith(("-I", "-D")): kept.append(word)
    print(shlex.join(kept))
    break
END
)
flags+=" -I'$SOURCE/objects'"  # public headers: installed side by side
# A header that needs MPI is compiled alone by tests/cli/objects_mpi_test.sh.
headers() { find "$1/src" "$1/backends" "$1/objects" -name '*.hpp' ! -path '*/api/*' ! -name '*_mpi.hpp' | sort; }
sources() { find "$1/src" "$1/backends" "$1/objects" -name '*.cpp' ! -path '*/api/*' | sort; }
# includes_first SOURCE HEADER
includes_first() { [ -e "$1" ] && grep -m1 '^#include' "$1" | grep -qF "${2##*/}\""; }
# without_source TREE: headers that no source of the same name includes first
without_source() { local header; for header in $(headers "$1"); do includes_first "${header%.hpp}.cpp" "$header" || echo "$header"; done; }
# own_header_late TREE: sources whose first include is not their own header
own_header_late() {
  local source
  for source in $(sources "$1"); do [ ! -e "${source%.cpp}.hpp" ] || includes_first "$source" "${source%.cpp}.hpp" || echo "$source"; done
}
# alone [FLAG...]: compiles each file of the standard input by itself; says what does not compile
cat >"$S/one.sh" <<END
cd '$BIN/..' || exit
file=\$1; shift
said=\$($CLANG $flags "\$@" -x c++ "\$file" 2>&1) || { echo "\$file"; head -n 5 <<<"\$said"; }
END
alone() { xargs -P "$(nproc)" -I{} bash "$S/one.sh" {} "$@"; }
nothing() { [ -z "$1" ] || { echo "$1"; return 1; }; }

# --- the checks can fail ---
printf '#pragma once\nstruct A { std::string name; };\n' >"$S/bad.hpp"
check 'a header without its include is found' grep -q bad.hpp <<<"$(echo "$S/bad.hpp" | alone)"
mkdir -p "$S/tree/src/a" "$S/tree/backends" "$S/tree/objects"
printf '#pragma once\n' >"$S/tree/src/a/b.hpp"; printf '#include <string>\n#include "a/b.hpp"\n' >"$S/tree/src/a/b.cpp"
check 'a source whose header comes late is found' grep -q 'a/b.cpp' <<<"$(own_header_late "$S/tree")"
check 'its header is compiled alone' grep -q 'a/b.hpp' <<<"$(without_source "$S/tree")"

printf 'namespace { struct A {}; }\nA a, a;\n' >"$S/bad.cpp"
check 'a source that does not compile by itself is found' grep -q bad.cpp <<<"$(echo "$S/bad.cpp" | alone)"

# --- the tree ---
check 'there are headers' test "$(headers "$SOURCE" | wc -l)" -gt 150
check 'each source includes its own header first' nothing "$(own_header_late "$SOURCE")"
if [ -n "${EFS_HEADERS_ALONE:-}" ]; then
  check 'each header compiles alone' nothing "$(headers "$SOURCE" | alone)"
  check 'each source compiles alone' nothing "$(sources "$SOURCE" | alone)"
else
  check 'headers without a source compile alone' nothing "$(without_source "$SOURCE" | alone)"
  { headers "$SOURCE"; sources "$SOURCE"; } | xargs grep -hE '^#include <' | grep -v fuse_ | sort -u |
    sed 's|^#include \(<[^>]*>\).*|#if __has_include(\1)\n&\n#endif|' >"$S/system.hpp"
  check 'the headers of the system compile' bash -c "cd '$BIN/..' && $CLANG -fpch-instantiate-templates ${flags/-fsyntax-only/} -x c++-header '$S/system.hpp' -o '$S/system.pch'"
  seed=${EFS_SEED:-$RANDOM}
  echo "seed $seed (EFS_SEED=$seed repeats it)"
  some() { sources "$SOURCE" | awk -v chosen=$((seed % 20)) 'NR % 20 == chosen'; }
  check 'one of twenty sources is chosen' test "$(some | wc -l)" -gt 12
  check 'each of them compiles by itself with those of the system' nothing "$(some | alone -include-pch "$S/system.pch")"
fi
finish
