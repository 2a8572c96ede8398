#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The applications of examples/ die from kill -9 at random moments and restart from their checkpoints:
# the result has the bits of a run without a death. For each way to write checkpoints, serial and with
# MPI. EFS_SEED repeats the moments of a run, EFS_KILLS sets the deaths of each case.
#   objects_applications_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
CXX=${CXX:-c++}
command -v "$CXX" >/dev/null || { skip 'the applications' "$CXX is not installed"; finish; }
seed=${EFS_SEED:-$RANDOM}
RANDOM=$seed
echo "seed $seed"

check 'install' cmake --install "$BIN/.." --prefix "$S/prefix"
library=$(find "$S/prefix" -name 'libefs-objects.so')
export LD_LIBRARY_PATH=${library%/*}
# build COMPILER FLAG... APPLICATION OUTPUT
build() {
  local application=${*: -2:1} output=${*: -1}
  "${@:1:$#-2}" -std=c++17 -O1 -Wall -Wextra -Wpedantic -Wshadow -Werror "-I$S/prefix/include" \
    "$SOURCE/examples/$application.cpp" "$S/${output%-*}.o" "-L${library%/*}" -lefs-objects -o "$S/$output"
}
# common COMPILER FLAG... NAME: what the applications share
common() {
  "${@:1:$#-1}" -std=c++17 -O1 -Wall -Wextra -Wpedantic -Wshadow -Werror "-I$S/prefix/include" -c "$SOURCE/examples/checkpoint.cpp" -o "$S/${*: -1}.o"
}
# Memory, where there is some: a flush of each value to a disk takes minutes.
memory=$(mktemp -d "/dev/shm/$(basename "$S").XXXXXX" 2>/dev/null) || memory=$S
trap 'rm -rf "$memory"; clean' EXIT
trap 'rm -rf "$memory"; clean; exit 130' INT TERM
declare -A size=([stencil]=12 [particles]=3) steps=([stencil]=160 [particles]=48) every=([stencil]=8 [particles]=4)

result() { grep -oE 'hash [0-9a-f]{16}$' <<<"$1"; }
deaths=0 resumed=0
# dies LAUNCHER... : one run that dies after a random checkpoint, or ends before. Kills one rank of it.
dies() {
  local out line pid left=$((RANDOM % 5)) spin=$((RANDOM % 4000)) ranks=()
  exec {out}< <(exec "$@" 2>&1)
  pid=$!
  pids+=("$pid")
  while read -r line <&"$out"; do
    case $line in
      'rank '*' pid '*) ranks+=("${line##* }") ;;
      'begin at step 0') ;;
      'begin at step '*) resumed=$((resumed + 1)) ;;
    esac
    case $line in begin* | checkpoint*) [ $((left--)) -gt 0 ] || break ;; esac
  done
  for ((; spin > 0; spin--)); do :; done
  [ ${#ranks[@]} = 0 ] || ! kill -KILL "${ranks[RANDOM % ${#ranks[@]}]}" 2>/dev/null || deaths=$((deaths + 1))
  cat <&"$out" >/dev/null   # until the last rank has closed it
  exec {out}<&-
  wait "$pid"
  unset 'pids[-1]'
}
# survives APPLICATION KIND LAUNCHER...
survives() {
  local application=$1 kind=$2 directory whole end i; shift 2
  directory=$memory/$application-$kind-$#
  local options=(--size "${size[$application]}" --steps "${steps[$application]}" --every "${every[$application]}")
  whole=$(result "$("$@" "${options[@]}" 2>&1)")
  options+=(--checkpoint "$kind" --directory "$directory")
  for ((i = 0; i < ${EFS_KILLS:-3}; i++)); do dies "$@" "${options[@]}"; done
  end=$("$@" "${options[@]}" 2>&1)
  check "$application with $kind ($1): there is a result" test -n "$whole"
  check "and it is the same after kill -9 (seed $seed): $whole; $end" test "$(result "$end")" = "$whole"
  [ "$kind" = file ] || [ "$kind" = values ] || check 'and no draft is left' test -z "$(find "$directory" -name '*.part')"
}
all_kinds() {  # all_kinds PREFIX LAUNCHER...
  local prefix=$1 kind; shift
  for kind in values file objects; do survives stencil $kind "$@" "$S/$prefix-stencil"; done
  for kind in values file objects shared; do survives particles $kind "$@" "$S/$prefix-particles"; done
}

# --- one process ---
check 'the checkpoints compile' common "$CXX" serial
for application in stencil particles; do check "$application compiles" build "$CXX" $application serial-$application; done
check_exit 'stencil conserves energy' 0 'energy 0\.25000' "$S/serial-stencil" --steps 300
check_exit 'an unknown kind' 1 'unknown kind of checkpoint: tape' "$S/serial-stencil" --checkpoint tape
all_kinds serial
check "most runs died ($deaths), and were resumed ($resumed)" test $deaths -ge 10 -a $resumed -ge 7

[ "$memory" = "$S" ] || rm -rf "$memory"
finish
