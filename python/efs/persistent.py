# SPDX-License-Identifier: BSD-3-Clause
"""Objects that live in a store, in the vocabulary of dataClay.

An object is the directory persistent/ID of the store. Each attribute is a file in it: NAME.npy for
an array, NAME.pkl.npz for others. An alias is a symbolic link in persistent/aliases."""

from __future__ import annotations

import ctypes
import errno
import json
import os
import pickle
import re
import shutil
import socket
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Callable, ClassVar, Optional, TypeVar

import numpy as np

from . import graph
from ._files import (
    described,
    draft_name,
    failed,
    lock,
    locked,
    parent,
    published,
    sync_folders,
    unlock,
)
from ._library import Error
from ._memory import libc
from .store import Store

_FOLDER = "persistent"
_ALIASES = _FOLDER + "/aliases"
_CLASS = "class.json"
_ID = re.compile(r"o[0-9a-f]{32}")
_EXCHANGE = 2
_ATTEMPTS = 100

Self = TypeVar("Self", bound="Persistent")


def _is_plain(value: Any) -> bool:
    return type(value) is np.ndarray and value.dtype.kind in "biufc" and value.ndim <= 32


def _name_of(cls: type) -> str:
    return f"{cls.__module__}:{cls.__qualname__}"


def _check_attribute(name: str) -> None:
    if not name.isidentifier():
        what = f"store the attribute {name!r}"
        raise failed(what, errno.EINVAL, "the name is not an identifier", "Choose another name")


def _attributes(found: Persistent) -> dict[str, Any]:
    return {name: value for name, value in vars(found).items() if name != "_efs_home"}


