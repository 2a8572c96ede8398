#!/bin/bash
# Power loss, in full: every single event that makes something durable is removed in turn, each that is said to be harmless must be,
# and many random sequences are run.
#   crash_events.sh BIN_DIR
# EFS_CRASH_SEQUENCES: how many sequences.
set -uo pipefail
export EFS_CRASH_EVENTS=all EFS_CRASH_SEQUENCES=${EFS_CRASH_SEQUENCES:-200}
exec "${1:-build/bin}/efs-tests" "[crash]"
