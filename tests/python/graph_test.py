# SPDX-License-Identifier: BSD-3-Clause
"""Python objects: what they are afterwards, damaged and hostile files."""
import array
import collections
import dataclasses
import datetime
import enum
import errno
import fractions
import gc
import os
import pickle
import unittest
import zipfile
import zlib
from unittest import mock

import numpy as np
from case import Case

import efs
from efs import _memory, _zip


class Colour(enum.Enum):
    RED = 1


@dataclasses.dataclass
class Model:
    weights: np.ndarray
    name: str
    parts: list


class Wrapped:
    """Has a buffer that is no array."""

    def __init__(self, data):
        self.data = data

    def __reduce_ex__(self, protocol):
        return Wrapped, (pickle.PickleBuffer(self.data),)


class Broken:
    def __reduce__(self):
        raise ZeroDivisionError


def address(a):
    return a.__array_interface__["data"][0]


class Objects(Case):
    def same(self, value):
        self.s.dump("x", value)
        return self.s.load_object("x")

    def test_odd_types(self):
        for value in (
            None, True, 2**200, -1.5, float("inf"), 1j, "\u00e4\ud800", b"\0" * 5000, bytearray(b"ab" * 3000), (), [], {}, {1, 2}, frozenset("ab"),
            range(3), slice(1, 2), ..., Colour.RED, datetime.datetime(2026, 1, 2), fractions.Fraction(1, 3), collections.OrderedDict(a=1),
            collections.deque([1], 5), collections.Counter("aab"), array.array("d", [1.5] * 999), int, len, np.float32(1.5), np.dtype("f4"),
        ):  # fmt: skip
            got = self.same(value)
            self.assertEqual((got, type(got)), (value, type(value)))

    def test_odd_arrays(self):
        big = np.arange(5000)
        for value in (
            big, big.astype(">i4"), big[::2], big.reshape(50, 100).T, np.asfortranarray(big.reshape(50, 100)), np.array(5), np.zeros((0, 3)), np.zeros((3000, 0)),
            np.array(["text"] * 3000), np.array([b"ab"] * 3000), big.astype("M8[s]"), big.astype("m8[ms]"), np.zeros(3000, [("a", "f8"), ("b", "S3")]),
            np.array([None, "a", 1] * 900, object), big.astype("f2"), big.astype("g"), big.astype("G"), big > 7, np.zeros(2000, "V5"),
            np.zeros(900, np.dtype({"names": ["a", "b"], "formats": ["i1", "f8"]}, align=True)), np.broadcast_to(np.arange(3), (900, 3)),
        ):  # fmt: skip
            got = self.same(value)
            self.assertEqual((got.dtype, got.shape), (value.dtype, value.shape))
            np.testing.assert_array_equal(got, value)
        masked = np.ma.array(big, mask=big > 3)
        got = self.same(masked)
        self.assertEqual((got.sum(), got.count()), (6, 4))
        self.assertEqual(self.same(np.matrix(big)).shape, (1, 5000))

    def test_a_graph(self):
        weights = np.arange(10000.0)
        cycle = {"model": Model(weights, "m", [weights, weights[:5000]])}
        cycle["self"] = cycle
        got = self.same(cycle)
        self.assertIs(got["self"], got)
        model = got["model"]
        self.assertIs(model.parts[0], model.weights)
        np.testing.assert_array_equal(model.weights, weights)
        np.testing.assert_array_equal(model.parts[1], weights[:5000])
        self.assertEqual(bytes(self.same(Wrapped(bytearray(b"x" * 5000))).data), b"x" * 5000)

    def test_without_a_copy(self):
        self.s.dump("x", [np.zeros(1 << 20), np.ones(3)])
        files = len(os.listdir("/proc/self/fd"))
        big, small = self.s.load_object("x")
        self.assertEqual(self.mapped(), 1)
        self.assertEqual(len(os.listdir("/proc/self/fd")), files)
        self.assertEqual(address(big) % 64, 0)
        self.assertIsNotNone(big.base)
        big[0] = 5  # memory of its own
        self.assertEqual(self.s.load_object("x")[0][0], 0)
        self.s.dump("x", 1)
        self.s.remove_object("x")
        self.s.close()
        del small
        gc.collect()
        self.assertEqual((big[0], big[1:].max()), (5, 0))
        del big
        gc.collect()
        self.assertEqual(self.mapped(), 0)

    def test_read_only_arrays_stay_so(self):
        a = np.zeros(5000)
        a.flags.writeable = False
        self.assertFalse(self.same(a).flags.writeable)
        self.assertTrue(self.same(np.zeros(5000)).flags.writeable)

    def test_numpy_and_zip_read_it(self):
        a = np.arange(6000.0).reshape(60, 100)
        self.s.dump("x", {"a": a, "f": np.asfortranarray(a), "b": b"text"})
        with np.load(self.path("x.pkl.npz")) as file:
            self.assertEqual(sorted(file), ["0", "1", "object.pkl"])
            np.testing.assert_array_equal(file["0"], a)
            np.testing.assert_array_equal(file["1"], a.T)
        with zipfile.ZipFile(self.path("x.pkl.npz")) as file:
            self.assertIsNone(file.testzip())
        self.s.dump("many", [np.full(200, i) for i in range(300)])
        self.assertEqual([a[0] for a in self.s.load_object("many")], list(range(300)))

    def test_large_sizes_and_offsets(self):
        huge = memoryview(np.zeros(5 << 30, np.uint8))  # never touched: the file is sparse
        small = memoryview(b"small")
        members = [_zip.Member("first", (small,)), _zip.Member("huge", (small, huge)), _zip.Member("last", (small,))]
        real = _zip.write_all
        with open(self.path("zip"), "w+b") as file:
            with mock.patch.object(_zip, "write_all", lambda fd, data, offset: len(data) > 99999 or real(fd, data, offset)):
                with mock.patch.object(_zip.Member, "crc", lambda member: zlib.crc32(small)):
                    _zip.write(file.fileno(), members)
            with zipfile.ZipFile(file) as archive:
                self.assertEqual([i.file_size for i in archive.infolist()], [5, 5 + (5 << 30), 5])
                self.assertEqual([archive.read(n) for n in ("first", "last")], [b"small"] * 2)
            data = _memory.private(file.fileno(), os.fstat(file.fileno()).st_size)
            for place in _zip.read(file, data).values():
                self.assertEqual((bytes(data[place.begin : place.begin + 5]), place.begin % 64), (b"small", 0))

    def test_names(self):
        self.s.dump("a/x", 1)
        self.s.dump("b", 2)
        self.s["b"] = 3
        self.assertEqual(self.s.objects(), ["a/x", "b"])
        self.assertEqual(self.s.objects("a/"), ["a/x"])
        self.assertEqual(list(self.s), ["b"])
        self.s.remove_object("b")
        self.assertEqual(self.s["b"], 3)
        for call in (self.s.load_object, self.s.remove_object):
            self.assertRaises(KeyError, call, "b")
            self.assertRaises(KeyError, call, "no/such")
        for name in ("", "../x", "a//b", "x.npy", "a\0b"):
            self.fails(errno.EINVAL, "Choose", self.s.dump, name, 1)
            self.fails(errno.EINVAL, "Choose", self.s.load_object, name)
        self.assertRaises(TypeError, self.s.dump, 1, 1)
        self.fails(errno.ENAMETOOLONG, "shorter", self.s.dump, "x" * 250, 1)
        self.s.close()
        self.assertRaises(ValueError, self.s.dump, "b", 1)

    def test_a_failure_changes_nothing(self):
        self.s.dump("x", 1)
        for value, error in ((lambda: 1, (pickle.PicklingError, AttributeError)), ((i for i in ()), TypeError), ([np.zeros(5000), Broken()], ZeroDivisionError)):
            self.assertRaises(error, self.s.dump, "x", value)
        deep = []
        for _ in range(100000):
            deep = [deep]
        self.assertRaises(RecursionError, self.s.dump, "x", deep)
        while deep:
            deep = deep.pop()
        with mock.patch("efs._zip.write_all", side_effect=OSError(errno.EIO, "broken")):
            self.fails(errno.EIO, "cannot dump x .*x.pkl.npz", self.s.dump, "x", 2)
        self.assertEqual(self.s.load_object("x"), 1)
        self.assertEqual(self.left(), [])

    def test_a_failed_close_keeps_the_old_object(self):
        self.s.dump("x", 1)
        real = os.close

        def close(fd):
            draft = os.readlink(f"/proc/self/fd/{fd}").endswith(".part")
            real(fd)
            if draft:
                raise OSError(errno.EDQUOT, "full")

        with mock.patch("os.close", close):
            self.fails(errno.EDQUOT, "cannot dump x .* larger quota", self.s.dump, "x", 2)
        self.assertEqual(self.s.load_object("x"), 1)
        self.assertEqual(self.left(), [])

    def test_in_a_version(self):
        with self.s.version("run", 1) as v:
            v.dump("model", {"w": np.ones(5000)})
            v.dump("gone", 1)
            v.remove_object("gone")
            v.commit(sync=True)
        v = self.s.latest("run")
        self.assertEqual(v.objects(), ["model"])
        self.assertEqual(v.load_object("model")["w"].sum(), 5000)
        self.fails(errno.EROFS, "Begin a new version", v.dump, "x", 1)
        self.fails(errno.EROFS, "Begin a new version", v.remove_object, "model")
        self.assertEqual(self.s.objects(), [])

    def test_durable(self):
        synced = []
        real = os.fsync
        with mock.patch("os.fdatasync", lambda fd: synced.append(os.readlink(f"/proc/self/fd/{fd}")[-5:])), mock.patch("os.fsync", lambda fd: (synced.append(os.readlink(f"/proc/self/fd/{fd}")), real(fd))):
            self.s.dump("a/b/x", 1, sync=True)
            self.s.dump("a/b/y", 1)
        self.assertEqual(synced, [".part", self.path("a/b"), self.path("a"), self.directory])


