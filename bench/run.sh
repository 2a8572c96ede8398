#!/usr/bin/env bash
# Measures all figures.
#   usage: bench/run.sh BUILD_DIR [ROUNDS]     (as root; about four minutes)
exec python3 "$(dirname "$0")/bench.py" "$@"
