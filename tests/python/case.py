# SPDX-License-Identifier: BSD-3-Clause
"""A test case with a store in a directory of its own."""
import os
import shutil
import subprocess
import sys
import tempfile
import unittest

import efs


class Case(unittest.TestCase):
    def setUp(self):
        self.directory = tempfile.mkdtemp(prefix="efs-python-", dir=os.environ.get("EFS_TEST_DIRECTORY"))
        self.addCleanup(shutil.rmtree, self.directory, ignore_errors=True)
        self.s = efs.Store(self.directory)

    def path(self, *names):
        return os.path.join(self.directory, *names)

    def write(self, name, data):
        with open(self.path(name), "wb") as file:
            file.write(data)

    def left(self):
        """The drafts that are in the store."""
        found = []
        for folder, directories, files in os.walk(self.directory):
            found += [os.path.join(folder, name) for name in directories + files if name.endswith(".part")]
        return found

    def mapped(self):
        """The number of mappings of files of the store."""
        with open("/proc/self/maps") as maps:
            return sum(self.directory in line for line in maps)

    def program(self, text, *arguments):
        """Starts a Python program with the store's directory and the arguments."""
        command = [sys.executable, "-c", "import efs, os, sys\nimport numpy as np\n" + text, self.directory]
        process = subprocess.Popen(command + [str(a) for a in arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        self.addCleanup(self.reap, process)
        return process

    @staticmethod
    def reap(process):
        process.kill()
        process.communicate()

    def fails(self, errno, pattern, call, *arguments, **keywords):
        """The call must fail with efs.Error: this errno, and this pattern in the text."""
        with self.assertRaisesRegex(efs.Error, pattern) as caught:
            call(*arguments, **keywords)
        self.assertEqual(caught.exception.errno, errno)
        self.assertIsInstance(caught.exception, OSError)
