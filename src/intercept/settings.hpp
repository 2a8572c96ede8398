// SPDX-License-Identifier: BSD-3-Clause
#pragma once

// The settings of the environment: EFS_INTERCEPT, EFS_INTERCEPT_STATS, EFS_INTERCEPT_SKIP,
// EFS_INTERCEPT_AFTER (efs-intercept(7)).

namespace efs::intercept {

struct Settings {
  bool serves = false;  // EFS_INTERCEPT=off, or a program of EFS_INTERCEPT_SKIP
  bool verifies = false;
  unsigned calls = 0;          // before a file is mapped, a power of two; 0: as it pays
  char program[61] = {};       // a program may write over the name that it was given
  bool tells = false;          // statistics at the end
  int errors = 2;              // a copy of standard error, which a program may close before its end
  char statistics[4096] = {};  // the file to which they go instead
};

/// Constant after read_settings(), which the loader runs before the program.
const Settings& settings();
void read_settings();

}  // namespace efs::intercept
