// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Output that is shown again and again: on a terminal each frame takes the place of the last one,
// elsewhere one frame follows the other.

#include <functional>
#include <string>

#include "cli/cli.hpp"

namespace efs::cli {

/// Where standard output goes.
struct Screen {
  bool is_terminal = false;           // it follows escape sequences
  std::size_t columns = 0, rows = 0;  // 0: unlimited
};

/// Looks at standard output, and at TERM and COLUMNS.
Screen screen_of_output();

/// Returns the part of a text that a screen of this size has room for. A last line says how many
/// lines are left out.
std::string cut_to_screen(const std::string& text, const Screen& screen);

/// Makes the text of one frame for the screen, which may have another size than the last time.
using MakeFrame = std::function<Result<std::string>(const Screen&)>;

/// Shows a frame each `interval` seconds. Ends on SIGINT (ctrl-c), SIGTERM, SIGHUP, on the key q,
/// if a frame fails, or if standard output is lost. Returns the exit code; an error of a frame is
/// reported. A terminal then is as it was before, and while efs is stopped (ctrl-z). Changes the
/// signal mask of the process for its duration.
int show_repeatedly(World& world, double interval, const MakeFrame& make_frame);

}  // namespace efs::cli
