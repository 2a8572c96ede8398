#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Measures all figures.
#   usage: bench/run.sh BUILD_DIR [ROUNDS]     (as root; about four minutes)
exec python3 "$(dirname "$0")/bench.py" "$@"
