#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""own_mounts.py [--keep MOUNT] COMMAND...: runs it in a mount namespace of its own, without the mounts of efs that are there.

A copy of somebody else's mount would keep his `efs stop` waiting until COMMAND ends; MOUNT is the one that is to wait, or none.
Needs the right to make mount namespaces; exits with 125 without it, and does not run COMMAND."""
import ctypes, os, sys

CLONE_NEWNS, MS_REC, MS_PRIVATE, MNT_DETACH, UMOUNT_NOFOLLOW = 0x20000, 0x4000, 1 << 18, 2, 8
libc = ctypes.CDLL(None, use_errno=True)


def call(what, *arguments):
    if getattr(libc, what)(*arguments) != 0:
        print(f"{sys.argv[0]}: {what}: {os.strerror(ctypes.get_errno())}", file=sys.stderr)
        sys.exit(125)


def efs_mounts():  # the innermost first
    fields = (line.split(b" ") for line in open("/proc/self/mounts", "rb"))
    found = [line[1].decode("unicode_escape").encode("latin-1") for line in fields if line[2] == b"fuse.efs"]
    return reversed(found)


command, keep = sys.argv[1:], None
if command[:1] == ["--keep"]:
    keep, command = os.fsencode(os.path.realpath(os.path.dirname(command[1])) + "/" + os.path.basename(command[1])), command[2:]
call("unshare", CLONE_NEWNS)
call("mount", b"none", b"/", None, MS_REC | MS_PRIVATE, None)
for mount in efs_mounts():
    if mount != keep:
        libc.umount2(mount, MNT_DETACH | UMOUNT_NOFOLLOW)  # one that its owner has unmounted meanwhile is gone
os.execvp(command[0], command)
