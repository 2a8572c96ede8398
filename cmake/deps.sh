#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Installs the packages that efs needs to build and to test on Debian 12 or 13 (as root; without
# arguments).
#
# All packages come from Debian. Two must be newer than those of Debian 12:
#   * libfuse >= 3.17 (passthrough): Debian's newer source package, built into a private prefix.
#   * Catch2 3: from backports if the release has only version 2.
# The mirror is that of the machine's own apt configuration.
#
#   usage: cmake/deps.sh [--build | --demo | --slurm | --mpi | --programs | --criu]
# --build installs only what the build without tests needs. --demo adds the programs that `make demo`
# runs. --slurm adds the packages for the Slurm plugin, and Slurm and munge for its tests (no daemon is
# started). --mpi adds MPI (MPICH, unless the machine has an mpicc that works, or runs Open MPI) and
# gfortran, for the tests of libefs-objects in other languages. --programs adds PMDK, memkind,
# bubblewrap and fish, for the tests with programs that use the mount or complete commands.
# --criu adds CRIU, for the tests with checkpoints of processes; it builds Debian 13's into the prefix
# (2 minutes) if the release's does not work with this kernel.
#   EFS_PREFIX   prefix of the private libfuse (default /opt/efs-deps)
set -euo pipefail

prefix=${EFS_PREFIX:-/opt/efs-deps}
fuse_wanted=3.17.0
say() { printf 'deps: %s\n' "$*" >&2; }
die() { say "$*"; exit 1; }

command -v apt-get >/dev/null || die "this script knows apt only; install the packages listed in $0 by hand"
[ "$(id -u)" = 0 ] || die "installing packages needs root: run 'sudo make deps'"

export DEBIAN_FRONTEND=noninteractive
build=(g++ make cmake ninja-build pkg-config ca-certificates fuse3 libfuse3-dev libpmem-dev libyaml-cpp-dev
       libcli11-dev libspdlog-dev nlohmann-json3-dev libxxhash-dev dpkg-dev file)
tests=(libbenchmark-dev clang-19 clang-format-19 libclang-rt-19-dev attr acl libcap2-bin python3 python3-numpy python3-pip
       sqlite3 zsh fio stress-ng util-linux e2fsprogs psmisc debootstrap man-db)
common=("${build[@]}")
[ "${1:-}" = --build ] || common+=("${tests[@]}")
demo=(lammps hdf5-tools)
mpi=(gfortran)
programs=(libpmemobj-dev libmemkind-dev bubblewrap fish)
criu_build=(libprotobuf-dev libprotobuf-c-dev protobuf-c-compiler protobuf-compiler libnl-3-dev libcap-dev libnet1-dev
            uuid-dev libbsd-dev libaio-dev python3-protobuf dpkg-dev xz-utils)
# A package that only runs programs of Open MPI brings an mpicc that finds no header.
if ! mpicc -E -xc - <<<'#include <mpi.h>' >/dev/null 2>&1; then
  if mpirun --version 2>/dev/null | grep -q 'Open MPI'; then mpi+=(libopenmpi-dev); else mpi+=(mpich libmpich-dev); fi
fi
slurm=(libslurm-dev slurmctld slurmd slurm-client slurm-wlm-basic-plugins munge lua5.1)

