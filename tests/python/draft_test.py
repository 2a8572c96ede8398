# SPDX-License-Identifier: BSD-3-Clause
"""Drafts: published, discarded, and their arrays afterwards."""
import errno
import gc
import os
from unittest import mock

import numpy as np
from case import Case

import efs
import efs.draft


class Drafts(Case):
    def test_in_place(self):
        for order in "CF":
            with self.s.draft("a", "i4", (3, 4), order=order) as a:
                self.assertEqual(a.sum(), 0)
                a[:] = np.arange(12).reshape(3, 4)
                self.assertNotIn("a", self.s)
                self.assertEqual(len(self.left()), 1)
            self.assertEqual(self.s["a"].tolist(), np.arange(12).reshape(3, 4).tolist())
            self.assertEqual(self.s["a"].flags.f_contiguous, order == "F")
            self.assertEqual(self.left(), [])
            del self.s["a"]

    def test_shapes(self):
        for shape in ((), 0, 5, (2, 0), (np.int64(3),), [2, 2]):
            with self.s.draft("a", np.float32, shape) as a:
                a[...] = 2
            self.assertEqual(self.s["a"].tolist(), a.tolist())
        for wrong in (-1, (2, -2)):
            self.assertRaises(ValueError, self.s.draft, "a", "f8", wrong)
        self.assertRaises(TypeError, self.s.draft, "a", "f8", 1.5)
        self.assertRaises(ValueError, self.s.draft, "a", "f8", 1, order="A")
        self.fails(errno.ENOTSUP, "Use dump", self.s.draft, "a", "O", 1)
        self.fails(errno.EINVAL, "empty", self.s.draft, "", "f8", 1)
        self.assertEqual(self.left(), [])

    def test_an_exception_discards(self):
        self.s["a"] = np.ones(3)
        with self.assertRaises(ZeroDivisionError):
            with self.s.draft("a", "f8", 3) as a:
                a[:] = 5
                1 / 0
        self.assertEqual(self.left(), [])
        self.assertEqual(self.s["a"].tolist(), [1, 1, 1])
        a[:] = a + 1
        self.assertEqual(a.tolist(), [6, 6, 6])

    def afterwards(self):
        with self.s.draft("a", "f8", 3000) as a:
            part = a[1000:]
            a[:] = 5
        view = self.s["a"]
        part[:] = 6
        self.assertEqual((a[0], a[1000], part[0]), (5, 6, 6))
        self.assertEqual((view.min(), view.max()), (5, 5))
        self.assertEqual(np.load(self.path("a.npy")).max(), 5)
        del self.s["a"]
        a += 1
        self.assertEqual((a[0], part[0], view[0]), (6, 7, 5))
        del a
        part += 1
        self.assertEqual(part[0], 8)
        del part, view
        self.assertEqual(self.mapped(), 0)

    def test_the_array_is_detached(self):
        self.afterwards()

    def test_without_proc(self):
        with mock.patch.object(efs.draft, "_file_of", return_value=None):
            self.afterwards()

    def test_without_private_mappings(self):
        real = efs.draft.map_memory

        def refused(address, size, flags, fd):
            if flags & 2 and fd >= 0:
                raise OSError(errno.ENODEV, "no private mapping")
            return real(address, size, flags, fd)

        with mock.patch.object(efs.draft, "map_memory", refused):
            self.afterwards()

    def test_not_in_a_with(self):
        draft = self.s.draft("a", "f8", 4)
        draft.array[:] = 3
        draft.publish(sync=True)
        self.assertEqual(self.s["a"].sum(), 12)
        self.assertRaises(ValueError, draft.publish)
        draft.discard()
        draft.array[:] = 4
        self.assertEqual(self.s["a"].sum(), 12)
        with self.s.draft("b", "f8", 4) as b:
            pass
        draft = self.s.draft("b", "f8", 4)
        with draft:
            draft.discard()
        self.assertEqual(b.sum(), 0)

    def test_forgotten(self):
        array = self.s.draft("a", "f8", 1000).array
        gc.collect()
        self.assertEqual(self.left(), [])
        array[:] = 1
        self.assertEqual(array.sum(), 1000)

    def test_outlives_its_store(self):
        draft = self.s.draft("a", "f8", 10)
        self.s.close()
        draft.array[:] = 2
        draft.publish()
        self.assertEqual(efs.Store(self.directory)["a"].sum(), 20)

    def test_the_publication_fails(self):
        draft = self.s.draft("d/a", "f8", 10)
        os.mkdir(self.path("d/a.npy"))
        self.fails(errno.EISDIR, "cannot publish d/a", draft.publish)
        self.assertEqual(self.left(), [])
        draft.array[:] = 1
        self.assertEqual(draft.array.sum(), 10)

    def test_a_child_ends_no_draft(self):
        draft = self.s.draft("a", "f8", 10)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                draft.array[:] = 3  # shared memory
                try:
                    draft.publish()
                except ValueError:
                    draft.discard()
                    del draft
                    gc.collect()
                    code = 0
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        self.assertEqual(len(self.left()), 1)
        draft.publish()
        self.assertEqual(self.s["a"].sum(), 30)
