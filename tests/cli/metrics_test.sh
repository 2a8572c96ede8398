#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# efs metrics: names, units and values; OpenMetrics, and the format of node_exporter's text files.
#   metrics_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

value() { awk -v line="$2" 'index($0, line " ") == 1 { print $NF }' <<<"$1"; }
names() { sed -n 's/^# TYPE \([^ ]*\) .*/\1/p' <<<"$1"; }
documented() { sed -n 's/^| `\(efs_[a-z_]*\)` | \([a-z]*\) | \([a-z-]*\) .*/\1 \2 \3/p' "$SOURCE/docs/metrics.md"; }
# typed TEXT: NAME TYPE UNIT of each family
typed() {
  awk '/^# TYPE /{ name = $3; type[name] = $4; unit[name] = "-"; order[++n] = name } /^# UNIT /{ unit[$3] = $4 }
    END { for (i = 1; i <= n; i++) print order[i], type[order[i]], unit[order[i]] }' <<<"$1"
}
# well_formed TEXT: the rules of OpenMetrics that a simple reader can check
well_formed() {
  python3 -SE - "$1" <<'PYTHON'
import re, sys
lines = sys.argv[1].split("\n")
assert lines[-1] == "# EOF", lines[-1]
family, kind, seen, faults = None, None, set(), []
sample = re.compile(r'([a-z_]+)\{((?:[a-z_]+="(?:[^"\\\n]|\\.)*",?)*)\} ([0-9.e+-]+|\+Inf)$')
buckets = {}
for line in lines[:-1]:
    if line.startswith("# "):
        _, word, name = line.split(" ")[:3]
        if word == "HELP":
            if name in seen: faults.append("twice: " + name)
            seen.add(name); family = name
        elif name != family: faults.append("out of order: " + line)
        if word == "TYPE": kind = line.split(" ")[3]
        if word == "UNIT" and not name.endswith("_" + line.split(" ")[3]): faults.append("unit: " + line)
        continue
    match = sample.match(line)
    if not match: faults.append("no sample: " + line); continue
    name, labels, value = match.groups()
    wanted = {"counter": [family + "_total"], "gauge": [family], "histogram": [family + s for s in ("_bucket", "_sum", "_count")]}[kind]
    if name not in wanted: faults.append("wrong family: " + line)
    if (name, labels) in seen: faults.append("twice: " + line)
    seen.add((name, labels))
    if name.endswith("_bucket"):
        bound = re.search(r'le="([^"]*)"', labels).group(1)
        rest = labels.replace('le="%s"' % bound, "")
        buckets.setdefault((name, rest), []).append((float(bound), float(value)))
for which, of in buckets.items():
    if of != sorted(of) or [v for b, v in of] != sorted(v for b, v in of) or of[-1][0] != float("inf"): faults.append("buckets: %s" % (which,))
print("\n".join(faults))
sys.exit(bool(faults))
PYTHON
}

text=$("$EFS" metrics)
check 'without an instance it is well formed' well_formed "$text"
check 'docs/metrics.md has each name, its type and its unit' test "$(typed "$text")" = "$(documented)"
check 'there are metrics' test "$(documented | wc -l)" -ge 30