class Hostile(Case):
    def setUp(self):
        super().setUp()
        self.s.dump("x", {"a": np.arange(1000.0), "b": "text"})
        with open(self.path("x.pkl.npz"), "rb") as file:
            self.good = file.read()

    def test_every_truncation(self):
        for size in [*range(0, len(self.good), 297), *range(len(self.good) - 300, len(self.good), 7)]:
            self.write("y.pkl.npz", self.good[:size])
            self.fails(errno.EBADMSG, "cannot load y .*y.pkl.npz", self.s.load_object, "y")

    def test_changed_bytes(self):
        """Any change is an error of the file, or does not reach the pickle."""
        wrong = 0
        begin, end = self.good.index(b"\x80\x05"), self.good.index(b"\x80\x05") + 100
        places = [*range(0, len(self.good), 197), *range(begin, end, 3), *range(len(self.good) - 300, len(self.good), 3)]
        for place in places:
            data = bytearray(self.good)
            data[place] ^= 0xFF
            self.write("y.pkl.npz", data)
            try:
                self.assertEqual(self.s.load_object("y")["b"], "text")
            except efs.Error as error:
                self.assertEqual(error.errno, errno.EBADMSG, error)
                wrong += 1
        self.assertGreater(wrong, 60)

    def test_a_changed_array(self):
        data = bytearray(self.good)
        data[data.index(np.arange(1000.0).tobytes()) + 5000] ^= 1
        self.write("y.pkl.npz", data)
        self.fails(errno.EBADMSG, r"damaged: 0\.npy has another checksum", self.s.load_object, "y")
        self.assertEqual(self.s.load_object("y", verify=False)["b"], "text")

    def test_a_bundle_takes_no_place_of_an_object(self):
        self.fails(errno.EINVAL, "bundle x.pkl.*dump", self.s.bundle, "x.pkl")
        self.fails(errno.EINVAL, "bundle x.pkl.*dump", self.s.remove_bundle, "x.pkl")
        self.assertEqual(self.s.load_object("x")["b"], "text")
        self.assertEqual(sorted(self.s.open_bundle("x.pkl")), ["0"])

    def test_other_files(self):
        with zipfile.ZipFile(self.path("deflated.pkl.npz"), "w", zipfile.ZIP_DEFLATED) as file:
            file.writestr("object.pkl", b"x" * 100000)
        np.savez(self.path("bundle.pkl.npz"), a=np.ones(3))
        self.write("text.pkl.npz", b"not a zip file")
        os.symlink(self.path("x.pkl.npz"), self.path("link.pkl.npz"))
        os.mkdir(self.path("folder.pkl.npz"))
        os.mkfifo(self.path("fifo.pkl.npz"))
        for name, text in (("deflated", "compressed"), ("bundle", "no object.pkl"), ("text", "damaged"), ("fifo", "regular")):
            self.fails(errno.EBADMSG, text, self.s.load_object, name)
        for name in ("link", "folder"):
            self.assertRaises(efs.Error, self.s.load_object, name)
        os.mkdir(self.path("real"))
        os.symlink(self.path("real"), self.path("way"))
        self.assertRaises(efs.Error, self.s.dump, "way/x", 1)
        self.assertEqual(os.listdir(self.path("real")), [])

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a file to another user")
    def test_a_file_of_another_user_is_not_unpickled(self):
        class Evil:
            def __reduce__(self):
                return os.mkdir, (evidence,)

        evidence = self.path("evidence")
        self.s.dump("y", Evil())
        os.chown(self.path("y.pkl.npz"), 12345, 0)
        self.fails(errno.EPERM, "belongs to the user 12345.*copy the file", self.s.load_object, "y")
        self.assertFalse(os.path.exists(evidence))
        os.chown(self.path("y.pkl.npz"), 0, 0)
        self.s.load_object("y")
        self.assertTrue(os.path.exists(evidence))

    def test_a_file_that_others_can_write_is_not_unpickled(self):
        for mode, who in ((0o666, "every user"), (0o646, "every user"), (0o664, "its group")):
            os.chmod(self.path("x.pkl.npz"), mode)
            self.fails(errno.EPERM, who + ".*chmod go-w", self.s.load_object, "x")
        umask = os.umask(0)
        self.addCleanup(os.umask, umask)
        self.s.dump("x", 1)
        self.assertEqual(self.s.load_object("x"), 1)
        self.assertEqual(os.stat(self.path("x.pkl.npz")).st_mode & 0o777, 0o644)

    def test_an_array_is_never_unpickled(self):
        np.save(self.path("p.npy"), np.array([Colour.RED], object), allow_pickle=True)
        self.fails(errno.ENOTSUP, "not a plain number", lambda: self.s["p"])
