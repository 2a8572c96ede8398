#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The RPM: its contents and dependencies; and rpm installs it into a root directory of its own, and
# below another prefix there, where it runs a job, and removes it without a trace.
#   rpm_test.sh BUILD_DIR
set -uo pipefail
build=$(cd "${1:?usage: $0 BUILD_DIR}" && pwd)
. "$(dirname "$0")/../cli/lib.sh" "$build/bin"
command -v rpmbuild >/dev/null && command -v cpack >/dev/null && [ -e "$build/CPackConfig.cmake" ] ||
  { skip 'the RPM' 'no rpmbuild (Debian: package rpm), cpack or CPackConfig.cmake'; finish; }

check 'cpack' bash -c "cd $build && cpack -G RPM -B $S/package"
package=$(ls "$S"/package/efs-*.rpm 2>/dev/null)
[ -s "$package" ] || { fail 'there is a package'; finish; }
tell() { rpm -qp --dbpath "$S/none" "$@" "$package" 2>/dev/null; }
none() { ! grep -E "$@"; }

# --- what it contains and needs ---
files=$(tell -l)
for file in bin/efs bin/efsd sbin/mount.fuse.efs share/man/man1/efs.1 lib/systemd/user/efs@.service lib/systemd/system/efs-clean.timer share/fish/vendor_completions.d/efs.fish; do
  check "has $file" grep -qxE "/usr/$file(\.gz)?" <<<"$files"
done
needs=$(tell --requires)
for library in libc.so libyaml-cpp libpmem libxxhash fuse3; do check "needs $library" grep -q "^$library" <<<"$needs"; done
check 'offers its libraries' grep -q '^libefs\.so\.1' <<<"$(tell --provides)"
if grep -q '^/usr/lib/efs/libfuse3' <<<"$files"; then
  check 'does not need the libfuse that it brings' none '^libfuse3' <<<"$needs"
  check 'and does not offer it' none '^libfuse3' <<<"$(tell --provides)"
  check 'its licence is named' grep -q LGPL <<<"$(tell --qf '%{LICENSE}')"
else
  check 'needs libfuse' grep -q '^libfuse3' <<<"$needs"
fi
listed=$(tell -lv)
check 'all belongs to root' none -v ' root +root ' <<<"$listed"
check 'nothing is writable for others, nothing is set-id' none '^[^l].{4}w|^[^l].{7}w|^...s|^......s' <<<"$listed"
check 'it owns no directory of others' none '^/usr(/s?bin|/lib|/lib/systemd.*(system|user)|/share/man.*/man.|/share/fish.*completions.d|/share/zsh.*functions)?$' <<<"$files"
check 'it says what it is' grep -q 'batch job' <<<"$(tell --qf '%{DESCRIPTION}')"

# --- installed ---
[ "$(id -u)" = 0 ] || { skip 'install, run, remove' 'only root can install into another root'; finish; }
# into ROOT ARGUMENT...: rpm in a root without the packages of this machine; the programs run with its libraries
into() { local root=$1; shift; rpm --root "$root" --nodeps --noscripts "$@"; }
# works NAME BINARIES: a job with the installed efs
works() {
  fresh "$1"
  check "$1: its daemon is found" test "$("$2/efsd" --version)" = "$("$2/efs" --version | sed s/efs/efsd/)"
  check "$1: a job runs" "$2/efs" run "$JOB" -- sh -c 'cat "$EFS_MOUNT/input/a" >"$EFS_MOUNT/result"'
  check "$1: its result is back" grep -qx alpha "$OUT/result"
}
mkdir "$S/root" "$S/moved"
check 'rpm installs it' into "$S/root" -i "$package"
check 'the files are as they were packed' into "$S/root" -V efs
works own-root "$S/root/usr/bin"
check 'no path of the build is in it' bash -c "! grep -rlF '$build' $S/root/usr"
check 'rpm removes it' into "$S/root" -e efs
check 'and nothing of it is left' none -i efs <<<"$(find "$S/root" -path '*/lib/rpm' -prune -o -print | sed "s,^$S/root,,")"

check 'rpm installs it below another prefix' into "$S/moved" -i --relocate /usr=/opt/site "$package"
check 'nothing is elsewhere' test "$(ls "$S/moved/opt") $(ls -d "$S"/moved/usr/bin 2>/dev/null)" = 'site '
works moved "$S/moved/opt/site/bin"
check 'efs.pc leads there' test "$(realpath "$(PKG_CONFIG_PATH=$(dirname "$(find "$S/moved/opt" -name efs.pc)") pkg-config --variable=includedir efs)")" = "$S/moved/opt/site/include"
finish
