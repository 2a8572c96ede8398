# SPDX-License-Identifier: BSD-3-Clause
"""Python objects: one NAME.pkl.npz with object.pkl and the buffers of its arrays."""

from __future__ import annotations

import errno
import io
import os
import pickle
import stat
import struct
import zlib
from typing import Any, Callable, Optional

import numpy as np

from . import _zip
from ._files import described, failed, parent, published
from ._memory import private

SUFFIX = ".pkl.npz"
_PICKLE = "object.pkl"
# A shorter buffer stays in the pickle: it would be smaller than its header.
_SHORTEST_BUFFER = 1024


def _npy_header(array: np.ndarray[Any, Any]) -> bytes:
    header = io.BytesIO()
    fields = np.lib.format.header_data_from_array_1_0(array)
    try:
        np.lib.format.write_array_header_1_0(header, fields)
    except ValueError:
        np.lib.format.write_array_header_2_0(header, fields)
    return header.getvalue()


def _as_npy(name: str, buffer: pickle.PickleBuffer) -> _zip.Member:
    """The buffer as a .npy file, with its type and shape if NumPy knows them."""
    raw = buffer.raw()
    array: np.ndarray[Any, Any] = np.frombuffer(raw, np.uint8)
    try:
        typed = np.asarray(memoryview(buffer))
        if typed.nbytes == raw.nbytes and not typed.dtype.hasobject and typed.flags.c_contiguous:
            array = typed
    except (ValueError, TypeError, BufferError):
        pass
    return _zip.Member(f"{name}.npy", (memoryview(_npy_header(array)), raw))


def members(value: Any, pickler: Optional[type[pickle.Pickler]] = None) -> list[_zip.Member]:
    """Pickles an object. The members refer to its arrays, without a copy."""
    buffers: list[pickle.PickleBuffer] = []

    def apart(buffer: pickle.PickleBuffer) -> bool:
        if memoryview(buffer).nbytes < _SHORTEST_BUFFER:
            return True
        buffers.append(buffer)
        return False

    stream = io.BytesIO()
    (pickler or pickle.Pickler)(stream, 5, buffer_callback=apart).dump(value)
    found = [_zip.Member(_PICKLE, (stream.getbuffer(),))]
    return found + [_as_npy(str(i), buffer) for i, buffer in enumerate(buffers)]


def dump(directory: str, name: str, found: list[_zip.Member], sync: bool) -> None:
    with described(f"dump {name} ({directory}/{name}{SUFFIX})"):
        with published(directory, name + SUFFIX, sync) as fd:
            os.ftruncate(
                fd, sum(member.size for member in found)
            )  # large pages from the first byte
            _zip.write(fd, found)


def _check_owner(what: str, status: os.stat_result) -> None:
    """Unpickling runs the code that the file says: it must be the caller's own."""
    if not stat.S_ISREG(status.st_mode):
        raise failed(what, errno.EBADMSG, "the file is not a regular file")
    if status.st_uid != os.geteuid():
        reason = f"it belongs to the user {status.st_uid}, and to load it runs code of that user"
        raise failed(
            what, errno.EPERM, reason, "If you trust that user, copy the file and load the copy"
        )
    if status.st_mode & (stat.S_IWGRP | stat.S_IWOTH):
        others = "every user" if status.st_mode & stat.S_IWOTH else "its group"
        reason = f"{others} can write to it, and to load it runs code"
        raise failed(what, errno.EPERM, reason, "If you trust its content, run: chmod go-w FILE")


def load(
    directory: str,
    name: str,
    unpickler: Optional[Callable[..., pickle.Unpickler]] = None,
    verify: bool = True,
) -> Any:
    """FileNotFoundError if it does not exist. Arrays of the object are private mappings of the
    file, writable without an effect on it. `verify` compares their checksums; that of object.pkl
    is always compared."""
    what = f"load {name} ({directory}/{name}{SUFFIX})"
    with described(what), parent(directory, name + SUFFIX, False) as (at, last):
        flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
        with open(os.open(last, flags, dir_fd=at), "rb") as file:
            status = os.fstat(file.fileno())
            _check_owner(what, status)
            if status.st_size == 0:
                raise failed(what, errno.EBADMSG, "the file is empty")
            data = private(file.fileno(), status.st_size)
            try:
                stream, buffers = _parts(_zip.read(file, data), data, verify)
            except _zip.Damaged as error:
                raise failed(what, errno.EBADMSG, f"damaged: {error}") from error
    try:
        if unpickler is None:
            return pickle.loads(stream, buffers=buffers)
        return unpickler(io.BytesIO(stream), buffers=buffers).load()
    except pickle.UnpicklingError as error:
        raise failed(what, errno.EBADMSG, f"damaged: {error}") from error


def remove(directory: str, name: str) -> None:
    with described(f"remove {name} ({directory}/{name}{SUFFIX})"):
        with parent(directory, name + SUFFIX, False) as (at, last):
            os.unlink(last, dir_fd=at)


def make_durable(directory: str, name: str) -> None:
    with described(f"sync {name} ({directory}/{name}{SUFFIX})"):
        with parent(directory, name + SUFFIX, False) as (at, last):
            fd = os.open(last, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW, dir_fd=at)
            try:
                os.fdatasync(fd)
            finally:
                os.close(fd)


def names(directory: str) -> list[str]:
    """The objects below a directory, without those of versions."""
    found = []
    for folder, folders, files in os.walk(directory):
        folders[:] = [
            f for f in folders if not (len(f) >= 8 and f.isdecimal() or f.endswith(".part"))
        ]
        place = os.path.relpath(folder, directory)
        prefix = "" if place == "." else place + "/"
        found += [prefix + f[: -len(SUFFIX)] for f in files if f.endswith(SUFFIX)]
    return sorted(found)


def _verify(name: str, place: _zip.Place, data: memoryview) -> None:
    if zlib.crc32(data[place.begin : place.end]) != place.crc:
        raise _zip.Damaged(f"{name} has another checksum")


def _parts(
    found: dict[str, _zip.Place], data: memoryview, verify: bool
) -> tuple[memoryview, list[memoryview]]:
    place = found.pop(_PICKLE, None)
    if place is None:
        raise _zip.Damaged("it has no object.pkl")
    stream = data[place.begin : place.end]
    _verify(_PICKLE, place, data)
    names = [f"{i}.npy" for i in range(len(found))]
    if set(names) != set(found):
        raise _zip.Damaged("a buffer is missing")
    if verify:
        for name in names:
            _verify(name, found[name], data)
    return stream, [_data_of_npy(data[found[n].begin : found[n].end]) for n in names]


def _data_of_npy(data: memoryview) -> memoryview:
    if bytes(data[:6]) != b"\x93NUMPY" or len(data) < 12:
        raise _zip.Damaged("a buffer is not a .npy file")
    first = data[6] == 1
    begin = (
        10 + struct.unpack("<H", data[8:10])[0]
        if first
        else 12 + struct.unpack("<I", data[8:12])[0]
    )
    if begin > len(data):
        raise _zip.Damaged("a buffer ends inside its header")
    return data[begin:]
