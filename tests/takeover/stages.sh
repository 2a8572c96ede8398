# Sourced after cli/lib.sh.
# every_stage NAME MOUNT_OPTIONS ARGUMENTS...: one instance, whose worker efs-kill-points kills with these arguments.
every_stage() {
  local name=$1 options=$2 supervisor; shift 2
  CAPACITY='512 MiB' fresh "$name" 'resources: []'
  mkdir "$S/$name/native"
  started "$JOB" -o "$options" || return
  supervisor=$(field "$(status_of "$name")" "d['supervisor_pid']")
  EFS_RUNTIME_DIR=$EFS_RUNTIME_DIR timeout -k 5 7200 "$BIN/efs-kill-points" "$@" "$supervisor" "$BIN/efsd" "$EFS" "$name" "$MNT" "$S/$name/native" "$PFS" "$OUT" >"$S/$name/said" 2>&1
  local code=$?
  grep -vE '^  ' "$S/$name/said" | grep -E '^FAIL|kills|functions|:.*stages' | tail -n "${EFS_SHOWN_LINES:-3}" | sed "s/^/  $name: /"
  if [ $code = 0 ]; then ok; else fail "$name: no stage of an operation is one to die at (exit $code)" "$(grep -A4 '^FAIL' "$S/$name/said"; tail -n 3 "$S/$name/said"; tail -n 3 "$EFS_RUNTIME_DIR/$name/efsd.log")"; fi
  check "$name: stop" "$EFS" stop "$name"
}
