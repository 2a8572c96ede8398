# SPDX-License-Identifier: BSD-3-Clause
"""Versions: sets of arrays that appear by one rename and never change."""

from __future__ import annotations

import errno
import os
from typing import Any, Optional

from . import graph
from ._files import failed, node_mark
from ._library import LATEST, Error, Handle, lib, token_of
from ._objects import Objects

_DIGITS = 8
MANIFEST = "manifest.json"


def directory_of(series: str, n: int) -> str:
    return f"{series}/{n:0{_DIGITS}}"


def draft_of(series: str, n: int) -> str:
    """The directory of a version that this node fills."""
    return f"{directory_of(series, n)}-eo-{node_mark()}.part"


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

    def check(self, name: Optional[str] = None) -> None:
        """Compares one array, or all, with the manifest. Error EBADMSG: one is damaged."""
        if name is None:
            self._handle.call(lib.eo_check, None)
        else:
            self._on_name(name, lib.eo_check)

    def dump(self, name: str, value: Any, sync: Optional[bool] = None) -> None:
        raise self._read_only(f"dump {name}")

    def remove_object(self, name: str) -> None:
        raise self._read_only(f"remove {name}")

    def _read_only(self, what: str) -> Error:
        reason = "the version is committed"
        return failed(f"{what} ({self._directory})", errno.EROFS, reason, "Begin a new version")


class Pending(Objects):
    """Objects that are invisible until commit(). In a `with` the end commits them, an exception
    aborts them."""

    def commit(self, sync: Optional[bool] = None) -> None:
        self._handle.end(lib.eo_commit, self._flags(sync), stays=errno.EBUSY)

    def abort(self) -> None:
        self._handle.discard()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None and self._handle.open:
                self.commit()
        finally:
            self.abort()


class NewVersion(Pending, Version):
    """A version that is invisible until commit(). A draft in it must be published before.

    The manifest lists arrays only, not the objects of dump()."""

    dump = Objects.dump
    remove_object = Objects.remove_object

    def token(self) -> str:
        """For Store.join_version() of another process, which fills the version, too. It must have
        left before commit()."""
        return token_of(self._handle, lib.eo_token)

    def commit(self, sync: Optional[bool] = None) -> None:
        if self._flags(sync) and self._handle.open:
            for name in self.objects():  # the library makes the arrays and the folders durable
                graph.make_durable(self._directory, name)
        super().commit(sync)


class JoinedVersion(Version):
    """A version that another process has begun and will commit. In a `with` the end leaves it; an
    exception makes the commit fail."""

    dump = Objects.dump
    remove_object = Objects.remove_object

    def leave(self, sync: Optional[bool] = None) -> None:
        flags = self._flags(sync)
        if flags and self._handle.open:
            for name in self.objects():
                graph.make_durable(self._directory, name)
        self._handle.end(lib.eo_leave, flags)

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        try:
            if kind is None and self._handle.open:
                self.leave()
        finally:
            self.close()
