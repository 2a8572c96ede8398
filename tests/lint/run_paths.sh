# SPDX-License-Identifier: BSD-3-Clause
# Sourced: the directories in which programs and libraries search for libraries (RPATH and RUNPATH),
# from readelf.

# run_path_of FILE: prints its entries, one a line. The loader takes an empty entry for the working
# directory; it is printed as "(empty)".
run_path_of() { readelf -d "$1" 2>/dev/null | sed -nE 's/.*\((RPATH|RUNPATH)\).*\[(.*)\]$/\2:/p' | tr ':' '\n' | sed '$d; s/^$/(empty)/'; }

# relative_run_paths DIR [ALLOWED]: prints "FILE: ENTRY" for each entry in the ELF files below DIR
# that is neither absolute nor ALLOWED.
relative_run_paths() {
  local file entry
  find "$1" -type f \( -perm /111 -o -name '*.so*' \) -print0 | while IFS= read -r -d '' file; do
    [ "$(head -c 4 "$file" | tr -d '\177')" = ELF ] || continue
    run_path_of "$file" | while IFS= read -r entry; do
      case $entry in /* | "${2:-/}") ;; *) echo "$file: $entry" ;; esac
    done
  done
}
