# SPDX-License-Identifier: BSD-3-Clause
"""Drafts: arrays that a program computes in place before they have a name."""

from __future__ import annotations

import ctypes
import errno
import mmap
import os
import re
import stat
from types import TracebackType
from typing import Any, Optional

import numpy as np

from ._arrays import Info, described, interface
from ._files import failed
from ._library import SYNC, Error, Handle, encoded, lib, token_of
from ._memory import MAP_FIXED, libc, map_memory

_DRAFT = re.compile(rb"/eo-[0-9a-f]{16}\.part$")


class _Region:
    """A mapping of a draft's file, apart from the library's: that one ends with the draft.

    The arrays over it have it as their base. After detach() they have the same elements in memory
    of their own, so a program that still writes to one changes no object."""

    def __init__(self, path: bytes, offset: int, info: Optional[Info] = None) -> None:
        self._path = path
        self._size = 0
        self._fd = self._open(os.O_RDONLY)  # of the private mapping
        try:
            status = os.fstat(self._fd)
            if not stat.S_ISREG(status.st_mode):
                raise OSError(errno.ESTALE, "the draft was replaced")
            self.info = info or _info_of(self._fd)
            self._address = self._attached(None, status.st_size)
            self._size = status.st_size
        except BaseException:
            os.close(self._fd)
            raise
        dtype, shape, order = self.info
        address = self._address + offset
        self.__array_interface__ = interface(address, dtype.str, shape, order, False)

    def _open(self, mode: int) -> int:
        return os.open(self._path, mode | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)

    def _attached(self, address: Optional[int], size: int) -> int:
        fd = self._open(os.O_RDWR)
        try:
            if not os.path.samestat(os.fstat(self._fd), os.fstat(fd)):
                raise OSError(errno.ESTALE, "the draft was replaced")
            return map_memory(address, size, mmap.MAP_SHARED | (MAP_FIXED if address else 0), fd)
        finally:
            os.close(fd)

    def attach(self) -> None:
        """Undoes detach() of a draft that stays open."""
        self._attached(self._address, self._size)

    def detach(self) -> None:
        try:
            map_memory(self._address, self._size, mmap.MAP_PRIVATE | MAP_FIXED, self._fd)
        except OSError:  # a file system without such mappings
            data = ctypes.string_at(self._address, self._size)
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
            map_memory(self._address, self._size, flags, -1)
            ctypes.memmove(self._address, data, self._size)

    def close(self) -> None:
        os.close(self._fd)
        self._fd = -1

    def __del__(self, unmap: Any = libc.munmap, close: Any = os.close) -> None:
        if self._size:
            unmap(self._address, self._size)
            if self._fd >= 0:
                close(self._fd)


def _info_of(fd: int) -> Info:
    """What the header of a .npy file says."""
    read = {1: np.lib.format.read_array_header_1_0, 2: np.lib.format.read_array_header_2_0}
    with open(os.dup(fd), "rb") as file:
        version = np.lib.format.read_magic(file)[0]
        shape, fortran, dtype = read[version](file)
    return Info(dtype, shape, "F" if fortran else "C")


def _file_of(address: int) -> Optional[tuple[bytes, int]]:
    """The file of the library's mapping with this address, and the address's offset in it."""
    try:
        with open("/proc/self/maps", "rb") as maps:
            for line in maps:
                begin, _, end = line.split(b" ", 1)[0].partition(b"-")
                if int(begin, 16) <= address < int(end, 16):
                    path = line.rstrip(b"\n").split(None, 5)[-1]
                    return (path, address - int(begin, 16)) if _DRAFT.search(path) else None
    except OSError:
        pass
    return None


def _mapped(address: int, info: Optional[Info] = None) -> Optional[_Region]:
    found = _file_of(address)
    try:
        return _Region(*found, info) if found else None
    except (OSError, ValueError, KeyError):
        return None  # without /proc, for example


