#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# All tests: usage: tests/run-all.sh BUILD_DIR [LABEL PART]
# The parts are those of tests/parts.list, but for label soak; with LABEL and PART this one alone, as ctest calls it.
# Each part prints "N passed, N failed, N skipped"; the parts that failed are named again at the end with what they said
# of it, how long each part took is in the table before; the last line is the sum. EFS_FAST=1 leaves out fuzzing and the
# sanitizers.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build}" && pwd)
list=tests/parts.list
work=$(mktemp -d) lanes=()
trap 'for lane in ${lanes[@]+"${lanes[@]}"}; do kill -- -"${lane%%:*}" 2>/dev/null; done; rm -rf "$work"' EXIT
touch "$work/sums" "$work/failures" "$work/queue"
echo 0 >"$work/taken"
# The python3 on the path may be a wrapper that takes ten times as long to start as the interpreter, which is started some thousand times.
mkdir "$work/bin" && ln -s "$(python3 -c 'import sys; print(sys.executable)')" "$work/bin/python3" && PATH=$work/bin:$PATH

# timed FILE COMMAND...: notes what the command's processes used of a processor, in seconds. In a subshell, whose only children they are.
timed() {
  local file=$1 code; shift
  "$@"; code=$?
  times >"$file"
  return "$code"
}

# run NAME COMMAND...: adds the part's closing line to the sums; a part without one counts as one test.
run() {
  local name=$1 line code passed failed skipped begin=$SECONDS log used
  shift
  log=$(mktemp -p "$work")
  printf '\n=== %s\n' "$name"
  timed "$log.times" "$@" 2>&1 | tee "$log"
  code=${PIPESTATUS[0]}
  used=$(tail -n 1 "$log.times" 2>/dev/null | tr -d s | tr m ' ' | awk '{ print int($1 * 60 + $2 + $3 * 60 + $4) }')
  line=$(grep -E '^[0-9]+ passed, [0-9]+ failed(, [0-9]+ skipped)?$' "$log" | tail -n 1)
  read -r passed failed skipped _ < <(tr -cd '0-9 \n' <<<"${line:-$((code == 0)) $((code != 0))} 0")
  if [ "$code" != 0 ] && [ "$failed" = 0 ]; then failed=1; echo "$name exited with $code"; fi
  echo "$passed $failed $skipped $((SECONDS - begin)) ${used:-0} $begin $name" >>"$work/sums"
  [ "$failed" = 0 ] || { echo "--- $name: ${line:-exited with $code}"; grep -aE '^(FAIL|not ok)|: DIFF |FAILED|: failed:|WARNING: ThreadSanitizer|ERROR: AddressSanitizer|runtime error:' "$log" | head -n 20; } >>"$work/failures"
  return 0
}

# Catch2's summary in our form.
catch() {
  local said code count bad skips
  said=$("$@" --reporter compact --colour-mode none 2>&1); code=$?
  grep -aE ': (failed|warning):|FAILED' <<<"$said" | tail -n 40   # what tests log would hide it
  tail -n 20 <<<"$said"
  grep -E ': skipped' <<<"$said" | sed 's/^/SKIP /'
  grep -E '^test cases:|^All tests passed' <<<"$said" >/dev/null || { echo "FAIL $1 ended before it could count (code $code)"; echo "0 passed, 1 failed, 0 skipped"; return 1; }
  count=$("$@" --list-tests --verbosity quiet 2>/dev/null | grep -c .)
  bad=$(sed -nE 's/^test cases:.*[| ]([0-9]+) failed.*/\1/p' <<<"$said" | tail -n 1)
  skips=$(sed -nE 's/^test cases:.*[| ]([0-9]+) skipped.*/\1/p' <<<"$said" | tail -n 1)
  if [ "$code" != 0 ] && [ "${bad:-0}" = 0 ]; then bad=1; fi   # a sanitizer that complains after the last test
  echo "$((count - ${bad:-0} - ${skips:-0})) passed, ${bad:-0} failed, ${skips:-0} skipped"
  return "$code"
}

# sanitized PRESET TESTS SAMPLE: builds the unit and model tests with a sanitizer and runs them; the plain build lets everything fail, at one of
# five places, which the seed chooses (EFS_SAMPLE=1: at every place), these look for what that does to memory, or between threads, and take one
# of SAMPLE places.
sanitized() {
  local compiler=c++ c_compiler=cc linking= library names=
  # clang instruments in less time, and what it makes takes less. The tests have an operator new of their own: for that of its thread sanitizer there is
  # room in a shared library only.
  library=$(clang++-19 -print-file-name="libclang_rt.tsan-$(uname -m).so" 2>/dev/null)
  case $1 in
    asan) compiler=$(command -v clang++-19 || echo c++) ;;
    tsan) if [ -e "$library" ]; then compiler=clang++-19 c_compiler=clang-19 linking="-shared-libsan -Wl,-rpath,${library%/*}"; fi ;;
  esac
  if [ "$compiler" != c++ ]; then names=:external_symbolizer_path=$(command -v llvm-symbolizer || command -v addr2line); fi   # which must have one of these names
  cmake --preset "$1" -B "$build-$1" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_C_COMPILER="$c_compiler" -DCMAKE_EXE_LINKER_FLAGS="$linking" >/dev/null && cmake --build "$build-$1" -j "$(nproc)" --target efs-tests >/dev/null || return 1
  EFS_SAMPLE=$3 ASAN_OPTIONS=detect_leaks=1$names TSAN_OPTIONS=halt_on_error=1$names catch "$build-$1/bin/efs-tests" "$2"
}

