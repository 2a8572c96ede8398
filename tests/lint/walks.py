# SPDX-License-Identifier: BSD-3-Clause
"""Checks the walks of docs/dev against the code: walks.py TREE. Prints one line for each fault.

A walk is a numbered list of steps `file` `function`. The file defines the function, and the file of
an earlier step calls it. The numbers go on, and a walk has no more files than MOST says."""

import pathlib
import re
import sys

MOST = {"write.md": 9, "export.md": 17}
STEP = re.compile(r"^(\d+)\. `([^`]+)` `([^`]+)`: .", re.M)
# Steps that code outside of the tree calls: libfuse, and a virtual member of the reader.
CALLED_BY_LIBRARY = {"callback"}


def defines(text, function):
    """True if the text has a body of the function, not only calls of it."""
    name = re.escape(function)
    return re.search(r"^[^\n/;=.]*\b%s\([^;{]*\)[^;{}]*(?::[^;]*?)?\{" % name, text, re.M) is not None


def calls(text, function):
    """True if the text calls the function, or passes a callback of its name."""
    name = re.escape(function.split("::")[-1])
    return re.search(r"(?:[.>:( =]|\b)%s\b\s*[(>]" % name, text) is not None


def walk_faults(tree, page, most):
    steps = STEP.findall(page.read_text())
    if len(steps) < 5:
        yield f"{page.name}: {len(steps)} steps"
    if len({file for _, file, _ in steps}) > most:
        yield f"{page.name}: more than {most} files"
    before = []
    for position, (number, file, function) in enumerate(steps, 1):
        where = f"{page.name}: step {number}"
        if int(number) != position:
            yield f"{where}: has number {number}, is the {position}th"
        path = tree / file
        if not path.is_file():
            yield f"{where}: no file {file}"
            continue
        text = path.read_text()
        if not defines(text, function):
            yield f"{where}: {file} does not define {function}"
        if before and function not in CALLED_BY_LIBRARY and not any(calls(one, function) for one in before):
            yield f"{where}: no earlier step calls {function}"
        before.append(text)


def main():
    tree = pathlib.Path(sys.argv[1])
    faults = [fault for name, most in MOST.items() for fault in walk_faults(tree, tree / "docs/dev" / name, most)]
    print("\n".join(faults), end="\n" if faults else "")
    sys.exit(bool(faults))


main()
