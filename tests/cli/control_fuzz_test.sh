#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Hostile messages to the control socket of a live instance: the instance answers all other clients,
# and the mount keeps working.
#   control_fuzz_test.sh BIN_DIR
# EFS_FUZZ_SECONDS (5) is the duration; EFS_TEST_SEED repeats a run.
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

seed=${EFS_TEST_SEED:-$RANDOM$RANDOM}
known=$SOURCE/tests/fuzz/corpus/control/every-field   # a line of each verb, with all fields
fresh fuzz
check 'start' "$EFS" start "$JOB"
echo kept >"$MNT/kept"
worker=$(field "$("$EFS" status --json fuzz)" 'd["worker_pid"]')
socket=$EFS_RUNTIME_DIR/fuzz/control.sock
check 'the socket is private' test "$(stat -c %a "$socket" "$EFS_RUNTIME_DIR/fuzz" | tr '\n' ' ')" = '600 700 '

cat >"$S/fuzz.py" <<'PYTHON'
import json, os, random, socket, sys, time
path, seed, seconds, known = sys.argv[1], int(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
rng = random.Random(seed)
requests = [line for line in map(json.loads, open(known)) if line["verb"] not in ("stop", "wait-end")]   # these end, or wait for the end
verbs = [line["verb"] for line in requests] + ["nosuch", "", "\0", "v" * 5000]
odd = [None, True, -1, 0, 1, 2**63, 2**64 - 1, -2**63, 1e308, "", "x", "..", "/", "\0", "a/" * 3000, "\ud800", "*" * 200, "[" * 300, [], {}, [[]], [None], [1], ["x", 2], {"a": {}}, ["input"], ["input", "input"], "input", "persistent"]
fields = sorted(set().union(*requests))

def request():
  message = {"verb": rng.choice(verbs)}
  for field in rng.sample(fields, rng.randrange(0, 6)): message[field] = rng.choice(odd)
  if message["verb"] == "wait" and message.get("starter"): message["starter"] = False
  if message["verb"] == "wait-task": message["timeout_ms"] = rng.choice([0, 1, "x", -1, None])
  return json.dumps(message).encode() + b"\n"

def hostile():
  kind = rng.randrange(9)
  if kind == 0: return rng.randbytes(rng.randrange(1, 5000)) + b"\n"
  if kind == 1: return b"[" * rng.randrange(1, 500000) + b"\n"
  if kind == 2: return b'{"verb":' * rng.randrange(1, 100000) + b"\n"
  if kind == 3: return b"x" * rng.randrange(1, 3 << 20)
  if kind == 4: line = request(); return line[:rng.randrange(len(line))]
  if kind == 5:
    line = bytearray(request())
    for _ in range(rng.randrange(1, 20)): line[rng.randrange(len(line))] = rng.randrange(256)
    return bytes(line)
  if kind == 6: return b"".join(request() for _ in range(rng.randrange(1, 50)))
  if kind == 7: return b'{"verb":"ls"}\n' * 200   # asks for much and reads nothing
  return request()

def connect():
  s = socket.socket(socket.AF_UNIX); s.settimeout(2); s.connect(path); return s

open_ones, sent, end = [], 0, time.monotonic() + seconds
while time.monotonic() < end:
  try:
    s = connect()
    s.settimeout(0.2)
    s.sendall(hostile())
    sent += 1
    what = rng.randrange(4)
    if what == 0: open_ones.append(s)            # stays, silent
    elif what == 1: s.shutdown(socket.SHUT_WR); s.recv(100); s.close()
    elif what == 2: s.recv(10); s.close()
    else: s.close()
  except OSError: pass
  if len(open_ones) > 100:                       # more than it takes at a time
    for s in open_ones: s.close()
    open_ones = []
  if sent % 50 == 0:                             # an honest client in between
    for s in open_ones: s.close()
    open_ones = []
    deadline, answered = time.monotonic() + 20, False
    while not answered and time.monotonic() < deadline:
      try:
        with connect() as s:
          s.settimeout(20); s.sendall(b'{"verb":"status"}\n'); answered = b'"ok":true' in s.makefile("rb").readline()
      except OSError: pass
    if not answered: sys.exit("an honest client was not answered; after %d messages" % sent)
print(sent, "messages")
sys.exit(0 if sent > 20 else "only %d messages were sent" % sent)
PYTHON
if text=$(timeout 120 python3 "$S/fuzz.py" "$socket" "$seed" "${EFS_FUZZ_SECONDS:-5}" "$known" 2>&1); then ok; echo "seed $seed: $text"; else fail "hostile messages (EFS_TEST_SEED=$seed)" "$text"; fi

# Stop requests while a program uses the mount: none ends the instance, whatever their fields are.
# (A valid deadline would.)
cat >"$S/stops.py" <<'PYTHON'
import json, random, socket, sys
path, seed, known = sys.argv[1], int(sys.argv[2]), sys.argv[3]
rng = random.Random(seed)
fields = sorted(field for line in map(json.loads, open(known)) if line["verb"] == "stop" for field in line if field not in ("verb", "supervisor"))
odd = [None, True, False, -1, 0, 1, 2**64 - 1, 1e308, "", "x", [], {}, [True], {"stage_out": True}]
no_deadline = [None, False, -1, 0, -1e308, "", "1", [], {}]
refused = 0
for round in range(62):
  message = {"verb": "stop"}
  for field in rng.sample(fields, rng.randrange(1, len(fields) + 1)):
    message[field] = rng.choice(no_deadline if field == "deadline" else odd)
  if round >= 2: message[rng.choice(["stage_out", "keep"])] = rng.choice(["", "x", [], {}, [True]])  # no bool: refused at once
  else: message = {"verb": "stop", "stage_out": rng.choice([True, False]), "keep": rng.choice([True, False]), "deadline": rng.choice([0, -1, False])}
  with socket.socket(socket.AF_UNIX) as s:
    s.settimeout(60); s.connect(path); s.sendall(json.dumps(message).encode() + b"\n")
    answer = next(line for line in map(json.loads, s.makefile("rb")) if line["event"] == "result")
  if answer.get("ok") or not answer.get("error"): sys.exit("%s: %s" % (message, answer))
  refused += 1
print(refused, "stops refused")
PYTHON
exec 9<"$MNT/kept"
if text=$(timeout 200 python3 "$S/stops.py" "$socket" "$seed" "$known" 2>&1); then ok; echo "$text"; else fail "hostile stops (EFS_TEST_SEED=$seed)" "$text"; fi
exec 9<&-
check 'the same worker serves' test "$worker" = "$(field "$(timeout 60 "$EFS" status --json fuzz)" 'd["worker_pid"]')"
check 'the mount goes on' grep -qx kept "$MNT/kept"
check 'inputs are untouched' bash -c "cmp $PFS/input/a $MNT/input/a || ! test -e $MNT/input/a"
check 'a load works' timeout 100 "$EFS" load --wait -i fuzz input
# A deadline beyond every clock counts as unlimited, not as expired.
check 'a stop with the longest deadline' timeout 100 python3 -c 'import json, socket, sys
with socket.socket(socket.AF_UNIX) as s:
    s.connect(sys.argv[1]); s.sendall(b"{\"verb\": \"stop\", \"deadline\": 1e308}\n")
    answer = next(line for line in map(json.loads, s.makefile("rb")) if line["event"] == "result")
sys.exit(0 if answer.get("ok") and answer.get("exit", 0) == 0 else str(answer))' "$socket"
check 'the result is back or was unloaded' grep -qx kept "$OUT/kept"
finish
