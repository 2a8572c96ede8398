#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Counts the sentences of comments, manual pages and documents that hide their subject.

usage: language.py TREE [PART]     a line per area; with PART the marked sentences of files whose path has PART

docs/dev/style.md has the rules. A sentence is marked if it has who, whoever, somebody, nobody, he, him or his, or
begins with What or Of. The last line is "SENTENCES MARKED".
"""
import os
import re
import sys

BEGINS = re.compile(r"^(What|Of)\b")
WORDS = re.compile(r"\b(who|whom|whoever|somebody|nobody|he|him|his)\b", re.IGNORECASE)
CODE = (".cpp", ".hpp", ".c", ".h")


def blocks_of_code(text):
    """The comments: neighbouring lines of comment alone are one, a comment behind code is one."""
    block = []
    for line in text.split("\n"):
        alone = re.match(r"\s*///?\s?(.*)$", line)
        if alone:
            block.append(alone.group(1))
            continue
        yield " ".join(block)
        block = []
        behind = re.search(r"\s// ([^\"]*)$", line)
        if behind:
            yield behind.group(1)
    yield " ".join(block)


def blocks_of_script(text):
    block = []
    for line in text.split("\n"):
        alone = re.match(r"\s*# ?([^!].*)$", line)
        if alone:
            block.append(alone.group(1))
            continue
        yield " ".join(block)
        block = []
    yield " ".join(block)


def blocks_of_page(text):
    block = []
    for line in text.split("\n"):
        if line.startswith('.\\"'):
            continue
        font = re.match(r"\.(?:B|I|BR|IR|RB|RI|IB|BI) (.*)", line)
        if font:
            block.append(font.group(1).replace('"', ""))
        elif line.startswith("."):
            yield " ".join(block)
            block = []
        else:
            block.append(re.sub(r"\\f.|\\", "", line))
    yield " ".join(block)


def blocks_of_document(text):
    text = re.sub(r"```.*?```", "", text, flags=re.S)
    return (part.replace("\n", " ") for part in re.split(r"\n\s*\n|\n[-*|] ", text))


def blocks(path):
    with open(path, errors="replace") as file:
        text = file.read()
    if path.endswith(CODE):
        return blocks_of_code(text)
    if path.endswith((".sh", ".py")):
        return blocks_of_script(text)
    if path.endswith(".md"):
        return blocks_of_document(text)
    return blocks_of_page(text)


def sentences(path):
    for block in blocks(path):
        for sentence in re.split(r"(?<=[.!?:;])\s+", block):
            if len(sentence.split()) >= 3:
                yield sentence


def is_marked(sentence):
    return bool(WORDS.search(sentence) or BEGINS.match(sentence))


def files(tree):
    for directory, names, found in os.walk(tree):
        names[:] = [name for name in names if name != ".git" and not name.startswith("build")]
        for name in found:
            if name.endswith(CODE + (".sh", ".py", ".md")) or re.search(r"/man/[^/]+\.[1-9]$", f"{directory}/{name}"):
                yield os.path.join(directory, name)


def area(path, tree):
    parts = os.path.relpath(path, tree).split("/")
    return "/".join(parts[:2] if parts[0] in ("src", "tests", "man") and len(parts) > 2 or parts[0] == "man" else parts[:1])


def main():
    tree, part = sys.argv[1], sys.argv[2] if len(sys.argv) > 2 else None
    counts = {}
    for path in files(tree):
        for sentence in sentences(path):
            marked = is_marked(sentence)
            count = counts.setdefault(area(path, tree), [0, 0])
            count[0] += 1
            count[1] += marked
            if marked and part is not None and part in path:
                print(f"{os.path.relpath(path, tree)}: {sentence}")
    for name, (total, marked) in sorted(counts.items()):
        print(f"{name:24} {total:6} {marked:5}")
    print(sum(count[0] for count in counts.values()), sum(count[1] for count in counts.values()))


main()
