#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Fuzzing with libFuzzer and the address sanitizer, if clang is installed: EFS_FUZZ_SECONDS each
# (default 10), from the saved corpus. A crash is a failure; the test prints its input, and keeps it
# below EFS_FUZZ_FOUND (default: a new directory in /tmp). EFS_FUZZ_KEEP=1 adds inputs that reach
# new code to the corpus.
#   fuzz_test.sh [BIN_DIR]
set -uo pipefail
source=$(cd "$(dirname "$0")/../.." && pwd)
seconds=${EFS_FUZZ_SECONDS:-7}
compiler=$(command -v clang++-19 || command -v clang++)
passed=0 failed=0 skipped=0
work=$(mktemp -d /tmp/efs-fuzz.XXXXXX) || exit 2
trap 'rm -rf "$work"' EXIT

# Example files of other tests are good seeds for this target.
also_from() { [ "$1" != job_file ] || echo "$source/conf" "$source/conf/site"; }

# Saves failing inputs before the trap removes them.
keep_found() {
  local name=$1 input found
  found=${EFS_FUZZ_FOUND:-$(mktemp -d /tmp/efs-fuzz-found.XXXXXX)} && mkdir -p "$found" || return
  for input in "$work/$name"-*; do
    [ -e "$input" ] || continue
    mv "$input" "$found/" && input=$found/${input##*/}
    echo "$name: the input is $input, in base64:"; base64 "$input"
  done
}

# target NAME SOURCE... -- LIBRARY...
target() {
  local name=$1; shift
  # One compilation of all files takes half the time.
  echo "#include \"tests/fuzz/$name.cpp\"" >"$work/$name.cpp"
  while [ $# -gt 0 ] && [ "$1" != -- ]; do echo "#include \"src/$1\"" >>"$work/$name.cpp"; shift; done
  shift
  if ! "$compiler" -std=c++23 -g1 -O1 -fsanitize=fuzzer,address,undefined,float-cast-overflow -fno-sanitize-recover=all -I"$source/src" -I"$source" "$work/$name.cpp" -o "$work/$name" "$@" >"$work/log" 2>&1; then
    echo "FAIL $name does not build"; head -n 20 "$work/log"; failed=$((failed + 1)); return
  fi
  mkdir -p "$work/corpus-$name"
  if "$work/$name" -max_total_time="$seconds" -max_len=32768 -timeout=10 -rss_limit_mb=2048 -artifact_prefix="$work/$name-" -print_final_stats=1 "$work/corpus-$name" "$source/tests/fuzz/corpus/$name" $(also_from "$name") >"$work/log" 2>&1; then
    passed=$((passed + 1)); grep -E 'number_of_executed_units|new_units_added' "$work/log" | sed "s/^/$name /"
    [ "${EFS_FUZZ_KEEP:-}" != 1 ] || "$work/$name" -merge=1 "$source/tests/fuzz/corpus/$name" "$work/corpus-$name" >"$work/log" 2>&1 || { echo "FAIL $name: nothing could be kept"; tail -n 30 "$work/log"; failed=$((failed + 1)); }
  else
    echo "FAIL $name"; tail -n 30 "$work/log"; failed=$((failed + 1))
    keep_found "$name"
  fi
}

if [ -z "$compiler" ] || ! echo 'extern "C" int LLVMFuzzerTestOneInput(const unsigned char*, unsigned long) { return 0; }' | "$compiler" -x c++ -std=c++23 -fsanitize=fuzzer - -o "$work/probe" 2>/dev/null; then
  echo "############ NOTHING IS FUZZED HERE: no clang with libFuzzer (make deps) ############"
  echo "SKIP fuzzing: no clang with libFuzzer"; skipped=4
else
  base=(base/checksum.cpp base/result.cpp)
  log=(-lxxhash)
  target replay store/instance_id.cpp store/journal.cpp store/medium.cpp fs/namespace.cpp fs/snapshot.cpp fs/inode.cpp fs/record.cpp base/extents.cpp fs/ledger_records.cpp ledger/ledger.cpp ledger/files.cpp ledger/names.cpp ledger/stale_names.cpp ledger/version.cpp image/check_tree.cpp "${base[@]}" -- -lpmem "${log[@]}"
  target job_file $(cd "$source/src" && ls config/*.cpp) base/text.cpp "${base[@]}" -- -lyaml-cpp "${log[@]}"
  target objects ../objects/{manifest,name,npy,zip}.cpp --
  target control control/fields.cpp control/protocol.cpp control/requests.cpp daemon/requests.cpp base/json_text.cpp base/text.cpp base/result.cpp --
fi
echo "$passed passed, $failed failed, $skipped skipped"
[ "$failed" -eq 0 ]