# Prints the machine's Debian mirror and keyring, from deb822 or one-line sources.
mirror() {
  local found
  found=$(cat /etc/apt/sources.list.d/*.sources 2>/dev/null | sed -n 's/^URIs:[[:space:]]*//p' | tr ' ' '\n' | grep -E '/debian/?$' | head -n 1 || true)
  [ -n "$found" ] || found=$(cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
    sed -nE 's/^deb(-src)?[[:space:]]+(\[[^]]*\][[:space:]]+)?([^[:space:]]+).*/\3/p' | grep -E '/debian/?$' | head -n 1 || true)
  [ -n "$found" ] || die "no Debian mirror found in /etc/apt; add one and run again"
  printf '%s\n' "$found"
}
keyring=/usr/share/keyrings/debian-archive-keyring.gpg

# Use separate apt lists, so that the machine's configuration does not change.
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
private_apt() {  # private_apt LINE... -- COMMAND...
  local lines=()
  while [ "$1" != -- ]; do lines+=("$1"); shift; done
  shift
  mkdir -p "$scratch/lists/partial"
  printf '%s\n' "${lines[@]}" > "$scratch/sources.list"
  local options=(-o "Dir::Etc::sourcelist=$scratch/sources.list" -o Dir::Etc::sourceparts=/dev/null -o "Dir::State::lists=$scratch/lists" -o APT::Sandbox::User=root)
  apt-get "${options[@]}" -qq update
  apt-get "${options[@]}" "$@"
}

missing() {  # prints the packages of its arguments that are not installed
  local package
  for package; do
    dpkg-query -W -f '${Status}\n' "$package" 2>/dev/null | grep -q 'ok installed' || printf '%s\n' "$package"
  done
}

install() {
  local wanted
  wanted=$(missing "$@")
  [ -n "$wanted" ] || return 0
  say "installing:" $wanted
  # shellcheck disable=SC2086
  apt-get install -qq -y --no-install-recommends $wanted >/dev/null
}

have_catch2() { [ -f /usr/lib/cmake/Catch2/Catch2Config.cmake ] || [ -f /usr/lib/x86_64-linux-gnu/cmake/Catch2/Catch2Config.cmake ] ||
                find /usr/lib/*/cmake /usr/share/cmake /usr/lib/cmake -path '*Catch2/Catch2Config.cmake' 2>/dev/null | grep -q .; }
catch2_major() { dpkg-query -W -f '${Version}' catch2 2>/dev/null | sed 's/^[0-9]*://; s/\..*//'; }

if [ -n "$(missing "${common[@]}")" ]; then apt-get -qq update; fi
install "${common[@]}"
[ "${1:-}" = --demo ] && { [ -z "$(missing "${demo[@]}")" ] || apt-get -qq update; install "${demo[@]}"; }

[ "${1:-}" = --slurm ] && { [ -z "$(missing "${slurm[@]}")" ] || apt-get -qq update; install "${slurm[@]}"; }

[ "${1:-}" = --mpi ] && { [ -z "$(missing "${mpi[@]}")" ] || apt-get -qq update; install "${mpi[@]}"; }

[ "${1:-}" = --programs ] && { [ -z "$(missing "${programs[@]}")" ] || apt-get -qq update; install "${programs[@]}"; }

# CRIU knows the memory layout of kernels: it must be newer than the kernel's last change of that.
build_criu() {
  install "${criu_build[@]}"
  ( cd "$scratch"
    for suite in trixie unstable; do
      private_apt "deb-src [signed-by=$keyring] $(mirror) $suite main" -- source -qq --download-only --tar-only criu >/dev/null && break
      rm -rf lists
    done
    mkdir criu && tar -xf criu_*.orig.tar.* -C criu --strip-components=1
    say "building $(basename criu_*.orig.tar.* | sed 's/\.orig.*//; s/_/ /') into $prefix"
    make -C criu -j "$(nproc)" criu NO_GNUTLS=1 >criu.log 2>&1 || { tail -n 40 criu.log >&2; exit 1; }
    command install -D criu/criu/criu "$prefix/sbin/criu" )
}
if [ "${1:-}" = --criu ] && ! "$prefix/sbin/criu" check >/dev/null 2>&1; then
  [ -z "$(missing criu)" ] || { apt-get -qq update; apt-get install -qq -y --no-install-recommends criu >/dev/null || say "no package criu"; }
  criu check >/dev/null 2>&1 || build_criu
fi

if [ "${1:-}" != --build ] && { ! have_catch2 || [ "$(catch2_major)" != 3 ]; }; then
  release=$(. /etc/os-release; printf %s "$VERSION_CODENAME")
  if [ "$(apt-cache policy catch2 | sed -n 's/ *Candidate: *\([0-9]*:\)\?\([0-9]*\).*/\2/p')" = 3 ]; then
    install catch2
  else
    say "installing catch2 3 from $release-backports"
    private_apt "deb [signed-by=$keyring] $(mirror) $release-backports main" -- install -qq -y --no-install-recommends catch2 >/dev/null
  fi
fi

# lizard counts branches for a lint. Debian has no package of it.
lizard=1.24.3
if [ "${1:-}" != --build ] && ! PYTHONPATH=$prefix/python python3 -c 'import lizard' 2>/dev/null; then
  say "installing lizard $lizard into $prefix/python"
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore --target "$prefix/python" "lizard==$lizard" ||
    say "lizard could not be installed: the lint for long functions is LEFT OUT"
fi

# libfuse: the distribution's if it is new enough, else Debian's newer source package in a private
# prefix.
fuse_version() { PKG_CONFIG_PATH="$prefix/lib/pkgconfig" pkg-config --modversion fuse3 2>/dev/null || echo 0; }
newer() { [ "$(printf '%s\n%s\n' "$1" "$2" | sort -V | tail -n 1)" = "$1" ]; }
if ! newer "$(fuse_version)" "$fuse_wanted"; then
  install meson dpkg-dev patch xz-utils
  ( cd "$scratch"
    for suite in unstable trixie; do
      private_apt "deb-src [signed-by=$keyring] $(mirror) $suite main" -- source -qq --download-only fuse3 >/dev/null && break
      rm -rf lists
    done
    dpkg-source --no-check -x fuse3_*.dsc fuse3 >/dev/null
    say "building libfuse $(sed -n "s/.*version: '\([0-9.]*\)'.*/\1/p" fuse3/meson.build | head -n 1) into $prefix"
    meson setup --prefix="$prefix" --libdir=lib --buildtype=release -Dutils=false -Dexamples=false -Dtests=false -Dinitscriptdir= build fuse3 >meson.log 2>&1 || { cat meson.log >&2; exit 1; }
    ninja -C build install >ninja.log 2>&1 || { tail -n 40 ninja.log >&2; exit 1; }
  ) || say "libfuse >= $fuse_wanted could not be built: efs will be built with $(fuse_version), without passthrough"
fi
say "ready (libfuse $(fuse_version))"
