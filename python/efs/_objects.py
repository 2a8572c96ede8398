# SPDX-License-Identifier: BSD-3-Clause
"""The mapping from names to arrays that stores and versions have in common."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Iterator, KeysView, MutableMapping
from typing import Any, Optional, TypeVar

import numpy as np

from . import graph
from ._arrays import Info, Part, View, contiguous, described, info_of, of_data, part_of, sizes
from ._library import EACH_NAME, SYNC, Array, Error, Handle, encoded, failure, lib
from .draft import Draft

Self = TypeVar("Self", bound="Objects")


_view, _reference, _asarray = lib.eo_view, ctypes.byref, np.asarray


def _missing(name: str, code: int) -> Exception:
    """The error of a call on an object: KeyError if the object does not exist."""
    error = failure(code)
    if code != errno.ENOENT:
        return error
    missing = KeyError(name)
    missing.__cause__ = error
    return missing


class Names(KeysView[str]):
    """The names of a store that begin with a prefix, in byte order."""

    def __init__(self, objects: Objects, prefix: str) -> None:
        super().__init__(objects)
        self._objects = objects
        self._prefix = prefix

    def __iter__(self) -> Iterator[str]:
        return (name for name in self._objects if name.startswith(self._prefix))

    def __len__(self) -> int:
        return sum(1 for _ in self)

    def __contains__(self, name: object) -> bool:
        return isinstance(name, str) and name.startswith(self._prefix) and name in self._objects


class Objects(MutableMapping[str, Any]):
    """Arrays by name: a store, or a version of one.

    Calls are thread-safe. Two objects are equal only if they are the same."""

    def __init__(self, handle: Handle, directory: str, sync: bool) -> None:
        self._handle = handle
        self._directory = directory
        self._sync = sync

    __eq__ = object.__eq__
    __hash__ = object.__hash__

    @property
    def directory(self) -> str:
        return self._directory

    def _flags(self, sync: Optional[bool]) -> int:
        return SYNC if (self._sync if sync is None else sync) else 0

    def _on_name(self, name: str, function: Any, *arguments: Any) -> None:
        """Calls a function on an object that exists: KeyError if it does not."""
        code = self._handle.value_of(function, encoded(name), *arguments)
        if code:
            raise _missing(name, code)

    def __getitem__(self, name: str) -> np.ndarray[Any, Any]:
        """A read-only view without a copy. It keeps its object when the name is replaced or
        removed, and when the store is closed."""
        # As _on_name(), with fewer calls: a bundle has many small arrays.
        array = Array()
        code = self._handle.value_of(_view, encoded(name), _reference(array))
        if code:
            raise _missing(name, code)
        return _asarray(View(array))

    def arrays(self, prefix: str = "") -> dict[str, np.ndarray[Any, Any]]:
        """Views of all arrays. An array that another process removes meanwhile is left out."""

        def views(pointer: int) -> dict[str, np.ndarray[Any, Any]]:
            found = {}
            for name in names:
                array = Array()
                code = _view(pointer, name, _reference(array))
                if code == 0:
                    found[name.decode()] = _asarray(View(array))
                elif code != errno.ENOENT:
                    raise failure(code)
            return found

        names, begin = self._encoded_names(), encoded(prefix)
        if begin:
            names = [name for name in names if name.startswith(begin)]
        return self._handle.value_of(views)  # type: ignore[no-any-return]

    def __setitem__(self, name: str, value: Any) -> None:
        """Stores an array: the name leads to the old object or to the new one at any moment."""
        self.store(name, value)

    def store(self, name: str, value: Any, sync: Optional[bool] = None) -> None:
        """s[name] = value; with sync=True the object is durable at the return."""
        data, order = contiguous(value)
        array = of_data(data, order)
        flags = self._flags(sync)
        self._handle.call(lib.eo_store, encoded(name), ctypes.byref(array), flags)

    def __delitem__(self, name: str) -> None:
        self._on_name(name, lib.eo_remove)

    def __contains__(self, name: object) -> bool:
        """True also for a damaged file; s[name] says what is wrong with the file."""
        if not isinstance(name, str) or "\0" in name:
            return False
        try:
            self._handle.call(lib.eo_info, encoded(name), ctypes.byref(Array()))
        except Error as error:
            if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EINVAL):
                return False
            if error.errno not in (errno.EBADMSG, errno.ENOTSUP):
                raise
        return True

    def _names(self) -> list[str]:
        return [name.decode() for name in self._encoded_names()]

    def _encoded_names(self) -> list[bytes]:
        found: list[bytes] = []

        def each(name: bytes, _: Any) -> int:
            found.append(name)
            return 0

        self._handle.call(lib.eo_list, EACH_NAME(each), None)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(self._names())

    def __len__(self) -> int:
        return len(self._names())

    def keys(self, prefix: str = "") -> Names:
        return Names(self, prefix)

    def clear(self) -> None:
        for name in self._names():
            try:
                del self[name]
            except KeyError:
                pass  # another process removed it

    def info(self, name: str) -> Info:
        array = Array()
        self._on_name(name, lib.eo_info, ctypes.byref(array))
        return info_of(array)

    def load(
        self, name: str, slices: Any = ..., out: Optional[np.ndarray[Any, Any]] = None
    ) -> np.ndarray[Any, Any]:
        """Reads a part into memory: load("u", np.s_[0:10, :, 3]). `out` is the memory if given;
        it has the object's dtype and order, and the part's shape."""
        while True:
            info = self.info(name)
            try:
                return self._load(name, info, part_of(slices, info.shape), out)
            except Error as error:
                # Another process may have replaced the object since info().
                if error.errno != errno.EINVAL or self.info(name) == info:
                    raise

    def _load(
        self, name: str, info: Info, part: Part, out: Optional[np.ndarray[Any, Any]]
    ) -> np.ndarray[Any, Any]:
        order: Any = info.order
        if out is None:
            into = np.empty(part.extent, info.dtype, order=order)
        else:
            if out.shape != part.shape:
                raise ValueError(f"out has the shape {out.shape}, the part {part.shape}")
            if not out.flags.writeable or not out.flags["F" if order == "F" else "C"]:
                raise ValueError(f"out must be writable and contiguous in the order {order}")
            into = out.reshape(part.extent, order=order)
        array = described(into.dtype, part.extent, info.order)
        array.data = into.ctypes.data
        start, count = sizes(part.start), sizes(part.extent)
        self._on_name(name, lib.eo_load, start, count, ctypes.byref(array))
        if out is not None:
            return out
        return into.reshape(part.shape, order=order)

    def draft(
        self,
        name: str,
        dtype: Any,
        shape: Any,
        order: str = "C",
        sync: Optional[bool] = None,
    ) -> Draft:
        """An array to compute in place: with s.draft("u", "f8", (10, 20)) as u: u[:] = 1"""
        return Draft(self._handle, name, dtype, shape, order, bool(self._flags(sync)))

    def _check_name(self, name: str) -> None:
        try:
            self._handle.call(lib.eo_info, encoded(name), ctypes.byref(Array()))
        except Error as error:
            if error.errno == errno.EINVAL:
                raise

    def dump(self, name: str, value: Any, sync: Optional[bool] = None) -> None:
        """Pickles an object. The buffers of its arrays are stored as they are, without a copy.

        The object has a name apart from those of arrays: it is the file NAME.pkl.npz."""
        found = graph.members(value)
        self._check_name(name)
        graph.dump(self._directory, name, found, bool(self._flags(sync)))

    def load_object(self, name: str, verify: bool = True) -> Any:
        """Loads the object of dump(). Its arrays are mappings of the file; a write to them does
        not reach the file. To load runs code, so the file must belong to the caller. All arrays
        are read once to compare their checksums; with verify=False only what the program reads."""
        self._check_name(name)
        try:
            return graph.load(self._directory, name, verify=verify)
        except FileNotFoundError as error:
            raise KeyError(name) from error

    def remove_object(self, name: str) -> None:
        self._check_name(name)
        try:
            graph.remove(self._directory, name)
        except FileNotFoundError as error:
            raise KeyError(name) from error

    def objects(self, prefix: str = "") -> list[str]:
        """The names of the objects of dump(), in order."""
        return [name for name in graph.names(self._directory) if name.startswith(prefix)]

    def close(self) -> None:
        """Ends the store. Views and drafts stay valid. Without it the last reference ends it."""
        self._handle.discard()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(self, kind: Any, error: Any, trace: Any) -> None:
        self.close()

    def __repr__(self) -> str:
        closed = "" if self._handle.open else ", closed"
        return f"<efs.{type(self).__name__} {self._directory}{closed}>"
