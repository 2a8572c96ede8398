# SPDX-License-Identifier: BSD-3-Clause
"""Prints times, and figures beside their goals."""
import statistics


class Figures:
    def __init__(self):
        self.met = self.missed = 0

    def show(self, title, times):
        """Prints the median and the best of the rounds. Returns the medians."""
        print(f"\n{title}")
        for name, found in times.items():
            best = min(found)
            print(f"  {name:34} {statistics.median(found):10.3f} ms, best {best:10.3f} ms")
        return {name: statistics.median(found) for name, found in times.items()}

    def goal(self, text, value, wanted, at_least=True):
        good = value >= wanted if at_least else value <= wanted
        self.met += good
        self.missed += not good
        sign = ">=" if at_least else "<="
        print(f"  {'met   ' if good else 'MISSED'} {text}: {value:.2f}, goal {sign} {wanted}")

    def skip(self, what, why):
        lines = str(why).strip().splitlines()
        print(f"skipped: {what} ({lines[0] if lines else 'no reason'})")