# perform LABEL PART: a line of the list.
perform() {
  case $1/$2 in
    unit/plain) EFS_SAMPLE=${EFS_SAMPLE:-5} catch "$build/bin/efs-tests" ;;
    # A process that a sanitizer has made large is slow to fork: what forks a thousand times has one of its own. Such children,
    # the crash enumeration, the injected faults, what has no memory, the replay of damaged journals and what is tagged [alone] have one thread (or
    # two that wait for each other); the thread sanitizer has nothing to find there.
    # The proofs that the enumeration works ([bites]) run with the enumeration.
    # In the first, libpmem takes this memory for persistent: the daemon's I/O goes through mapped segments, the journal is flushed.
    address/sanitizer) PMEM_IS_PMEM_FORCE=1 sanitized asan '~[killed]~[bites]' 400 ;;
    address/killed) sanitized asan '[killed]' 10 ;;
    thread/sanitizer) sanitized tsan '~[crash]~[fault]~[killed]~[replay]~[memory]~[alone]' 300 ;;
    fuzz/*) tests/fuzz/fuzz_test.sh ;;
    mount/*) "tests/mount/$2_test.sh" "$build/bin" "$build/bin/efs-parity" ;;
    package/*) "tests/package/$2_test.sh" "$build" ;;
    soak/*) "tests/soak/$2.sh" "$build/bin" ;;
    *) "tests/$1/$2_test.sh" "$build/bin" ;;
  esac
}
# title LABEL PART: what it is called in the sums.
title() {
  case $1/$2 in
    unit/plain) echo 'unit and model tests' ;;
    address/sanitizer) echo 'address and undefined sanitizers, on mapped segments' ;;
    address/killed) echo 'address and undefined sanitizers, processes killed' ;;
    thread/sanitizer) echo 'thread sanitizer' ;;
    fuzz/*) echo fuzzing ;;
    *) echo "tests/$1/$2_test.sh" ;;
  esac
}
of_label() { grep -E "^$1 " "$list"; }
parts() { local label part; while read -r label part; do run "$(title "$label" "$part")" alone "$label" "$part"; done < <(of_label "$1"); }   # parts LABEL: all with this label
# Scripts mostly wait, each for a time of its own: whichever lane is free takes the next one.
queue() { of_label "$1" >>"$work/queue"; }
# The next line of the queue, which no other lane gets.
next() {
  (
    flock 9
    local taken; taken=$(<"$work/taken")
    echo $((taken + 1)) >"$work/taken"
    sed -n "$((taken + 1))p" "$work/queue"
  ) 9>"$work/queue.lock"
}
from_queue() {
  local line label part
  while line=$(next); [ -n "$line" ]; do
    read -r label part <<<"$line"
    run "$(title "$label" "$part")" alone "$label" "$part"
  done
}
# A test that stops daemons leaves mounts that hang, one that looks at all mounts of the machine hangs with them.
alone() {
  case $1/$2 in
    slurm/away | mount/suites) (flock 8; perform "$@") 8>"$work/mounts" ;;
    *) perform "$@" ;;
  esac
}

if [ $# -gt 1 ]; then
  grep -qx "$2 $3" "$list" || { echo "no part $2 $3 in $list"; exit 2; }
  perform "$2" "$3"
  exit
fi

# lane NAME COMMAND...: beside all else, in a process group of its own, to be ended with this one; shown by join.
lane() {
  local name=$1
  shift
  set -m; "$@" >"$work/lane-$name" 2>&1 & lanes+=("$!:$name"); set +m
}
join() {
  local one
  for one in "${lanes[@]}"; do
    wait "${one%%:*}" || echo "0 1 0 0 0 0 ${one#*:}, beside the other tests, ended early" | tee -a "$work/sums" >>"$work/failures"
    cat "$work/lane-${one#*:}"
  done
  lanes=()
}

# Parts that compute have a lower priority than parts that wait. The longest goes first.
address() { renice -n 7 "$BASHPID" >/dev/null; parts address; }
threads() { renice -n 10 "$BASHPID" >/dev/null; parts thread; parts fuzz; }

# The sanitizers' builds with Clang look for data that is touched without its mutex: tests/lint/thread_safety_test.sh need not.
if [ -z "${EFS_FAST:-}" ] && command -v clang++-19 >/dev/null; then export EFS_ANALYSED=1; fi
queue cli
queue mount
queue lint
# A cluster mostly waits.
slurm() { parts slurm; from_queue; }
lane slurm slurm
unit_first() { parts unit; from_queue; }
lane unit unit_first
lane queue from_queue
if [ -z "${EFS_FAST:-}" ]; then lane address address; lane threads threads; fi
parts package
from_queue
join

printf '\nslowest parts: seconds, of a processor (without what went on behind them), and when they began:\n'
sort -k4nr "$work/sums" | head -n 16 | while read -r _ _ _ seconds used begin name; do printf '%5d %5d %5d  %s\n' "$seconds" "$used" "$begin" "$name"; done
[ ! -s "$work/failures" ] || { printf '\nwhat failed:\n'; cat "$work/failures"; }
awk '{ passed += $1; failed += $2; skipped += $3 } END { printf "\n%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit failed != 0 }' "$work/sums"