fresh measured
started "$JOB"
cat "$MNT/input/a" >/dev/null; cat "$MNT/nothing" 2>/dev/null; echo new >"$MNT/new"
check 'unload' "$EFS" unload -w -i measured new
text=$("$EFS" metrics --changed)
status=$(status_of measured)
check 'it is well formed' well_formed "$text"
check 'up' test "$(value "$text" 'efs_up{instance="measured"}')" = 1
check 'the state' test "$(value "$text" 'efs_state{instance="measured",state="running"}')" = 1
check 'the capacity' test "$(value "$text" 'efs_capacity_bytes{instance="measured"}')" = "$(field "$status" 'd["capacity"]')"
check 'inputs' test "$(value "$text" 'efs_staged_in_files{instance="measured"}')" = 2
check 'opens' test "$(($(value "$text" 'efs_opens_total{instance="measured",path="daemon"}') + $(value "$text" 'efs_opens_total{instance="measured",path="passthrough"}')))" = "$(field "$status" 'd["counters"]["opens"]')"
check 'open files' test "$(value "$text" 'efs_open_files{instance="measured",owner="kernel"}')" = 0 -a "$(value "$text" 'efs_open_files{instance="measured",owner="session"}')" = 0
check 'a histogram counts the requests' test "$(value "$text" 'efs_request_duration_seconds_count{instance="measured",operation="open"}')" = "$(field "$status" 'd["counters"]["operations"]["open"]["count"]')"
check 'tasks' test "$(value "$text" 'efs_tasks{instance="measured",kind="unload",state="done"}')" = 1
check 'changed files' test "$(value "$text" 'efs_changed_files{instance="measured"}')" = "$(field "$status" 'd["changed_files"]')"
check 'no figure of status is missing' python3 -SE - "$status" "$SOURCE/src/cli/metrics.cpp" <<'PYTHON'
import json, sys
# Texts, identities, and figures that other metrics contain.
known = set("""ok event name job_file start_options mount root_dir results_dir directory log supervisor_pid worker_pid protocol status_file
backend durability io io_reason takeover_reason note mean_seconds histogram_us count skipped_first operations requests errors opens
passthrough_opens daemon_opens state counters staged_in tasks backends turn""".split())
source = open(sys.argv[2]).read()
def missing(document, path):
    for key, value in document.items():
        if isinstance(value, dict) and path + key != "counters/operations": yield from missing(value, path + key + "/")
        elif key not in known and "/" + path + key not in source: yield path + key
left = list(missing(json.loads(sys.argv[1]), ""))
print(left)
sys.exit(bool(left))
PYTHON
check 'JSON' json "$("$EFS" metrics --json measured)" '{m["name"]: m for m in d["metrics"]}["efs_up"]["samples"][0]["value"] == 1'
check 'one instance' "$EFS" metrics measured
check_exit 'none of the name' 1 'no instance has the name' "$EFS" metrics nosuch

echo precious >"$S/precious"; ln -s "$S/precious" "$S/efs.prom"
check_exit 'a text file' 0 '' "$EFS" metrics --textfile "$S/efs.prom"
check 'nothing is printed' test -z "$said"
check 'a link is replaced' bash -c "grep -qx precious $S/precious && [ ! -L $S/efs.prom ]"
check 'others can read it' test "$(stat -c %a "$S/efs.prom")" = 644
check 'a counter has its type there' grep -q '^# TYPE efs_opens_total counter' "$S/efs.prom"
check_not 'no other line of OpenMetrics' grep -qE '^# (UNIT|EOF)' "$S/efs.prom"
check_exit 'no directory for it' 1 'No such file' "$EFS" metrics --textfile "$S/nowhere/efs.prom"
promtool=${EFS_PROMTOOL:-promtool}
if command -v "$promtool" >/dev/null; then
  check 'promtool reads the text file' bash -c "'$promtool' check metrics <'$S/efs.prom'"
  check_not 'and finds a fault in a bad one' bash -c "sed 's/^efs_up{/efs_up{{/' '$S/efs.prom' | '$promtool' check metrics"
else skip 'promtool' 'it is not installed (apt-get install prometheus)'; fi
if python3 -c 'import prometheus_client' 2>/dev/null; then
  check "Prometheus' own reader of OpenMetrics" python3 -c 'import sys
from prometheus_client.openmetrics.parser import text_string_to_metric_families
assert len(list(text_string_to_metric_families(sys.argv[1]))) > 30' "$text
"
else skip 'a reader of OpenMetrics' 'prometheus_client is not installed (apt-get install python3-prometheus-client)'; fi
kill_both measured
check 'a dead instance is not up' test "$(value "$("$EFS" metrics)" 'efs_up{instance="measured"}')" = 0
check 'clean' "$EFS" clean --force measured
finish
