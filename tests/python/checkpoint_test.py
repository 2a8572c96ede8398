# SPDX-License-Identifier: BSD-3-Clause
"""Protected arrays: checkpoints, restores, strategies."""
import errno
import gc
import os
import shutil
import signal
import unittest
import weakref

import numpy as np
from case import Case

import efs
from efs import _library


@unittest.skipUnless(_library.has("eo_protect"), "the library has no eo_protect")
class Checkpoints(Case):
    def test_write_and_restore(self):
        u, f, n = np.arange(50000.0), np.asfortranarray(np.ones((3, 4))), np.array(7)
        for name, array in (("u", u), ("deep/f", f), ("n", n)):
            self.s.protect(name, array)
        self.s.checkpoint("run", 1)
        u += 1
        f[:] = 2
        n[()] = 8
        self.s.checkpoint("run", 2, sync=True)
        self.s.wait()
        u[:] = f[:] = 0
        self.assertEqual(self.s.restore("run"), 2)
        self.assertEqual((u[1], f[1, 1], n), (2, 2, 8))
        self.assertEqual(self.s.restore("run", 1), 1)
        self.assertEqual((u[1], f[1, 1], n), (1, 1, 7))
        self.assertEqual(list(self.s.latest("run")), ["deep/f", "n", "u"])
        self.s.unprotect("n")
        self.assertEqual(sorted(self.s.protected), ["deep/f", "u"])
        self.assertRaises(KeyError, self.s.unprotect, "n")
        self.assertRaises(KeyError, self.s.persisted_hint, "n")
        self.s.checkpoint("run", 3)
        self.s.wait()
        self.assertEqual(list(self.s.latest("run")), ["deep/f", "u"])

    def test_strategies(self):
        fast = f"/dev/shm/efs-python-{os.path.basename(self.directory)}"
        self.addCleanup(shutil.rmtree, fast, ignore_errors=True)
        self.s.configure(fast=fast)
        for i, strategy in enumerate(("copy", "stage", "split", "auto")):
            u = np.full(200000, float(i))
            self.s.protect("u", u)
            self.s.configure(strategy=strategy, pace=0)
            self.s.checkpoint("run", i)
            if strategy == "auto":  # the one that it has chosen
                self.assertNotIn(self.s.strategy, ("", "auto"))
            else:
                self.assertEqual(self.s.strategy, strategy)
            u[:] = -1
            self.s.persisted_hint("u")
            self.s.wait()
            self.s.restore("run", i)
            self.assertEqual((u.min(), u.max()), (i, i))
        for options in ({"strategy": "nosuch"}, {"pace": "x"}, {"nosuch": 1}):
            self.assertRaises(efs.Error, self.s.configure, **options)

    def test_the_store_keeps_the_array(self):
        u = np.full(300000, 5.0)
        alive = weakref.ref(u)
        self.s.protect("u", u)
        self.assertRaises(ValueError, u.resize, 10)
        del u
        gc.collect()
        self.assertIsNotNone(alive())
        self.s.checkpoint("run", 1)
        self.s.wait()
        self.assertEqual(self.s.latest("run")["u"].sum(), 1500000)
        self.s.protect("u", np.ones(3))
        gc.collect()
        self.assertIsNone(alive())
        last = weakref.ref(self.s.protected["u"])
        self.s.configure(strategy="stage")
        self.s.checkpoint("run", 2)
        self.s.close()  # waits
        gc.collect()
        self.assertIsNone(last())
        self.assertEqual(efs.Store(self.directory).latest("run").number, 2)

    def test_refused(self):
        frozen = np.ones(3)
        frozen.flags.writeable = False
        for value, text in (([1], "numpy.ndarray"), (frozen, "copy"), (np.ones(9)[::2], "contiguous"), (np.ma.ones(3), "numpy.ndarray")):
            self.fails(errno.EINVAL, text, self.s.protect, "u", value)
        self.fails(errno.ENOTSUP, "plain numbers", self.s.protect, "u", np.array(["a"]))
        self.fails(errno.EINVAL, "", self.s.protect, "../u", np.ones(3))
        u = np.ones(3)
        self.s.protect("u", u)
        self.assertRaises(KeyError, self.s.restore, "run")
        self.assertRaises(ValueError, self.s.checkpoint, "run", -1)
        self.s.checkpoint("run", 1)
        self.s.wait()
        self.fails(errno.EEXIST, "", self.s.checkpoint, "run", 1)
        self.s.protect("u", np.ones(4))
        self.fails(errno.EINVAL, "", self.s.restore, "run")
        self.assertEqual(u.tolist(), [1, 1, 1])

    def test_restart_after_a_kill(self):
        text = """
s = efs.Store(sys.argv[1])
u = np.zeros(500000); s.protect('u', u); s.configure(strategy='stage')
for i in range(1000000):
    u += 1
    s.checkpoint('run', i)
    if i == 5: print('ready', flush=True)
"""
        process = self.program(text)
        process.stdout.readline()
        process.send_signal(signal.SIGKILL)
        process.communicate()
        s = efs.Store(self.directory)
        u = np.zeros(500000)
        s.protect("u", u)
        n = s.restore("run")
        self.assertGreaterEqual(n, 4)
        self.assertEqual((u.min(), u.max()), (n + 1, n + 1))
        self.assertEqual(self.left(), [])
