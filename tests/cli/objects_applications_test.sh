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
# The kind pmem only where libpmem is.
pmem=() lpmem=()
if "$CXX" -E -x c++ - <<<'#include <libpmem.h>' >/dev/null 2>&1; then pmem=(-DUSE_PMEM) lpmem=(-lpmem); fi
# build COMPILER FLAG... APPLICATION OUTPUT
build() {
  local application=${*: -2:1} output=${*: -1}
  "${@:1:$#-2}" -std=c++17 -O1 -Wall -Wextra -Wpedantic -Wshadow -Werror "-I$S/prefix/include" \
    "$SOURCE/examples/$application.cpp" "$S/${output%-*}.o" "-L${library%/*}" -lefs-objects "${lpmem[@]}" -o "$S/$output"
}
# common COMPILER FLAG... NAME: what the applications share
common() {
  "${@:1:$#-1}" "${pmem[@]}" -std=c++17 -O1 -Wall -Wextra -Wpedantic -Wshadow -Werror "-I$S/prefix/include" -c "$SOURCE/examples/checkpoint.cpp" -o "$S/${*: -1}.o"
}
# Memory, where there is some: a flush of each value to a disk takes minutes.
memory=$(mktemp -d "/dev/shm/$(basename "$S").XXXXXX" 2>/dev/null) || memory=$S
trap 'rm -rf "$memory"; clean' EXIT
trap 'rm -rf "$memory"; clean; exit 130' INT TERM
declare -A size=([stencil]=12 [particles]=3) steps=([stencil]=400 [particles]=72) every=([stencil]=8 [particles]=4)

