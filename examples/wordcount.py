#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Counts words over persistent objects, as dataClay's example does.

usage: wordcount.py STORE add FILE...    makes each text persistent, in one collection
       wordcount.py STORE count [NUMBER] counts the words of all texts, prints the most frequent

The two calls are two programs: the second one finds the objects by their alias. The counts are
written to a new version, and readers of the old ones are not disturbed."""

import collections
import re
import sys

import numpy as np

import efs


class Text(efs.Persistent):
    """A text: its distinct words, and the number of each word of the text, in order."""

    def __init__(self, title, content):
        self.title = title
        self.words, self.numbers = np.unique(re.findall(r"\w+", content.lower()), return_inverse=True)

    def count(self):
        # `numbers` is a view of its file: nothing is copied.
        counts = np.bincount(self.numbers, minlength=len(self.words))
        return collections.Counter(dict(zip(self.words.tolist(), counts.tolist())))


class Collection(efs.Persistent):
    def __init__(self):
        self.texts = []

    def add(self, text):
        self.texts = [*self.texts, text]  # the text becomes persistent, too


class Stats(efs.Persistent):
    def __init__(self):
        self.counts = collections.Counter()


def by_alias(cls, alias):
    try:
        return cls.get_by_alias(alias)
    except KeyError:
        found = cls()
        found.make_persistent(alias)
        return found


def add(files):
    collection = by_alias(Collection, "texts")
    for name in files:
        with open(name, errors="replace") as file:
            collection.add(Text(name, file.read()))


def count(number):
    total = collections.Counter()
    for text in by_alias(Collection, "texts").texts:
        total += text.count()
    new = by_alias(Stats, "stats").new_version()
    new.counts = total
    new.consolidate_version()
    for word, times in by_alias(Stats, "stats").counts.most_common(number):
        print(f"{times:8} {word}")


def main():
    if len(sys.argv) < 3 or sys.argv[2] not in ("add", "count"):
        sys.exit(__doc__)
    efs.Persistent.store = efs.Store(sys.argv[1])
    if sys.argv[2] == "add":
        add(sys.argv[3:])
    else:
        count(int(sys.argv[3]) if len(sys.argv) > 3 else 10)


if __name__ == "__main__":
    main()
