#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# efs metrics --listen: scrapes over loopback and a Unix socket, hostile clients, a real Prometheus; the board for Grafana.
#   scrape_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

# listens NAME ADDRESS [ARGUMENT...]: starts the server, as a check. Its pid is in $server, the address that it prints in $url.
listens() {
  local name=$1; shift
  exec 4< <(exec "$EFS" metrics --listen "$@" 2>&1)
  server=$!; pids+=("$server")
  read -r url <&4 || url=
  case $url in unix:*|http://*) ok ;; *) fail "$name" "$* says $url" ;; esac
}
# ended_by NAME SIGNAL: the server ends with 0, as a check.
ended_by() {
  local code
  kill -"$2" "$server"; wait "$server"; code=$?
  exec 4<&-
  if [ $code = 0 ]; then ok; else fail "$1" "exit $code"; fi
}
# scrape [ACCEPT]: prints head and body.
scrape() {
  local accept=${1:-*/*} host=${url#http://}
  case $url in
    unix:*)
      timeout 20 python3 -SE - "${url#unix:}" <<'PYTHON'
import socket, sys
client = socket.socket(socket.AF_UNIX)
client.connect(sys.argv[1])
client.sendall(b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n")
sys.stdout.write(b"".join(iter(lambda: client.recv(65536), b"")).decode())
PYTHON
      ;;
    *)
      host=${host%:*} host=${host#[} host=${host%]}
      exec 5<>"/dev/tcp/$host/$(port_of)" || return
      printf 'GET /metrics HTTP/1.1\r\nHost: localhost\r\nAccept: %s\r\n\r\n' "$accept" >&5
      timeout 20 cat <&5 || return
      exec 5>&- ;;
  esac | tr -d '\r'
}
port_of() { local port=${url##*:}; echo "${port%/metrics}"; }
# says PATTERN [ACCEPT], lacks PATTERN: the answer has such a line, or an answer has none.
says() { scrape "${2:-*/*}" >"$S/answer" && { grep -qE -- "$1" "$S/answer" || { head -n 20 "$S/answer"; return 1; }; }; }
lacks() { scrape >"$S/answer" && ! grep -E -- "$1" "$S/answer"; }

# --- addresses ---
for address in 0.0.0.0:9464 '[::]:9464' 192.0.2.1:9464; do
  check_exit "$address is refused with the reason" 2 'other machines could reach this address; write a loopback address' "$EFS" metrics --listen "$address"
done
check_exit 'a name is refused' 2 'no address in figures' "$EFS" metrics --listen localhost:9464
check_exit 'a port is needed' 2 'no port' "$EFS" metrics --listen 127.0.0.1
check_exit 'not with --textfile' 2 'textfile' "$EFS" metrics --listen 127.0.0.1:0 --textfile "$S/file"
check_exit 'not with --json' 2 'json' "$EFS" metrics --listen 127.0.0.1:0 --json
check_exit 'a directory that is not there' 1 "cannot listen at $S/nowhere/s: No such file" "$EFS" metrics --listen "unix:$S/nowhere/s"

fresh scraped
started "$JOB"
cat "$MNT/input/a" >/dev/null

# --- a Unix socket ---
umask 000
listens 'a Unix socket' "unix:$S/socket"
umask 022
check 'its address is printed' test "$url" = "unix:$S/socket"
check 'its mode is 0600' test "$(stat -c '%a %F' "$S/socket")" = '600 socket'
check 'a scrape' says '^efs_up\{instance="scraped"\} 1$'
check_exit 'a second server is refused' 1 'another process serves it' "$EFS" metrics --listen "unix:$S/socket"
check 'and harms nothing' says '^efs_up'
ended_by 'SIGTERM ends it' TERM
check_not 'and removes the socket' test -e "$S/socket"
python3 -SE -c 'import socket, sys; socket.socket(socket.AF_UNIX).bind(sys.argv[1])' "$S/socket"
listens 'a socket that no process serves is replaced' "unix:$S/socket"
rm "$S/socket"; echo precious >"$S/socket"
ended_by 'SIGINT ends it' INT
check 'another file of that name stays' grep -qx precious "$S/socket"
check_exit 'and is not replaced' 1 'another file has this name' "$EFS" metrics --listen "unix:$S/socket"

# --- loopback ---
if python3 -SE -c 'import socket; socket.socket(socket.AF_INET6).bind(("::1", 0))' 2>/dev/null; then
  listens 'IPv6' '[::1]:0'
  check 'its address' grep -qE '^http://\[::1\]:[0-9]+/metrics$' <<<"$url"
  check 'a scrape by IPv6' says '^efs_up'
  ended_by 'SIGHUP ends it' HUP
else skip 'IPv6' 'the machine has no ::1'; fi
listens 'IPv4' 127.0.0.1:0
port=$(port_of)
check_exit 'a port in use' 1 'cannot listen: Address already in use; choose another address' "$EFS" metrics --listen "127.0.0.1:$port"
check 'text without a preference' says '^Content-Type: text/plain; version=0.0.4; charset=utf-8$'
check 'is not OpenMetrics' lacks '^# EOF$'
check 'OpenMetrics on request' says '^Content-Type: application/openmetrics-text; version=1.0.0; charset=utf-8$' application/openmetrics-text
check 'which is that of efs metrics' test "$(scrape application/openmetrics-text | sed -n '/^# TYPE/p')" = "$("$EFS" metrics | sed -n '/^# TYPE/p')"
members=$(field "$(status_of scraped)" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')
stall $members
check 'a daemon that does not answer' await 20 says '^efs_up\{instance="scraped"\} 0$'
kill -CONT $members
check 'is not asked at the next scrape, which would wait for it' says '^efs_up\{instance="scraped"\} 0$'
check 'others ask it' eval 'grep -q "^efs_up{instance=.scraped.} 1$" <<<"$("$EFS" metrics)"'
check 'hostile clients' timeout 60 python3 -SE "$SOURCE/tests/cli/hostile_scrapers.py" "$port" "$server"
check 'it keeps no descriptor of them' eval '[ "$(ls /proc/$server/fd | wc -l)" -le 10 ]'
check 'and little memory' eval '[ "$(awk "/^VmRSS/{ print \$2 }" /proc/$server/status)" -le 65536 ]'

# --- Prometheus ---
prometheus=${EFS_PROMETHEUS:-prometheus} promtool=${EFS_PROMTOOL:-promtool}
if command -v "$promtool" >/dev/null; then
  scrape >"$S/text"
  check 'promtool reads the answer' bash -c "sed '1,/^\$/d' '$S/text' | '$promtool' check metrics"
else skip 'promtool' 'it is not installed (apt-get install prometheus)'; fi
free_port() { python3 -SE -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
# asked QUERY: the values that Prometheus has
asked() { python3 -SE - "$own" "$1" <<'PYTHON'
import json, sys, urllib.parse, urllib.request
answer = json.load(urllib.request.urlopen("http://127.0.0.1:%s/api/v1/query?query=%s" % (sys.argv[1], urllib.parse.quote(sys.argv[2]))))
print(*sorted(r["metric"].get("instance", "") + "=" + r["value"][1] for r in answer["data"]["result"]))
PYTHON
}
has() { [ "$(asked "$1")" = "$2" ]; }
if command -v "$prometheus" >/dev/null; then
  own=$(free_port)
  sed -n '/^scrape_configs:/,/^```/p' "$SOURCE/docs/metrics.md" | sed '/^```/d; s/127.0.0.1:9464/127.0.0.1:'"$port/" >"$S/prometheus.yml"
  printf 'global: {scrape_interval: 1s}\n' >>"$S/prometheus.yml"
  "$prometheus" --config.file="$S/prometheus.yml" --storage.tsdb.path="$S/tsdb" --web.listen-address="127.0.0.1:$own" >"$S/prometheus.log" 2>&1 &
  pids+=($!)
  check 'Prometheus scrapes it' await 20 has efs_up scraped=1 || tail -n 5 "$S/prometheus.log"
  check 'the configuration of the documentation keeps the instance' has 'efs_capacity_bytes' "scraped=$(field "$(status_of scraped)" 'd["capacity"]')"
  check 'histograms' test -n "$(asked 'histogram_quantile(0.99, sum by (le) (efs_request_duration_seconds_bucket))')"
  python3 -SE - "$SOURCE/conf/grafana/efs.json" "$own" <<'PYTHON' >"$S/queries" 2>&1
import json, re, sys, urllib.parse, urllib.request
def expressions(node):
    if isinstance(node, dict):
        if isinstance(node.get("expr"), str): yield node["expr"]
        for value in node.values(): yield from expressions(value)
    elif isinstance(node, list):
        for value in node: yield from expressions(value)
for expression in expressions(json.load(open(sys.argv[1]))):
    query = expression.replace("${label}", "instance").replace("$instance", ".*").replace("$__rate_interval", "1m")
    try: urllib.request.urlopen("http://127.0.0.1:%s/api/v1/query?query=%s" % (sys.argv[2], urllib.parse.quote(query)))
    except urllib.error.HTTPError as problem: print(expression, problem.read())
PYTHON
  check 'it understands each query of the board' test ! -s "$S/queries"
  kill "$!" && wait "$!"
else skip 'a scrape by Prometheus, and its reading of the board' 'it is not installed (apt-get install prometheus)'; fi

# --- what happens to instances ---
status=$(status_of scraped)
both="$(field "$status" 'd["supervisor_pid"]') $(field "$status" 'd["worker_pid"]')"
check 'a daemon that does not answer' stall $both
check 'is not up' await 20 says '^efs_up\{instance="scraped"\} 0$'
kill -CONT $both
check 'stop' "$EFS" stop scraped
check 'without an instance there are no samples' await 20 lacks '^efs_up'
ended_by 'SIGTERM ends it, too' TERM
fresh gone
started "$JOB"
listens 'one instance' 127.0.0.1:0 gone
check 'it is there' says '^efs_up\{instance="gone"\} 1$'
check 'stop it' "$EFS" stop gone
check 'then the answer is an error with the reason' await 20 says '^no instance has the name'
check 'of status 503' says '^HTTP/1.1 503 Service Unavailable$'
ended_by 'SIGTERM ends it at last' TERM

# --- the board ---
check 'the board is JSON, and has no metric that efs metrics lacks' python3 -SE - "$SOURCE/conf/grafana/efs.json" "$("$EFS" metrics --json)" <<'PYTHON'
import json, re, sys
board, families = json.load(open(sys.argv[1])), json.loads(sys.argv[2])["metrics"]
suffixes = {"counter": ["_total"], "gauge": [""], "histogram": ["_bucket", "_sum", "_count"]}
known = {family["name"] + suffix for family in families for suffix in suffixes[family["type"]]}
named = set()
def read(node):
    if isinstance(node, dict):
        for key in ("expr", "query", "definition"):
            if isinstance(node.get(key), str): named.update(re.findall(r"\befs_[a-z_]+", node[key]))
        for value in node.values(): read(value)
    elif isinstance(node, list):
        for value in node: read(value)
read(board)
ids = [panel["id"] for panel in board["panels"]]
assert len(named) >= 15, named
assert len(ids) == len(set(ids)) and board["uid"] and board["title"], ids
assert all(p["type"] == "row" or p["targets"] for p in board["panels"])
assert not named - known, named - known
assert "efs_nosuch" not in known and "efs_opens" not in known
PYTHON
finish
