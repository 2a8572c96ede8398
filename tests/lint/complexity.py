# SPDX-License-Identifier: BSD-3-Clause
"""Counts functions that are too long to be read: with lizard, over all C++ sources below the given
directories.

usage: complexity.py DIRECTORY...
Prints each function beyond a limit, then one line of figures. Exit status 1 if there is one.
"""
import sys

import lizard

LENGTH = 60        # lines of a function
BRANCHES = 15      # cyclomatic number of a function
MANY_BRANCHES = 10
SHARE = 0.02       # of the functions may have more than MANY_BRANCHES
PARAMETERS = 5


def functions(directories):
    extensions = lizard.get_extensions([])
    for file in lizard.analyze(directories, threads=2, exts=extensions):
        if file.filename.endswith((".cpp", ".hpp", ".c", ".h")):
            for function in file.function_list:
                yield file.filename, function


def main():
    total = many = beyond = 0
    branching = []
    for name, function in functions(sys.argv[1:]):
        total += 1
        where = f"{name}:{function.start_line}: {function.long_name.split('(')[0].strip()}"
        if function.cyclomatic_complexity > MANY_BRANCHES:
            many += 1
            branching.append(f"{where}: {function.cyclomatic_complexity} branches")
        for what, value, limit in (
            ("lines", function.length, LENGTH),
            ("branches", function.cyclomatic_complexity, BRANCHES),
            # hooks have the parameters of the functions that they stand for
            ("parameters", 0 if "/hooks_" in name else len(function.parameters), PARAMETERS),
        ):
            if value > limit:
                beyond += 1
                print(f"{where} has {value} {what}, more than {limit}")
    if many > SHARE * total:
        print(*branching, sep="\n")
        print(f"more than {SHARE:.0%} of the functions have over {MANY_BRANCHES} branches")
    print(f"{total} functions, {many} with over {MANY_BRANCHES} branches, {beyond} beyond a limit")
    sys.exit(beyond > 0 or many > SHARE * total or total == 0)


main()
