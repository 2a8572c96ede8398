#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Power loss, in full: removes in turn every event that makes data durable, checks that each event
# declared harmless is harmless, and runs many random sequences.
#   crash_events.sh BIN_DIR
# EFS_CRASH_SEQUENCES: how many sequences.
set -uo pipefail
export EFS_CRASH_EVENTS=all EFS_CRASH_SEQUENCES=${EFS_CRASH_SEQUENCES:-200}
exec "${1:-build/bin}/efs-tests" "[crash]"
