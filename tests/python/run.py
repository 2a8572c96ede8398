#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Runs the test cases of this directory: run.py [PATTERN]. The last line has the sums."""
import os
import sys
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))


class Result(unittest.TextTestResult):
    """Counts the successes: testsRun has skipped cases in some versions of Python only."""

    passed = 0

    def addSuccess(self, test):
        self.passed += 1
        super().addSuccess(test)


def main():
    sys.path.insert(0, HERE)
    suite = unittest.TestLoader().discover(HERE, pattern=sys.argv[1] if len(sys.argv) > 1 else "*_test.py")
    result = unittest.TextTestRunner(stream=sys.stdout, verbosity=0, resultclass=Result).run(suite)
    for test, reason in result.skipped:
        print(f"SKIP {test}: {reason}")
    wrong = [str(test) for test, _ in result.failures + result.errors]
    for test in wrong:
        print(f"FAIL {test}")
    print(f"{result.passed} passed, {len(wrong)} failed, {len(result.skipped)} skipped")
    sys.exit(bool(wrong) or result.testsRun == 0)


main()