class _InPlace:
    """An array over a region, and the draft of the library that it belongs to."""

    def __init__(self, handle: Handle, region: Optional[_Region], sync: bool) -> None:
        self._handle = handle
        self._region = region
        self._sync = sync
        self._array: np.ndarray[Any, Any] = np.asarray(region)

    @property
    def array(self) -> np.ndarray[Any, Any]:
        return self._array

    def _end(self, function: Any, sync: Optional[bool]) -> None:
        """Detaches the array and ends the draft. With EBUSY the draft stays open."""
        region = self._region
        if region is not None:
            region.detach()
        flags = SYNC if (self._sync if sync is None else sync) else 0
        try:
            self._handle.end(function, flags, stays=errno.EBUSY)
        finally:
            if region is not None and self._handle.open:
                region.attach()
            else:
                self._close()

    def _close(self) -> None:
        region, self._region = self._region, None
        if region is not None:
            region.close()

    def discard(self) -> None:
        if self._region is not None:
            self._region.detach()
            self._close()
        self._handle.discard()

    def __enter__(self) -> np.ndarray[Any, Any]:
        return self._array

    def __del__(self) -> None:
        if getattr(self, "_region", None) is not None:
            self.discard()


class Draft(_InPlace):
    """An array that has no name yet. In a `with` it is the array, published at the end.

    An exception discards the draft, and the name keeps its old object. After publish() and
    discard() the array stays usable: it has the same elements, apart from the object."""

    def __init__(
        self, store: Handle, name: str, dtype: Any, shape: Any, order: str, sync: bool
    ) -> None:
        if order not in ("C", "F"):
            raise ValueError('order is "C" or "F"')
        sizes = (shape,) if hasattr(shape, "__index__") else tuple(shape)
        info = Info(np.dtype(dtype), tuple(n.__index__() for n in sizes), order)
        if any(n < 0 for n in info.shape):
            raise ValueError("negative dimensions are not allowed")
        pointer = ctypes.c_void_p()
        array = described(info.dtype, info.shape, order)
        store.call(lib.eo_create, encoded(name), ctypes.byref(array), ctypes.byref(pointer))
        handle = Handle(pointer.value, lib.eo_discard)
        super().__init__(handle, _mapped(lib.eo_data(pointer), info), sync)
        if self._region is None:  # publish() copies it
            self._array = np.zeros(info.shape, info.dtype, order=order)  # type: ignore[call-overload]

    def token(self) -> str:
        """For Store.join_draft() of another process, which fills the draft, too. It must have left
        before publish()."""
        if self._region is None:
            raise _no_mapping("pass the draft to another process")
        return token_of(self._handle, lib.eo_draft_token)

    def publish(self, sync: Optional[bool] = None) -> None:
        """Gives the draft its name. No other thread may write to the array meanwhile."""
        if not self._handle.open:
            raise ValueError("the draft was published or discarded")
        if self._region is None:
            self._put()
        self._end(lib.eo_publish, sync)

    def _put(self) -> None:
        try:
            self._handle.call(lib.eo_put, None, None, self._array.ctypes.data)
        except BaseException:
            self.discard()
            raise

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            if kind is None and self._handle.open:
                self.publish()
        finally:
            self.discard()


class JoinedDraft(_InPlace):
    """The draft of another process. In a `with` it is the array, and the end leaves it. After an
    exception the draft cannot be published."""

    def __init__(self, store: Handle, name: str, token: str, sync: bool) -> None:
        pointer = ctypes.c_void_p()
        join = lib.eo_join_draft
        store.call(join, encoded(name), encoded(token), ctypes.byref(pointer))
        handle = Handle(pointer.value, lib.eo_discard)
        region = _mapped(lib.eo_data(pointer))
        if region is None:
            raise _no_mapping(f"join the draft of {name}")
        super().__init__(handle, region, sync)

    def leave(self, sync: Optional[bool] = None) -> None:
        self._end(lib.eo_leave_draft, sync)

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        try:
            if kind is None and self._handle.open:
                self.leave()
        finally:
            self.discard()


def _no_mapping(what: str) -> Error:
    reason = "the file of the draft cannot be found in /proc/self/maps"
    return failed(what, errno.ENOTSUP, reason, "Mount /proc")
