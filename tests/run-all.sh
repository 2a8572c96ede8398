#!/usr/bin/env bash
# Runs all tests.
#   usage: tests/run-all.sh BUILD_DIR
# Each part prints "N passed, N failed, N skipped". A table lists the time of each part. At the end
# the failed parts are listed again with their output; the last line is the total. EFS_FAST=1 leaves
# out fuzzing and the sanitizers.
set -uo pipefail
cd "$(dirname "$0")/.."
build=$(cd "${1:-build}" && pwd)
work=$(mktemp -d) lanes=()
trap 'for lane in ${lanes[@]+"${lanes[@]}"}; do kill -- -"${lane%%:*}" 2>/dev/null; done; rm -rf "$work"' EXIT
touch "$work/sums" "$work/failures" "$work/queue"
echo 0 >"$work/taken"
# python3 may be a wrapper that starts ten times slower than the interpreter, and the tests start it
# some thousand times.
mkdir "$work/bin" && ln -s "$(python3 -c 'import sys; print(sys.executable)')" "$work/bin/python3" && PATH=$work/bin:$PATH

# timed FILE COMMAND...: records the processor seconds of the command's processes. Runs in a
# subshell, which has no other children.
timed() {
  local file=$1 code; shift
  "$@"; code=$?
  times >"$file"
  return "$code"
}

# run NAME COMMAND...: adds the part's closing line to the totals; a part without one counts as one
# test.
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

# Converts Catch2's summary to our form.
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

# sanitized PRESET TESTS SAMPLE: builds the unit and model tests with a sanitizer and runs them. The
# plain build injects a failure at every place. The sanitizers look for memory errors or data races
# after failures, and use one of SAMPLE places.
sanitized() {
  local compiler=c++ c_compiler=cc linking= library names=
  # clang instruments faster, and its programs run faster. The tests have their own operator new;
  # the thread sanitizer permits that only from a shared library.
  library=$(clang++-19 -print-file-name="libclang_rt.tsan-$(uname -m).so" 2>/dev/null)
  case $1 in
    asan) compiler=$(command -v clang++-19 || echo c++) ;;
    tsan) if [ -e "$library" ]; then compiler=clang++-19 c_compiler=clang-19 linking="-shared-libsan -Wl,-rpath,${library%/*}"; fi ;;
  esac
  if [ "$compiler" != c++ ]; then names=:external_symbolizer_path=$(command -v llvm-symbolizer || command -v addr2line); fi   # which must have one of these names
  cmake --preset "$1" -B "$build-$1" -DCMAKE_CXX_COMPILER="$compiler" -DCMAKE_C_COMPILER="$c_compiler" -DCMAKE_EXE_LINKER_FLAGS="$linking" >/dev/null && cmake --build "$build-$1" -j "$(nproc)" --target efs-tests >/dev/null || return 1
  EFS_SAMPLE=$3 ASAN_OPTIONS=detect_leaks=1$names TSAN_OPTIONS=halt_on_error=1$names catch "$build-$1/bin/efs-tests" "$2"
}

scripts() {  # scripts DIRECTORY ARGUMENTS...: every test script in it
  local test directory=$1
  shift
  for test in tests/"$directory"/*_test.sh; do [ -e "$test" ] && run "$test" alone "$test" "$@"; done
}
# Scripts mostly wait, each for its own time: the next free lane takes the next script.
queue() {  # queue DIRECTORY ARGUMENTS...: likewise, behind what is in the queue
  local test directory=$1
  shift
  for test in tests/"$directory"/*_test.sh; do [ ! -e "$test" ] || printf '%q %s\n' "$test" "${*@Q}" >>"$work/queue"; done
}
# Takes the next line of the queue, which no other lane gets.
next() {
  (
    flock 9
    local taken; taken=$(<"$work/taken")
    echo $((taken + 1)) >"$work/taken"
    sed -n "$((taken + 1))p" "$work/queue"
  ) 9>"$work/queue.lock"
}
from_queue() {
  local line words
  while line=$(next); [ -n "$line" ]; do
    eval "words=($line)"
    run "${words[0]}" alone "${words[@]}"
  done
}
# A test that stops daemons leaves hung mounts, and a test that inspects all mounts of the machine
# would hang with them.
alone() {
  case $1 in
    */away_test.sh | */suites_test.sh) flock "$work/mounts" "$@" ;;
    *) "$@" ;;
  esac
}

# lane NAME COMMAND...: runs beside all others, in a separate process group that ends with this one;
# join shows its output.
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

unit() {
  run "unit and model tests" catch "$build/bin/efs-tests"
  # libpmem takes this memory for persistent: the daemon's I/O uses mapped segments, and the journal
  # is flushed. The crash enumeration and the injected faults use their own store. Memory shortage
  # does not depend on the store, and PFS failures hardly do, so these use one place of five.
  EFS_SAMPLE=5 PMEM_IS_PMEM_FORCE=1 run "unit and model tests on mapped segments" catch "$build/bin/efs-tests" '~[crash]~[fault]~[memory]'
}

# Computing parts have a lower priority than waiting ones.
address() {
  renice -n 10 "$BASHPID" >/dev/null
  # A sanitizer enlarges processes and so slows fork: parts that fork a thousand times run
  # separately. Such children, the crash enumeration, the injected faults, memory shortage, the
  # replay of damaged journals and tests tagged [alone] have one thread (or two that wait for each
  # other), so the thread sanitizer would find nothing there. The proofs that the enumeration works
  # ([bites]) run with the enumeration.
  run "address and undefined sanitizers" sanitized asan '~[killed]~[bites]' 40
  run "address and undefined sanitizers, processes killed" sanitized asan '[killed]' 10
}
threads() {
  renice -n 10 "$BASHPID" >/dev/null
  run "thread sanitizer" sanitized tsan '~[crash]~[fault]~[killed]~[replay]~[memory]~[alone]' 50
  run "fuzzing" tests/fuzz/fuzz_test.sh
}

queue cli "$build/bin"
queue mount "$build/bin" "$build/bin/efs-parity"
queue lint "$build/bin"
# A cluster mostly waits.
slurm() { scripts slurm "$build/bin"; from_queue; }
lane slurm slurm
unit_first() { unit; from_queue; }
lane unit unit_first
lane queue from_queue
if [ -z "${EFS_FAST:-}" ]; then lane address address; lane threads threads; fi
scripts package "$build"
from_queue
join

printf '\nslowest parts: seconds, of a processor (without what went on behind them), and when they began:\n'
sort -k4nr "$work/sums" | head -n 16 | while read -r _ _ _ seconds used begin name; do printf '%5d %5d %5d  %s\n' "$seconds" "$used" "$begin" "$name"; done
[ ! -s "$work/failures" ] || { printf '\nwhat failed:\n'; cat "$work/failures"; }
awk '{ passed += $1; failed += $2; skipped += $3 } END { printf "\n%d passed, %d failed, %d skipped\n", passed, failed, skipped; exit failed != 0 }' "$work/sums"
