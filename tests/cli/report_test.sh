#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# efs report and the page beside the receipt: of a good, a wasteful and a failed job; hostile names;
# the page in a browser.
#   report_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"

page_of() { echo "$OUT/efs-report-$NAME.html"; }
good_page() { python3 -S "$SOURCE/tests/support/report_page.py" "$@"; }
report_json() { "$EFS" report --json "$OUT/efs-receipt-$NAME.json"; }
missed() { python3 -SE -c 'import json,sys; print(sorted(f["path"] for f in json.load(open(sys.argv[1]))["files"]))' "$OUT/efs-report-$NAME.json"; }
record() { receipt | python3 -SE -c 'import json,sys; print(json.dumps(json.load(sys.stdin)["record"]))'; }
setting() { sed -i "s|^global-settings:|&\n  $1|" "$JOB"; }

# --- a good job ---
fresh good 'resources: [ [ path: input ] ]'
check 'run' "$EFS" run "$JOB" -- sh -c "cat $MNT/input/a $MNT/input/sub/b && mkdir $MNT/new && dd if=/dev/zero of=$MNT/new/big bs=1M count=4 status=none"
check 'a page lies beside the receipt' test -f "$(page_of)"
check 'the page has mode 0600' test "$(stat -c %a "$(page_of)")" = 600
check 'the page is well made' good_page "$(page_of)" 'good: complete' 'What happened' 'Time line' 'Buffer use over time' 'Opens by path' new/big
check 'the phases have their order' json "$(record)" '[p["name"] for p in d["phases"]] == ["plan", "wait-in", "stage-in", "mount", "run", "unmount", "wait-out", "stage-out"]'
check 'and do not overlap' json "$(record)" 'all(a["end_ns"] <= b["begin_ns"] for a, b in zip(d["phases"], d["phases"][1:]))'
check 'all inputs were opened' json "$(record)" 'd["unopened_inputs"]["files"] == 0 and d["unopened_inputs"]["of_files"] == 2'
check 'no name is missed, though each create looked for one' json "$(record)" 'd["missed_inputs"] == {"named": 0, "not_kept": 0, "unchecked": 0}'
check_not 'so no file has such names' test -e "$OUT/efs-report-good.json"
check 'opens are counted' json "$(record)" 'd["counters"]["opens"] >= 3'
check 'the use of the buffer has samples' json "$(record)" 'd["space"]["capacity"] > 0 and d["space"]["samples"][-1][1] >= 4 << 20'
check_exit 'the report on a terminal' 0 'Time line, 0 to' "$EFS" report "$OUT/efs-receipt-good.json"
check 'has lines of 80 columns' test "$(wc -L <<<"$said")" -le 100
check_exit 'in colour' 0 $'^\033\\[32mgood: stage-out complete' "$EFS" report --color=always "$OUT/efs-receipt-good.json"
check 'which is all that differs' test "$(sed $'s/\033\\[[0-9]*m//g' <<<"$said")" = "$("$EFS" report --color=never "$OUT/efs-receipt-good.json")"
check_exit 'a receipt, too' 0 $'^\033\\[32mgood: stage-out complete' "$EFS" receipt --color=always "$OUT/efs-receipt-good.json"
check_exit 'by the job file' 0 'good: stage-out complete' "$EFS" report "$JOB"
check_exit 'the only receipt here' 0 'good: stage-out complete' bash -c "cd $OUT && $EFS report"
check 'JSON' json "$(report_json)" 'd["ok"] and d["verdict"] == "complete" and d["phases"][2]["name"] == "stage-in"'
check_exit 'efs receipt --verify still holds' 0 'are as the receipt says' "$EFS" receipt --verify "$OUT/efs-receipt-good.json"