declare -A wholes=()   # the results without a death
result() { grep -oE 'hash [0-9a-f]{16}$' <<<"$1"; }
deaths=0 resumed=0 kills=${EFS_KILLS:-3}
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
  [ ${#ranks[@]} = 0 ] || kill -KILL "${ranks[RANDOM % ${#ranks[@]}]}" 2>/dev/null
  # Until the last rank has closed it. A run that ended before has a result.
  grep -q '^energy' <&"$out" || deaths=$((deaths + 1))
  exec {out}<&-
  wait "$pid"
  unset 'pids[-1]'
}
# survives APPLICATION KIND LAUNCHER...
survives() {
  local application=$1 kind=$2 directory whole end i; shift 2
  directory=$memory/$kind-$(basename "${*: -1}")
  local options=(--size "${size[$application]}" --steps "${steps[$application]}" --every "${every[$application]}")
  [ -n "${wholes[${*: -1}]:-}" ] || wholes[${*: -1}]=$(result "$("$@" "${options[@]}" 2>&1)")
  whole=${wholes[${*: -1}]}
  options+=(--checkpoint "$kind" --directory "$directory")
  for ((i = 0; i < kills; i++)); do dies "$@" "${options[@]}"; done
  end=$("$@" "${options[@]}" 2>&1)
  ! grep -q '^begin at step [1-9]' <<<"$end" || resumed=$((resumed + 1))
  check "$application with $kind ($1): there is a result" test -n "$whole"
  check "and it is the same after kill -9 (seed $seed): $whole; $end" test "$(result "$end")" = "$whole"
  [ "$kind" = file ] || [ "$kind" = values ] || check 'and no draft is left' test -z "$(find "$directory" -name '*.part')"
}
# --- one process ---
check 'the checkpoints compile' common "$CXX" serial
for application in stencil particles; do check "$application compiles" build "$CXX" $application serial-$application; done
check_exit 'stencil conserves energy' 0 'energy 0\.25000' "$S/serial-stencil" --steps 300
check_exit 'an unknown kind' 1 'unknown kind of checkpoint: tape' "$S/serial-stencil" --checkpoint tape
kinds=(values file)
if [ ${#pmem[@]} -gt 0 ]; then kinds+=(pmem); else skip 'checkpoints by libpmem' 'libpmem is not installed'; fi
for kind in "${kinds[@]}" objects; do survives stencil $kind "$S/serial-stencil"; done
# libpmem takes the files of particles for persistent memory, and flushes them by the processor.
for kind in "${kinds[@]}" objects shared; do PMEM_IS_PMEM_FORCE=1 survives particles $kind "$S/serial-particles"; done
echo "$deaths deaths, $resumed resumptions"
check "most runs died ($deaths), and were resumed ($resumed)" test $deaths -ge 6 -a $resumed -ge 7
# A checkpoint by libpmem dies at each of its flushes: the kernel's memory has all stores before it.
cat >"$S/flushes.c" <<'END'
#include <signal.h>
#include <stdlib.h>
#include <unistd.h>
static int flushes;
static void flush(void) {
  if (++flushes == atoi(getenv("DIES_AT"))) kill(getpid(), SIGKILL);
}
void pmem_persist(const void* from, size_t size) { (void)from, (void)size, flush(); }
int pmem_msync(const void* from, size_t size) { return (void)from, (void)size, flush(), 0; }
END
# dies_at N: the run is killed at its Nth flush, and a second one resumes it. False if it ended before.
dies_at() {
  local options=(--size 12 --steps 24 --every 8 --checkpoint pmem --directory "$memory/flush-$1")
  DIES_AT=$1 LD_PRELOAD=$S/flushes.so "$S/serial-stencil" "${options[@]}" >/dev/null 2>&1 && return 1
  short=$(result "$("$S/serial-stencil" "${options[@]}" 2>&1)")
}
if [ ${#pmem[@]} -gt 0 ]; then
  check 'the library that counts flushes compiles' cc -shared -fPIC "$S/flushes.c" -o "$S/flushes.so"
  whole=$(result "$("$S/serial-stencil" --size 12 --steps 24)") wrong=''
  for ((n = 1; n < 1000; n++)); do
    { dies_at $n; } 2>/dev/null || break
    [ "$short" = "$whole" ] || wrong+=" $n"
  done
  check "killed at each of $((n - 1)) flushes, it ends with the same bits (not after flush$wrong)" test $n -gt 20 -a $n -lt 1000 -a -z "$wrong"
fi
# after_damage LAUNCHER...: the newest version is damaged, and keeps its number.
after_damage() {
  local options=(--size 12 --every 8 --checkpoint objects --directory "$memory/damaged-$1") newest; shift
  check 'a run with checkpoints' "$@" "${options[@]}" --steps 32
  newest=$(find "${options[-1]}" -name '*4' -path '*checkpoints*' | sort | tail -n 1)
  check 'its newest version is damaged' dd if=/dev/zero of="$newest/small.npz" bs=1 seek=200 count=9 conv=notrunc
  check_exit 'a run resumes from the one before, and writes new ones' 0 'begin at step 24' "$@" "${options[@]}" --steps 40
  check_exit 'which the next run finds' 0 'begin at step 40' "$@" "${options[@]}" --steps 48
}
after_damage serial "$S/serial-stencil"

# --- 2 ranks: one of them dies ---
MPICXX=${MPICXX:-mpicxx} MPIRUN=${MPIRUN:-mpirun}
export OMPI_ALLOW_RUN_AS_ROOT=1 OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1 OMPI_MCA_rmaps_base_oversubscribe=1 PRTE_MCA_rmaps_default_mapping_policy=:oversubscribe
if "$MPICXX" -E -x c++ - <<<'#include <mpi.h>' >/dev/null 2>&1 && command -v "$MPIRUN" >/dev/null; then
  deaths=0 resumed=0 kills=${EFS_KILLS:-2} steps=([stencil]=160 [particles]=48)
  check 'the checkpoints compile with MPI' common "$MPICXX" -DUSE_MPI -DOMPI_SKIP_MPICXX mpi
  for application in stencil particles; do check "$application compiles with MPI" build "$MPICXX" -DUSE_MPI -DOMPI_SKIP_MPICXX $application mpi-$application; done
  for kind in "${kinds[@]:1}" objects; do survives stencil $kind timeout 60 "$MPIRUN" -n 2 "$S/mpi-stencil"; done
  for kind in values shared; do survives particles $kind timeout 60 "$MPIRUN" -n 2 "$S/mpi-particles"; done
  echo "$deaths deaths of a rank, $resumed resumptions"
  check "most runs died ($deaths), and were resumed ($resumed)" test $deaths -ge 3 -a $resumed -ge 3
  after_damage mpi timeout 60 "$MPIRUN" -n 2 "$S/mpi-stencil"
  longer=(--size 3 --steps 60)
  check_exit 'a run of 2 ranks, resumed by 1: all ranks make one array' 0 'begin at step 48' "$S/serial-particles" "${longer[@]}" --checkpoint shared --directory "$memory/shared-mpi-particles"
  check 'the bits are those of 1 rank' test "$(result "$said")" = "$(result "$("$S/serial-particles" "${longer[@]}")")"
else skip 'the applications with MPI' "$MPICXX does not compile, or $MPIRUN is not installed: make mpi-deps"; fi

[ "$memory" = "$S" ] || rm -rf "$memory"
finish
