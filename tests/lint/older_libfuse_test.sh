#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The sources that use libfuse compile with a version without passthrough and statx (before 3.17),
# and use nothing newer. Uses the distribution's headers if they are that old, and the build's
# headers with all newer names poisoned.
#   older_libfuse_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
COMMANDS=$BIN/../compile_commands.json
CXX=$(command -v "${CXX:-c++}") && [ -r "$COMMANDS" ] || { skip 'an older libfuse' 'needs a compiler and a build directory with compile_commands.json'; finish; }

# Prints the build's flags for headers, with those of libfuse on a separate first line.
flags() { python3 - "$COMMANDS" "$SOURCE" <<'END'
import json, os, shlex, sys
tree = os.path.realpath(sys.argv[2])
for command in json.load(open(sys.argv[1])):
    if "efs-fuse.dir" not in command["command"]: continue
    words, kept, fuse = shlex.split(command["command"]), [], ""
    while words:
        word = words.pop(0)
        pair = [word, words.pop(0)] if word in ("-isystem", "-I", "-D") else [word]
        if pair[0] in ("-isystem", "-I") and pair[-1].endswith("/fuse3"): fuse = pair[1]
        elif word.startswith("-I") and word.endswith("/fuse3"): fuse = word[2:]
        elif word.startswith(("-I", "-D", "-isystem", "-std=")): kept += pair
    print(fuse)
    print(shlex.join(kept))
    break
END
}
{ read -r present; read -r FLAGS; } < <(flags)
check 'the build says where libfuse is' test -r "$present/fuse_lowlevel.h"

# Lists every source that includes libfuse, directly or through our headers.
includers() { # includers PATTERN SUFFIX: the files of src that include one of the headers
  (cd "$SOURCE/src" && grep -rlE --include="*.$2" "#include [<\"]($1)[>\"]" . | sed 's/^\.\///')
}
sources() {
  local headers='fuse_lowlevel\.h' more
  while more="fuse_lowlevel\.h|$(includers "$headers" hpp | tr '\n' '|' | sed 's/|$//')" && [ "$more" != "$headers" ]; do headers=$more; done
  includers "$headers" cpp | sort
}
check 'there are sources' test "$(sources | wc -l)" -ge 4
check 'what includes libfuse is of the layer fuse' test -z "$(sources | grep -v '^fuse/')"

# built HEADERS SOURCE...: the sources compile, as one, with these headers; the object is $S/all.o.
built() {
  local headers=$1; shift
  printf '#include "%s"\n' "$@" >"$S/all.cpp"
  sh -c 'exec "$1" '"$FLAGS"' -isystem "$2" -w -O0 -c "$3" -o "$4"' sh "$CXX" "$headers" "$S/all.cpp" "$S/all.o"
}
# Lists the functions of libfuse that they use.
needed() { nm -u "$S/all.o" | awk '$1 == "U" && $2 ~ /^fuse_/ { print $2 }' | sort -u; }

old=$S/old
mkdir "$old" && cp "$present"/*.h "$old"
sed -i -E 's/(# *define FUSE_MINOR_VERSION +)[0-9]+/\116/' "$old"/*.h
echo '#pragma GCC poison fuse_passthrough_open fuse_passthrough_close fuse_set_feature_flag fuse_unset_feature_flag fuse_get_feature_flag FUSE_CAP_PASSTHROUGH backing_id max_backing_stack_depth capable_ext want_ext fuse_reply_statx' >>"$old/fuse_lowlevel.h"
mapfile -t all < <(sources)

# --- the check can fail ---
sed 's/EFS_HAVE_PASSTHROUGH/1/' "$SOURCE/src/fuse/negotiation.cpp" >"$S/negotiation.cpp"
check_not 'what an older one lacks is found' built "$old" "$S/negotiation.cpp"
check 'a source that sees libfuse by two headers of ours is found' grep -qx 'fuse/handlers/names.cpp' <<<"$(sources)"

# --- the sources ---
check 'they build with headers as old as 3.16' built "$old" "${all[@]/#/$SOURCE/src/}"
check 'and say no word of passthrough' test "$(needed | grep -cE 'passthrough|feature_flag|statx')" = 0
distribution=/usr/include/fuse3
minor=$(cat "$distribution"/*.h 2>/dev/null | sed -nE 's/^# *define FUSE_MINOR_VERSION +([0-9]+).*/\1/p' | head -n 1)
library=$(ls /usr/lib/*/libfuse3.so /usr/lib/libfuse3.so 2>/dev/null | head -n 1)
if [ -n "$minor" ] && [ "$minor" -lt 17 ] && [ -n "$library" ]; then
  check "they build with the distribution's, 3.$minor" built "$distribution" "${all[@]/#/$SOURCE/src/}"
  has() { nm -D --defined-only "$library" | awk '{ sub(/@.*/, "", $3); print $3 }' | sort -u; }
  check 'which has all that they need' test -z "$(comm -23 <(needed) <(has))"
else
  skip "they build with the distribution's" 'it has none that is older than 3.17'
fi
finish
