// SPDX-License-Identifier: BSD-3-Clause
#include "cli/cli.hpp"

namespace efs::cli {

int move(World& world, const FileArguments& a) {
  FileArguments moved = a;
  moved.wait = !a.no_wait;
  return start_task(world, moved, to_json(control::requests::Move{.paths = a.paths, .to = a.to}));
}

}  // namespace efs::cli
