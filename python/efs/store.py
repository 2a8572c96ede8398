# SPDX-License-Identifier: BSD-3-Clause
"""Stores: directories of arrays and of series of versions."""

from __future__ import annotations

import ctypes
import errno
import os
from typing import Optional, Union

from ._files import failed
from ._library import LATEST, Handle, check, encoded, lib
from .checkpoints import Checkpoints
from .draft import JoinedDraft
from .bundles import Bundle, NewBundle, OpenFile
from .versions import JoinedVersion, NewVersion, Version, directory_of, draft_of, number, numbers

Path = Union[str, "os.PathLike[str]"]


class Store(Checkpoints):
    """A directory of arrays, each a .npy file. None is $EFS_MOUNT/objects.

    sync=True makes each store and each commit durable at its return."""

    def __init__(self, directory: Optional[Path] = None, sync: bool = False) -> None:
        path = None if directory is None else os.path.abspath(directory)
        pointer = ctypes.c_void_p()
        text = None if path is None else os.fsencode(path)
        check(lib.eo_open(text, ctypes.byref(pointer)))
        if path is None:
            path = os.path.join(os.environ["EFS_MOUNT"], "objects")
        super().__init__(Handle(pointer.value, lib.eo_close), path, sync)

    def version(self, series: str, n: int, sync: Optional[bool] = None) -> NewVersion:
        """Begins version n: with s.version("run", step) as v: v["u"] = u"""
        pointer = ctypes.c_void_p()
        n = number(n)
        self._handle.call(lib.eo_begin, encoded(series), n, ctypes.byref(pointer))
        handle = Handle(pointer.value, lib.eo_abort, shared=False)
        path = os.path.join(self._directory, draft_of(series, n))
        return NewVersion(handle, path, series, n, bool(self._flags(sync)))

    def open_version(self, series: str, n: int) -> Version:
        """Opens version n read-only. KeyError if it does not exist."""
        n = number(n)
        handle = Handle(self._opened(series, n), lib.eo_close)
        path = os.path.join(self._directory, directory_of(series, n))
        return Version(handle, path, series, n, False)

    def _opened(self, series: str, n: int) -> Optional[int]:
        pointer = ctypes.c_void_p()
        self._on_name(series, lib.eo_version, n, ctypes.byref(pointer))
        return pointer.value

    def latest(self, series: str) -> Version:
        """Opens the newest version read-only; its `number` says which. KeyError if none exists."""
        while True:
            found = self.versions(series)
            if not found:
                lib.eo_close(self._opened(series, LATEST))  # raises, or a version is new
                continue
            try:
                return self.open_version(series, found[-1])
            except KeyError:
                pass  # keep() of another process has removed it

    def versions(self, series: str) -> list[int]:
        """The numbers of the committed versions, ascending."""
        return numbers(os.path.join(self._directory, series))

    def keep(self, series: str, k: int) -> None:
        """Removes all versions but the newest k. Views keep their objects."""
        if not 0 <= k < 2**32:
            raise ValueError(f"{k} is not a number of versions")
        self._on_name(series, lib.eo_keep, k)

    def remove_version(self, series: str, n: int) -> None:
        self._on_name(series, lib.eo_remove_version, number(n))

    def join_version(
        self, series: str, n: int, token: str, sync: Optional[bool] = None
    ) -> JoinedVersion:
        """Joins a version that another process has begun; `token` is from that process."""
        pointer = ctypes.c_void_p()
        n = number(n)
        self._handle.call(lib.eo_join, encoded(series), n, encoded(token), ctypes.byref(pointer))
        handle = Handle(pointer.value, lib.eo_close, shared=False)
        path = os.path.join(self._directory, draft_of(series, n))
        return JoinedVersion(handle, path, series, n, bool(self._flags(sync)))

    def join_draft(self, name: str, token: str, sync: Optional[bool] = None) -> JoinedDraft:
        """Joins a draft that another process has created; `token` is from that process."""
        return JoinedDraft(self._handle, name, token, bool(self._flags(sync)))

    # --- bundles: many small arrays in one file ---

    def bundle(self, name: str, sync: Optional[bool] = None) -> NewBundle:
        """Begins a bundle: with s.bundle("parts") as b: b["p1"] = p1"""
        _check_bundle(name)
        pointer = ctypes.c_void_p()
        self._handle.call(lib.eo_begin_bundle, encoded(name), ctypes.byref(pointer))
        handle = Handle(pointer.value, lib.eo_abort, shared=False)
        path = os.path.join(self._directory, name + ".npz")
        return NewBundle(handle, path, bool(self._flags(sync)))

    def open_bundle(self, name: str) -> Bundle:
        """Opens a bundle read-only. KeyError if it does not exist."""
        pointer = ctypes.c_void_p()
        path = os.path.join(self._directory, name + ".npz")
        file = OpenFile(path)
        try:
            self._on_name(name, lib.eo_bundle, ctypes.byref(pointer))
            return Bundle(Handle(pointer.value, lib.eo_close), path, False, file.mapped())
        finally:
            file.close()

    def remove_bundle(self, name: str) -> None:
        _check_bundle(name)
        self._on_name(name, lib.eo_remove_bundle)


def _check_bundle(name: str) -> None:
    """The file of such a bundle would be that of an object of dump()."""
    if name.endswith(".pkl"):
        reason = "the file of an object of dump() has such a name"
        raise failed(f"change the bundle {name}", errno.EINVAL, reason, "Choose another name")
