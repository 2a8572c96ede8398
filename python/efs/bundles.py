# SPDX-License-Identifier: BSD-3-Clause
"""Bundles: many small arrays in one file."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING, Any, Optional

import numpy as np

from . import _zip
from ._files import failed
from ._library import Error, Handle, encoded
from ._memory import read_only
from ._objects import Objects
from .versions import Pending

_SUFFIX = b".npy"
if TYPE_CHECKING:  # NumPy 1.20 cannot evaluate it
    _Bytes = np.ndarray[Any, Any]


class Bundle(Objects):
    """Many small arrays in one file NAME.npz: read-only."""

    def __init__(
        self, handle: Handle, directory: str, sync: bool, file: Optional[_Bytes] = None
    ) -> None:
        """`file` has the bytes of the bundle, if they are mapped."""
        super().__init__(handle, directory, sync)
        self._file = file

    def close(self) -> None:
        self._file = None
        super().close()

    def arrays(self, prefix: str = "") -> dict[str, np.ndarray[Any, Any]]:
        """Views of all arrays, over one mapping: ten thousand take some hundredths of a second."""
        if self._file is None or not self._handle.open:
            return super().arrays(prefix)
        try:
            return self._members(self._file, encoded(prefix))
        except (_zip.Damaged, TypeError, ValueError, IndexError):
            return super().arrays(prefix)  # the library says what is wrong

    def _members(self, file: _Bytes, prefix: bytes) -> dict[str, np.ndarray[Any, Any]]:
        """The arrays. The library reads each header that differs from the one before, each that is
        not of version 1.0, and each array that is not aligned."""
        found: dict[str, np.ndarray[Any, Any]] = {}
        make, data, last, length, room = np.ndarray, memoryview(file), b"", 0, 0
        shape: tuple[int, ...] = ()
        dtype = np.dtype("f8")
        order: Any = "C"
        for name, begin, end in _zip.places(data):
            if not name.endswith(_SUFFIX) or not name.startswith(prefix):
                continue
            key = name[:-4].decode()
            aligned = (begin + length) % dtype.alignment == 0
            if length and aligned and data[begin : begin + length] == last:
                if begin + room > end:
                    raise _zip.Damaged("an array ends behind its member")
                found[key] = make(shape, dtype, file, begin + length, None, order)
                continue
            array = found[key] = self[key]
            shape, dtype = array.shape, array.dtype
            order = "C" if array.flags.c_contiguous else "F"
            known = data[begin + 6] == 1
            length = 10 + data[begin + 8] + (data[begin + 9] << 8) if known else 0
            room, last = length + array.nbytes, bytes(data[begin : begin + length])
        return found

    def dump(self, name: str, value: Any, sync: Optional[bool] = None) -> None:
        raise self._only_arrays(f"dump {name}")

    def load_object(self, name: str, verify: bool = True) -> Any:
        raise self._only_arrays(f"load {name}")

    def remove_object(self, name: str) -> None:
        raise self._only_arrays(f"remove {name}")

    def objects(self, prefix: str = "") -> list[str]:
        return []

    def _only_arrays(self, what: str) -> Error:
        reason = "a bundle has arrays only"
        return failed(f"{what} ({self._directory})", errno.ENOTSUP, reason, "Use the store itself")


class NewBundle(Pending, Bundle):
    """A bundle that is invisible until commit(), which replaces the old one."""


class OpenFile:
    """The file of a bundle while the library opens it."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._fd = -1
        try:
            flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
            self._fd = os.open(path, flags)
        except (OSError, ValueError):
            pass  # the library says why

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)

    def mapped(self) -> Optional[_Bytes]:
        """The bytes of the file that the library has opened; None if that may be another one."""
        try:
            status = os.fstat(self._fd)
            if not os.path.samestat(status, os.stat(self._path, follow_symlinks=False)):
                return None
            return read_only(self._fd, status.st_size)
        except OSError:
            return None
