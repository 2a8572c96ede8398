# SPDX-License-Identifier: BSD-3-Clause
"""Clients that misuse `efs metrics --listen`, all at once: hostile_scrapers.py PORT PID. Prints each fault."""
import os
import select
import socket
import sys
import time

PORT, SERVER = int(sys.argv[1]), sys.argv[2]
LONGEST = 20  # seconds that a connection may last without its client's help; the server promises 5
faults = []


FEW = 3  # the listening socket, that of another client, one to spare


def sockets():
    found = 0
    for fd in os.listdir("/proc/%s/fd" % SERVER):
        try:
            found += os.readlink("/proc/%s/fd/%s" % (SERVER, fd)).startswith("socket:")
        except FileNotFoundError:
            pass
    return found


def connect(receive_buffer=None):
    client = socket.socket()
    if receive_buffer:
        client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
    client.settimeout(30)
    client.connect(("127.0.0.1", PORT))
    return client


def answer(request, client=None):
    client = client or connect()
    said = b""
    try:
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
    except OSError:
        pass
    while True:
        try:
            part = client.recv(65536)
        except ConnectionResetError:
            break
        if not part:
            break
        said += part
    client.close()
    return said


def expect(name, is_so, said=b""):
    if not is_so:
        faults.append("%s: %r" % (name, said[:200]))


def status(request):
    return answer(request).split(b" ")[1:2]


GOOD = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n"


def serves(name):
    began = time.monotonic()
    said = answer(GOOD)
    expect(name, said.startswith(b"HTTP/1.1 200 OK\r\n") and b"\nefs_up{" in said, said)
    head, _, body = said.partition(b"\r\n\r\n")
    expect(name + ": its length", b"\r\nContent-Length: %d\r\n" % len(body) in head, head)
    expect(name + ": in time", time.monotonic() - began < 4.5)


# Many ways to be wrong, each with its status.
for wanted, request in (
    (b"400", b"\r\n\r\n"),
    (b"400", b"GET\r\n\r\n"),
    (b"400", b"GET /metrics\r\n\r\n"),
    (b"400", b"GET /metrics HTTP/2.0\r\n\r\n"),
    (b"400", b"GET /metrics HTTP/1.1\r\nno colon\r\n\r\n"),
    (b"400", b"\0\xff\x16\x03\x01\r\n\r\n"),
    (b"405", b"POST /metrics HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello"),
    (b"405", b"HEAD /metrics HTTP/1.1\r\n\r\n"),
    (b"404", b"GET / HTTP/1.1\r\n\r\n"),
    (b"404", b"GET /metrics/../../etc/passwd HTTP/1.1\r\n\r\n"),
    (b"431", b"GET /metrics HTTP/1.1\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n"),
    (b"431", b"G" * 100000),
    (b"200", b"GET /metrics?x=1 HTTP/1.0\r\n\r\n"),
    (b"200", b"GET /metrics HTTP/1.1\nHost: localhost\n\n"),
):
    got = status(request)
    expect("status of %r" % request[:60], got == [wanted], b"".join(got))

# Half a request, one byte at a time, and the end: the rest gets its answer.
slow = connect()
for byte in GOOD[:-1]:
    slow.send(bytes([byte]))
serves("beside half a request")
expect("the rest of a slow request", answer(GOOD[-1:], slow).startswith(b"HTTP/1.1 200"))

# More connections than the server keeps: none of them sends anything.
crowd = [connect() for _ in range(200)]
serves("beside 200 silent connections")

# Clients that never read, and half a request. The server ends them, though the clients do nothing.
deaf = [connect(receive_buffer=1024) for _ in range(20)]
for client in deaf:
    client.sendall(GOOD)
half = connect()
half.sendall(GOOD[:20])
began = time.monotonic()
serves("beside clients that do not read")
waiting = select.poll()
waiting.register(half, select.POLLIN)
expect("half a request ends", waiting.poll(LONGEST * 1000))
expect("and is not answered", half.recv(100) == b"")
duration = time.monotonic() - began
expect("after 5 seconds, not %.1f" % duration, 2 < duration < LONGEST)
while sockets() > FEW and time.monotonic() - began < LONGEST:
    time.sleep(0.05)
expect("clients that do not read end: %d sockets" % sockets(), sockets() <= FEW)
for client in crowd:
    client.close()
serves("afterwards")
print("\n".join(faults))
sys.exit(bool(faults))
