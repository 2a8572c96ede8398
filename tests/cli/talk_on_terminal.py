# SPDX-License-Identifier: BSD-3-Clause
"""Runs a command on a terminal of its own, talks to it, and prints all that it says there.

usage: talk_on_terminal.py COLUMNSxROWS STEP... -- COMMAND...

see=REGEX      waits until the command says it, behind the last thing that was seen
key=TEXT       types it; \\x03 is ctrl-c
run=COMMAND    runs another command and waits for its end
size=COLUMNSxROWS
stop           types ctrl-z, waits until the command has stopped, checks the terminal, continues the command
signal=NAME    sends it

After the last step the command must end. Exit code: its own; 99: a step failed, or the terminal is not as it was.
"""
import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time

LONGEST = 30  # seconds for a step


class Failed(Exception):
    pass


def set_size(terminal, text):
    columns, rows = map(int, text.split("x"))
    fcntl.ioctl(terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


class Talk:
    def __init__(self, size, command):
        self.ours, self.theirs = os.openpty()
        set_size(self.theirs, size)
        self.before = termios.tcgetattr(self.theirs)
        self.said, self.seen = b"", 0
        self.pid = os.fork()
        if self.pid == 0:
            os.setsid()
            fcntl.ioctl(self.theirs, termios.TIOCSCTTY, 0)
            for fd in (0, 1, 2):
                os.dup2(self.theirs, fd)
            os.execvp(command[0], command)
        self.end = os.pidfd_open(self.pid)

    def read(self, deadline):
        """Returns whether the command still runs."""
        ready, _, _ = select.select([self.ours, self.end], [], [], max(0, deadline - time.monotonic()))
        if not ready:
            raise Failed("it took too long")
        if self.ours in ready:
            self.said += os.read(self.ours, 65536)
            return True
        return False

    def see(self, pattern):
        deadline = time.monotonic() + LONGEST
        while True:
            found = re.search(pattern.encode(), self.said[self.seen:])
            if found:
                self.seen += found.end()
                return
            if not self.read(deadline):
                raise Failed("it has ended")

    def key(self, text):
        os.write(self.ours, text.encode().decode("unicode_escape").encode())

    def run(self, command):
        subprocess.run(command, shell=True, check=True, timeout=LONGEST)

    def size(self, text):
        set_size(self.theirs, text)

    def signal(self, name):
        os.kill(self.pid, getattr(signal, "SIG" + name))

    def stop(self):
        self.key("\\x1a")
        signal.alarm(LONGEST)
        _, status = os.waitpid(self.pid, os.WUNTRACED)
        signal.alarm(0)
        if not os.WIFSTOPPED(status):
            raise Failed("it has not stopped")
        self.is_restored()
        os.kill(self.pid, signal.SIGCONT)

    def is_restored(self):
        while select.select([self.ours], [], [], 0)[0]:
            self.said += os.read(self.ours, 65536)
        if termios.tcgetattr(self.theirs) != self.before:
            raise Failed("the terminal has other settings than before")
        for begin, end in ((b"\033[?1049h", b"\033[?1049l"), (b"\033[?25l", b"\033[?25h")):
            if self.said.count(begin) != self.said.count(end) or self.said.rfind(begin) > self.said.rfind(end):
                raise Failed("%r has no %r" % (begin, end))

    def finish(self):
        deadline = time.monotonic() + LONGEST
        while self.read(deadline):
            pass
        self.is_restored()
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def main():
    words = sys.argv[2:]
    command = words[words.index("--") + 1:]
    talk = Talk(sys.argv[1], command)
    step = "the end"
    try:
        for step in words[:words.index("--")]:
            name, _, value = step.partition("=")
            getattr(talk, name)(*([value] if value else []))
        step = "the end"
        code = talk.finish()
    except (Failed, subprocess.SubprocessError) as problem:
        print("%s: %s" % (step, problem))
        os.kill(talk.pid, signal.SIGKILL)
        code = 99
    sys.stdout.flush()
    sys.stdout.buffer.write(talk.said)
    sys.exit(code)


main()