class _Home:
    """The directory of a persistent object."""

    def __init__(self, store: Store, key: str) -> None:
        self.store = store
        self.key = key

    @property
    def path(self) -> str:
        return os.path.join(self.store.directory, _FOLDER, self.key)

    def name(self, attribute: str) -> str:
        return f"{_FOLDER}/{self.key}/{attribute}"

    def state(self) -> tuple[int, int]:
        """Changes when the object is consolidated or gets another attribute."""
        try:
            status = os.stat(self.path)
            return status.st_ino, status.st_ctime_ns
        except FileNotFoundError:
            reason = "the object does not exist any more"
            remedy = "Another process has consolidated or removed it; get it by its alias"
            what = f"use the object {self.path}"
            raise failed(what, errno.ENOENT, reason, remedy) from None

    def steady(self, read: Callable[[], Any], missing: Exception) -> Any:
        """The result of read(). FileNotFoundError is `missing` if the object did not change
        meanwhile: its directory can be exchanged, and an array can become a pickle."""
        before = None
        for _ in range(_ATTEMPTS):
            state = self.state()
            try:
                return read()
            except FileNotFoundError:
                if state == before == self.state():
                    raise missing from None
                before = state
        raise failed(f"use the object {self.path}", errno.EAGAIN, "it changes all the time")

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Excludes others that assign attributes of the object or consolidate it."""
        fd = self._lock()
        try:
            yield
        finally:
            unlock(fd)

    def _lock(self) -> int:
        flags = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC | os.O_NOFOLLOW
        for _ in range(_ATTEMPTS):
            self.state()
            try:
                fd = os.open(self.path, flags)
            except FileNotFoundError:
                continue
            if lock(fd, self.path):
                return fd
        raise failed(f"use the object {self.path}", errno.EAGAIN, "it changes all the time")

    def get(self, attribute: str) -> Any:
        """KeyError if the object has no such attribute."""
        name = self.name(attribute)

        def read() -> Any:
            try:
                return self.store[name]
            except KeyError:
                return graph.load(self.store.directory, name, self._unpickler)

        return self.steady(read, KeyError(attribute))

    def _unpickler(self, file: Any, buffers: Any) -> pickle.Unpickler:
        return _Unpickler(file, self.store, buffers=buffers)

    def set(self, attribute: str, value: Any) -> None:
        _check_attribute(attribute)
        name = self.name(attribute)
        if _is_plain(value):
            with self.alone():
                self.store[name] = value
                self._remove(name, array=False)
            return
        self.state()
        batch = _Batch(self.store, True)
        members = batch.pickled(value)
        batch.write()
        self.store._check_name(name)
        with self.alone():
            graph.dump(self.store.directory, name, members, self.store._sync)
            self._remove(name, array=True)

    def delete(self, attribute: str) -> None:
        name = self.name(attribute)
        with self.alone():
            if not self._remove(name, array=False) + self._remove(name, array=True):
                raise KeyError(attribute)

    def _remove(self, name: str, array: bool) -> bool:
        try:
            self.store.__delitem__(name) if array else self.store.remove_object(name)
        except KeyError:
            return False
        return True

    def names(self) -> list[str]:
        files = os.listdir(self.path)
        ends = (graph.SUFFIX, ".npy")
        return sorted({f[: -len(end)] for f in files for end in ends if f.endswith(end)})

    def recorded(self) -> dict[str, str]:
        """The class, and the object of which it is a version."""
        what = f"read the class of {self.path}"

        def read() -> Any:
            with parent(self.path, _CLASS, False) as (at, last):
                flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
                with open(os.open(last, flags, dir_fd=at)) as file:
                    return json.loads(file.read(65536))

        try:
            with described(what):
                record = self.steady(read, failed(what, errno.EBADMSG, f"{_CLASS} is missing"))
            if not all(isinstance(record[key], str) for key in ("class", "version_of")):
                raise ValueError
        except (ValueError, KeyError, TypeError) as error:
            raise failed(what, errno.EBADMSG, f"{_CLASS} is damaged") from error
        return dict(record)

    def of_class(self, cls: type[Self]) -> Self:
        """The object. No module is imported: that would run code that the file chooses."""
        name = self.recorded()["class"]
        pending = [cls]
        while pending:
            known = pending.pop()
            if _name_of(known) == name:
                found = known.__new__(known)
                vars(found)["_efs_home"] = self
                return found
            pending += known.__subclasses__()
        reason = f"it is of the class {name}, which is not {_name_of(cls)} or known as a subclass"
        remedy = "Import the module of the class, and call the method of that class"
        raise failed(f"use the object {self.path}", errno.EINVAL, reason, remedy)


class _Unpickler(pickle.Unpickler):
    """Finds persistent objects in the store from which it loads."""

    def __init__(self, file: Any, store: Store, **options: Any) -> None:
        super().__init__(file, **options)
        self._store = store

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) == (__name__, _reference.__name__):
            return lambda cls, key, _: _Home(self._store, _valid(key)).of_class(cls)
        return super().find_class(module, name)


def _valid(key: str) -> str:
    if not _ID.fullmatch(key):
        raise failed(f"use the object {key!r}", errno.EBADMSG, "that is not the name of an object")
    return key


def _reference(cls: type[Self], key: str, directory: str) -> Self:
    """What the pickle of a persistent object calls."""
    return _Home(Store(directory), _valid(key)).of_class(cls)


class _Batch:
    """Objects that become persistent together: all that one refers to, or none."""

    def __init__(self, store: Store, recursive: bool) -> None:
        self._store = store
        self._recursive = recursive
        self._homes: dict[int, _Home] = {}
        self._objects: list[Persistent] = []

    def home(self, found: Persistent) -> _Home:
        """The home of an object. One that has none gets it by write()."""
        home = found._home() or self._homes.get(id(found))
        if home is None:
            home = self._homes[id(found)] = _Home(self._store, f"o{uuid.uuid4().hex}")
            self._objects.append(found)
        return home

    def pickled(self, value: Any) -> list[Any]:
        batch = self

        class Pickler(pickle.Pickler):
            def reducer_override(self, found: Any) -> Any:
                if not isinstance(found, Persistent):
                    return NotImplemented
                if not batch._recursive and found._home() is None:
                    what = f"store a reference to a {type(found).__name__}"
                    raise failed(what, errno.EINVAL, "it is not persistent", "Make it persistent")
                home = batch.home(found)
                return _reference, (type(found), home.key, home.store.directory)

        return graph.members(value, Pickler)

    def write(self) -> None:
        """Makes the objects persistent. The last one that appears is the first of the batch."""
        drafts: list[tuple[str, int]] = []
        with described(f"make an object persistent in {self._store.directory}"):
            with parent(self._store.directory, _FOLDER + "/x", True) as (at, _):
                try:
                    for found in self._objects:  # grows meanwhile
                        drafts.append(_new_folder(at))
                        self._write_object(os.path.join(self._folder, drafts[-1][0]), found)
                    for (draft, _), found in reversed(list(zip(drafts, self._objects))):
                        self._publish(at, draft, found)
                finally:
                    for draft, fd in drafts:
                        os.close(fd)
                        shutil.rmtree(os.path.join(self._folder, draft), ignore_errors=True)
                if self._store._sync:
                    os.fsync(at)

    @property
    def _folder(self) -> str:
        return os.path.join(self._store.directory, _FOLDER)

    def _write_object(self, path: str, found: Persistent) -> None:
        sync = self._store._sync
        attributes = _attributes(found)
        with Store(path, sync) as files:
            for name, value in attributes.items():
                _check_attribute(name)
                files._check_name(name)
                if _is_plain(value):
                    files[name] = value
                else:
                    graph.dump(path, name, self.pickled(value), sync)
        _record(path, type(found), "", sync)

    def _publish(self, at: int, draft: str, found: Persistent) -> None:
        home = self._homes[id(found)]
        os.rename(draft, home.key, src_dir_fd=at, dst_dir_fd=at)
        vars(found).clear()
        vars(found)["_efs_home"] = home


def _record(path: str, cls: type, version_of: str, sync: bool) -> None:
    text = json.dumps({"class": _name_of(cls), "version_of": version_of})
    with published(path, _CLASS, sync) as fd:
        os.write(fd, text.encode())


def _new_folder(at: int) -> tuple[str, int]:
    """A directory that the next Store() removes if this process dies."""
    for _ in range(_ATTEMPTS):
        name = draft_name()
        os.mkdir(name, dir_fd=at)
        fd = os.open(name, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC, dir_fd=at)
        if locked(fd, name, at):
            return name, fd
        os.close(fd)
    raise OSError(errno.EAGAIN, "other processes remove each new draft")


class Persistent:
    """Base class of objects that a store can hold.

    After make_persistent() each access to an attribute reads or writes its file, so all processes
    see the same object. An array is a read-only view. To change a value, assign it."""

    #: The store of this class. None is the store of $EFS_MOUNT/objects.
    store: ClassVar[Optional[Store]] = None

    # --- dataClay's vocabulary ---

    def make_persistent(
        self,
        alias: Optional[str] = None,
        backend_id: Optional[str] = None,
        recursive: bool = True,
        store: Optional[Store] = None,
    ) -> None:
        """Moves the attributes to a store. With recursive=True also the objects that they refer
        to. The alias is a name for get_by_alias()."""
        if self._home() is None:
            place = self._store_or(store)
            if alias is not None:
                self._check_free(place, alias)
            batch = _Batch(place, recursive)
            batch.home(self)
            batch.write()
        home = self._needed("give it an alias")
        if backend_id is not None and backend_id != self.get_location():
            raise failed(f"place {home.path} at {backend_id}", errno.ENOTSUP, "there is one node")
        if alias is not None:
            self._link(home, alias)

    @classmethod
    def get_by_alias(cls: type[Self], alias: str, store: Optional[Store] = None) -> Self:
        """KeyError if the alias does not exist."""
        place = cls._store_or(store)
        with cls._alias(place, alias) as (at, last):
            key = os.path.basename(os.readlink(last, dir_fd=at))
        return _Home(place, _valid(key)).of_class(cls)

    @classmethod
    def delete_alias(cls, alias: str, store: Optional[Store] = None) -> None:
        """Removes the alias, not the object. KeyError if the alias does not exist."""
        with cls._alias(cls._store_or(store), alias) as (at, last):
            os.unlink(last, dir_fd=at)

    def new_version(self: Self) -> Self:
        """A version of the object: it has the same attributes, without a copy, until one of the
        two is assigned a new value."""
        home = self._needed("make a version")
        new = _Home(home.store, f"o{uuid.uuid4().hex}")
        with described(f"make a version of {home.path}"):
            with parent(home.store.directory, _FOLDER + "/x", True) as (at, _):
                draft, fd = _new_folder(at)
                try:
                    path = os.path.join(home.store.directory, _FOLDER, draft)
                    self._link_files(home, path)
                    _record(path, type(self), home.key, home.store._sync)
                    os.rename(draft, new.key, src_dir_fd=at, dst_dir_fd=at)
                except BaseException:
                    shutil.rmtree(path, ignore_errors=True)
                    raise
                finally:
                    os.close(fd)
        return new.of_class(type(self))

    def consolidate_version(self) -> None:
        """Puts this version in the place of its original, at once. All references and aliases
        lead to it then. Views of the old attributes stay valid."""
        home = self._needed("consolidate it")
        original = home.recorded()["version_of"]
        if original in ("", home.key):
            raise failed(f"consolidate {home.path}", errno.EINVAL, "it is no version")
        # All lock the two in one order: none waits for another for good.
        first, second = (_Home(home.store, key) for key in sorted((home.key, _valid(original))))
        draft = draft_name()
        with described(f"consolidate {home.path}"), first.alone(), second.alone():
            with parent(home.store.directory, f"{_FOLDER}/x", False) as (at, _):
                _exchange(at, home.key, original)
                if home.store._sync:
                    os.fsync(at)
                os.rename(home.key, draft, src_dir_fd=at, dst_dir_fd=at)
        vars(self)["_efs_home"] = _Home(home.store, original)
        shutil.rmtree(os.path.join(home.store.directory, _FOLDER, draft), ignore_errors=True)

    def get_location(self) -> str:
        """NODE:DIRECTORY"""
        return f"{socket.gethostname()}:{self._needed('locate it').path}"

    def get_all_locations(self) -> list[str]:
        return [self.get_location()]

    def new_replica(self, *_: Any, **__: Any) -> None:
        what = f"make a replica of {self._needed('make a replica').path}"
        raise failed(what, errno.ENOTSUP, "a store is on one node", "Use the shared file system")

    # --- attributes ---

    def __getattribute__(self, name: str) -> Any:
        home = object.__getattribute__(self, "__dict__").get("_efs_home")
        if home is None or name == "__dict__" or _is_behaviour(type(self), name):
            return object.__getattribute__(self, name)
        try:
            return home.get(name)
        except KeyError:
            return object.__getattribute__(self, name)

    def __setattr__(self, name: str, value: Any) -> None:
        home = self._home()
        if home is None or _is_behaviour(type(self), name):
            object.__setattr__(self, name, value)
        else:
            home.set(name, value)

    def __delattr__(self, name: str) -> None:
        home = self._home()
        if home is None or _is_behaviour(type(self), name):
            object.__delattr__(self, name)
            return
        try:
            home.delete(name)
        except KeyError:
            raise AttributeError(name) from None

    def __dir__(self) -> list[str]:
        home = self._home()
        return [*object.__dir__(self), *(home.names() if home else [])]

    def __eq__(self, other: object) -> bool:
        if self is other or not isinstance(other, Persistent):
            return self is other
        one, two = self._home(), other._home()
        return one is not None and two is not None and one.path == two.path

    def __hash__(self) -> int:
        # Of the class, because the identity changes at make_persistent().
        return hash(_name_of(type(self)))

    def __reduce_ex__(self, protocol: Any) -> Any:
        home = self._home()
        if home is None:
            return object.__reduce_ex__(self, protocol)
        return _reference, (type(self), home.key, home.store.directory)

    # --- internals ---

    def _home(self) -> Optional[_Home]:
        return vars(self).get("_efs_home")

    def _needed(self, purpose: str) -> _Home:
        home = self._home()
        if home is None:
            what = f"{purpose}: {type(self).__name__}"
            raise failed(what, errno.EINVAL, "it is not persistent", "Call make_persistent() first")
        return home

    @classmethod
    def _store_or(cls, store: Optional[Store]) -> Store:
        for known in (store, cls.store):
            if known is not None:  # an empty store is false, as an empty dict
                return known
        return Store()

    @classmethod
    @contextmanager
    def _alias(cls, store: Store, alias: str) -> Iterator[tuple[int, str]]:
        store._check_name(alias)
        try:
            with described(f"use the alias {alias}"):
                with parent(store.directory, f"{_ALIASES}/{alias}", False) as found:
                    yield found
        except FileNotFoundError as error:
            raise KeyError(alias) from error

    @classmethod
    def _check_free(cls, store: Store, alias: str) -> None:
        store._check_name(alias)
        if os.path.lexists(os.path.join(store.directory, _ALIASES, alias)):
            raise cls._taken(alias)

    @staticmethod
    def _taken(alias: str) -> Error:
        remedy = "Choose another alias, or call delete_alias()"
        return failed(f"give the alias {alias}", errno.EEXIST, "the alias exists", remedy)

    def _link(self, home: _Home, alias: str) -> None:
        store = home.store
        store._check_name(alias)
        with described(f"give the alias {alias}"):
            with parent(store.directory, f"{_ALIASES}/{alias}", True) as (at, last):
                try:
                    os.symlink("../" * (alias.count("/") + 1) + home.key, last, dir_fd=at)
                except FileExistsError:
                    raise self._taken(alias) from None
            if store._sync:
                sync_folders(store.directory, f"{_ALIASES}/{alias}")

    @staticmethod
    def _link_files(home: _Home, path: str) -> None:
        """Makes hard links of all attributes in the directory at the path."""

        def link() -> None:
            for file in os.listdir(path):  # of an attempt before
                os.unlink(os.path.join(path, file))
            # The descriptor stays at the same state of the object when it is consolidated.
            with parent(home.path, "x", False) as (at, _):
                for file in os.listdir(at):
                    if file.endswith((".npy", graph.SUFFIX)):
                        new = os.path.join(path, file)
                        os.link(file, new, src_dir_fd=at, follow_symlinks=False)

        home.steady(link, OSError(errno.EIO, "a directory has a file that does not exist"))


def _is_behaviour(cls: type, name: str) -> bool:
    """True for methods, properties and internals, which are no attributes of the object."""
    if name.startswith("__") or name == "_efs_home":
        return True
    for known in cls.__mro__:
        if name in vars(known):
            return hasattr(vars(known)[name], "__get__") or known in (Persistent, object)
    return False


def _exchange(at: int, one: str, two: str) -> None:
    rename = getattr(libc, "renameat2", None)
    if rename is None or rename(at, os.fsencode(one), at, os.fsencode(two), _EXCHANGE) != 0:
        code = ctypes.get_errno() if rename is not None else errno.ENOSYS
        if code in (errno.EINVAL, errno.ENOSYS, errno.ENOTSUP):
            reason = "the file system cannot exchange two directories"
            raise failed(f"exchange {one} and {two}", errno.ENOTSUP, reason, "Use another store")
        raise OSError(code, os.strerror(code))


__all__ = ["Persistent"]
