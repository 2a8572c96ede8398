# SPDX-License-Identifier: BSD-3-Clause
"""Transactions in a database on the mount until standard input ends; then the database is checked.
usage: sqlite.py DIRECTORY"""
import select
import sqlite3
import sys

path = sys.argv[1] + "/data.db"
connection = sqlite3.connect(path)
connection.execute("pragma journal_mode = %s" % ("wal" if len(sys.argv) > 2 else "delete"))
connection.execute("create table t (n integer, text varchar)")
connection.commit()
rows = transactions = 0
while not select.select([sys.stdin], [], [], 0)[0]:
    with connection:
        if rows >= 40000:  # the buffer is small
            connection.execute("delete from t")
            rows = 0
        for _ in range(20):
            connection.execute("insert into t values (?, ?)", (rows, "x" * (rows % 500)))
            rows += 1
    transactions += 1
assert transactions > 0
connection.close()
connection = sqlite3.connect(path)
verdict = connection.execute("pragma integrity_check").fetchone()[0]
count, total = connection.execute("select count(*), sum(n) from t").fetchone()
assert verdict == "ok" and count == rows and (total or 0) == rows * (rows - 1) // 2, (verdict, count, rows)
print("%d transactions, %d rows" % (transactions, rows))
