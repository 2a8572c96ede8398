# SPDX-License-Identifier: BSD-3-Clause
"""Versions: committed, aborted, opened, removed."""
import errno
import gc
import json
import os
import signal
from unittest import mock

import numpy as np
from case import Case

import efs


class Versions(Case):
    def make(self, *numbers, series="run"):
        for n in numbers:
            with self.s.version(series, n) as v:
                v["u"] = np.full(1000, n)

    def test_commit_and_open(self):
        with self.s.version("run", 7) as v:
            v["u"] = np.arange(5)
            v["deep/w"] = 1
            with v.draft("x", "f8", 3) as x:
                x[:] = 4
            self.assertEqual(list(v), ["deep/w", "u", "x"])
            self.assertEqual(self.s.versions("run"), [])
            self.assertRaises(KeyError, self.s.latest, "run")
            self.assertEqual((v.series, v.number), ("run", 7))
            self.assertTrue(os.path.isdir(v.directory))
        self.assertRaises(ValueError, lambda: v["u"])
        self.assertRaises(ValueError, v.commit)
        got = self.s.latest("run")
        self.assertEqual((got.series, got.number, got.directory), ("run", 7, self.path("run/00000007")))
        self.assertEqual(got["u"].tolist(), list(range(5)))
        self.assertEqual(list(got), ["deep/w", "u", "x"])
        self.assertEqual(list(self.s), [])
        with open(self.path("run/00000007/manifest.json")) as file:
            self.assertEqual([o["name"] for o in json.load(file)["objects"]], ["deep/w", "u", "x"])

    def test_read_only(self):
        self.make(1)
        with self.s.latest("run") as v:
            for call in (lambda: v.store("u", 1), lambda: v.__delitem__("u"), lambda: v.draft("u", "f8", 1)):
                self.fails(errno.EROFS, "Begin a new", call)
            u = v["u"]
        self.assertRaises(ValueError, lambda: v["u"])
        self.assertEqual(u.sum(), 1000)

    def test_an_exception_aborts(self):
        self.make(1)
        with self.assertRaises(ZeroDivisionError):
            with self.s.version("run", 2) as v:
                v["u"] = 1
                1 / 0
        self.assertEqual(os.listdir(self.path("run")), ["00000001"])
        self.assertEqual(self.s.latest("run").number, 1)
        v = self.s.version("run", 2)
        v["u"] = 1
        v.abort()
        self.s.version("run", 3)["u"] = 1  # forgotten
        gc.collect()
        self.assertEqual(os.listdir(self.path("run")), ["00000001"])

    def test_numbers(self):
        self.make(3, 1, 2**63, 10)
        self.assertEqual(self.s.versions("run"), [1, 3, 10, 2**63])
        self.assertEqual(self.s.latest("run").number, 2**63)
        self.assertEqual(self.s.open_version("run", 3)["u"][0], 3)
        self.assertRaises(KeyError, self.s.open_version, "run", 2)
        for n in (-1, 2**64 - 1, 2**64):
            self.assertRaises(ValueError, self.s.version, "run", n)
            self.assertRaises(ValueError, self.s.open_version, "run", n)
        for n in (1.0, "1"):
            self.assertRaises((TypeError, AttributeError), self.s.version, "run", n)
        self.fails(errno.EEXIST, "Choose another number", self.s.version, "run", 3)
        for name in ("", "../run", "a\0b"):
            self.fails(errno.EINVAL, "Choose", self.s.version, name, 1)
            self.fails(errno.EINVAL, "Choose", self.s.latest, name)
        for name in ("000000004", "00000005", "0000006.part", "\u0661\u0662\u0663\u0664\u0665\u0666\u0667\u0668", "99999999999999999999999"):
            os.mkdir(self.path("run", name))
        self.assertEqual(self.s.versions("run"), [1, 3, 10, 2**63])
        self.assertEqual(self.s.versions("nosuch"), [])

    def test_keep(self):
        self.make(*range(6))
        view = self.s.open_version("run", 0)["u"]
        self.s.keep("run", 3)
        self.assertEqual(self.s.versions("run"), [3, 4, 5])
        self.assertEqual(view.tolist(), [0] * 1000)
        self.assertRaises(KeyError, self.s.keep, "nosuch", 1)
        self.fails(errno.EINVAL, "at least 1", self.s.keep, "run", 0)
        self.assertRaises(ValueError, self.s.keep, "run", -1)

    def test_the_latest_is_removed_meanwhile(self):
        self.make(1, 2)
        real, calls = self.s.versions, []

        def versions(series):
            calls.append(series)
            return [1, 2, 3] if len(calls) == 1 else real(series)

        with mock.patch.object(self.s, "versions", versions):
            self.assertEqual(self.s.latest("run").number, 2)
        self.assertEqual(len(calls), 2)

    def test_a_draft_is_open(self):
        v = self.s.version("run", 1)
        draft = v.draft("u", "f8", 3)
        self.fails(errno.EBUSY, "Publish or discard", v.commit)
        draft.publish()
        v.commit(sync=True)
        self.assertEqual(self.s.latest("run")["u"].tolist(), [0, 0, 0])
        with self.assertRaisesRegex(efs.Error, "Publish or discard"):
            with self.s.version("run", 2) as v:
                draft = v.draft("u", "f8", 3)
        self.assertEqual(self.s.versions("run"), [1])
        self.assertRaises(efs.Error, draft.publish)
        draft.array[:] = 1

    def test_another_process_writes_it(self):
        text = "v = efs.Store(sys.argv[1]).version('run', 1); v['u'] = 1\nprint('ready', flush=True); sys.stdin.read()"
        process = self.program(text)
        process.stdout.readline()
        self.fails(errno.EBUSY, "another process writes this version", self.s.version, "run", 1)
        process.send_signal(signal.SIGKILL)
        process.communicate()
        self.assertRaises(KeyError, self.s.latest, "run")
        self.make(1)
        self.assertEqual(self.s.latest("run")["u"][0], 1)

    def test_a_child_ends_no_version(self):
        v = self.s.version("run", 1)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                refused = 0
                for call in (lambda: v.store("child", 1), lambda: v["parent"], lambda: v.draft("d", "f8", 1), v.commit):
                    try:
                        call()
                    except ValueError:
                        refused += 1
                v.abort()
                del v, call
                gc.collect()
                code = refused != 4
            finally:
                os._exit(code)
        self.assertEqual(os.waitpid(child, 0)[1], 0)
        v["parent"] = 2
        v.commit()
        self.assertEqual(list(self.s.latest("run")), ["parent"])
