#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Compares the mutexes of the sources with the table of docs/dev/locks.md.
   locks.py TREE
Prints each member Mutex or SharedMutex that says no rank, or that the table does not have with this rank."""
import os
import re
import sys

MEMBER = re.compile(r"^\s*(?:mutable )?(?:efs::)?(?:Shared)?Mutex (\w+)(?: [^;(]*)?;")
CLASS = re.compile(r"^(\s*)(?:class|struct)\s+(?:EFS_\w+\([^)]*\)\s+)?([\w:]+)[^;]*$")


def rows(tree):
    """(rank, text) of each row of the table."""
    with open(os.path.join(tree, "docs/dev/locks.md")) as page:
        return [(int(match[1]), line) for line in page if (match := re.match(r"\| (\d+) \|", line))]


def members(path):
    """(class, member, rank or None) of each mutex that a file declares."""
    lines = open(path).read().split("\n")
    for number, line in enumerate(lines):
        found = MEMBER.match(line)
        if not found:
            continue
        indent = len(line) - len(line.lstrip())
        owner = next((match[2].split("::")[-1] for above in reversed(lines[:number])
                      if (match := CLASS.match(above)) and len(match[1]) < indent), "")
        comment = [line]
        for above in reversed(lines[:number]):
            if not above.lstrip().startswith("//"):
                break
            comment.insert(0, above)
        rank = re.search(r"\b[Rr]ank (\d+)", " ".join(comment))
        yield owner, found[1], int(rank[1]) if rank else None


def main(tree):
    table = rows(tree)
    for top in ("src", "backends"):
        for directory, _, names in os.walk(os.path.join(tree, top)):
            for name in sorted(names):
                if not name.endswith((".hpp", ".cpp")) or name == "mutex.hpp":
                    continue
                path = os.path.join(directory, name)
                for owner, member, rank in members(path):
                    where = f"{os.path.relpath(path, tree)}: {owner}::{member}"
                    if rank is None:
                        print(f"{where} says no rank")
                    elif not any(r == rank and re.search(rf"\b{owner}\b", text) for r, text in table):
                        print(f"{where} has rank {rank}; the table has no such row")


main(sys.argv[1])
