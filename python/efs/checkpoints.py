# SPDX-License-Identifier: BSD-3-Clause
"""The program's own arrays in checkpoints."""

from __future__ import annotations

import ctypes
import errno
from typing import Any, Optional

import numpy as np

from ._arrays import of_data
from ._files import failed
from ._library import LATEST, encoded, lib
from ._objects import Objects
from .versions import number


class Checkpoints(Objects):
    """checkpoint() writes the protected arrays as a version, restore() fills them from one."""

    def protect(self, name: str, array: np.ndarray[Any, Any]) -> None:
        """Protects an array under a name. The store keeps the array alive until unprotect()."""
        what = f"protect {name}"
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise failed(what, errno.EINVAL, "it is not an array", "Use a numpy.ndarray")
        if not array.flags.writeable:
            raise failed(what, errno.EINVAL, "the array is read-only", "Protect a copy of it")
        if not array.flags.forc:
            raise failed(what, errno.EINVAL, "the array has strides", "Protect a contiguous one")
        memory = of_data(array, "C" if array.flags.c_contiguous else "F")
        self._handle.call(lib.eo_protect, encoded(name), ctypes.byref(memory))
        self._handle.memory[name] = array

    def unprotect(self, name: str) -> None:
        self._on_name(name, lib.eo_unprotect)
        self._handle.memory.pop(name, None)

    @property
    def protected(self) -> dict[str, np.ndarray[Any, Any]]:
        return dict(self._handle.memory)

    def configure(self, **options: Any) -> None:
        """configure(strategy="stage", fast="/dev/shm/mine"): see efs-objects(3)."""
        for option, value in options.items():
            self._handle.call(lib.eo_configure, encoded(option), encoded(str(value)))

    def checkpoint(self, series: str, n: int, sync: Optional[bool] = None) -> None:
        """Writes all protected arrays as version n. The arrays may change when it returns."""
        flags = self._flags(sync)
        self._handle.call(lib.eo_checkpoint, encoded(series), number(n), flags)

    def persisted_hint(self, name: str) -> None:
        """Says that the array will not change until the next checkpoint."""
        self._on_name(name, lib.eo_persisted_hint)

    def wait(self) -> None:
        """Waits until the last checkpoint is whole. Raises the error of the background work."""
        self._handle.call(lib.eo_wait)

    @property
    def strategy(self) -> str:
        """The strategy of the last checkpoint."""
        return (self._handle.value_of(lib.eo_strategy) or b"").decode()

    def restore(self, series: str, n: Optional[int] = None) -> int:
        """Fills all protected arrays from version n, or from the newest one that is not damaged.
        Returns its number. KeyError if there is none, or an array is not in it."""
        found = ctypes.c_uint64()
        wanted = LATEST if n is None else number(n)
        self._on_name(series, lib.eo_restore, wanted, ctypes.byref(found))
        return found.value
