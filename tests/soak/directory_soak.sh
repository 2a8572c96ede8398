#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# A directory of a million entries (tests/mount/large_directory_test.sh with 20,000 is part of all
# tests).
#   directory_soak.sh BIN_DIR
EFS_ENTRIES=${EFS_ENTRIES:-1000000} exec "$(dirname "$0")/../mount/large_directory_test.sh" "$@"
