# SPDX-License-Identifier: BSD-3-Clause
"""The mapping: values, names, views, parts, damaged files, several threads and processes."""
import errno
import gc
import os
import random
import signal
import threading
import unittest
from unittest import mock

import numpy as np
from case import Case

import efs


class Mapping(Case):
    def test_as_a_dict(self):
        s = self.s
        self.assertEqual(len(s), 0)
        s["b"] = np.arange(3)
        s["run/a"] = [[1.5, 2.5]]
        s["run/b"] = 7
        self.assertEqual(list(s), ["b", "run/a", "run/b"])
        self.assertEqual(list(s.keys()), ["b", "run/a", "run/b"])
        self.assertEqual(list(s.keys("run/")), ["run/a", "run/b"])
        self.assertEqual(len(s.keys("run/")), 2)
        self.assertIn("run/a", s.keys("run/"))
        self.assertNotIn("b", s.keys("run/"))
        self.assertIn("b", s)
        self.assertNotIn("c", s)
        self.assertEqual({name: value.tolist() for name, value in s.items()}, {"b": [0, 1, 2], "run/a": [[1.5, 2.5]], "run/b": 7})
        self.assertEqual({n: a.tolist() for n, a in s.arrays("run/").items()}, {"run/a": [[1.5, 2.5]], "run/b": 7})
        self.assertEqual(list(s.arrays()), list(s))
        self.assertEqual(s.pop("b").tolist(), [0, 1, 2])
        self.assertIsNone(s.get("b"))
        del s["run/a"]
        self.assertEqual(list(s), ["run/b"])
        s.update(x=np.ones(2), y=np.zeros(2))
        s.clear()
        self.assertEqual(list(s), [])
        self.assertEqual(s, s)
        self.assertNotEqual(s, efs.Store(self.directory))
        self.assertEqual(len({s, s}), 1)
        self.assertIn(self.directory, repr(s))

    def test_missing_names_are_key_errors(self):
        with self.assertRaises(KeyError) as caught:
            self.s["nosuch"]
        self.assertIn("cannot view nosuch", str(caught.exception.__cause__))
        for call in (lambda: self.s.load("nosuch"), lambda: self.s.info("nosuch"), lambda: self.s.__delitem__("nosuch")):
            self.assertRaises(KeyError, call)

    def test_every_type_and_order(self):
        for char in "?bBhHiIlLqQefdgFDG":
            for shape in ((), (5,), (2, 0, 3), (2, 3, 4)):
                for order in "CF":
                    for swapped in (False, True):
                        dtype = np.dtype(char).newbyteorder() if swapped else np.dtype(char)
                        a = np.arange(np.prod(shape, dtype=int)).reshape(shape).astype(dtype, order=order)
                        self.s["a"] = a
                        for b in (self.s["a"], self.s.load("a"), np.load(self.path("a.npy"))):
                            self.assertEqual((b.dtype, b.shape), (a.dtype, a.shape))
                            np.testing.assert_array_equal(a, b)
                            self.assertEqual(b.flags.f_contiguous, a.flags.f_contiguous)
                        self.assertEqual(self.s.info("a")[:2], (a.dtype, a.shape))

    def test_arrays_with_strides_are_stored_whole(self):
        a = np.arange(60).reshape(3, 4, 5)
        for part in (a[::2, 1:, ::-1], a.transpose(1, 0, 2), np.broadcast_to(np.arange(3), (2, 3))):
            self.s["a"] = part
            np.testing.assert_array_equal(self.s["a"], part)

    def test_other_values_are_refused(self):
        self.s["a"] = np.arange(3)
        for value in (None, "text", b"bytes", object(), [1, "b"], np.array(["2026"], "M8[ns]"), np.zeros(2, [("x", "f8"), ("y", "i4")]), {"a": 1}, 2**80):
            self.fails(errno.ENOTSUP, "Use dump", self.s.__setitem__, "a", value)
        self.fails(errno.ENOTSUP, "mask", self.s.__setitem__, "a", np.ma.array([1, 2], mask=[0, 1]))
        self.assertEqual(self.s["a"].tolist(), [0, 1, 2])
        self.assertEqual(self.left(), [])

    def test_names(self):
        for name in ("", ".", "..", "a//b", "/a", "a/", "../a", "a.npy", "b.part", "00000001", "a\nb", "a\0b", "\ud800", "x" * 300):
            self.fails(errno.EINVAL, "Choose", self.s.__setitem__, name, 1)
            self.fails(errno.EINVAL, "Choose", lambda n: self.s[n], name)
            self.assertNotIn(name, self.s)
        for name in (1, None, b"a"):
            self.assertRaises(TypeError, self.s.__setitem__, name, 1)
            self.assertNotIn(name, self.s)
        for name in ("a b", "\u00e4\u4e2d\U0001f600", "a'b\"c\\d", "~", "x" * 200):
            self.s[name] = 1
            self.assertIn(name, list(self.s))
        self.assertEqual(sorted(os.listdir(self.directory)), sorted(n + ".npy" for n in self.s))

    def test_sync_reaches_the_library(self):
        flags = []
        with mock.patch.object(self.s._handle, "call", lambda function, *arguments: flags.append(arguments[-1])):
            self.s["a"] = 1
            self.s.store("a", 1, sync=True)
            self.s._sync = True
            self.s["a"] = 1
            self.s.store("a", 1, sync=False)
        self.assertEqual(flags, [0, 1, 1, 0])
        durable = efs.Store(self.directory, sync=True)
        durable["b"] = 1
        with durable.draft("c", "f8", 3) as c:
            c[:] = 1
        self.assertEqual(durable["c"].sum(), 3)

    def test_default_directory(self):
        with mock.patch.dict(os.environ, EFS_MOUNT=self.directory):
            self.assertEqual(efs.Store().directory, self.path("objects"))
        with mock.patch.dict(os.environ):
            os.environ.pop("EFS_MOUNT", None)
            self.fails(errno.EINVAL, "EFS_MOUNT is not set. Name a directory", efs.Store)
        self.write("file", b"")
        self.fails(errno.ENOTDIR, "cannot open the store", efs.Store, self.path("file"))