# --- a file of one's own ---
echo precious >"$S/precious"; ln -s "$S/precious" "$S/link.html"
check_exit '--html replaces a link' 0 "link.html" "$EFS" report "$OUT/efs-receipt-good.json" --html "$S/link.html"
check 'and does not follow it' grep -qx precious "$S/precious"
check 'the page is a file of mode 0600' test "$(stat -c '%F %a' "$S/link.html")" = 'regular file 600'
check 'it is the page of the stop' cmp "$S/link.html" "$(page_of)"
check_exit 'no directory to write to' 1 'No such file' "$EFS" report "$OUT/efs-receipt-good.json" --html "$S/nowhere/x.html"
check_exit 'no receipt' 1 'is not a receipt' "$EFS" report /etc/passwd
check_exit 'nothing of the name' 1 'neither a receipt' "$EFS" report nosuch
check_exit 'no receipt here' 1 'no receipt is in this directory' bash -c "cd $S && $EFS report"

# --- a wasteful job ---
fresh wasteful 'resources: [ [ path: input ] ]' 'outputs:' '  - path: results'
dd if=/dev/zero of="$PFS/input/unread" bs=1M count=3 status=none
echo forgotten >"$PFS/forgotten"; mkdir "$PFS/more"; echo x >"$PFS/more/x"
started "$JOB"
cat "$MNT/input/a" >/dev/null
check_not 'a name that is no input' cat "$MNT/forgotten"
check_not 'a directory that is none' ls "$MNT/more"
check_not 'a name that nobody has' cat "$MNT/nowhere"
check_not 'a name that comes later' cat "$MNT/results"
mkdir "$MNT/results"; echo r >"$MNT/results/r"; echo lost >"$MNT/stray"
echo dirty >>"$MNT/input/sub/b"
check_exit 'the report of a job that runs' 1 'is running: its report comes with its receipt' "$EFS" report wasteful
check 'stop' "$EFS" stop wasteful
check 'the report names what no program opened' json "$(record)" '[f["path"] for f in d["unopened_inputs"]["largest"]] == ["input/unread"] and d["unopened_inputs"]["bytes"] == 3 << 20'
check 'and names in vain that root-dir has' test "$(missed)" = "['forgotten', 'more']"
check 'in a file for the user alone' test "$(stat -c %a "$OUT/efs-report-wasteful.json")" = 600
check 'the receipt has their number' json "$(record)" 'd["missed_inputs"]["named"] == 2'
check_not 'and no names' grep -q forgotten "$OUT/efs-receipt-wasteful.json"
check 'the text says so' bash -c "$EFS report $OUT/efs-receipt-wasteful.json | grep -q '3 MiB of .* were staged for nothing'"
check 'advice has the line of the job file' json "$(report_json)" 'any("  - path: forgotten" in a["lines"] for a in d["advice"]) and any("  - path: stray" in a["lines"] for a in d["advice"])'
check 'and the line of the resource' json "$(report_json)" 'any(l.startswith("  - path: input  # line ") and l.endswith(": 1 file, 3 MiB not opened") for a in d["advice"] for l in a["lines"])'
check 'the page is well made' good_page "$(page_of)" 'Inputs that no program opened' input/unread 'Results that no rule named' stray forgotten

# --- a failed job ---
fresh failed 'resources: [ [ path: input ] ]'
setting 'existing: fail'
echo good >"$OUT/same"
started "$JOB"
echo half >"$MNT/same"; echo half >"$MNT/other"
check_exit 'stop fails' 3 'conflict: same' "$EFS" stop failed
check 'the page has the reason' good_page "$(page_of)" 'failed: partial' 'Results that were not exported' same 'existing: fail'
check_exit 'the report of what is left' 0 'stage-out partial' "$EFS" report failed
rm "$OUT/same"
check 'then it succeeds' "$EFS" stop failed
check 'and the page is the new one' good_page "$(page_of)" 'failed: complete'

# --- names ---
fresh names 'resources: [ [ path: input ] ]'
evil='<script>alert(1)</script>"'\''&<b>'
python3 - "$PFS/input" <<'PYTHON'
import os, sys
for name in (b'<img src=x onerror=alert(1)>', b'line\nbreak', b'esc\x1b[31m', b'byte\xff', b'"quote\'&amp;'):
    open(os.path.join(os.fsencode(sys.argv[1]), name), "wb").write(b"x" * 5000)
