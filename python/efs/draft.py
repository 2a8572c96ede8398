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
from ._library import SYNC, Handle, encoded, lib
from ._memory import MAP_FIXED, libc, map_memory

_DRAFT = re.compile(rb"/eo-[0-9a-f]{16}\.part$")


class _Region:
    """A mapping of a draft's file, apart from the library's: that one ends with the draft.

    The arrays over it have it as their base. After detach() they have the same elements in memory
    of their own, so a program that still writes to one changes no object."""

    def __init__(self, path: bytes, offset: int, info: Info) -> None:
        flags = os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        self._size = 0
        self._fd = os.open(path, os.O_RDONLY | flags)  # of a private mapping
        try:
            self._size = os.fstat(self._fd).st_size
            writer = os.open(path, os.O_RDWR | flags)
            try:
                if not stat.S_ISREG(os.fstat(writer).st_mode) or not self._same(writer):
                    raise OSError(errno.ESTALE, "the draft was replaced")
                self._address = map_memory(None, self._size, mmap.MAP_SHARED, writer)
            finally:
                os.close(writer)
        except BaseException:
            os.close(self._fd)
            self._size = 0
            raise
        self.__array_interface__ = interface(self._address + offset, info, False)

    def _same(self, fd: int) -> bool:
        return os.path.samestat(os.fstat(self._fd), os.fstat(fd))

    def detach(self) -> None:
        try:
            map_memory(self._address, self._size, mmap.MAP_PRIVATE | MAP_FIXED, self._fd)
        except OSError:  # a file system without such mappings
            data = ctypes.string_at(self._address, self._size)
            flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_FIXED
            map_memory(self._address, self._size, flags, -1)
            ctypes.memmove(self._address, data, self._size)
        os.close(self._fd)
        self._fd = -1

    def __del__(self, unmap: Any = libc.munmap, close: Any = os.close) -> None:
        if self._size:
            unmap(self._address, self._size)
            if self._fd >= 0:
                close(self._fd)


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


class Draft:
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
        self._sync = sync
        self._handle = Handle(pointer.value, lib.eo_discard)
        self._region = self._mapped(info, lib.eo_data(pointer))
        if self._region is not None:
            self._array = np.asarray(self._region)
        else:
            self._array = np.zeros(info.shape, info.dtype, order=order)  # type: ignore[call-overload]

    @staticmethod
    def _mapped(info: Info, address: int) -> Optional[_Region]:
        found = _file_of(address)
        try:
            return _Region(*found, info) if found else None
        except OSError:
            return None  # without /proc, for example: publish() copies the array then

    @property
    def array(self) -> np.ndarray[Any, Any]:
        return self._array

    def publish(self, sync: Optional[bool] = None) -> None:
        """Gives the draft its name."""
        if not self._handle.open:
            raise ValueError("the draft was published or discarded")
        if self._region is None:
            self._put()
        self._detach()
        self._handle.end(lib.eo_publish, SYNC if (self._sync if sync is None else sync) else 0)

    def _put(self) -> None:
        try:
            self._handle.call(lib.eo_put, None, None, self._array.ctypes.data)
        except BaseException:
            self.discard()
            raise

    def discard(self) -> None:
        self._detach()
        self._handle.discard()

    def _detach(self) -> None:
        region, self._region = self._region, None
        if region is not None:
            region.detach()

    def __enter__(self) -> np.ndarray[Any, Any]:
        return self._array

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        if kind is not None:
            self.discard()
        elif self._handle.open:
            self.publish()

    def __del__(self) -> None:
        if getattr(self, "_region", None) is not None:
            self._detach()


__all__ = ["Draft"]
