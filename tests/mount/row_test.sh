#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Files that were imported together are opened in order: the second open of a batch registers the
# other files for passthrough too. The files work as usual, and their space is freed when they are
# removed.
#   row_test.sh BIN_DIR
# EFS_ROUNDS: how often files are opened while others of their batch are removed (20).
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
rounds=${EFS_ROUNDS:-20}
files=200  # some rows of 32

[ "$(id -u)" = 0 ] && kernel_has_it || { skip 'rows' 'no passthrough on this kernel, or not root'; finish; }

read_them() { cat "$@" >/dev/null; }
registered() { grep -c event=row_registered "$EFS_RUNTIME_DIR/$NAME/efsd.log"; }
a_row() { [ "$(registered)" -ge 1 ]; }
opens() { field "$(status_of "$NAME")" "d['counters']['$1']"; }
# Prints the number of files in the store, including unlinked ones that a process holds open.
store_files() { local total free; read -r total free < <(stat -f -c '%c %d' "$EFS_RUNTIME_DIR/$NAME/store") && echo $((total - free)); }
# begin NAME: an instance with inputs that a load has imported; $before is the number of files in
# its store before.
begin() {
  fresh "$1" 'resources: []'
  python3 -c 'import os, sys
for i in range(int(sys.argv[2])):
    with open("%s/f%03d" % (sys.argv[1], i), "wb") as f: f.write(os.urandom(8 << 10))' "$PFS/input" $files
  started --set log-level=debug "$JOB" || return
  before=$(store_files)
  check "$NAME: load" "$EFS" load -i "$NAME" -w input
}
all_gone() { [ "$(store_files)" -le "$before" ]; }
end() { check "$NAME: stop" "$EFS" stop "$NAME"; }
# Five files of one batch, by number.
of_a_row() {
  (cd "$MNT/input" && stat -c '%i %n' f*) | awk '{row = int($1 / 32); if (++count[row] <= 5) names[row] = names[row] " " $2; if (count[row] == 5 && found == "") found = names[row]} END {print found}'
}

# A LOOKUP for each file that a walk did not tell the kernel of: one of 16.
lookups() { field "$(status_of "$NAME")" "d['counters']['operations'].get('lookup', {}).get('count', 0)"; }

begin plain
looked_up=$(lookups)
check 'all are looked at' du -s "$MNT/input"
check 'by few requests' test $(($(lookups) - looked_up)) -le $((files / 16 + 5))
check 'one file' read_them "$MNT/input/f000"
check 'it alone brings nobody along' test "$(registered)" = 0
check 'all are what they are' diff -r "$PFS/input" "$MNT/input"
check 'rows were registered' test "$(registered)" -ge 2
check 'and no more than there are' test "$(registered)" -le $((files / 32 + 2))
check 'again' diff -r "$PFS/input" "$MNT/input"
# The kernel notifies the holder of a lease this way when another thread opens the container for
# writing.
kill -IO "$(field "$(status_of "$NAME")" 'd["worker_pid"]')"
check 'and once more' diff -r "$PFS/input" "$MNT/input"
check 'by the same worker' json "$(status_of "$NAME")" 'd["takeovers"] == 0'
check 'each open went to the kernel' test "$(opens passthrough_opens)" = "$(opens opens)"
check 'all are removed' rm -r "$MNT/input"
check 'their space is back' await 20 all_gone
end

# A neighbour that was registered in advance and never opened.
begin neighbour
read -r one two bits written kept < <(of_a_row)
check 'two of a row' read_them "$MNT/input/$one" "$MNT/input/$two"
check 'the row is registered' await 20 a_row
check 'privilege comes' chmod 2755 "$MNT/input/$bits"
on_daemon=$(opens daemon_opens)
check 'such a file keeps to the daemon' cmp "$PFS/input/$bits" "$MNT/input/$bits"
check 'as its open says' test "$(opens daemon_opens)" = $((on_daemon + 1))
check 'one is written to' eval "cp '$PFS/input/$written' '$S/copy' && echo more | tee -a '$S/copy' >>'$MNT/input/$written'"
check 'and read' cmp "$S/copy" "$MNT/input/$written"
kill -KILL "$(field "$(status_of "$NAME")" 'd["worker_pid"]')"
check 'a successor goes on' cmp "$PFS/input/$kept" "$MNT/input/$kept"
cp -r "$PFS/input" "$S/expected" && cp "$S/copy" "$S/expected/$written"
check 'with all of them' diff -r "$S/expected" "$MNT/input"
check 'all are removed' rm -r "$MNT/input"
check 'their space is back' await 20 all_gone
end

# A removal by staging does not ask the kernel. Beside opens of neighbours, no file is left behind.
beside_removals() {
  python3 - "$rounds" "$NAME" "$EFS" "$MNT/input" $files <<'PY'
import os, subprocess, sys, threading
rounds, name, efs, mount, files = int(sys.argv[1]), *sys.argv[2:5], int(sys.argv[5])
def ask(*words): subprocess.run([efs, words[0], "-i", name, "-w", *words[1:]], capture_output=True)
opened = 0
for n in range(rounds):
    thread = threading.Thread(target=ask, args=("unload", "--remove", "input")); thread.start()
    # From the other end, at once or after the first was removed: some are removed while their batch
    # is registered.
    while n % 2 and os.path.exists(mount + "/f000") and thread.is_alive(): pass
    for i in reversed(range(files)):
        try: os.close(os.open(mount + "/f%03d" % i, os.O_RDONLY)); opened += 1
        except FileNotFoundError: pass
    thread.join()
    ask("load", "input")
if opened == 0: sys.exit("nothing was opened")
PY
}
begin removed
check 'opens beside removals' beside_removals
check 'some brought their rows along' test "$(registered)" -gt 0
check 'what is left is removed' "$EFS" unload -i "$NAME" -w --remove input
check 'and nothing is kept' await 20 all_gone
end
finish
