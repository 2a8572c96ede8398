# SPDX-License-Identifier: BSD-3-Clause
# Sourced after cli/lib.sh. staged NAME MOUNT_OPTIONS: an instance for kill_at_stages; its
# supervisor is in $supervisor.
staged() {
  CAPACITY='512 MiB' fresh "$1" 'resources: []'
  mkdir "$S/$1/native"
  started "$JOB" -o "$2" || return
  supervisor=$(field "$(status_of "$1")" "d['supervisor_pid']")
}
# kill_at_stages ARGUMENTS...: runs efs-kill-points on it; the output is in $S/$NAME/said.
kill_at_stages() { EFS_RUNTIME_DIR=$EFS_RUNTIME_DIR timeout -k 5 7200 "$BIN/efs-kill-points" "$@" "$supervisor" "$BIN/efsd" "$EFS" "$NAME" "$MNT" "$S/$NAME/native" "$PFS" "$OUT" >"$S/$NAME/said" 2>&1; }
# every_stage NAME MOUNT_OPTIONS ARGUMENTS...: one instance, whose worker efs-kill-points kills with
# these arguments.
every_stage() {
  local name=$1 options=$2 supervisor; shift 2
  staged "$name" "$options" || return
  kill_at_stages "$@"
  local code=$?
  grep -vE '^  ' "$S/$name/said" | grep -E '^FAIL|kills|points|functions|:.*stages' | tail -n "${EFS_SHOWN_LINES:-3}" | sed "s/^/  $name: /"
  if [ $code = 0 ]; then ok; else fail "$name: no stage of an operation is one to die at (exit $code)" "$(grep -A4 '^FAIL' "$S/$name/said"; tail -n 3 "$S/$name/said"; tail -n 3 "$EFS_RUNTIME_DIR/$name/efsd.log")"; fi
  check "$name: stop" "$EFS" stop "$name"
}
# given_up NAME MOUNT_OPTIONS SEED: kills every successor at the same random stage of its takeover,
# until the supervisor gives up.
given_up() {
  local name=$1 supervisor log=$EFS_RUNTIME_DIR/$1/efsd.log
  staged "$name" "$2" || return
  echo precious >"$MNT/file"
  exec 8<"$MNT/file"
  kill_at_stages --kill all --seed "$3"
  local code=$?
  grep 'workers died' "$S/$name/said" | sed "s/^/  $name: /"
  if [ $code = 0 ]; then ok; else fail "$name: whoever waits is told (exit $code)" "$(cat "$S/$name/said"; tail -n 3 "$log")"; fi
  check "$name: the supervisor ends" await 20 gone "$supervisor"
  check "$name: the mount is gone" eval '! mounted "$MNT"'
  check_exit "$name: an open file gives an error and no hang" 1 '' timeout 5 cat <&8
  exec 8<&-
  check "$name: the log says what to do" grep -qE "event=given_up .*advice=\".*efs start .*efs salvage $name .*efs clean $name" "$log"
  check "$name: the image is whole" image_is_whole "$name"
  check "$name: efs start goes on" "$EFS" start "$JOB"
  check "$name: with everything" grep -qx precious "$MNT/file"
  check "$name: stop" "$EFS" stop "$name"
  check "$name: it goes back" grep -qx precious "$OUT/file"
}
# The store is undamaged, with at most some unfinished files.
image_is_whole() { "$EFS" check-image "$1"; case $? in 0 | 3) return 0 ;; *) return 1 ;; esac; }
