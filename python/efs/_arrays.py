# SPDX-License-Identifier: BSD-3-Clause
"""NumPy arrays and struct eo_array: descriptions, views, and parts."""

from __future__ import annotations

import ctypes
import errno
from collections.abc import Sequence
from typing import Any, NamedTuple, Optional, Union

import numpy as np

from ._library import FORTRAN, MAX_NDIM, Array, Error, lib

Index = Union[int, slice, "ellipsis"]  # noqa: F821  (types.EllipsisType is of Python 3.10)


class Info(NamedTuple):
    """Describes an object: order is "C" or "F"."""

    dtype: np.dtype[Any]
    shape: tuple[int, ...]
    order: str


def described(dtype: np.dtype[Any], shape: Sequence[int], order: str) -> Array:
    """Returns the structure without data."""
    text = dtype.str.encode()
    if dtype.kind not in "biufc" or len(text) > 7:
        raise Error(
            errno.ENOTSUP,
            f"cannot store the dtype {dtype}: the elements are not plain numbers. "
            "Use dump() for other objects.",
        )
    if len(shape) > MAX_NDIM:
        raise Error(
            errno.ENOTSUP,
            f"cannot store {len(shape)} dimensions: at most {MAX_NDIM} are supported. "
            "Reshape the array.",
        )
    array = Array()
    array.dtype = text
    array.ndim = len(shape)
    array.order = FORTRAN if order == "F" else 0
    array.shape[: len(shape)] = shape
    return array


def contiguous(value: Any) -> tuple[np.ndarray[Any, Any], str]:
    """Returns the value as a contiguous array, and its order. An array of strides is copied."""
    if type(value) is not np.ndarray and isinstance(value, np.ma.MaskedArray):
        raise Error(
            errno.ENOTSUP,
            "cannot store a masked array: a .npy file has no mask. Store its data and its mask "
            "as two objects, or use dump().",
        )
    array = np.asarray(value)
    if array.flags.c_contiguous:
        return array, "C"
    if array.flags.f_contiguous:
        return array, "F"
    return array.copy(order="C"), "C"


def of_data(array: np.ndarray[Any, Any], order: str) -> Array:
    """Returns the structure of a contiguous array. The caller keeps the array alive."""
    result = described(array.dtype, array.shape, order)
    result.data = array.ctypes.data
    return result


def info_of(array: Array) -> Info:
    shape = tuple(array.shape[: array.ndim])
    return Info(np.dtype(array.dtype.decode()), shape, "F" if array.order == FORTRAN else "C")


def interface(
    address: int, dtype: str, shape: tuple[int, ...], order: str, read_only: bool
) -> dict[str, Any]:
    """Returns what NumPy makes an array from without a copy."""
    result: dict[str, Any] = {
        "version": 3,
        "typestr": dtype,
        "shape": shape,
        "data": (address, read_only),
    }
    if order == "F" and len(shape) > 1:
        strides, size = [], np.dtype(dtype).itemsize
        for count in shape:
            strides.append(size)
            size *= max(count, 1)
        result["strides"] = tuple(strides)
    return result


class View:
    """Owns a mapping of eo_view. The arrays over it have it as their base: it ends with them."""

    __slots__ = ("_array",)

    def __init__(self, array: Array) -> None:
        self._array = array

    @property
    def __array_interface__(self) -> dict[str, Any]:
        array = self._array
        ndim, sizes = array.ndim, array.shape
        shape = (sizes[0],) if ndim == 1 else tuple(sizes[:ndim])
        dtype = array.dtype.decode()
        if array.order:
            return interface(array.data, dtype, shape, "F", True)
        # As interface(), without its call: a bundle has many small arrays.
        return {"version": 3, "typestr": dtype, "shape": shape, "data": (array.data, True)}

    def __del__(self, release: Any = lib.eo_release, byref: Any = ctypes.byref) -> None:
        release(byref(self._array))


class Part(NamedTuple):
    """A part of an object: start and extent in each dimension; `dropped` are the indices."""

    start: tuple[int, ...]
    extent: tuple[int, ...]
    dropped: tuple[int, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(n for i, n in enumerate(self.extent) if i not in self.dropped)


def _expanded(slices: Any, ndim: int) -> list[Any]:
    items = list(slices) if isinstance(slices, tuple) else [slices]
    ellipses = [i for i, item in enumerate(items) if item is Ellipsis]
    if len(ellipses) > 1:
        raise IndexError("an index can only have a single ellipsis ('...')")
    missing = ndim - (len(items) - len(ellipses))
    if missing < 0:
        raise IndexError(f"too many indices: the object has {ndim} dimensions")
    at = ellipses[0] if ellipses else len(items)
    return items[:at] + [slice(None)] * missing + items[at + len(ellipses) :]


def part_of(slices: Any, shape: tuple[int, ...]) -> Part:
    """Returns the part that NumPy would select. Only whole numbers and slices of step 1."""
    start, count, dropped = [], [], []
    for i, (item, size) in enumerate(zip(_expanded(slices, len(shape)), shape)):
        if isinstance(item, slice):
            first, last, step = item.indices(size)
            if step != 1:
                raise IndexError("load() has no steps. View the object and index the view.")
            start.append(first)
            count.append(max(last - first, 0))
        elif hasattr(item, "__index__") and not isinstance(item, (bool, np.bool_, np.ndarray)):
            at = item.__index__()
            if not -size <= at < size:
                raise IndexError(f"index {at} is out of bounds for axis {i} with size {size}")
            start.append(at % size)
            count.append(1)
            dropped.append(i)
        else:
            raise IndexError("load() takes whole numbers and slices. View the object for others.")
    return Part(tuple(start), tuple(count), tuple(dropped))


def sizes(values: Sequence[int]) -> Optional[Any]:
    return (ctypes.c_uint64 * MAX_NDIM)(*values) if values else None