class Views(Case):
    def test_read_only_for_good(self):
        self.s["a"] = np.arange(6).reshape(2, 3)
        view = self.s["a"]
        for attempt in (lambda: view.__setitem__((0, 0), 1), lambda: setattr(view.flags, "writeable", True), lambda: view.T.sort(), lambda: view.ravel().setflags(write=True)):
            self.assertRaises(ValueError, attempt)

    def test_outlives_everything(self):
        a = np.arange(100000.0)
        self.s["a"] = a
        old = self.s["a"]
        part = self.s["a"][10:20].reshape(2, 5)
        self.s["a"] = np.zeros(3)
        new = self.s["a"]
        del self.s["a"]
        self.s.close()
        self.assertRaises(ValueError, lambda: self.s["a"])
        self.assertIn("closed", repr(self.s))
        del self.s
        gc.collect()
        np.testing.assert_array_equal(old, a)
        np.testing.assert_array_equal(part.ravel(), a[10:20])
        self.assertEqual(new.tolist(), [0, 0, 0])
        self.assertEqual(self.mapped(), 3)
        del old
        self.assertEqual(self.mapped(), 2)
        del part, new
        self.assertEqual(self.mapped(), 0)

    def test_no_copy(self):
        self.s["a"] = np.zeros(1 << 20)
        self.assertEqual(self.s["a"].base is None, False)
        one, two = self.s["a"], self.s["a"]
        self.assertEqual(self.mapped(), 2)
        self.assertFalse(np.shares_memory(one, two))
        self.assertTrue(np.shares_memory(one, one[5:]))

    def test_outlives_the_interpreter_at_exit(self):
        text = "import atexit\ns = efs.Store(sys.argv[1]); s['a'] = np.ones(5000)\nv = s['a']; atexit.register(lambda: print(int(v.sum())))\nsys.v = v; d = s.draft('d', 'f8', 3); sys.d = d.array\n"
        process = self.program(text)
        self.assertEqual(process.communicate()[0], b"5000\n")
        self.assertEqual(process.returncode, 0)


