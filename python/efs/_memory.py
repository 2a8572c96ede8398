# SPDX-License-Identifier: BSD-3-Clause
"""Mappings of files that end with the last array over them."""

from __future__ import annotations

import ctypes
import mmap
import os
from typing import Any, Optional

import numpy as np

libc = ctypes.CDLL(None, use_errno=True)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [
    ctypes.c_void_p,
    ctypes.c_size_t,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_int,
    ctypes.c_long,
]
libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]

MAP_FIXED = 0x10
_FAILED = ctypes.c_void_p(-1).value
WRITABLE = mmap.PROT_READ | mmap.PROT_WRITE
_NORESERVE = getattr(mmap, "MAP_NORESERVE", 0)


def map_memory(
    address: Optional[int], size: int, flags: int, fd: int, access: int = WRITABLE
) -> int:
    """Maps a file from its begin, or with fd -1 new memory."""
    result = libc.mmap(address, size, access, flags, fd, 0)
    if result == _FAILED:
        error = ctypes.get_errno()
        raise OSError(error, os.strerror(error))
    return int(result)


class _Whole:
    """A mapping of a whole file, for NumPy."""

    def __init__(self, fd: int, size: int, flags: int, access: int) -> None:
        self._size = 0
        self._address = map_memory(None, size, flags, fd, access)
        self._size = size
        self.__array_interface__ = {
            "version": 3,
            "typestr": "|u1",
            "shape": (size,),
            "data": (self._address, access != WRITABLE),
        }

    def __del__(self, unmap: Any = libc.munmap) -> None:
        if self._size:
            unmap(self._address, self._size)


def private(fd: int, size: int) -> memoryview:
    """The bytes of a file. A write to them is a copy of its own and does not reach the file.

    Unlike an mmap.mmap it needs no descriptor while it lives."""
    return memoryview(np.asarray(_Whole(fd, size, mmap.MAP_PRIVATE | _NORESERVE, WRITABLE)))


def read_only(fd: int, size: int) -> np.ndarray[Any, Any]:
    """The bytes of a file."""
    return np.asarray(_Whole(fd, size, mmap.MAP_SHARED, mmap.PROT_READ))
