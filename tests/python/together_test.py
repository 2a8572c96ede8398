# SPDX-License-Identifier: BSD-3-Clause
"""Several processes fill one version or one draft; damaged versions; bundles."""
import errno
import io
import os
import unittest
import zipfile
from unittest import mock

import numpy as np
from case import Case

import efs
from efs import _library


def needs(name):
    return unittest.skipUnless(_library.has(name), f"the library has no {name}")


class Older(Case):
    def test_a_function_that_the_library_does_not_have(self):
        self.fails(errno.ENOSYS, "older than this package. Install", _library._absent("eo_new"))


@needs("eo_join")
class OneVersion(Case):
    def test_two_processes(self):
        v = self.s.version("run", 3)
        text = """
with efs.Store(sys.argv[1]).join_version('run', 3, sys.argv[2]) as v:
    v['child'] = np.full(1000, 2); v.dump('object', [1])
    with v.draft('d', 'f8', 3) as d: d[:] = 4
"""
        child = self.program(text, v.token())
        v["parent"] = 1
        self.assertEqual(child.wait(), 0)
        v.commit()
        got = self.s.latest("run")
        self.assertEqual(list(got), ["child", "d", "parent"])
        self.assertEqual((got["child"].sum(), got["d"].sum(), got.load_object("object")), (2000, 12, [1]))
        self.assertEqual(self.left(), [])

    def test_one_has_not_left(self):
        v = self.s.version("run", 3)
        other = self.s.join_version("run", 3, v.token())
        self.fails(errno.EBUSY, "", v.commit)
        other.leave(sync=True)
        self.assertRaises(ValueError, other.leave)
        v.commit()
        self.assertEqual(self.s.versions("run"), [3])

    def test_one_has_failed(self):
        v = self.s.version("run", 3)
        with self.assertRaises(ZeroDivisionError):
            with self.s.join_version("run", 3, v.token()):
                1 / 0
        self.fails(errno.EOWNERDEAD, "", v.commit)
        self.assertEqual(self.s.versions("run"), [])
        for token in ("", "../x", "nosuch", "x" * 500, "a\0b"):
            with self.assertRaises(efs.Error):
                self.s.join_version("run", 3, token)



@needs("eo_join_draft")
class OneDraft(Case):
    def test_two_processes(self):
        for order in "CF":
            draft = self.s.draft("a", "f8", (200, 300), order=order)
            text = """
with efs.Store(sys.argv[1]).join_draft('a', sys.argv[2]) as a:
    assert a.shape == (200, 300) and a.flags[sys.argv[3]], a.flags
    a[100:] = 2
a[:] = 9
"""
            child = self.program(text, draft.token(), order)
            draft.array[:100] = 1
            self.assertEqual(child.wait(), 0)
            draft.publish()
            self.assertEqual((self.s["a"][:100].max(), self.s["a"][100:].min()), (1, 2))

    def test_one_has_not_left(self):
        draft = self.s.draft("a", "f8", 1000)
        other = self.s.join_draft("a", draft.token())
        self.fails(errno.EBUSY, "", draft.publish)
        draft.array[0] = 1  # still the draft
        other.array[1] = 2
        other.leave(sync=True)
        other.array[1] = 3  # no longer
        draft.publish()
        self.assertEqual(self.s["a"][:3].tolist(), [1, 2, 0])
        draft.array[0] = other.array[0] = 5
        self.assertEqual(self.s["a"][0], 1)

    def test_one_has_failed(self):
        self.s["a"] = 1
        draft = self.s.draft("a", "f8", 10)
        with self.assertRaises(ZeroDivisionError):
            with self.s.join_draft("a", draft.token()) as a:
                1 / 0
        a[:] = 1
        self.fails(errno.EOWNERDEAD, "", draft.publish)
        draft.array[:] = 1
        self.assertEqual(self.s["a"], 1)
        self.assertEqual(self.left(), [])


@needs("eo_check")
class Checks(Case):
    def test_a_damaged_version(self):
        with self.s.version("run", 1) as v:
            v["a"], v["b"] = np.zeros(20000), np.ones(20000)
        v = self.s.latest("run")
        v.check()
        with open(os.path.join(v.directory, "b.npy"), "r+b") as file:
            file.seek(1000)
            file.write(b"x")
        v.check("a")
        self.fails(errno.EBADMSG, "b", v.check, "b")
        self.fails(errno.EBADMSG, "b", v.check)
        self.s.remove_version("run", 1)
        self.assertEqual(self.s.versions("run"), [])
        self.assertRaises(KeyError, self.s.remove_version, "run", 1)


