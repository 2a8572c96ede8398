#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# Four hours of random operations with remounts and kills (tests/mount/random_operations_test.sh
# with a few rounds is part of all tests).
#   random_operations.sh BIN_DIR
EFS_SOAK_SECONDS=${EFS_SOAK_SECONDS:-14400} EFS_ROUNDS=${EFS_ROUNDS:-8} EFS_OPERATIONS=${EFS_OPERATIONS:-5000} exec "$(dirname "$0")/../mount/random_operations_test.sh" "$@"
