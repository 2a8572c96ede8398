# SPDX-License-Identifier: BSD-3-Clause
"""libefs-objects by ctypes: the structure, the functions, and the error of a call."""

from __future__ import annotations

import ctypes
import errno
import glob
import os
import threading
from typing import Any, Callable, Optional

SONAME = "libefs-objects.so.1"
MAX_NDIM = 32
FORTRAN = 1
SYNC = 1
LATEST = 2**64 - 1


class Error(OSError):
    """A call that failed: errno, and the text with object, file, reason and way out."""

    def __str__(self) -> str:
        return str(self.strerror)


class Array(ctypes.Structure):
    """struct eo_array of efs_objects.h."""

    _fields_ = [
        ("dtype", ctypes.c_char * 8),
        ("ndim", ctypes.c_int),
        ("order", ctypes.c_int),
        ("shape", ctypes.c_uint64 * MAX_NDIM),
        ("data", ctypes.c_void_p),
        ("mapping", ctypes.c_void_p),
        ("mapped", ctypes.c_size_t),
        ("reserved", ctypes.c_void_p),
    ]


EACH_NAME = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_char_p, ctypes.c_void_p)

_pointer = ctypes.c_void_p
_text = ctypes.c_char_p
_array = ctypes.POINTER(Array)
_out = ctypes.POINTER(ctypes.c_void_p)
_sizes = ctypes.POINTER(ctypes.c_uint64)
_number = ctypes.c_uint64
_flags = ctypes.c_uint

# Result and arguments of each function. The type int is an errno.
_SIGNATURES: dict[str, tuple[Any, ...]] = {
    "eo_open": (int, _text, _out),
    "eo_close": (None, _pointer),
    "eo_store": (int, _pointer, _text, _array, _flags),
    "eo_load": (int, _pointer, _text, _sizes, _sizes, _array),
    "eo_view": (int, _pointer, _text, _array),
    "eo_release": (None, _array),
    "eo_info": (int, _pointer, _text, _array),
    "eo_list": (int, _pointer, EACH_NAME, _pointer),
    "eo_remove": (int, _pointer, _text),
    "eo_create": (int, _pointer, _text, _array, _out),
    "eo_put": (int, _pointer, _sizes, _sizes, _pointer),
    "eo_data": (_pointer, _pointer),
    "eo_publish": (int, _pointer, _flags),
    "eo_discard": (None, _pointer),
    "eo_begin": (int, _pointer, _text, _number, _out),
    "eo_commit": (int, _pointer, _flags),
    "eo_abort": (None, _pointer),
    "eo_version": (int, _pointer, _text, _number, _out),
    "eo_keep": (int, _pointer, _text, _flags),
    "eo_error": (_text,),
}

# Functions that an older library does not have: their call is an Error there.
_LATER: dict[str, tuple[Any, ...]] = {
    "eo_remove_version": (int, _pointer, _text, _number),
    "eo_check": (int, _pointer, _text),
    "eo_token": (int, _pointer, _text),
    "eo_join": (int, _pointer, _text, _number, _text, _out),
    "eo_leave": (int, _pointer, _flags),
    "eo_draft_token": (int, _pointer, _text),
    "eo_join_draft": (int, _pointer, _text, _text, _out),
    "eo_leave_draft": (int, _pointer, _flags),
    "eo_begin_bundle": (int, _pointer, _text, _out),
    "eo_bundle": (int, _pointer, _text, _out),
    "eo_remove_bundle": (int, _pointer, _text),
    "eo_protect": (int, _pointer, _text, _array),
    "eo_unprotect": (int, _pointer, _text),
    "eo_configure": (int, _pointer, _text, _text),
    "eo_checkpoint": (int, _pointer, _text, _number, _flags),
    "eo_persisted_hint": (int, _pointer, _text),
    "eo_wait": (int, _pointer),
    "eo_strategy": (_text, _pointer),
    "eo_restore": (int, _pointer, _text, _number, _sizes),
}


def _candidates() -> list[str]:
    """The library of $EFS_OBJECTS_LIBRARY, else of this package's prefix, else of the loader."""
    named = os.environ.get("EFS_OBJECTS_LIBRARY")
    if named:
        return [named]
    package = os.path.dirname(os.path.abspath(__file__))
    # PREFIX/lib/python3/dist-packages/efs
    prefix = os.path.normpath(os.path.join(package, "../../../.."))
    beside = sorted(glob.glob(f"{prefix}/lib*/{SONAME}") + glob.glob(f"{prefix}/lib/*/{SONAME}"))
    return [*beside, SONAME]