class Parts(Case):
    def test_as_numpy_selects(self):
        draw = random.Random(7)
        for order in "CF":
            a = np.arange(5 * 6 * 7).reshape(5, 6, 7).copy(order=order)
            self.s["a"] = a
            for _ in range(200):
                index = tuple(draw.choice([slice(draw.choice([None, draw.randint(-9, 9)]), draw.choice([None, draw.randint(-9, 9)])), draw.randint(-n, n - 1)]) for n in a.shape[: draw.randint(0, 3)])
                if draw.random() < 0.3:
                    index += (...,)
                expected = a[index]
                got = self.s.load("a", index)
                np.testing.assert_array_equal(got, expected, err_msg=str(index))
                self.assertEqual(np.shape(got), np.shape(expected))
                self.assertTrue(got.flags.writeable)
                out = np.zeros(np.shape(expected), a.dtype, order=order)
                self.assertIs(self.s.load("a", index, out=out), out)
                np.testing.assert_array_equal(out, expected)

    def test_refused(self):
        self.s["a"] = np.arange(6.0).reshape(2, 3)
        for index in (2, -3, (0, 0, 0), (..., ...), slice(None, None, 2), [0, 1], None, True, np.array([True, False]), 1.5, "x"):
            self.assertRaises(IndexError, self.s.load, "a", index)
        frozen = np.zeros((2, 3))
        frozen.flags.writeable = False
        for out in (np.zeros((3, 2)), np.zeros((2, 3), order="F"), np.zeros((4, 6))[::2, ::2], frozen):
            self.assertRaises(ValueError, self.s.load, "a", ..., out)
        self.fails(errno.EINVAL, "dtype", self.s.load, "a", ..., np.zeros((2, 3), "f4"))

    def test_an_array_is_removed_during_arrays(self):
        self.s["a"] = self.s["b"] = 1
        with mock.patch.object(self.s, "_encoded_names", return_value=[b"a", b"gone", b"b"]):
            self.assertEqual(list(self.s.arrays()), ["a", "b"])

    def test_the_object_is_replaced_meanwhile(self):
        self.s["a"] = np.zeros((2, 3))
        info = self.s.info("a")
        self.s["a"] = np.ones(4)
        with mock.patch.object(self.s, "info", side_effect=[info, self.s.info("a"), self.s.info("a")]):
            self.assertEqual(self.s.load("a").tolist(), [1, 1, 1, 1])


