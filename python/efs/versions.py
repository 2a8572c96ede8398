# SPDX-License-Identifier: BSD-3-Clause
"""Versions: sets of arrays that appear by one rename and never change."""

from __future__ import annotations

import errno
import os
from typing import Any, Optional

from . import graph
from ._files import failed
from ._library import LATEST, Error, Handle, lib
from ._objects import Objects

_DIGITS = 8
MANIFEST = "manifest.json"


def directory_of(series: str, n: int) -> str:
    return f"{series}/{n:0{_DIGITS}}"


def number(n: Any) -> int:
    """ctypes would cut a number that is too large."""
    value = int(n.__index__())
    if not 0 <= value < LATEST:
        raise ValueError(f"{value} is not the number of a version")
    return value


def numbers(directory: str) -> list[int]:
    """The committed versions in the directory of a series, ascending."""
    try:
        names = os.listdir(directory)
    except (FileNotFoundError, NotADirectoryError, ValueError):
        return []
    digits = [n for n in names if len(n) >= _DIGITS and n.isascii() and n.isdecimal()]
    found = [n for n in digits if os.path.exists(os.path.join(directory, n, MANIFEST))]
    return sorted(int(n) for n in found if n == f"{int(n):0{_DIGITS}}" and int(n) < LATEST)


class Version(Objects):
    """A committed version: read-only."""

    def __init__(self, handle: Handle, directory: str, series: str, n: int, sync: bool) -> None:
        super().__init__(handle, directory, sync)
        self._series = series
        self._number = n

    @property
    def series(self) -> str:
        return self._series

    @property
    def number(self) -> int:
        return self._number

    def dump(self, name: str, value: Any, sync: Optional[bool] = None) -> None:
        raise self._read_only(f"dump {name}")

    def remove_object(self, name: str) -> None:
        raise self._read_only(f"remove {name}")

    def _read_only(self, what: str) -> Error:
        reason = "the version is committed"
        return failed(f"{what} ({self._directory})", errno.EROFS, reason, "Begin a new version")


class NewVersion(Version):
    """A version that is invisible until commit(). In a `with` the end commits it, an exception
    aborts it. A draft in it must be published before.

    The manifest lists arrays only, not the objects of dump()."""

    def dump(self, name: str, value: Any, sync: Optional[bool] = None) -> None:
        Objects.dump(self, name, value, sync)

    def remove_object(self, name: str) -> None:
        Objects.remove_object(self, name)

    def commit(self, sync: Optional[bool] = None) -> None:
        flags = self._flags(sync)
        if flags and self._handle.open:
            for name in self.objects():  # the library makes the arrays and the folders durable
                graph.make_durable(self._directory, name)
        self._handle.end(lib.eo_commit, flags, stays=errno.EBUSY)

    def abort(self) -> None:
        self._handle.discard()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None and self._handle.open:
                self.commit()
        finally:
            self.abort()
