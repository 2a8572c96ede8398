#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
# The commands of docs/first-job.md work, in their order and in one shell.
#   first_job_test.sh BIN_DIR
set -uo pipefail
. "$(dirname "$0")/lib.sh" "$@"
page=$SOURCE/docs/first-job.md

# blocks FILE: the commands of its code blocks, except lines for Slurm
blocks() { awk '/^```/ { inside = !inside; next } inside && !/^#SBATCH/' "$1"; }
# perform FILE: runs them; the first command that fails ends the shell
perform() { env HOME="$S/home" PATH="$BIN:$PATH" bash -euo pipefail -c "$(blocks "$1")" </dev/null; }

mkdir "$S/home"
check 'the page has commands' test "$(blocks "$page" | grep -c '^efs ')" -ge 8
said=$(perform "$page" 2>&1) && ok || fail 'the commands work' "$said"
first=$S/home/efs-first
check 'the result is the one that the page names' test "$(cat "$first/results/sum")" = "$(sed -n 's,^cat results/sum *# ,,p' "$page")"
check 'the unloaded result is there' cmp "$first/run/input/numbers" "$first/results/copy"
check 'the receipt was compared' grep -q 'sum' <<<"$said"
check 'inputs are unchanged' test "$(wc -l <"$first/run/input/numbers")" = 1000
sed 's,^efs plan.*,efs plan nowhere.yaml,' "$page" >"$S/page.md"
check_not 'a command that does not work is found' perform "$S/page.md"
finish
