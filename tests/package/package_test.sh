#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The installed program and the Debian package: their contents; and the package installs, runs a job
# and is removed without a trace in a separate root. That root is made by debootstrap from the
# machine's own mirror, or is the machine's own root under an overlay. (With an argument, or
# EFS_PACKAGE_ROOT=overlay, only the overlay.)
#   package_test.sh BUILD_DIR [overlay]
set -uo pipefail
build=$(cd "${1:?usage: $0 BUILD_DIR [overlay]}" && pwd)
source=$(cd "$(dirname "$0")/../.." && pwd)
how=${2:-${EFS_PACKAGE_ROOT:-}}
. "$source/tests/cli/lib.sh" "$build/bin"
. "$source/tests/lint/run_paths.sh"
log=$S/log

# --- make install ---
check 'install below DESTDIR' env DESTDIR="$S/dest" cmake --install "$build" --prefix /usr
for file in bin/efs bin/efsd sbin/mount.fuse.efs share/man/man1/efs.1 share/man/man7/efs-intercept.7 share/man/man5/efs-job.5 share/man/man8/efsd.8 share/doc/efs/examples/minimal.yaml share/doc/efs/copyright lib/python3/dist-packages/efs/__init__.py share/doc/efs/examples/wordcount.py lib/efs/libefs-record.so; do
  check "installs $file" test -s "$S/dest/usr/$file"