class Damaged(Case):
    def npy(self):
        self.s["good"] = np.arange(1000.0)
        with open(self.path("good.npy"), "rb") as file:
            return file.read()

    def test_files(self):
        good = self.npy()
        cases = {
            "truncated": good[:-1],
            "headless": good[:60],
            "empty": b"",
            "magic": b"\x93NUMPX" + good[6:],
            "other": b"PK\x03\x04" + bytes(200),
            "shape": good.replace(b"(1000,)", b"(9999,)"),
            "huge": good.replace(b"(1000,), }             ", b"(9223372036854775807,),}"[:24].ljust(23)),
            "text": good.replace(b"'descr'", b"'discr'"),
        }
        for name, data in cases.items():
            self.assertNotEqual(data, good, name)
            self.write(name + ".npy", data)
            self.fails(errno.EBADMSG, f"cannot view {name} .*npy", lambda n: self.s[n], name)
            self.fails(errno.EBADMSG, name, self.s.load, name)
            self.assertIn(name, self.s)
            self.assertIn(name, list(self.s))
        self.fails(errno.EBADMSG, "cannot view empty", self.s.arrays)
        self.write("objects.npy", good.replace(b"'<f8'", b"'|O' "))
        self.fails(errno.ENOTSUP, "objects", lambda: self.s["objects"])

    def test_other_kinds_of_files(self):
        os.symlink(self.path("nowhere"), self.path("link.npy"))
        os.mkfifo(self.path("fifo.npy"))
        os.mkdir(self.path("folder.npy"))
        for name in ("link", "fifo", "folder"):
            with self.assertRaises((efs.Error, KeyError)):
                self.s[name]
        self.s["link"] = 1  # replaces the link, follows it not
        self.assertFalse(os.path.exists(self.path("nowhere")))
        self.assertEqual(self.s["link"], 1)

    def test_one_writes_and_has_no_access(self):
        if os.geteuid() == 0:
            text = "import inspect, numpy.ma\nos.setgid(65534); os.setuid(65534)\ntry: efs.Store(sys.argv[1])['a'] = 1\nexcept efs.Error as e: print(e.errno, e)"
            os.chmod(self.directory, 0o755)
            said = self.program(text).communicate()[0].decode()
            self.assertRegex(said, f"^{errno.EACCES} cannot store a .*Give this user access")
        else:
            os.chmod(self.directory, 0o555)
            self.fails(errno.EACCES, "Give this user access", self.s.__setitem__, "a", 1)

    @unittest.skipUnless(os.environ.get("EFS_TEST_SMALL"), "EFS_TEST_SMALL names no small file system")
    def test_full(self):
        small = efs.Store(os.path.join(os.environ["EFS_TEST_SMALL"], "store"))
        self.addCleanup(small.clear)
        small["a"] = np.arange(10)
        for call in (lambda: small.store("a", np.zeros(1 << 20)), lambda: small.draft("a", "f8", 1 << 20)):
            self.fails(errno.ENOSPC, "cannot .* a .*Remove files", call)
        self.assertEqual(small["a"].tolist(), list(range(10)))
        self.assertEqual(os.listdir(small.directory), ["a.npy"])


class Together(Case):
    def test_two_processes_write_one_name(self):
        text = "s = efs.Store(sys.argv[1])\nfor i in range(25): s['a'] = np.full(50000 + i, int(sys.argv[2]))\nprint('done')"
        self.s["a"] = np.zeros(1)
        writers = [self.program(text, n) for n in (1, 2)]
        seen = 0
        while any(w.poll() is None for w in writers):
            value = self.s["a"]
            self.assertEqual(value.min(), value.max())
            seen += 1
        self.assertEqual([w.communicate()[0] for w in writers], [b"done\n"] * 2)
        self.assertGreater(seen, 0)
        self.assertEqual(len(self.s["a"]), 50024)
        self.assertEqual(self.left(), [])

    def test_killed_during_a_store(self):
        self.s["a"] = np.ones(10)
        text = "s = efs.Store(sys.argv[1])\na = np.zeros(8 << 20)\nprint('ready', flush=True)\nwhile True: s.store('b', a)"
        for _ in range(20):
            process = self.program(text)
            self.assertEqual(process.stdout.readline(), b"ready\n")
            while process.poll() is None and not self.left():
                pass
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if self.left():  # killed in the middle
                break
        self.assertNotEqual(self.left(), [])
        if "b" in self.s:
            self.assertEqual(len(self.s["b"]), 8 << 20)
        self.assertEqual(self.s["a"].tolist(), [1] * 10)
        efs.Store(self.directory)
        self.assertEqual(self.left(), [])

    def test_close_while_threads_use_it(self):
        self.s["a"] = np.arange(1000)
        wrong, began = [], threading.Barrier(5)

        def use():
            began.wait()
            try:
                while True:
                    if self.s["a"].sum() != 499500:
                        wrong.append("sum")
                    self.s["b"] = 1
                    list(self.s)
            except ValueError:
                pass
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=use) for _ in range(4)]
        for thread in threads:
            thread.start()
        began.wait()
        for _ in range(20):
            self.assertEqual(self.s["a"][1], 1)
        self.s.close()
        for thread in threads:
            thread.join()
        self.assertEqual(wrong, [])
        self.s.close()
