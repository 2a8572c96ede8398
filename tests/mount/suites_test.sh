#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Public test suites on the mount, with passthrough and on the daemon's path, and on a tmpfs: tests
# that pass on tmpfs must pass on the mount. pjdfstest and fsx come with `make suites` (cargo),
# stress-ng with `make deps` (Debian); a missing suite is skipped. EFS_SUITES names the directory of
# the first two. fsx also runs with libefs-intercept.
#   suites_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/../cli/lib.sh" "$@"
suites=${EFS_SUITES:-$BIN/../suites/bin}
declared=$(cd "$(dirname "$0")" && pwd)/suites-expect.txt
find_suite() { if [ -x "$suites/$1" ]; then echo "$suites/$1"; else command -v "$1"; fi; }
pjdfstest=$(find_suite pjdfstest) fsx=$(find_suite fsx) stress=$(command -v stress-ng)
library=$BIN/../lib/libefs-intercept.so intercepted=$fsx
[ -e "$library" ] || intercepted=
seed=${EFS_TEST_SEED:-$((RANDOM * 32768 + RANDOM))}

skip_all() { for suite in pjdfstest fsx fsx-intercepted stress-ng; do skip "$suite" "$1"; done; finish; }
[ "$(id -u)" = 0 ] || skip_all 'needs root'
[ -n "$pjdfstest" ] || skip pjdfstest "not installed: 'make suites' gets it (cargo, rustc 1.85 or newer)"
[ -n "$fsx" ] || skip fsx "not installed: 'make suites' gets it (cargo, rustc 1.82 or newer)"
[ -n "$intercepted" ] || skip fsx-intercepted "no fsx, or no libefs-intercept, which is built for x86-64 only"
[ -n "$stress" ] || skip stress-ng "not installed: 'make deps' gets it"
[ -z "$stress" ] || [ -z "${EFS_FAST:-}" ] || { stress=; skip stress-ng 'takes minutes, and EFS_FAST is set'; }

cat >"$S/pjdfstest.toml" <<'TOML'
[features]
posix_fallocate = {}
rename_ctime = {}
utime_now = {}
utimensat = {}
[settings]
naptime = 0.02
allow_remount = false
[dummy_auth]
entries = [ ["nobody", "nogroup"], ["games", "games"] ]
TOML
cat >"$S/fsx.toml" <<'TOML'
flen = 1048576
[opsize]
max = 131072
[weights]
close_open = 1
invalidate = 1
truncate = 5
fsync = 1
fdatasync = 1
posix_fallocate = 1
punch_hole = 1
sendfile = 1
copy_file_range = 1
posix_fadvise = 1
TOML

# The filesystem class, without tests that do not concern this directory or that change the machine.
# (fanotify marks every mount: its events keep removed files of other tests, and it asks their daemons.)
stressors() {
  "$stress" --class 'filesystem?' 2>&1 | sed -n "s/^class 'filesystem' stressors: //p" | tr ' ' '\n' |
    grep -vxE 'bind-mount|binderfs|dup|eventfd|fanotify|io|ioprio|procfs'
}
fsx() {  # fsx DIRECTORY OPERATIONS LARGEST
  sed "s/^max = .*/max = $3/" "$S/fsx.toml" >"$S/fsx-$3.toml"
  timeout 300 "$fsx" -q -f "$S/fsx-$3.toml" -N "$2" -S "$seed" -P "$S" "$1/fsx" >"$S/fsx.log" 2>&1 || { tail -n 5 "$S/fsx.log" >&2; echo "seed-$seed"; }
  rm -f "$1/fsx"
}
# Prints the failures of a suite in a directory, one name per line; its totals go to stderr.
failures_of() {
  local suite=$1 dir=$2 name code
  case $suite in
    pjdfstest)
      NO_COLOR=1 timeout 300 "$pjdfstest" -c "$S/pjdfstest.toml" -p "$dir" >"$S/pjdfstest.log" 2>&1
      grep -E '^Summary: ' "$S/pjdfstest.log" >&2 || { tail -n 3 "$S/pjdfstest.log" >&2; echo 'did not end'; }
      awk '$NF == "FAILED" { print $1 }' "$S/pjdfstest.log" ;;
    fsx) fsx "$dir" 20000 131072 ;;
    # the library serves small requests
    fsx-intercepted) LD_PRELOAD=$library EFS_INTERCEPT_AFTER=1 EFS_INTERCEPT=stats EFS_INTERCEPT_STATS=$S/served fsx "$dir" 10000 20000 ;;
    stress-ng)
      for name in $(stressors); do
        timeout 60 "$stress" "--$name" 1 -t 1 --temp-path "$dir" --verify --no-rand-seed --quiet >"$S/stress.log" 2>&1; code=$?
        # 0: success; 3, 4: not available here, which must be the same on both sides.
        [ $code = 0 ] || echo "$name:$code"
      done ;;
  esac | LC_ALL=C sort
}
# same SUITE WHERE DIR: only declared tests may fail that do not fail on tmpfs, and every declared
# test must fail.
same() {
  local suite=$1 where=$2 dir=$3 extra
  failures_of "$suite" "$dir" >"$S/$suite.here"
  extra=$(LC_ALL=C comm -13 "$S/$suite.native" "$S/$suite.here" | sed "s/^/$suite /" | grep -vxFf <(sed -n 's/^\([^#][^:]*:*[^ ]*\): .*/\1/p' "$declared"))
  if [ -z "$extra" ]; then ok; else fail "$where: $suite: not on tmpfs, but here" "$extra"; fi
}

mkdir "$S/native"; mount -t tmpfs -o mode=1777,size=2g native "$S/native"
all=(); for suite in pjdfstest fsx stress; do [ -z "${!suite}" ] || all+=("${suite/#stress/stress-ng}"); done
for suite in "${all[@]}"; do failures_of "$suite" "$S/native" >"$S/$suite.native"; done
[ -z "$intercepted" ] || { all+=(fsx-intercepted); cp "$S/fsx.native" "$S/fsx-intercepted.native"; }
echo "suites: ${all[*]:-none}; seed $seed (EFS_TEST_SEED)"
for suite in "${all[@]}"; do check_not "$suite ends on tmpfs" grep -qE 'did not end|^seed-' "$S/$suite.native"; done
for suite in "${all[@]}"; do echo "fails on tmpfs: $suite: $(tr '\n' ' ' <"$S/$suite.native")"; done

for io in passthrough daemon; do
  CAPACITY='2 GiB' fresh "$io" 'resources: []'
  mkdir "$MNT"
  options=(-o dev,suid); [ $io = passthrough ] || options=(-o dev,suid,daemon-io)
  check "$io: start" "$EFS" start "$JOB" "${options[@]}"
  chmod 1777 "$MNT"
  check "$io: I/O" json "$("$EFS" status --json "$NAME")" "d['io'] == '$io'"
  for suite in "${all[@]}"; do same "$suite" "$io" "$MNT"; done
  # how many writes are served depends on the pauses between them
  [ -z "$intercepted" ] || { cat "$S/served"; check "$io: reads of fsx were served" grep -qE '^efs-intercept: fsx\[[0-9]+\]: reads [1-9]' "$S/served"; rm "$S/served"; }
  check "$io: the daemon lives" json "$("$EFS" status --json "$NAME")" "d['state'] == 'running'"
  check "$io: stop" "$EFS" stop --no-stage-out "$NAME"
done
umount "$S/native"
finish
