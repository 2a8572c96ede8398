# SPDX-License-Identifier: BSD-3-Clause
"""Zip files with stored members, each aligned to 64 bytes: numpy.load() and a mapping read them."""

from __future__ import annotations

import errno
import struct
import zipfile
import zlib
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import BinaryIO, NamedTuple

from ._files import write_all

_ALIGNMENT = 64
_PADDING = 0xD935  # the extra field by which zipalign pads
_LARGE = 0xFFFFFFFF
_SMALL_FILE = 1 << 20
_1980 = 0x21


class Member(NamedTuple):
    name: str
    parts: tuple[memoryview, ...]  # of bytes

    @property
    def size(self) -> int:
        return sum(len(part) for part in self.parts)

    def crc(self) -> int:
        value = 0
        for part in self.parts:
            value = zlib.crc32(part, value)
        return value


def _size64(size: int) -> bytes:
    return struct.pack("<HHQQ", 1, 16, size, size) if size >= _LARGE else b""


def _local_header(member: Member, offset: int, crc: int) -> bytes:
    """The header at the offset. Its padding aligns the data behind it."""
    name, size = member.name.encode(), member.size
    extra = _size64(size)
    padding = -(offset + 30 + len(name) + len(extra) + 4) % _ALIGNMENT
    extra += struct.pack("<HH", _PADDING, padding) + bytes(padding)
    stored = min(size, _LARGE)
    fields = (0x04034B50, 45, 0, 0, 0, _1980, crc, stored, stored, len(name), len(extra))
    return struct.pack("<IHHHHHIIIHH", *fields) + name + extra


def _entry(member: Member, offset: int, crc: int) -> bytes:
    name, size = member.name.encode(), member.size
    wide = [size, size] if size >= _LARGE else []
    if offset >= _LARGE:
        wide.append(offset)
    extra = struct.pack(f"<HH{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    stored = min(size, _LARGE)
    fields = (0x02014B50, 45, 45, 0, 0, 0, _1980, crc, stored, stored, len(name), len(extra))
    place = (0, 0, 0, 0o100644 << 16, min(offset, _LARGE))
    return struct.pack("<IHHHHHHIIIHHHHHII", *fields, *place) + name + extra


def _end(count: int, begin: int, size: int) -> bytes:
    text = b""
    if count >= 0xFFFF or begin >= _LARGE or size >= _LARGE:
        fields = (0x06064B50, 44, 45, 45, 0, 0, count, count, size, begin)
        text = struct.pack("<IQHHIIQQQQ", *fields)
        text += struct.pack("<IIQI", 0x07064B50, 0, begin + size, 1)
    few = min(count, 0xFFFF)
    last = (0x06054B50, 0, 0, few, few, min(size, _LARGE), min(begin, _LARGE), 0)
    return text + struct.pack("<IHHHHIIH", *last)


def write(fd: int, members: Sequence[Member]) -> None:
    """Writes the file. The checksums of large members are computed beside the writing."""
    offsets, offset = [], 0
    for member in members:
        offsets.append(offset)
        offset += len(_local_header(member, offset, 0)) + member.size
    if offset < _SMALL_FILE:
        _write(fd, members, offsets, offset, [member.crc() for member in members])
        return
    with ThreadPoolExecutor(1) as pool:
        _write(fd, members, offsets, offset, pool.map(Member.crc, members))


def _write(
    fd: int, members: Sequence[Member], offsets: list[int], end: int, crcs: Iterable[int]
) -> None:
    for member, offset in zip(members, offsets):
        offset += len(_local_header(member, offset, 0))
        for part in member.parts:
            write_all(fd, part, offset)
            offset += len(part)
    entries = []
    for member, offset, crc in zip(members, offsets, crcs):
        write_all(fd, memoryview(_local_header(member, offset, crc)), offset)
        entries.append(_entry(member, offset, crc))
    directory = b"".join(entries)
    directory += _end(len(members), end, len(directory))
    write_all(fd, memoryview(directory), end)


class Damaged(Exception):
    """The file is not one that write() makes; the text is the reason."""


class Place(NamedTuple):
    """A member's bytes in the file."""

    begin: int
    end: int
    crc: int


def read(file: BinaryIO, data: memoryview) -> dict[str, Place]:
    """The members by name. `data` is all of the file."""
    try:
        with zipfile.ZipFile(file) as archive:
            return {info.filename: _place(info, data) for info in archive.infolist()}
    except (zipfile.BadZipFile, struct.error, UnicodeDecodeError, NotImplementedError) as error:
        raise Damaged(str(error)) from error
    except OSError as error:
        if error.errno not in (None, errno.EINVAL):  # a seek before the file's begin
            raise
        raise Damaged(str(error)) from error


def _place(info: zipfile.ZipInfo, data: memoryview) -> Place:
    if info.compress_type != zipfile.ZIP_STORED or info.flag_bits & 1:
        raise Damaged(f"{info.filename} is compressed or encrypted")
    at = info.header_offset
    if at < 0 or bytes(data[at : at + 4]) != b"PK\x03\x04":
        raise Damaged(f"{info.filename} has no header")
    name, extra = struct.unpack("<HH", data[at + 26 : at + 30])
    begin = at + 30 + name + extra
    if info.compress_size != info.file_size or begin + info.file_size > len(data):
        raise Damaged(f"{info.filename} ends behind the file")
    return Place(begin, begin + info.file_size, info.CRC)


_END = struct.Struct("<IHHHHIIH")
_ENTRY = struct.Struct("<I4xHH8xIIHHH8xI")
_LENGTHS = struct.Struct("<26xHH")


def places(data: memoryview) -> list[tuple[bytes, int, int]]:
    """The name, begin and end of each member: read() for many members, without a check of names.
    Damaged also for files that need zip64 or have a comment."""
    found = []
    entry_at, lengths_at, limit = _ENTRY.unpack_from, _LENGTHS.unpack_from, len(data)
    try:
        mark, _, _, _, count, size, at, _ = _END.unpack_from(data, limit - _END.size)
        if mark != 0x06054B50 or count == 0xFFFF or at + size > limit:
            raise Damaged("it has no simple end")
        for _ in range(count):
            mark, flags, method, stored, size, name, extra, comment, begin = entry_at(data, at)
            if mark != 0x02014B50 or method or stored != size or flags & 1:
                raise Damaged("a member is not stored")
            short, padding = lengths_at(data, begin)
            begin += 30 + short + padding
            if begin + size > limit:
                raise Damaged("a member ends behind the file")
            at += 46
            found.append((bytes(data[at : at + name]), begin, begin + size))
            at += name + extra + comment
    except struct.error as error:
        raise Damaged(str(error)) from error
    return found
