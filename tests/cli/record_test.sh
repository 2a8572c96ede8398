#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# efs record: the job file of a recorded program is valid, and the program gives the same results
# with it on a mount.
#   record_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
PYTHON=$(command -v /usr/bin/python3 || command -v python3)

# has FILE TEXT...: the file has each text in a line; lacks: it has none of them.
has() { local file=$1 text; shift; for text; do grep -qF -- "$text" "$file" || { echo "no '$text' in:"; cat "$file"; return 1; }; done; }
lacks() { local file=$1 text; shift; for text; do ! grep -F -- "$text" "$file" || return 1; done; }
# contents DIRECTORY NAME...: names and checksums of the files there, without receipts
contents() { (cd "$1" && shift && find "$@" -type f ! -name 'efs-*' | sed 's|^\./||' | sort | xargs -d '\n' cksum); }
# setting FILE KEY: its value in a job file
setting() { sed -n "s/^  $2: \([^ ]*\).*/\1/p" "$1"; }

# --- a program of shell and Python, with subprocesses ---
P=$S/pfs
mkdir -p "$P"/{input/sub,tables,out,many,bin}
echo alpha >"$P/input/a"; echo beta >"$P/input/sub/b"
for i in 1 2 3; do echo "$i" >"$P/tables/t$i.txt"; done
head -c 5000 /dev/zero >"$P/tables/unread"
for i in 1 2 3 4 5; do echo "$i" >"$P/many/m$i"; done
echo state >"$P/state"; echo odd >"$P/odd [1] \$x%j"; echo unread >"$P/unread.dat"
ln -s input/a "$P/link"; echo outside >"$S/outside"; ln -s ../outside "$P/far"; ln -s pfs "$S/alias"
cp "$(command -v cat)" "$P/bin/own-cat"
cat >"$P/job.sh" <<'JOB'
set -e
cat input/a input/sub/b tables/*.txt many/m2 link far 'odd [1] $x%j' >out/all
bin/own-cat ./input/../state >out/state-before
echo more >>state
mkdir -p out work/deep
echo part >out/part; mv out/part out/moved
echo scratch >work/deep/t; rm work/deep/t
mkdir drafts; echo d >drafts/d; mv drafts final
"$PYTHON" -B - <<'PY'
import os, subprocess, tempfile, threading
import job_module
open("new.csv", "w").write("x,%d\n" % job_module.value)
with tempfile.NamedTemporaryFile(dir=".") as file:
    file.write(b"abc" * 100)
    file.flush()
subprocess.run(["sh", "-c", "cat new.csv >out/copy"], check=True)
os.replace("out/copy", "out/replaced")
def write(number):
    with open("out/thread%d" % number, "w") as file:
        file.write(str(number))
threads = [threading.Thread(target=write, args=(n,)) for n in range(4)]
for thread in threads: thread.start()
for thread in threads: thread.join()
PY
JOB
echo 'value = 7' >"$P/job_module.py"
export PYTHON PYTHONPATH=. PYTHONSAFEPATH=
cp -a "$P" "$S/before"

job=$S/recorded.yaml
check_exit 'a program is recorded' 0 'recorded.yaml: 13 inputs .*, 11 results .*, 5 temporary files' bash -c "cd $S/alias && exec '$EFS' record -o $job -- sh job.sh"
check 'whole directories' has "$job" '- path: input  # 2 files' '- path: final' 
check 'files of directories that were read in part' has "$job" '- path: many/m2  # 1 file' '- path: job_module.py' '- path: link' '- path: bin'
check 'patterns' has "$job" '- path: "tables/*.txt"  # 3 files, 6 B'
check 'a name with special characters' has "$job" '- path: "odd [[]1] $$x%%j"'
check 'a link out of root-dir' has "$job" '- path: far' 'follow: true'
check 'a directory that must exist' has "$job" '- path: out  # 8 files' 'the program writes there'
check 'a changed input' has "$job" 'state  # 1 file, 11 B; the program changed it'
check 'temporary files are named and are no results' has "$job" '#   out/part' '#   work/deep/t' '#   drafts/d' '#   out/copy'
check 'nothing that was not read' lacks "$job" unread 'path: drafts' 'path: many ' 'libefs-record'
check 'the last rule keeps other names' has "$job" '- path: "**"'
check_exit 'efs check accepts the job file' 0 good "$EFS" check "$job"
check 'root-dir is the working directory' test "$(setting "$job" root-dir)" = "$P"

# --- the program again, with the job file ---
# The recording changed the inputs: they become those of before.
cp -a "$P" "$S/after"
rm -rf "$P" && cp -a "$S/before" "$P"
sed -i "s|mount-dir: .*|mount-dir: $S/mount|" "$job"
# The command is the one that the job file names.
run=$(sed -n 's/^#   efs run //p' "$job")
check 'the job file names the command' test -n "$run"
check 'efs run with the job file' bash -c "'$EFS' run $run"
results=$(setting "$job" results-dir)
check 'the receipt is complete' json "$(cat "$results/efs-receipt-recorded.json")" 'd["verdict"] == "complete"'
for file in out/all out/state-before out/moved out/replaced out/thread0 out/thread3 new.csv final/d state; do
  check "the same result: $file" cmp "$S/after/$file" "$results/$file"
done
check 'no other results' test "$(cd "$results" && find . -type f ! -name 'efs-*' | wc -l)" = 11
# Once more with the results of the recording in place: the rule exports them, too.
rm -rf "$P" "$results" && cp -a "$S/after" "$P" && cp -a "$S/before/state" "$P/state" && rm -r "$P/final"
check 'again, where results exist' bash -c "'$EFS' run $run"
check 'the same contents' test "$(contents "$results" .)" = "$(contents "$S/after" out final new.csv state)"

# --- the job file is not lost, and nothing is recorded in vain ---
cp "$job" "$S/copy"
check_exit 'an existing job file is refused' 2 'recorded.yaml exists. .*--force' "$EFS" record --pfs "$P" -o "$job" -- touch "$S/was-run"
check 'and unchanged' cmp "$job" "$S/copy"
check_not 'the program is not run then' test -e "$S/was-run"
check_exit '--force replaces it' 0 'recorded.yaml: 1 inputs' "$EFS" record --force --pfs "$P" -o "$job" -- cat "$P/input/a"
check 'with a new one' has "$job" '- path: input/a' "root-dir: $P" "cat $(setting "$job" mount-dir)/input/a"
check_exit 'the program fails' 3 'failed.yaml: 1 inputs .*the program failed' "$EFS" record --pfs "$P" -o "$S/failed.yaml" -- sh -c "cat $P/input/a; exit 3"
check 'the job file says so' has "$S/failed.yaml" 'THE PROGRAM FAILED (exit status 3)' 'path: input/a'
check 'and is valid' "$EFS" check "$S/failed.yaml"
check_exit 'a signal' 143 'killed.yaml' "$EFS" record --pfs "$P" -o "$S/killed.yaml" -- sh -c 'kill $$'
check_exit 'no such program' 127 'was not run, and no job file' "$EFS" record --pfs "$P" -o "$S/none.yaml" -- "$S/nosuch"
check_not 'no job file then' test -e "$S/none.yaml"
check_exit 'no program' 2 'command is required' "$EFS" record -o "$S/none.yaml"
check_exit 'no directory' 2 'No such file' "$EFS" record --pfs "$S/nowhere" -o "$S/none.yaml" -- true
check_exit 'the root' 2 'cannot be root-dir' "$EFS" record --pfs / -o "$S/none.yaml" -- true
check_exit 'no place for the job file' 125 'No such file' "$EFS" record --pfs "$P" -o "$S/nowhere/job.yaml" -- true
check 'JSON' json "$("$EFS" record --json --pfs "$P" -o "$S/json.yaml" -- sh -c "cat $P/input/a >/dev/null")" 'd["ok"] and d["inputs"] == 1 and d["program_exit"] == 0 and d["job_file"].endswith("json.yaml")'
check 'standard output is the program'"'"'s' test "$("$EFS" record --force --pfs "$P" -o "$S/json.yaml" -- cat "$P/input/a" 2>/dev/null)" = alpha

# --- names ---
python3 - "$P" <<'PYTHON'
import os, sys
for name in (b"byte\xff", b"line\nbreak", b"~", b"-", b"quote\"'", b"null"):
    open(os.path.join(os.fsencode(sys.argv[1]), name), "wb").write(b"x")
PYTHON
check 'names of any bytes' bash -c "cd '$P' && '$EFS' record -o '$S/names.yaml' -- sh -c 'cat ./byte* ./line* ./~ ./- ./quote* ./null'"
check 'give a valid job file' "$EFS" check "$S/names.yaml"
sed -i "s|mount-dir: .*|mount-dir: $S/mount|" "$S/names.yaml"
check_exit 'that finds them all' 0 'stage in 6 files' "$EFS" plan "$S/names.yaml"

# --- programs that the library does not see ---
if command -v "${CC:-cc}" >/dev/null && echo 'int main(void) { return 0; }' >"$S/static.c" && ${CC:-cc} -static "$S/static.c" -o "$S/static" 2>/dev/null; then
  check_exit 'a static program' 125 'nothing was recorded' "$EFS" record --pfs "$P" -o "$S/static.yaml" -- "$S/static"
  check_not 'has no job file' test -e "$S/static.yaml"
else skip 'a static program' 'no C compiler with static libraries'; fi
check_exit 'a cleared environment' 0 'cleared.yaml: 0 inputs' "$EFS" record --pfs "$P" -o "$S/cleared.yaml" -- env -i cat "$P/input/a"

# --- the hooks change nothing ---
cat >"$S/errno.py" <<'PYTHON'
import ctypes, errno, os, sys
library = ctypes.CDLL(None, use_errno=True)
path = os.fsencode(sys.argv[1])
lowest = os.open("/dev/null", os.O_RDONLY); os.close(lowest)
for call, expected in ((lambda: library.open(path + b"/none", 0), errno.ENOENT), (lambda: library.mkdir(path, 0o777), errno.EEXIST),
                       (lambda: library.unlink(path), errno.EISDIR), (lambda: library.rename(path + b"/none", path + b"/other"), errno.ENOENT)):
    ctypes.set_errno(0)
    assert call() == -1 and ctypes.get_errno() == expected, (call, ctypes.get_errno())
ctypes.set_errno(77)
fd = library.open(path + b"/made", os.O_CREAT | os.O_WRONLY, 0o640)
assert fd == lowest and ctypes.get_errno() == 77, (fd, lowest, ctypes.get_errno())
assert os.fstat(fd).st_mode & 0o777 == 0o640
PYTHON
check 'errno, descriptors and modes' bash -c "umask 0; '$EFS' record --pfs '$P' -o '$S/errno.yaml' -- '$PYTHON' '$S/errno.py' '$P'"
check 'and the file that was made is a result' has "$S/errno.yaml" '- path: made'

# --- an ordinary user ---
if [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null; then
  mkdir "$S/user" && echo in >"$S/user/in" && chown -R 12345:12345 "$S/user"
  as_user() { setpriv --reuid 12345 --regid 12345 --clear-groups "$@"; }
  if as_user test -r "$BIN/../lib/libefs-record.so" -o -r "$BIN/../lib/efs/libefs-record.so"; then
    check 'an ordinary user records' bash -c "cd '$S/user' && setpriv --reuid 12345 --regid 12345 --clear-groups '$EFS' record -- sh -c 'cat in >out'"
    check 'the same' has "$S/user/job.yaml" '- path: in' '- path: out'
  else skip 'an ordinary user' 'the programs are not readable for others'; fi
else skip 'an ordinary user' 'needs root and setpriv'; fi

# --- many processes and threads at once ---
cat >"$S/crowd.py" <<'PYTHON'
import os, sys, threading
def work(process, thread):
    for number in range(50):
        name = "crowd/%d-%d-%d" % (process, thread, number)
        with open(name + ".part", "w") as file: file.write("x")
        os.rename(name + ".part", name)
        with open(name) as file: file.read()
os.mkdir("crowd")
children = []
for process in range(4):
    child = os.fork()
    if child == 0:
        threads = [threading.Thread(target=work, args=(process, n)) for n in range(5)]
        for thread in threads: thread.start()
        for thread in threads: thread.join()
        os._exit(0)
    children.append(child)
for child in children: assert os.waitpid(child, 0)[1] == 0
PYTHON
check_exit 'no event of many processes and threads is lost' 0 'crowd.yaml: 0 inputs .*, 1000 results .*, 1000 temporary files' bash -c "cd '$P' && '$EFS' record -o '$S/crowd.yaml' -- '$PYTHON' -B '$S/crowd.py'"

# --- a recorded job file of the demo (conf/demo/recorded), with the program if it is there ---
mkdir -p "$S/h5/out"; head -c 67108864 /dev/zero >"$S/h5/field.raw"
printf 'PATH field\nINPUT-CLASS UIN\nINPUT-SIZE 32\nRANK 2\nDIMENSION-SIZES 4096 4096\nOUTPUT-CLASS UIN\nOUTPUT-SIZE 32\n' >"$S/h5/field.conf"
importer='h5import field.raw -c field.conf -o out/field.h5'
command -v h5import >/dev/null || { importer='cat field.conf field.raw >out/field.h5'; skip 'h5import' 'it is not installed (make demo-deps)'; }
check 'efs run with a recorded job file' "$EFS" run -r "$S/h5" -m "$S/mount" --results-dir "$S/h5-results" "$SOURCE/conf/demo/recorded/h5import.yaml" -- sh -c 'cd "$EFS_MOUNT" && '"$importer"
check 'its result is there' test "$(stat -c %s "$S/h5-results/out/field.h5" 2>/dev/null || echo 0)" -ge 67108864
rm -rf "$S/h5" "$S/h5-results"

# --- a real program ---
if command -v sqlite3 >/dev/null; then
  mkdir "$S/db"; seq 1 100 >"$S/db/numbers.csv"
  check 'sqlite' bash -c "cd '$S/db' && '$EFS' record -o '$S/db.yaml' -- sqlite3 numbers.db 'create table n(x);' '.import numbers.csv n' 'update n set x = x + 1;'"
  check 'its inputs, results and journal' has "$S/db.yaml" '- path: numbers.csv' '- path: numbers.db' '#   numbers.db-journal'
else skip 'a real program' 'sqlite3 is not installed'; fi
finish
