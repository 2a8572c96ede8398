#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# No program, library or plugin of the build searches for libraries in a directory that depends on
# the working directory: a program run in another user's directory would load that user's code.
# package/package_test.sh checks the installed files.
#   run_path_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
. "$SOURCE/tests/lint/run_paths.sh"
command -v readelf >/dev/null || { skip 'run paths' 'no readelf (binutils)'; finish; }
nothing() { [ -z "$1" ] || { echo "$1"; return 1; }; }

# --- the check can fail ---
if command -v "${CC:-cc}" >/dev/null; then
  mkdir "$S/elf"
  echo 'int main(void) { return 0; }' >"$S/main.c"
  for path in /a: :/a /a::/b lib '$ORIGIN/lib' /a:/b; do
    "${CC:-cc}" "$S/main.c" -o "$S/elf/program" "-Wl,-rpath,$path" 2>/dev/null
    if [ "$path" = /a:/b ]; then check 'absolute paths are good' nothing "$(relative_run_paths "$S/elf")"
    else check_not "the run path $path is found" nothing "$(relative_run_paths "$S/elf")"; fi
  done
else skip 'the check can fail' 'no C compiler'; fi

# --- the build ---
check 'there are programs' test -n "$(run_path_of "$BIN/efsd")$(readelf -h "$BIN/efsd" 2>/dev/null | grep -c ELF)"
for part in bin lib slurm-plugin; do
  [ ! -d "$BIN/../$part" ] || check "no relative run path in $part" nothing "$(relative_run_paths "$BIN/../$part" '$ORIGIN/../lib/efs')"
done
finish
