# SPDX-License-Identifier: BSD-3-Clause
"""Files that this package writes itself: drafts as the library has them, and their names."""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from ._library import Error

_REMEDIES = {
    errno.ENOSPC: "Remove files there or enlarge the file system",
    errno.EDQUOT: "Remove files there or ask for a larger quota",
    errno.EACCES: "Give this user access to the directory",
    errno.EPERM: "Give this user access to the directory",
    errno.EROFS: "Use a store on a file system that is mounted writable",
    errno.ENAMETOOLONG: "Choose a shorter name",
    errno.ENOTDIR: "Choose a name whose directories are not files",
    errno.ELOOP: "Replace the symbolic link by a directory",
    errno.EBADMSG: "Store it again; the file is damaged",
}
_ATTEMPTS = 100
_LARGEST_CALL = 1 << 30


def failed(what: str, code: int, reason: str = "", remedy: str = "") -> Error:
    """The error of a call of this package, in the form of the library's."""
    remedy = remedy or _REMEDIES.get(code, "Check the file system of the store")
    return Error(code, f"cannot {what}: {reason or os.strerror(code)}. {remedy}.")


@contextmanager
def described(what: str) -> Iterator[None]:
    """Turns an OSError into efs.Error, except for a missing file."""
    try:
        yield
    except (Error, FileNotFoundError):
        raise
    except OSError as error:
        raise failed(what, error.errno or errno.EIO) from error


@contextmanager
def parent(directory: str, name: str, make: bool) -> Iterator[tuple[int, str]]:
    """Opens the directory that has the last component of a name. Follows no symbolic link."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
    fd = os.open(directory, flags)
    *folders, last = name.split("/")
    try:
        for folder in folders:
            if make:
                try:
                    os.mkdir(folder, dir_fd=fd)
                except FileExistsError:
                    pass
            below = os.open(folder, flags | os.O_NOFOLLOW, dir_fd=fd)
            os.close(fd)
            fd = below
        yield fd, last
    finally:
        os.close(fd)


def node_mark() -> str:
    """Six digits for this boot of this node, as in the library: it sweeps only drafts with them."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read(6).ljust(6, "0")
    except OSError:
        return "000000"


def draft_name() -> str:
    return f"eo-{node_mark()}{os.urandom(5).hex()}.part"


def locked(fd: int, name: str, at: int) -> bool:
    """Locks a new draft. False if the sweep of another process has it, or has removed it."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:
        pass  # a file system without flock: no sweep removes drafts there
    try:
        return os.path.samestat(os.fstat(fd), os.stat(name, dir_fd=at, follow_symlinks=False))
    except FileNotFoundError:
        return False


def lock(fd: int, path: str) -> bool:
    """Waits for the lock of a directory. False, and it is closed, if the path is another one."""
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
    except OSError:
        pass  # a file system without flock
    try:
        if os.path.samestat(os.fstat(fd), os.stat(path, follow_symlinks=False)):
            return True
    except FileNotFoundError:
        pass
    unlock(fd)
    return False


def unlock(fd: int) -> None:
    """Ends the lock and closes the file. A child of another thread may have the descriptor."""
    try:
        fcntl.flock(fd, fcntl.LOCK_UN)
    except OSError:
        pass
    os.close(fd)


def _create(at: int) -> tuple[int, str]:
    flags = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC | os.O_NOFOLLOW
    for _ in range(_ATTEMPTS):
        name = draft_name()
        # Never writable for others, whatever the umask: load_object() refuses such a file.
        fd = os.open(name, flags, 0o644, dir_fd=at)
        if locked(fd, name, at):
            return fd, name
        os.close(fd)
    raise OSError(errno.EAGAIN, "other processes remove each new draft")


@contextmanager
def published(directory: str, name: str, sync: bool) -> Iterator[int]:
    """The descriptor of a new file that gets its name at the end; an exception removes it."""
    with parent(directory, name, True) as (at, last):
        fd, draft = _create(at)
        try:
            yield fd
            if sync:
                os.fdatasync(fd)
            else:
                # A close reports a delayed write that has failed. The lock stays with fd.
                os.close(os.dup(fd))
            os.rename(draft, last, src_dir_fd=at, dst_dir_fd=at)
        except BaseException:
            os.unlink(draft, dir_fd=at)
            raise
        finally:
            os.close(fd)
    if sync:
        sync_folders(directory, name)


def sync_folders(directory: str, name: str) -> None:
    """Makes the entries on the path of a name durable."""
    for depth in range(name.count("/") + 1):
        with parent(directory, name.rsplit("/", depth)[0], False) as (fd, _):
            os.fsync(fd)


def write_all(fd: int, data: memoryview, offset: int) -> None:
    while len(data):
        done = os.pwrite(fd, data[:_LARGEST_CALL], offset)
        data, offset = data[done:], offset + done
