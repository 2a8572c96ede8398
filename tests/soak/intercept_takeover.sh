#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Kills workers at random moments under programs with libefs-intercept, 500 with each kind of mount
# (tests/mount/intercept_takeover_test.sh with a few kills is part of all tests).
#   intercept_takeover.sh BIN_DIR
EFS_KILLS=${EFS_KILLS:-500} exec "$(dirname "$0")/../mount/intercept_takeover_test.sh" "$@"