PYTHON
mkdir "$S/names/weird"; sed -i "s|results-dir: .*|results-dir: \"$S/names/<i>out\"|" "$JOB"; OUT="$S/names/<i>out"; mkdir "$OUT"
started "$JOB"
for name in "${evil//\//|}" $'tab\there'; do echo x >"$MNT/$name"; done
check 'stop' "$EFS" stop names
check 'hostile names stay text' good_page "$(page_of)" '<img src=x onerror=alert(1)>' 'line\012break' 'byte\377' '<i>out'
check 'a terminal gets no control character' bash -c "! '$EFS' report '$OUT/efs-receipt-names.json' | LC_ALL=C grep -q '[[:cntrl:]]'"

# --- a PFS that hangs: another efs whose processes are stopped; and a buffer that was kept ---
fresh pfs 'resources: []'
started "$JOB"; hung=$MNT; mkdir "$hung/in"; echo x >"$hung/in/forgotten"
members=$(field "$(status_of pfs)" 'str(d["supervisor_pid"]) + " " + str(d["worker_pid"])')
fresh hangs 'resources: []'
sed -i "s|root-dir: .*|root-dir: $hung/in|" "$JOB"
started "$JOB"; cat "$MNT/forgotten" 2>/dev/null; echo x >"$MNT/kept"
stall $members
check 'a stop does not wait for a root-dir that hangs' timeout 40 "$EFS" stop --keep --deadline 6 hangs
kill -CONT $members
check 'and says that the question was not answered' good_page "$(page_of)" 'root-dir did not answer in time whether it has 1 of the names'
check 'the receipt, too' json "$(record)" 'd["missed_inputs"] == {"named": 0, "not_kept": 0, "unchecked": 1} and not d["continued"]'
check 'the next run with the kept buffer' "$EFS" run "$JOB" -- true
check 'does not know what was opened before' json "$(record)" 'd["continued"] and "unopened_inputs" not in d'
check 'and says so' good_page "$(page_of)" 'Not known: the job continued with the buffer of an earlier run'
check 'stop' "$EFS" stop --no-stage-out pfs

# --- off, and in the way ---
fresh off 'resources: [ [ path: input ] ]'
check 'run' "$EFS" run "$JOB" -- sh -c "echo x >$PFS/forgotten; ! cat $MNT/forgotten"
check 'a page and names' test -e "$(page_of)" -a -e "$OUT/efs-report-off.json"
setting 'report: off'
check 'run' "$EFS" run "$JOB" -- true
check 'report: off: no page is left' test -z "$(ls "$OUT" | grep report)"
check 'and no record' json "$(receipt)" '"record" not in d'
check_exit 'efs report is short then' 0 'off: stage-out complete' "$EFS" report "$OUT/efs-receipt-off.json"
fresh taken 'resources: [ [ path: input ] ]'
check 'run' "$EFS" run "$JOB" -- sh -c "echo mine >$MNT/efs-report-taken.html"
check 'a result of the name is not replaced' grep -qx mine "$OUT/efs-report-taken.html"
fresh linked 'resources: [ [ path: input ] ]'
echo precious >"$S/other"; ln -s "$S/other" "$OUT/efs-report-linked.html"
check 'run' "$EFS" run "$JOB" -- true
check 'a link is replaced, not followed' bash -c "grep -qx precious $S/other && [ ! -L '$(page_of)' ]"
fresh again 'resources: [ [ path: . ] ]'
OUT=$PFS job "$JOB" 'resources: [ [ path: . ] ]'; sed -i 's|results-dir: .*|in-place: true|' "$JOB"
check 'in place' "$EFS" run "$JOB" -- true
check 'once more' "$EFS" run "$JOB" -- sh -c "! ls $MNT/efs-report-again.html"

