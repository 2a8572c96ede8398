#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Makes the boot files of a guest with persistent memory: kernel, initramfs and root, in OUT; once.
# Packages come from the machine's own Debian sources. The guest has the same release, because it
# runs this machine's programs.
#   build.sh OUT BIN_DIR        as root, on Debian, with some GiB of room
# Debian 12's QEMU (7.2) panics in half of all boots of such a guest: use version 8 or later, as in
# Debian 13 or in backports.
set -euo pipefail
out=$1 bin=$(cd "$2" && pwd) here=$(cd "$(dirname "$0")" && pwd)
mkdir -p "$out"; cd "$out"
[ ! -e complete ] || exit 0
say() { echo "vm: $*" >&2; }

say 'packages of this machine'
apt-get install -y --no-install-recommends qemu-system-x86 mmdebstrap cpio kmod e2fsprogs >apt.log 2>&1 || { tail -n 5 apt.log >&2; exit 1; }
release=$(. /etc/os-release && echo "$VERSION_CODENAME")
kernel=$(apt-cache search --names-only '^linux-image-[0-9].*-cloud-amd64$' | awk '{ print $1 }' | sort -V | tail -n 1)
[ -n "$kernel" ] || { say 'no package of a kernel for virtual machines'; exit 1; }

say "root of $release with $kernel"
# The packages of the programs' libraries; libraries in a private prefix are copied as they are.
libraries=$(ldd "$bin/efs" "$bin/efsd" | awk '/=> \// { print $3 }' | sort -u | xargs readlink -f | sort -u)
packages=$(for library in $libraries; do dpkg -S "$library" 2>/dev/null || dpkg -S "${library#/usr}" 2>/dev/null || :; done | cut -d: -f1 | sort -u | paste -sd,)
mmdebstrap --variant=minbase --include="ndctl,fuse3,e2fsprogs,kmod,busybox-static,python3-minimal,procps,util-linux,$packages" "$release" root.tar >root.log 2>&1 || { tail -n 5 root.log >&2; exit 1; }
rm -rf root kernel initrd; mkdir root kernel initrd
tar -xf root.tar -C root; rm root.tar
rm -f root/usr/lib/modprobe.d/nvdimm-security.conf    # it asks for keys that do not exist
(cd kernel && apt-get download "$kernel" >../apt.log 2>&1 && dpkg-deb -x ./*.deb .)
cp kernel/boot/vmlinuz-* vmlinuz
modules=$(echo kernel/usr/lib/modules/* kernel/lib/modules/* | tr ' ' '\n' | grep -v '\*' | head -n 1) version=$(basename "$modules")
mkdir -p root/usr/lib/modules; cp -a "$modules" root/usr/lib/modules/
[ -e root/lib ] || ln -s usr/lib root/lib
chroot root depmod "$version"
for library in $libraries; do dpkg -S "$library" >/dev/null 2>&1 || dpkg -S "${library#/usr}" >/dev/null 2>&1 || cp "$library" root/usr/local/lib/; done
chroot root ldconfig

say 'initramfs'
mkdir -p initrd/{bin,modules,proc,sys,dev,new}
cp root/usr/bin/busybox initrd/bin/ 2>/dev/null || cp root/bin/busybox initrd/bin/
for module in virtio_pci virtio_blk ext4; do chroot root modprobe -S "$version" --show-depends "$module" | awk '/^insmod/ { print $2 }'; done | awk '!seen[$0]++' |
  while read -r file; do
    cp "root$file" initrd/modules/; name=$(basename "$file")
    case $name in *.xz) xz -d "initrd/modules/$name" ;; *.zst) zstd -q -d --rm "initrd/modules/$name" ;; esac
    name=${name%.xz}; echo "${name%.zst}"
  done >initrd/modules/list
cp "$here/guest/init" initrd/init; cp "$here/guest/first" root/first; chmod 755 initrd/init root/first
(cd initrd && find . | cpio -o -H newc 2>/dev/null | gzip -1) >initrd.img
rm -f root.img; mke2fs -q -t ext4 -d root root.img 3G 2>/dev/null
rm -rf root kernel initrd
: >complete
