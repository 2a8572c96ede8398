#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The installed libefs-objects: header, pkg-config, symbols; a C program on real mounts and in a plain
# directory; NumPy reads its files and it reads NumPy's; stage-out of the store.
#   objects_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

cc=${CC:-cc}
check 'install' cmake --install "$BIN/.." --prefix "$S/prefix"
pc=$(find "$S/prefix" -name efs-objects.pc)
check 'efs-objects.pc is installed' test -s "$pc"
export PKG_CONFIG_PATH=${pc%/*}
flags() { pkg-config "$@" efs-objects; }
header=$S/prefix/include/efs_objects.h
library=$(find "$S/prefix" -name 'libefs-objects.so')
check 'the library has a version' test "$(readelf -d "$library" | grep -c 'SONAME.*libefs-objects.so.1]')" = 1
declared=$(grep -oE '^EO_API .*\b(eo_[a-z_]+)\(' "$header" | grep -oE 'eo_[a-z_]+\($' | tr -d '(' | sort)
exported=$(nm -D --defined-only "$library" | awk '$2 == "T" { sub(/@.*/, "", $3); print $3 }' | sort)
check 'the header declares functions' test "$(wc -l <<<"$declared")" -ge 18
check 'the library exports the functions of the header, no more' test "$declared" = "$exported"
check 'nothing else of it is visible' test -z "$(nm -D --defined-only "$library" | awk '$2 != "T" && $2 != "A"')"
check 'it needs no MPI, no FUSE and no daemon' test -z "$(readelf -d "$library" | sed -n 's/.*NEEDED.*\[\(.*\)\]/\1/p' | grep -vE '^(libxxhash|libstdc\+\+|libm|libgcc_s|libc|ld-linux.*)\.so')"
check 'the man page is installed' test -s "$S/prefix/share/man/man3/efs-objects.3"
undocumented() { local name; for name in $declared; do grep -q "\b$name\b" "$SOURCE/man/efs-objects.3" || echo "$name"; done; }
check 'it has each function' test -z "$(undocumented)"
export LD_LIBRARY_PATH=${library%/*}
check 'the header is C99' $cc -std=c99 -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -x c "$header"
check 'and C++' c++ -std=c++11 -Wall -Wextra -Wpedantic -Wshadow -Werror -fsyntax-only -x c++ "$header"
check 'the checker compiles' $cc -std=c99 -Wall -Wextra -Werror "$SOURCE/tests/cli/objects_check.c" -o "$S/objects_check" $(flags --cflags --libs)
awk '/^\.SH EXAMPLES/ { inside = 1 } inside && /^\.EX/ { code = 1; next } code && /^\.EE/ { exit } code' "$SOURCE/man/efs-objects.3" | sed 's/\\en/\\n/g; s/\\-/-/g' >"$S/example.c"
check 'the example of the man page compiles' $cc -std=c99 -Wall -Wextra -Werror "$S/example.c" -o "$S/example" $(flags --cflags --libs)
check 'and runs' "$S/example" "$S/examples"

PYTHON=$(numpy_python)
numpy_is_here() { "$PYTHON" -c 'import numpy' 2>/dev/null; }
cat >"$S/read.py" <<'END'
import json, os, sys
import numpy as np
store = sys.argv[1]
def view(name): return np.load(os.path.join(store, name + ".npy"), mmap_mode="r")
row, column = np.indices((400, 300))
u = view("temperature")
assert isinstance(u, np.memmap) and u.dtype == np.dtype("<f8") and (u == row * 1000 + column + 0.25).all()
assert (view("made") == row * 1000 + column + 0.75).all()
f = view("atoms/forces")
assert f.shape == (2, 3) and f.flags.f_contiguous and (f == [[1, 3, 5], [2, 4, 6]]).all()
assert view("atoms/flags").tolist() == [True, False, True]
assert sorted(n for n in os.listdir(os.path.join(store, "run")) if n.isdigit()) == ["00000002", "00000003"]
manifest = json.load(open(os.path.join(store, "run/00000003/manifest.json")))
assert [o["name"] for o in manifest["objects"]] == ["u"]
few = np.load(os.path.join(store, "few.npz"))
assert len(few.files) == 400 and (few["rows/399"] == np.arange(300) + 399000.75).all()
assert few.zip.testzip() is None
for name, array in (("temperature", u), ("atoms/forces", f)):
    saved = os.path.join(sys.argv[2], "saved.npy")
    np.save(saved, array)
    assert open(saved, "rb").read() == open(os.path.join(store, name + ".npy"), "rb").read(), name
END
cat >"$S/write.py" <<'END'
import os, sys
import numpy as np
os.makedirs(sys.argv[1], exist_ok=True)
for i, dtype in enumerate("?bBhHiIlLefdgFDG"):
    np.save(os.path.join(sys.argv[1], "good%d.npy" % i), np.ones((2, 3), dtype=dtype))
for name, array in (("strings", np.array(["a"])), ("objects", np.array([None])), ("times", np.array([0], "M8[ns]")), ("structs", np.zeros(2, [("a", "f8")]))):
    np.save(os.path.join(sys.argv[1], name + ".npy"), array, allow_pickle=True)
np.savez(os.path.join(sys.argv[1], "saved.npz"), a=np.ones(9), b=np.ones(99, "f4"))
np.savez_compressed(os.path.join(sys.argv[1], "packed.npz"), a=np.ones(9))
for version in ((2, 0), (3, 0)):
    with open(os.path.join(sys.argv[1], "version%d.npy" % version[0]), "wb") as file:
        np.lib.format.write_array(file, np.ones(4), version=version)
END
no_numpy="$PYTHON has no numpy; EFS_NUMPY_PYTHON names another Python"
beside_numpy() {  # beside_numpy NAME STORE
  mkdir -p "$S/saved"
  if numpy_is_here; then check "NumPy maps and saves the same files ($1)" "$PYTHON" "$S/read.py" "$2" "$S/saved"
  else skip "NumPy beside it ($1)" "$no_numpy"; fi
}

# --- a plain directory ---
check_exit 'every call in a directory' 0 '^temperature$' "$S/objects_check" "$S/plain"
check 'the names in order' test "$said" = $'atoms/flags\natoms/forces\nmade\ntemperature'
check 'the draft of the dead process is there' test "$(find "$S/plain" -name '*.part' | wc -l)" = 1
beside_numpy 'directory' "$S/plain"
check_exit 'a missing object' 1 "cannot view nosuch \($S/plain/nosuch.npy\): No such file or directory. Check the name" "$S/objects_check" "$S/plain" bad nosuch
check 'the open has removed the draft' test -z "$(find "$S/plain" -name '*.part')"
check_exit 'without a directory and without a mount' 1 'EFS_MOUNT is not set. Name a directory' "$S/objects_check"
if numpy_is_here; then
  check "NumPy's files" "$PYTHON" "$S/write.py" "$S/numpy"
  for name in $(cd "$S/numpy" && ls | grep -E '^(good|version)' | sed 's/\.npy$//'); do check "are objects: $name" "$S/objects_check" "$S/numpy" bad "$name"; done
  for name in a b; do check "the arrays of numpy.savez are loaded: $name" "$S/objects_check" "$S/numpy" bundle saved $name; done
  check_exit 'but not those of savez_compressed' 1 'is compressed in its bundle. Save it with numpy.savez' "$S/objects_check" "$S/numpy" bundle packed a
  for name in strings objects times structs; do check_exit "but not $name" 1 'is not supported' "$S/objects_check" "$S/numpy" bad "$name"; done
else skip "NumPy's files" "$no_numpy"; fi

# --- mounts, and the stage-out of the store ---
for options in '' daemon-io; do
  fresh "objects$options" 'outputs: [ [ path: "**/*.part", flags: temporary ], [ path: objects ] ]'
  # The second program removes the draft of the first, and replaces its objects but not its versions.
  check_exit "every call on a mount ($options)" 0 '^1 drafts$' "$EFS" run ${options:+-o $options} "$JOB" -- \
    sh -c "$S/objects_check && rm -r \"\$EFS_MOUNT/objects/run\" && $S/objects_check && echo \$(find \"\$EFS_MOUNT\" -name '*.part' | wc -l) drafts"
  check 'with its names' grep -qx temperature <<<"$said"
  for name in temperature made atoms/forces atoms/flags run/00000003/u; do check "exported: $name" cmp "$OUT/objects/$name.npy" "$S/plain/$name.npy"; done
  check 'the bundle' cmp "$OUT/objects/few.npz" "$S/plain/few.npz"
  check 'the manifest, too' cmp "$OUT/objects/run/00000003/manifest.json" "$S/plain/run/00000003/manifest.json"
  check 'no removed version' test ! -e "$OUT/objects/run/00000001"
  check 'and no draft: the rule of the job file' test -z "$(find "$OUT" -name '*.part')"
  beside_numpy "exported, $options" "$OUT/objects"
done
finish