def _load() -> ctypes.CDLL:
    failures = []
    for path in _candidates():
        try:
            return ctypes.CDLL(path)
        except OSError as error:
            failures.append(str(error))
    raise ImportError(
        f"cannot load {SONAME}: {'; '.join(failures)}. Install efs, or set "
        "EFS_OBJECTS_LIBRARY to the path of the library."
    )


def _absent(name: str) -> Callable[..., int]:
    def call(*_: Any) -> int:
        text = f"cannot call {name}: {SONAME} is older than this package. Install the library."
        raise Error(errno.ENOSYS, text)

    return call


def _bind(library: ctypes.CDLL) -> ctypes.CDLL:
    for name, (result, *arguments) in {**_SIGNATURES, **_LATER}.items():
        if name in _LATER and not hasattr(library, name):
            setattr(library, name, _absent(name))
            continue
        function = getattr(library, name)
        function.restype = ctypes.c_int if result is int else result
        function.argtypes = arguments
    return library


lib = _bind(_load())


def has(name: str) -> bool:
    """Returns true if the library has the function."""
    return hasattr(getattr(lib, name, None), "argtypes")


def failure(error: int) -> Error:
    """The error of this thread's last call."""
    return Error(error, lib.eo_error().decode("utf-8", "replace"))


def check(error: int) -> None:
    if error:
        raise failure(error)


def encoded(name: str) -> bytes:
    """The name for the library, which rejects what is not UTF-8; a NUL would end the name."""
    try:
        text = name.encode()
    except AttributeError:
        raise TypeError(f"a name is a str, not {type(name).__name__}") from None
    except UnicodeEncodeError:
        text = name.encode("utf-8", "surrogatepass")
    if b"\0" in text:
        raise Error(errno.EINVAL, f"cannot use the name {name!r}: it has a NUL. Choose another.")
    return text


class Handle:
    """A pointer of the library that ends once, when no call uses it.

    A child of a fork has a copy of the pointer. The copy never ends: that would discard what the
    parent still writes."""

    def __init__(
        self, pointer: Optional[int], discard: Callable[[int], None], shared: bool = True
    ) -> None:
        """Without `shared` a child of a fork cannot call anything with it, either."""
        self._pointer = pointer
        self._shared = shared
        self._discard = discard
        self._calls = 0
        self._process = os.getpid()
        # Memory that the library uses until the pointer ends.
        self.memory: dict[str, Any] = {}
        self._state = threading.RLock()
        self._unused = threading.Condition(self._state)

    def __del__(self, getpid: Callable[[], int] = os.getpid) -> None:
        if self._pointer is not None and self._process == getpid():
            self._discard(self._pointer)

    @property
    def open(self) -> bool:
        return self._pointer is not None

    def call(self, function: Callable[..., int], *arguments: Any) -> None:
        """Calls the function with the pointer. Raises Error."""
        error = self.value_of(function, *arguments)
        if error:
            raise failure(error)

    def value_of(self, function: Callable[..., Any], *arguments: Any) -> Any:
        with self._state:
            pointer = self._pointer
            if pointer is None:
                raise ValueError("the store is closed")
            if not self._shared:
                self._check_process()
            self._calls += 1
        try:
            return function(pointer, *arguments)
        finally:
            with self._state:
                self._calls -= 1
                if self._pointer is None:
                    self._unused.notify_all()

    def _check_process(self) -> None:
        if self._process != os.getpid():
            raise ValueError("it belongs to the process that began it; join it by its token()")

    def _take(self) -> Optional[int]:
        with self._state:
            pointer, self._pointer = self._pointer, None
            while self._calls:
                self._unused.wait()
        return pointer

    def end(self, function: Callable[..., int], *arguments: Any, stays: int = 0) -> None:
        """Ends the pointer by a function that frees it, except with the error `stays`."""
        self._check_process()
        pointer = self._take()
        if pointer is None:
            raise ValueError("it has ended")
        error = function(pointer, *arguments)
        if error and error == stays:
            self._pointer = pointer
        check(error)

    def discard(self) -> None:
        pointer = self._take()
        if pointer is not None and self._process == os.getpid():
            self._discard(pointer)
        self.memory.clear()


def token_of(handle: Handle, function: Any) -> str:
    text = ctypes.create_string_buffer(64)
    handle.call(function, text)
    return text.value.decode()
