#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the Markdown documents of a tree against the tree and the programs.

usage: documents.py TREE [EFS]
Prints one line for each fault: a link or a path in backticks that does not exist, an option or a verb that
EFS --help does not know, a document that is too long. Exit code 1 if there is one.
"""
import functools
import glob
import os
import re
import subprocess
import sys

WORDS = {"README.md": 1000, "src/README.md": 1500}
ROWS = {"src/README.md": 20}  # of the last table
CELL_WORDS = {"tests/README.md": 80}
ROOTS = ("", "src/", "src/stage/", "tests/", "docs/", "docs/dev/", "conf/")


def documents(tree):
    for folder, below, names in os.walk(tree):
        below[:] = [name for name in below if not name.startswith((".", "build"))]
        for name in names:
            if name.endswith(".md"):
                yield os.path.relpath(os.path.join(folder, name), tree)


def bad_links(tree, document, text):
    for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
        if "://" in target:
            continue
        if not os.path.exists(os.path.join(tree, os.path.dirname(document), target)):
            yield f"{document}: no file {target}"


def looks_like_path(word, tops):
    return re.fullmatch(r"[\w.*/-]+", word) and "/" in word and word.split("/")[0] in tops


def bad_paths(tree, document, text):
    """Words in backticks that begin with a directory of the tree must match a file."""
    tops = {name for root in ROOTS
            if os.path.isdir(os.path.join(tree, root))
            for name in os.listdir(os.path.join(tree, root))
            if os.path.isdir(os.path.join(tree, root, name)) and not name.startswith((".", "build"))}
    for word in re.findall(r"`([^`\n]+)`", text):
        word = word.split(" ")[0]
        if not looks_like_path(word, tops):
            continue
        stem = re.sub(r"NAME|X_", "*", word)
        if not any(glob.glob(os.path.join(tree, root, stem)) for root in ROOTS):
            yield f"{document}: no file {word}"


@functools.cache
def help_of(efs, *words):
    run = subprocess.run([efs, *words, "--help"], capture_output=True, text=True, timeout=20)
    return run.stdout if run.returncode == 0 else None


def verbs(efs):
    listed = help_of(efs).split("Subcommands:", 1)[1]
    return set(re.findall(r"^  ([a-z][a-z-]*) ", listed, re.M))


def commands(text):
    """The calls of efs in code: VERB and the options behind it."""
    code = re.findall(r"`(efs [^`]*)`", text)
    for block in re.findall(r"```\w*\n(.*?)```", text, re.S):
        code += re.findall(r"^(?:\$ )?(efs .*)$", block, re.M)
    for line in code:
        words = line.split(" -- ")[0].split("#")[0].split()
        if len(words) > 1 and re.fullmatch(r"[a-z][a-z-]*", words[1]):
            yield words[1], [word.split("=")[0] for word in words[2:] if re.match(r"--?[a-z]", word)]


def bad_commands(efs, document, text):
    for verb, options in commands(text):
        if verb not in verbs(efs):
            yield f"{document}: efs has no verb {verb}"
            continue
        for option in options:
            if not re.search(rf"(^|[\s,]){re.escape(option)}\b", help_of(efs, verb)):
                yield f"{document}: efs {verb} has no option {option}"


def too_long(document, text):
    words = len(text.split())
    if words > WORDS.get(document, words):
        yield f"{document}: {words} words, at most {WORDS[document]}"
    tables = re.findall(r"(?:^\|.*\n)+", text, re.M)
    if document in ROWS and tables and tables[-1].count("\n") - 2 > ROWS[document]:
        yield f"{document}: more than {ROWS[document]} rows in its last table"
    if document in CELL_WORDS:
        for cell in (cell for table in tables for line in table.splitlines() for cell in line.split("|")):
            if len(cell.split()) > CELL_WORDS[document]:
                yield f"{document}: a cell of {len(cell.split())} words: {cell.strip()[:40]}"


def main():
    tree, efs = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    faults = []
    for document in sorted(documents(tree)):
        text = open(os.path.join(tree, document)).read()
        faults += [*bad_links(tree, document, text), *too_long(document, text)]
        if document != "CHANGELOG.md":
            faults += bad_paths(tree, document, text)
            faults += bad_commands(efs, document, text) if efs else []
    print("\n".join(faults))
    sys.exit(bool(faults))


main()
