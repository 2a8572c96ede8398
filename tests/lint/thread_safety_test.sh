#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Clang's thread-safety analysis of all sources: code accesses data guarded by a mutex
# (EFS_GUARDED_BY, src/base/mutex.hpp) only under that mutex. The check first proves that it works.
# It compiles nothing, so it needs only the build's list of commands. EFS_ANALYSED=1: a build with
# Clang analyses the tree (CMakeLists.txt), so this test does not.
#   thread_safety_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
COMMANDS=$BIN/../compile_commands.json
CLANG=$(command -v clang++-19 || command -v clang++)
if [ -z "$CLANG" ] || [ ! -r "$COMMANDS" ]; then
  skip 'thread-safety analysis' 'needs clang++-19 and a build directory with compile_commands.json'
  finish
fi
FLAGS='-fsyntax-only -Wno-everything -Wthread-safety -Wthread-safety-beta -Werror=thread-safety -Werror=thread-safety-beta'

# sources: prints one line for each source that includes base/mutex.hpp, directly or not (other
# sources use no lock). The line has the file that the build compiles for it, the flags for its
# headers, and after a tab its path. The compiled file is the source itself, or a file of
# CMAKE_UNITY_BUILD that includes several sources and reads their headers once.
sources() { python3 - "$COMMANDS" "$SOURCE" <<'END'
import functools, json, os, re, shlex, sys
commands, tree = sys.argv[1], os.path.realpath(sys.argv[2])
seen = set()

@functools.cache
def sees_mutex(path):
    if path.endswith("/base/mutex.hpp"): return True
    if not os.path.exists(path): return False
    found = re.findall(r'^\s*#\s*include\s*"([^"]+)"', open(path).read(), re.M)
    return any(sees_mutex(f"{root}/{name}") for name in found for root in (f"{tree}/src", tree, os.path.dirname(path)))

# Returns the files that one command compiles: one, or those that a file of CMAKE_UNITY_BUILD
# includes.
def compiled(path):
    return re.findall(r'^#include "(/[^"]+)"', open(path).read(), re.M) if "/Unity/" in path else [path]

def header_flags(command):
    words, kept = shlex.split(command), []
    while words:
        word = words.pop(0)
        if word in ("-isystem", "-I", "-D"): kept += [word, words.pop(0)]
        elif word.startswith(("-I", "-D", "-std=")): kept.append(word)
    return kept

for command in json.load(open(commands)):
    whole = os.path.join(command["directory"], command["file"])
    for path in map(os.path.realpath, compiled(whole)):
        if path in seen or not path.startswith((tree + "/src/", tree + "/backends/")): continue
        seen.add(path)
        if sees_mutex(path): print(shlex.join([whole] + header_flags(command["command"])) + "\t" + path)
END
}
list=$S/sources
sources >"$list" || exit 2

# analysed LIST: runs the analysis of the list's compiled files in parallel, and prints the
# findings.
analysed() { cut -f 1 "$1" | sort -u | xargs -P "$(nproc)" -d '\n' -I{} sh -c "$CLANG $FLAGS {}"; }

# --- the check can fail ---
# planted NAME BODY PATTERN: the analysis finds a member function with this body, in a class with a
# guarded member.
mutex_flags=$(grep -F /base/timer_thread.cpp "$list" | cut -f 1 | sed 's/^[^ ]* //')
planted() {
  local name=$1 file=$S/planted.cpp
  cat >"$file" <<END
#include "base/mutex.hpp"
class Planted {
 public:
  void act() { $2 }
 private:
  void needs_lock() EFS_REQUIRES(mutex_) { ++count_; }
  efs::Mutex mutex_;
  efs::Condition changed_;
  efs::SharedMutex shape_;
  int count_ EFS_GUARDED_BY(mutex_) = 0;
  int size_ EFS_GUARDED_BY(shape_) = 0;
};
void use(Planted& planted) { planted.act(); }
END
  printf '%s %s\n' "$file" "$mutex_flags" >"$S/planted"
  if [ -z "$3" ]; then check "the check lets pass $name" analysed "$S/planted"
  else check_exit "the check finds $name" 123 "error: .*$3" analysed "$S/planted"; fi
}
planted 'a write without the lock' '++count_;' "'count_' requires holding"
planted 'a write under a lock for reading' 'efs::ReadLock lock(shape_); ++size_;' "'size_' requires holding"
planted 'a call that needs the lock' 'needs_lock();' "'needs_lock' requires holding"
planted 'a wait without the lock' 'changed_.wait(mutex_);' "'wait' requires holding"
planted 'a lock that is taken twice' 'efs::MutexLock a(mutex_); efs::MutexLock b(mutex_);' 'already held'
planted 'a lock that is not released' 'mutex_.lock();' 'still held'
planted 'code that is right' 'efs::MutexLock lock(mutex_); while (count_ == 0) changed_.wait(mutex_); needs_lock();' ''

# --- the tree ---
check 'there are sources to look at' test "$(wc -l <"$list")" -ge 30
# Every file that names a lock or guarded data must be in the list, even if only its own header
# does.
users=$(grep -lE 'EFS_(GUARDED_BY|REQUIRES)|(Mutex|Write|Read)Lock ' -r "$(realpath "$SOURCE")"/{src,backends} --include=*.cpp)
check 'and some that lock' test "$(wc -l <<<"$users")" -ge 10
for user in $users; do check "it is looked at: ${user#"$SOURCE"/}" grep -qP "\t\Q$user\E$" "$list"; done
if [ -n "${EFS_ANALYSED:-}" ]; then check 'builds with Clang analyse the tree' grep -q 'Werror=${analysis}' "$SOURCE/CMakeLists.txt"
else check 'what a mutex guards is touched under it only' analysed "$list"; fi
# A plain std::mutex has no annotations, so the analysis ignores it.
check_not 'there is no mutex without annotations' grep -rn 'std::\(shared_\)\?mutex \|std::condition_variable ' "$SOURCE/src" "$SOURCE/backends" --include=*.cpp --include=*.hpp --exclude=mutex.hpp
finish