@needs("eo_begin_bundle")
class Bundles(Case):
    def test_many_arrays(self):
        arrays = {f"part/{i}": np.full((i, 3), i, "i4") for i in range(200)}
        with self.s.bundle("many") as b:
            b.update(arrays)
            self.assertRaises(KeyError, self.s.open_bundle, "many")
        got = self.s.open_bundle("many")
        self.assertEqual(sorted(got), sorted(arrays))
        for name, value in arrays.items():
            np.testing.assert_array_equal(got[name], value)
            np.testing.assert_array_equal(got.load(name), value)
        everything = got.arrays()
        self.assertEqual(sorted(everything), sorted(arrays))
        self.assertEqual(everything["part/7"].tolist(), arrays["part/7"].tolist())
        with np.load(self.path("many.npz")) as file:
            np.testing.assert_array_equal(file["part/7"], arrays["part/7"])
        with zipfile.ZipFile(self.path("many.npz")) as file:
            self.assertIsNone(file.testzip())
        view = got["part/9"]
        with self.s.bundle("many") as b:
            b["a"] = 1
        self.assertEqual(list(self.s.open_bundle("many")), ["a"])
        got.close()
        self.assertEqual(view.sum(), 9 * 9 * 3)
        with self.assertRaises(ZeroDivisionError):
            with self.s.bundle("many") as b:
                b["b"] = 1
                1 / 0
        self.assertEqual(list(self.s.open_bundle("many")), ["a"])
        self.fails(errno.ENOTSUP, "arrays only", self.s.open_bundle("many").dump, "x", 1)
        with self.s.bundle("many") as b:
            self.fails(errno.ENOTSUP, "", b.draft, "x", "f8", 1)
        self.s.remove_bundle("many")
        self.assertRaises(KeyError, self.s.open_bundle, "many")
        self.assertEqual(self.left(), [])

    def test_all_arrays_of_a_bundle(self):
        with self.s.bundle("odd") as b:
            for i, char in enumerate("?bhilqefdgFDG" * 3):
                for shape in ((), (0,), (3,), (2, 3), (i, 2)):
                    b[f"{char}{i}/x{len(shape)}{shape[:1]}"] = np.ones(shape, char, order="CF"[i % 2]) * (i % 2)
            b["swapped"] = np.arange(3, dtype=">i4")
        with self.s.open_bundle("odd") as b:
            found = b.arrays()
            self.assertEqual(sorted(found), sorted(b))
            self.assertEqual(sorted(b.arrays("d")), sorted(b.keys("d")))
            for name, array in found.items():
                self.assertEqual((array.dtype, array.shape, array.flags.f_contiguous), (b[name].dtype, b[name].shape, b[name].flags.f_contiguous))
                np.testing.assert_array_equal(array, b[name])
                self.assertFalse(array.flags.writeable)
                self.assertRaises(ValueError, array.setflags, write=True)
            with mock.patch.object(b, "_file", None):  # as the library reads them
                for name, array in b.arrays().items():
                    np.testing.assert_array_equal(array, found[name])
        self.s.remove_bundle("odd")
        self.assertEqual(found["swapped"].tolist(), [0, 1, 2])
        del found, array
        self.assertEqual(self.mapped(), 0)

    def test_arrays_of_bundles_of_other_programs(self):
        for version in ((1, 0), (2, 0), (3, 0)):
            aligned = 0
            for at in range(64):
                with zipfile.ZipFile(self.path("other.npz"), "w", zipfile.ZIP_STORED) as z:
                    for i in range(3):
                        npy = io.BytesIO()
                        np.lib.format.write_array(npy, np.arange(3.0) + i, version=version)
                        z.writestr("x" * at + f"{i}.npy", npy.getvalue())
                        at = (at + i * 7) % 64 if at % 5 == 0 else at
                with self.s.open_bundle("other") as b:
                    try:
                        found = b.arrays()
                    except efs.Error as error:
                        self.assertIn("is not aligned", str(error))
                        self.assertRaises(efs.Error, lambda: [b[name] for name in b])
                        continue
                    aligned += 1
                    for name, array in found.items():
                        self.assertEqual(array.tolist(), [int(name[-1]) + x for x in (0, 1, 2)])
                        self.assertEqual((array.flags.aligned, array.flags.writeable), (True, False))
            self.assertGreater(aligned, 0)

    def test_a_bundle_is_replaced(self):
        for i in range(3):
            with self.s.bundle("b") as b:
                b[f"n{i}"] = i
            if i == 0:
                old = self.s.open_bundle("b")
        self.assertEqual(list(old.arrays()), ["n0"])
        real = os.stat
        with mock.patch("os.stat", lambda path, **k: real(self.directory if path.endswith(".npz") else path, **k)):
            new = self.s.open_bundle("b")  # the file may be another one
        self.assertIsNone(new._file)
        self.assertEqual(list(new.arrays()), ["n2"])
        old.close()
        self.assertRaises(ValueError, old.arrays)

    def test_a_damaged_bundle(self):
        with self.s.bundle("b") as b:
            for i in range(4):
                b[f"n{i}"] = np.full(50, i)
        with open(self.path("b.npz"), "rb") as file:
            good = file.read()
        wrong = 0
        for place in [*range(0, len(good), 29), *range(len(good) - 300, len(good), 5)]:
            data = bytearray(good)
            data[place] ^= 0xFF
            self.write("b.npz", data)
            try:
                with self.s.open_bundle("b") as b:
                    for array in b.arrays().values():
                        self.assertLessEqual(array.nbytes, len(good))
                        array.tobytes()
            except (efs.Error, KeyError):
                wrong += 1
        self.assertGreater(wrong, 30)

    def test_small_arrays_of_a_version(self):
        with self.s.version("run", 1) as v:
            for i in range(50):
                v[f"small/{i}"] = np.full(10, i)
            v["large"] = np.zeros(100000)
        got = self.s.latest("run")
        self.assertEqual(len(got), 51)
        self.assertEqual([int(got[f"small/{i}"][0]) for i in range(50)], list(range(50)))
        got.check()
