#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# `make install` installs the right files in the right places, and they work there.
#   install_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
BUILD=$BIN/..
[ -r "$BUILD/cmake_install.cmake" ] || { skip 'installation' "$BIN is not in a build directory"; finish; }

sbin_before=$(ls -l /sbin/mount.fuse.efs 2>&1)
prefix=$S/opt
check_exit 'a prefix of one'\''s own says how mount(8) finds the helper' 0 "ln -s $prefix/sbin/mount.fuse.efs /sbin/mount.fuse.efs" cmake --install "$BUILD" --prefix "$prefix"
for file in bin/efs bin/efsd sbin/mount.fuse.efs share/man/man1/efs.1 share/man/man5/efs-job.5 share/bash-completion/completions/efs share/zsh/site-functions/_efs share/fish/vendor_completions.d/efs.fish lib/systemd/user/efs@.service lib/systemd/system/efs-clean.service lib/systemd/system/efs-clean.timer share/doc/efs/examples/minimal.yaml; do
  check "installs $file" test -f "$prefix/$file"
done
check_not 'completions are no examples' test -e "$prefix/share/doc/efs/examples/completion"
check_not 'nor are units' test -e "$prefix/share/doc/efs/examples/systemd"
check_exit 'for a package it says what the package has to do' 0 'On the target: .*ln -s /usr/local/sbin/mount.fuse.efs /sbin/mount.fuse.efs' env DESTDIR="$S/dest" cmake --install "$BUILD" --prefix /usr/local
check 'and installs below DESTDIR only' test -x "$S/dest/usr/local/sbin/mount.fuse.efs"
check_exit 'with the prefix /usr there is nothing to do' 0 'usr/sbin/mount.fuse.efs' env DESTDIR="$S/dest2" cmake --install "$BUILD" --prefix /usr
check_not 'and nothing is said' grep -q 'ln -s' <<<"$said"
check 'nothing of this touches /sbin' test "$(ls -l /sbin/mount.fuse.efs 2>&1)" = "$sbin_before"
check 'the installed efs runs' "$prefix/bin/efs" --version
check 'and its daemon is of the same version' test "$("$prefix/bin/efsd" --version)" = "$("$prefix/bin/efs" --version | sed s/efs/efsd/)"

# Tests the link in a namespace with its own /sbin, so that the machine's /sbin does not change.
if [ "$(id -u)" = 0 ] && unshare --mount true 2>/dev/null; then
  live() { "$SOURCE/tests/own_mounts.py" bash -c '
    set -e
    mkdir -p "$1/local" "$1/sbin"
    mount --bind "$1/local" /usr/local; mount --bind "$1/sbin" /usr/sbin
    shift
    eval "$1"' _ "$S/live" "$1"; }
  # cmake may be below /usr/local; then it cannot run in the namespace.
  if [[ $(readlink -f "$(command -v cmake)") != /usr/local/* ]] && [ "$(readlink -f /sbin)" = /usr/sbin ]; then
    check_exit 'on the running system /sbin gets a link' 0 'Installing: /sbin/mount.fuse.efs -> /usr/local/sbin/mount.fuse.efs' live "cmake --install '$BUILD' --prefix /usr/local && test -x /sbin/mount.fuse.efs"
    check_exit 'again is no error' 0 'Installing: /sbin/mount.fuse.efs' live "cmake --install '$BUILD' --prefix /usr/local"
    check_exit 'another'\''s file is left alone' 0 'is not ours' live "rm /usr/sbin/mount.fuse.efs; echo other >/usr/sbin/mount.fuse.efs; cmake --install '$BUILD' --prefix /usr/local; grep -q other /sbin/mount.fuse.efs"
  else
    skip 'the link in /sbin' 'cmake is below /usr/local, or /sbin is not /usr/sbin'
  fi
else
  skip 'the link in /sbin' 'needs root and mount namespaces'
fi

fresh installed
check 'the helper finds efs without a PATH to it' env PATH=/usr/bin:/bin "$prefix/sbin/mount.fuse.efs" "$JOB" "$MNT" -o rw
check 'and mounts' grep -qx alpha "$MNT/input/a"
check 'stop' "$prefix/bin/efs" stop installed
finish
