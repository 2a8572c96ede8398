# SPDX-License-Identifier: BSD-3-Clause
"""Persistent objects: attributes, aliases, references, versions; and the example."""
import collections
import copy
import errno
import fcntl
import gc
import os
import pickle
import signal
import subprocess
import sys
import unittest
from unittest import mock

import numpy as np
from case import Case

import efs
from efs import persistent

EXAMPLE = os.path.join(os.path.dirname(__file__), "../../examples/wordcount.py")


class Thing(efs.Persistent):
    total = 0

    def __init__(self, **attributes):
        for name, value in attributes.items():
            setattr(self, name, value)

    def add(self, n):
        self.total += n

    @property
    def double(self):
        return self.total * 2

    @double.setter
    def double(self, value):
        self.total = value / 2


class Special(Thing):
    pass


class Other(efs.Persistent):
    pass


class Persistents(Case):
    def setUp(self):
        super().setUp()
        efs.Persistent.store = self.s
        self.addCleanup(setattr, efs.Persistent, "store", None)

    def made(self, alias=None, **attributes):
        thing = Thing(**attributes)
        thing.make_persistent(alias)
        return thing

    def folders(self):
        return sorted(n for n in os.listdir(self.path("persistent")) if n != "aliases")

    def test_attributes_are_files(self):
        thing = self.made("t", u=np.arange(5.0), name="n", total=3)
        folder = thing.get_location().split(":", 1)[1]
        self.assertEqual(thing.get_all_locations(), [thing.get_location()])
        self.assertEqual(sorted(os.listdir(folder)), ["class.json", "name.pkl.npz", "total.pkl.npz", "u.npy"])
        self.assertEqual(np.load(folder + "/u.npy").tolist(), [0, 1, 2, 3, 4])
        self.assertEqual(os.path.realpath(self.path("persistent/aliases/t")), folder)
        got = Thing.get_by_alias("t")
        self.assertEqual(got, thing)
        self.assertEqual(len({got, thing}), 1)
        self.assertEqual((got.u.tolist(), got.name, got.total, got.double), ([0, 1, 2, 3, 4], "n", 3, 6))
        got.add(4)
        got.u = thing.u * 2
        self.assertEqual((thing.total, thing.u.sum()), (7, 20))
        thing.double = 20
        self.assertEqual(got.total, 10)
        self.assertFalse(thing.u.flags.writeable)
        self.assertIn("name", dir(thing))
        self.assertNotIn("_efs_home", os.listdir(folder))
        self.assertRaises(ValueError, lambda: thing.u.__setitem__(0, 1))

    def test_an_attribute_changes_its_kind(self):
        thing = self.made(x=1)
        folder = thing.get_location().split(":", 1)[1]
        for value in (np.arange(3), "text", np.array(["a"]), np.ones(2), None):
            thing.x = value
            np.testing.assert_array_equal(thing.x, value)
            self.assertEqual(len(os.listdir(folder)), 2)
        del thing.x
        self.assertFalse(hasattr(thing, "x"))
        self.assertRaises(AttributeError, delattr, thing, "x")
        self.assertEqual(thing.total, 0)
        for name in ("a/b", "..", "a\0b", ""):
            self.assertRaises(efs.Error, setattr, thing, name, 1)

    def test_two_assign_one_attribute(self):
        thing = self.made(x=1)
        folder = thing.get_location().split(":", 1)[1]
        remove = persistent._Home._remove

        def other_first(home, name, array):
            """Between the steps of an assignment: another one does all of its steps, if it can."""
            fd = os.open(folder, os.O_RDONLY)
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                excluded.append(array)
            else:
                with mock.patch.object(persistent._Home, "_remove", remove):
                    thing.x = np.ones(1) if array else "text"
            finally:
                os.close(fd)
            return remove(home, name, array)

        excluded = []
        for value in (np.arange(3), "text"):
            with mock.patch.object(persistent._Home, "_remove", other_first):
                thing.x = value
            np.testing.assert_array_equal(thing.x, value)
        with mock.patch.object(persistent._Home, "_remove", other_first):
            del thing.x
        self.assertEqual(excluded, [False, True, False, True])

    def test_two_processes_assign_one_attribute(self):
        thing = self.made("t", x=1)
        text = """
class Thing(efs.Persistent): pass
Thing.__module__, Thing.__qualname__ = 'persistent_test', 'Thing'
efs.Persistent.store = efs.Store(sys.argv[1])
t = Thing.get_by_alias('t')
print('ready', flush=True)
for _ in range(100):
    t.x = 'text'
"""
        other = self.program(text)
        other.stdout.readline()
        while other.poll() is None:
            thing.x = np.ones(3)
            self.assertTrue(hasattr(thing, "x"))
        self.assertEqual(other.returncode, 0)

    def test_before_it_is_persistent(self):
        thing = Thing(a=1)
        thing.add(2)
        del thing.a
        self.assertEqual((thing.total, hasattr(thing, "a")), (2, False))
        for call in (thing.get_location, thing.new_version, thing.consolidate_version, thing.new_replica):
            self.fails(errno.EINVAL, "Call make_persistent", call)
        self.assertNotEqual(thing, Thing(total=2))
        self.assertEqual(copy.copy(thing).total, 2)

    def test_aliases(self):
        thing = self.made("a/b", x=1)
        thing.make_persistent("second")
        self.assertEqual(Thing.get_by_alias("a/b"), Thing.get_by_alias("second"))
        self.fails(errno.EEXIST, "Choose another alias", thing.make_persistent, "second")
        self.fails(errno.EEXIST, "Choose another alias", self.made, "second")
        self.assertEqual(len(self.folders()), 1)
        Thing.delete_alias("second")
        for call in (Thing.delete_alias, Thing.get_by_alias):
            self.assertRaises(KeyError, call, "second")
        for name in ("", "../x", "a\0"):
            self.fails(errno.EINVAL, "Choose", self.made, name)
        self.assertEqual(Thing.get_by_alias("a/b").x, 1)
        thing.make_persistent(backend_id=thing.get_location())
        self.fails(errno.ENOTSUP, "one node", thing.make_persistent, backend_id="elsewhere")
        self.fails(errno.ENOTSUP, "one node", thing.new_replica)

    def test_classes(self):
        Special().make_persistent("special")
        self.assertIs(type(Thing.get_by_alias("special")), Special)
        self.assertIs(type(efs.Persistent.get_by_alias("special")), Special)
        self.fails(errno.EINVAL, "call the method of that class", Other.get_by_alias, "special")

    def test_references(self):
        leaf = Thing(u=np.arange(3))
        one, two = Thing(leaf=leaf), Thing(leaves=[leaf, {"deep": leaf}])
        one.other, two.other, one.me = two, one, one  # cycles
        one.make_persistent("one")
        self.assertEqual(len(self.folders()), 3)
        got = Thing.get_by_alias("one")
        self.assertEqual(got.other.other.me, got)
        self.assertEqual(got.other.leaves[1]["deep"], leaf)
        self.assertEqual(leaf.u.tolist(), [0, 1, 2])
        leaf.u = np.ones(2)
        self.assertEqual(got.leaf.u.tolist(), [1, 1])
        got.new = Thing(x=5)
        self.assertEqual((got.new.x, len(self.folders())), (5, 4))
        self.assertEqual(pickle.loads(pickle.dumps(got)), got)
        self.assertEqual(copy.deepcopy(got), got)
        lonely = Thing(leaf=Thing())
        self.fails(errno.EINVAL, "Make it persistent", lonely.make_persistent, recursive=False)
        self.assertEqual(len(self.folders()), 4)

    def test_a_long_chain(self):
        chain = None
        for _ in range(60):
            chain = Thing(next=chain)
        chain.make_persistent()
        for _ in range(59):
            chain = chain.next
        self.assertIsNone(chain.next)

    def test_a_failure_leaves_nothing(self):
        good = Thing(x=1)
        bad = Thing(good=good, bad=lambda: 1)
        self.assertRaises((pickle.PicklingError, AttributeError), bad.make_persistent, "bad")
        self.assertEqual(self.folders(), [])
        self.assertEqual((good.x, bad.good), (1, good))
        self.assertRaises(KeyError, Thing.get_by_alias, "bad")
        thing = self.made(x=1)
        self.assertRaises((pickle.PicklingError, AttributeError), setattr, thing, "x", [good, lambda: 1])
        self.assertEqual((thing.x, len(self.folders())), (1, 1))

    def test_versions(self):
        thing = self.made("t", u=np.arange(5), name="old")
        reader = Thing.get_by_alias("t")
        view = reader.u
        new = thing.new_version()
        folder, base = new.get_location().split(":", 1)[1], thing.get_location().split(":", 1)[1]
        self.assertTrue(os.path.samefile(folder + "/u.npy", base + "/u.npy"))
        new.u = new.u + 1
        new.name = "new"
        new.extra = 1
        self.assertEqual((reader.u.tolist(), reader.name, hasattr(reader, "extra")), ([0, 1, 2, 3, 4], "old", False))
        new.consolidate_version()
        self.assertEqual((reader.u.tolist(), reader.name, reader.extra), ([1, 2, 3, 4, 5], "new", 1))
        self.assertEqual(view.tolist(), [0, 1, 2, 3, 4])
        self.assertEqual(new, thing)
        self.assertEqual(self.folders(), [os.path.basename(base)])
        self.fails(errno.EINVAL, "no version", thing.consolidate_version)
        again = thing.new_version()
        stale = persistent._Home(self.s, os.path.basename(again.get_location())).of_class(Thing)
        again.consolidate_version()
        self.fails(errno.ENOENT, "get it by its alias", lambda: stale.u)
        self.fails(errno.ENOENT, "get it by its alias", setattr, stale, "u", 1)

    def test_nobody_assigns_while_a_version_is_consolidated(self):
        thing = self.made(x=1)
        new = thing.new_version()
        folders = [one.get_location().split(":", 1)[1] for one in (thing, new)]
        exchange = persistent._exchange

        def check(*arguments):
            for folder in folders:
                fd = os.open(folder, os.O_RDONLY)
                self.assertRaises(BlockingIOError, fcntl.flock, fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.close(fd)
            exchange(*arguments)

        new.x = 2
        with mock.patch.object(persistent, "_exchange", check):
            new.consolidate_version()
        thing.x = thing.x + 1
        self.assertEqual((thing.x, new.x), (3, 3))

    def test_the_file_system_cannot_exchange(self):
        new = self.made(x=1).new_version()
        with mock.patch.object(persistent, "libc", object()):
            self.fails(errno.ENOTSUP, "Use another store", new.consolidate_version)
        self.assertEqual(new.x, 1)
        new.consolidate_version()

    def test_killed_in_the_middle(self):
        text = """
class Thing(efs.Persistent): pass
efs.Persistent.store = efs.Store(sys.argv[1])
t = Thing(); t.u = np.zeros(8 << 20); t.w = np.zeros(8 << 20)
print('ready', flush=True)
t.make_persistent('t')
sys.stdin.read()
"""
        for _ in range(20):
            process = self.program(text)
            process.stdout.readline()
            while process.poll() is None and not self.left() and not os.path.lexists(self.path("persistent/aliases/t")):
                pass
            process.send_signal(signal.SIGKILL)
            process.communicate()
            if self.left():
                break
            Thing.delete_alias("t")
        self.assertNotEqual(self.left(), [])
        efs.Store(self.directory)
        self.assertEqual(self.left(), [])
        self.assertRaises(KeyError, Thing.get_by_alias, "t")

    def test_readers_while_versions_are_consolidated(self):
        thing = self.made("t", u=np.zeros(1000))
        text = """
import gc
class Thing(efs.Persistent): pass
Thing.__module__, Thing.__qualname__ = 'persistent_test', 'Thing'
efs.Persistent.store = efs.Store(sys.argv[1])
print('ready', flush=True)
last = 0
while last < 30:
    u = Thing.get_by_alias('t').u
    assert u.min() == u.max() >= last, (u.min(), u.max(), last)
    last = u.max()
print('good')
"""
        reader = self.program(text)
        reader.stdout.readline()
        for i in range(1, 31):
            new = thing.new_version()
            new.u = np.full(1000, float(i))
            new.consolidate_version()
        self.assertEqual(reader.communicate()[0], b"good\n")

    def test_damaged(self):
        folder = self.made("t", x=1).get_location().split(":", 1)[1]
        for data in (b"", b"[]", b"{}", b'{"class": 1, "version_of": ""}', b"\xff"):
            with open(folder + "/class.json", "wb") as file:
                file.write(data)
            self.fails(errno.EBADMSG, "damaged", Thing.get_by_alias, "t")
        os.unlink(folder + "/class.json")
        self.fails(errno.EBADMSG, "missing", Thing.get_by_alias, "t")
        os.symlink("../../../etc", self.path("persistent/aliases/evil"))
        self.fails(errno.EBADMSG, "not the name of an object", Thing.get_by_alias, "evil")
        self.write("persistent/aliases/file", b"")
        self.fails(errno.EINVAL, "alias file", Thing.get_by_alias, "file")

    @unittest.skipUnless(os.geteuid() == 0, "only root can give a file to another user")
    def test_an_attribute_of_another_user(self):
        thing = self.made("t", x=1, u=np.ones(3))
        folder = thing.get_location().split(":", 1)[1]
        for file in os.listdir(folder):
            os.chown(os.path.join(folder, file), 12345, 0)
        self.fails(errno.EPERM, "belongs to the user 12345", lambda: thing.x)
        self.assertEqual(thing.u.sum(), 3)

    def test_durable(self):
        s = efs.Store(self.directory, sync=True)
        thing = Thing(x=1, u=np.ones(2))
        thing.make_persistent("a/t", store=s)
        new = thing.new_version()
        new.x = 2
        new.consolidate_version()
        gc.collect()
        self.assertEqual(Thing.get_by_alias("a/t", store=s).x, 2)

    def test_the_example_counts_words(self):
        files = [self.path(f"{i}.txt") for i in range(3)]
        words = [["word%d" % (j % (i + 2)) for j in range(100)] for i in range(3)]
        for name, text in zip(files, words):
            self.write(name, " ".join(text).encode())
        run = [sys.executable, EXAMPLE, self.path("count")]
        subprocess.run([*run, "add", *files[:2]], check=True)
        subprocess.run([*run, "add", files[2]], check=True)
        said = subprocess.run([*run, "count", "2"], check=True, stdout=subprocess.PIPE, text=True).stdout
        expected = collections.Counter(sum(words, [])).most_common(2)
        self.assertEqual([line.split() for line in said.splitlines()], [[str(n), w] for w, n in expected])