done
# As on the target machine, whose root is DESTDIR here.
pc=$(find "$S/dest" -name efs.pc)
pc_flags() { PKG_CONFIG_PATH=${pc%/*} pkg-config "$@" efs; }
check 'efs.pc leads to what was installed' test "$(realpath "$(pc_flags --variable=prefix)")" = "$S/dest/usr"
check 'a program of the example compiles with it' ${CC:-cc} -std=gnu99 "$source/conf/api/stage.c" -o "$S/stage" $(pc_flags --cflags --libs)
check 'and runs with the library' grep -q "$S/dest/usr/" <<<"$(LD_LIBRARY_PATH=$(pc_flags --variable=libdir) ldd "$S/stage" | grep libefs)"
check 'find_package(efs) finds it' cmake -S "$source/tests/package/consumer" -B "$S/consumer" -DCMAKE_PREFIX_PATH="$S/dest/usr" -DEXAMPLE="$source/conf/api/stage.c" -DOBJECTS="$source/tests/cli/objects_check.c"
check 'a program compiles with its target' cmake --build "$S/consumer"
check 'and runs with the library' grep -q "$S/dest/usr/" <<<"$(ldd "$S/consumer/stage" | grep libefs)"
check 'efs-objects.pc leads to what was installed' test "$(realpath "$(PKG_CONFIG_PATH=${pc%/*} pkg-config --variable=includedir efs-objects)")" = "$S/dest/usr/include"
check 'the target of libefs-objects works, too' grep -q "$S/dest/usr/.*libefs-objects" <<<"$(ldd "$S/consumer/objects")"
check 'nothing outside' test "$(ls "$S/dest")" = usr
check 'the installed program runs' "$S/dest/usr/bin/efs" --version
check 'and finds the library of efs record' "$S/dest/usr/bin/efs" record --pfs "$S" -o "$S/recorded.yaml" -- true
rpath=$(readelf -d "$S/dest/usr/bin/efsd" | sed -n 's/.*R.*PATH.*\[\(.*\)\]/\1/p')
check 'no other program or library has a path of its own, and none a relative one' test -z "$(relative_run_paths "$S/dest" '$ORIGIN/../lib/efs')$(for file in usr/bin/efs $(cd "$S/dest" && find . -name '*.so*' -type f); do run_path_of "$S/dest/$file"; done)"
soname=$(readelf -d "$S/dest/usr/bin/efsd" | sed -n 's/.*NEEDED.*\[\(libfuse3[^]]*\)\]/\1/p')
check 'efsd needs libfuse' test -n "$soname"
bundled=0
if [ -n "$rpath" ]; then
  bundled=1
  check 'the only path of libraries is our own' test "$rpath" = '$ORIGIN/../lib/efs'
  check 'libfuse is there' test -s "$S/dest/usr/lib/efs/$soname"
  check 'and is the one that is taken' grep -q "$S/dest/usr/bin/../lib/efs/$soname\|$S/dest/usr/lib/efs/$soname" <<<"$(ldd "$S/dest/usr/bin/efsd")"
fi

# --- the package ---
command -v dpkg-deb >/dev/null && command -v dpkg-shlibdeps >/dev/null && [ -e "$build/CPackConfig.cmake" ] || { skip 'the package' 'no dpkg-deb, dpkg-shlibdeps (dpkg-dev) or CPackConfig.cmake'; finish; }
check 'cpack' bash -c "cd $build && cpack -G DEB -B $S/package"
deb=$(ls "$S"/package/efs_*.deb 2>/dev/null)
[ -s "$deb" ] || { fail 'there is a package'; finish; }
depends=$(dpkg-deb -f "$deb" Depends)
for library in libc6 libyaml-cpp libpmem libxxhash fuse3; do check "depends on $library" grep -qE "(^|, )$library" <<<"$depends"; done
if [ $bundled = 1 ]; then check_not 'does not depend on the libfuse that it brings' grep -q libfuse3 <<<"$depends"
else check 'depends on libfuse' grep -q libfuse3 <<<"$depends"; fi
check 'unpacks' dpkg-deb -x "$deb" "$S/unpacked"
check 'efs.pc of the package leads to what is in it' test "$(realpath "$(PKG_CONFIG_PATH=$(dirname "$(find "$S/unpacked" -name efs.pc)") pkg-config --variable=includedir efs)")" = "$S/unpacked/usr/include"
check 'no path of the build is in it' bash -c "! grep -rlF '$build' $S/unpacked"
check 'everything belongs to root' bash -c "! dpkg-deb -c $deb | grep -v ' root/root '"
check 'nothing is writable for others, nothing is set-id' bash -c "! dpkg-deb -c $deb | grep -v '^l' | grep -E '^.{5}w|^.{8}w|^...s|^......s'"

# --- in a separate root ---
[ "$(id -u)" = 0 ] || { skip 'install, run, remove' 'only root can enter another root'; finish; }
[ -c /dev/fuse ] || { skip 'install, run, remove' 'no /dev/fuse'; finish; }

# The actions in that root, as one script: each line that it prints is a check.
cat >"$S/inside.sh" <<'EOF'
set -u
unset ${!EFS_@}
say() { local name=$1; shift; if "$@" >/tmp/said 2>&1; then echo "ok $name"; else echo "not ok $name: $(tail -n 5 /tmp/said | tr '\n' ' ')"; fi; }
no() { ! "$@"; }
nothing() { [ -z "$1" ] || { echo "$1"; return 1; }; }
files() { find /bin /etc /lib /opt /sbin /srv /usr /var/lib -xdev -path /var/lib/dpkg -prune -o -print 2>/dev/null | sort; }
export PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive LC_ALL=C
$INSTALL_DEPENDS >/tmp/depends.log 2>&1 || echo "not ok dependencies: $(tail -n 3 /tmp/depends.log | tr '\n' ' ')"
files >/tmp/before
say 'dpkg -i' dpkg -i /tmp/efs.deb
say 'it is configured' sh -c 'dpkg -s efs | grep -q "^Status: install ok installed"'
say 'efs runs' efs --version
say 'every library is found' sh -c '! ldd /usr/bin/efs /usr/bin/efsd | grep "not found"'
mkdir -p /tmp/job/pfs/input /tmp/job/out
echo alpha >/tmp/job/pfs/input/a
cat >/tmp/job/job.yaml <<JOB
global-settings: {root-dir: /tmp/job/pfs, mount-dir: /tmp/job/mnt, results-dir: /tmp/job/out}
backends: [[id: ram, capacity: 64 MiB]]
resources: [[path: input]]
JOB
say 'a job runs' efs run /tmp/job/job.yaml -- sh -c 'cat "$EFS_MOUNT/input/a" >"$EFS_MOUNT/result"; grep " $EFS_MOUNT fuse.efs " /proc/self/mounts'
say 'its result is back' grep -qx alpha /tmp/job/out/result
say 'as the helper of mount' sh -c 'mkdir /tmp/job/mnt && mount -t fuse.efs /tmp/job/job.yaml /tmp/job/mnt && cmp /tmp/job/pfs/input/a /tmp/job/mnt/input/a && efs stop job'
say 'no process and no mount is left' sh -c '! grep fuse.efs /proc/self/mounts && [ -z "$(ls -A /run/efs)" ]'
rm -rf /run/efs
say 'dpkg --purge' dpkg --purge efs
files >/tmp/after
say 'nothing is left of it' nothing "$(comm -13 /tmp/before /tmp/after)"
say 'nothing else has gone' nothing "$(comm -23 /tmp/before /tmp/after)"
EOF

# enter ROOT: runs the script in the root, with the usual mounts of a system, in a new mount
# namespace that removes the mounts at its end.
enter() {
  cp "$deb" "$1/tmp/efs.deb" && cp "$S/inside.sh" "$1/tmp/inside.sh" || return 1
  "$SOURCE/tests/own_mounts.py" sh -c 'root=$1
    mount -t proc proc "$root/proc" && mount --rbind /dev "$root/dev" && mount -t tmpfs run "$root/run" || exit 9
    exec timeout 600 chroot "$root" bash /tmp/inside.sh' sh "$1" </dev/null
}
verdict() {  # verdict WHERE OUTPUT
  local line lines=0
  while IFS= read -r line; do
    case $line in
      'ok '*) ok; lines=$((lines + 1)) ;;
      'not ok '*) fail "$1: ${line#not ok }" ;;
    esac
  done <<<"$2"
  check "$1: every check was made" test "$lines" -ge 11
}

mirror=$(sed -n 's/^URIs:[[:space:]]*//p' /etc/apt/sources.list.d/*.sources 2>/dev/null | tr ' ' '\n' | grep -E '/debian/?$' | head -n 1)
[ -n "$mirror" ] || mirror=$(sed -nE 's/^deb[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+).*/\2/p' /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null | grep -E '/debian/?$' | head -n 1)
release=$(. /etc/os-release; echo "${VERSION_CODENAME:-}")
if [ "$how" = overlay ]; then skip 'in a root from debootstrap' 'not asked for'
elif ! command -v debootstrap >/dev/null; then skip 'in a root from debootstrap' 'debootstrap is not installed'
elif [ -z "$mirror" ] || [ -z "$release" ]; then skip 'in a root from debootstrap' 'no Debian mirror in the configuration of apt'
elif ! timeout 600 debootstrap --variant=minbase "$release" "$S/root" "$mirror" >"$log" 2>&1; then
  skip 'in a root from debootstrap' "debootstrap failed: $(tail -n 1 "$log")"
  grep -F " $S/root" /proc/self/mounts | cut -d' ' -f2 | tac | xargs -r umount
else
  cp /etc/resolv.conf "$S/root/etc/resolv.conf" 2>/dev/null
  # apt installs the dependencies first, so that only dpkg -i is tested, and not the network
  # connection.
  text=$(INSTALL_DEPENDS="apt-get -qq -y -o APT::Sandbox::User=root --no-install-recommends install $(dpkg-deb -f "$deb" Depends | tr ',' '\n' | sed 's/|.*//; s/(.*//' | tr -d ' ' | tr '\n' ' ')" enter "$S/root" 2>&1)
  verdict 'debootstrap' "$text"
fi
rm -rf --one-file-system "$S/root"

# The machine's own root, read-only below an overlay. The private prefix is hidden, because no other
# machine has it.
if [ "$(apt-get -s --no-install-recommends install "$deb" 2>/dev/null | grep -c '^Inst ')" != 1 ]; then skip 'in the machine'\''s root' 'its dependencies are not installed'
elif ! mkdir "$S/layer" || ! mount -t tmpfs layer "$S/layer" || ! mkdir "$S/layer/upper" "$S/layer/work" "$S/root" || ! mount -t overlay -o "lowerdir=/,upperdir=$S/layer/upper,workdir=$S/layer/work" overlay "$S/root" 2>"$log"; then
  skip 'in the machine'\''s root' "no overlay over it: $(tail -n 1 "$log")"
else
  rm -rf "$S/root/run/efs"
  prefix=$(sed -n 's/^EFS_PREFIX:PATH=//p' "$build/CMakeCache.txt")
  mount -t tmpfs tmp "$S/root/tmp"
  [ ! -d "$S/root$prefix" ] || mount -t tmpfs hidden "$S/root$prefix"
  text=$(INSTALL_DEPENDS=true enter "$S/root" 2>&1)
  verdict 'overlay' "$text"
fi
grep -F " $S/root" /proc/self/mounts | cut -d' ' -f2 | tac | xargs -r umount
while mounted "$S/layer"; do umount "$S/layer" || break; done
finish
