# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command on a terminal of its own and prints what it says there, as it is: on_terminal.py COMMAND..."""
import os
import pty
import sys

pid, terminal = pty.fork()
if pid == 0:
    os.execvp(sys.argv[1], sys.argv[1:])
said = b""
while True:
    try:
        part = os.read(terminal, 65536)
    except OSError:  # the last one has closed it
        break
    if not part:
        break
    said += part
sys.stdout.buffer.write(said)
sys.stdout.flush()
sys.exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