# A job of another user could not read the page, and would not start.
fresh after
rm -rf "$PFS"; ln -s "$S/good/out" "$PFS"; job "$JOB" 'resources: [ [ path: . ] ]'
sed -i "s|root-dir: .*|root-dir: $S/good/out|" "$JOB"
check 'a page is no input of a later job' json "$("$EFS" plan --json "$JOB")" 'any(s["path"] == "efs-report-good.html" for s in d["skipped"]) and not any("report" in e["path"] for e in d["entries"])'

# --- older receipts ---
check 'a receipt without a record' bash -c "python3 -c 'import json,sys; d = json.load(open(sys.argv[1])); del d[\"record\"]; del d[\"staged_in\"]; json.dump(d, open(sys.argv[2], \"w\"))' $S/good/out/efs-receipt-good.json $S/old.json"
check_exit 'gives a report with less' 0 'only the time of the stage-out' "$EFS" report "$S/old.json"
check 'of a salvage, too' test -z "$(grep -c 'opened' <<<"$said" | grep -v '^0')"

# --- a takeover ---
if [ "$(id -u)" = 0 ] && kernel_has_it; then
  fresh taken_over 'resources: [ [ path: input ] ]'
  started "$JOB"
  cat "$MNT/input/a" >/dev/null; cat "$MNT/forgotten" 2>/dev/null; echo x >"$PFS/forgotten"
  worker=$(field "$(status_of taken_over)" 'd["worker_pid"]')
  kill -KILL "$worker"
  check 'a successor serves' await 20 cat "$MNT/input/a"
  check 'stop' "$EFS" stop taken_over
  check 'marks of the dead worker count' json "$(record)" '[f["path"] for f in d["unopened_inputs"]["largest"]] == ["input/sub/b"]'
  check 'and names' test "$(missed)" = "['forgotten']"
  check 'times and takeovers, too' json "$(record)" 'd["takeovers"] == 1 and "stage-in" in [p["name"] for p in d["phases"]]'
else skip 'a takeover' 'needs root and Linux 6.9'; fi

# --- a browser ---
browser=
for candidate in ${EFS_BROWSER:-} chromium-headless-shell chromium chromium-browser google-chrome; do
  command -v "$candidate" >/dev/null && { browser=$candidate; break; }
done
if [ -n "$browser" ]; then
  NAME=wasteful OUT=$S/wasteful/out
  browse() { timeout 60 "$browser" --headless --no-sandbox --disable-gpu --user-data-dir="$S/browser" "$@" 2>/dev/null; }
  # The title would become "owned" if the page ran a script.
  cp "$(page_of)" "$S/page.html"
  dom=$(browse --dump-dom "file://$S/page.html")
  check 'a browser shows the sections' grep -q '<h2>Inputs that no program opened</h2>' <<<"$dom"
  check 'and the pictures' test "$(grep -o '<svg' <<<"$dom" | wc -l)" -ge 2
  sed 's|<main>|<main><script>document.title="owned"</script><img src="data:," onerror="document.title=1">|' "$S/page.html" >"$S/owned.html"
  dom=$(browse --dump-dom "file://$S/owned.html")
  check 'the policy of the page stops scripts' grep -q '<title>efs: wasteful' <<<"$dom"
  browse --window-size=900,1600 --screenshot="$S/page.png" "file://$S/page.html" >/dev/null
  check 'a picture of the page' test "$(stat -c %s "$S/page.png" 2>/dev/null || echo 0)" -gt 20000
  [ -z "${EFS_KEEP_PICTURES:-}" ] || for job in good wasteful failed names; do browse --window-size=900,1800 --screenshot="$EFS_KEEP_PICTURES/$job.png" "file://$(ls -d "$S/$job"/*out)/efs-report-$job.html" >/dev/null; done
else skip 'the page in a browser' 'no chromium is installed (apt-get install chromium-headless-shell)'; fi
finish
