// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "cli/cli.hpp"

namespace efs::cli {

int load(World& world, const FileArguments& a) {
  if (a.force && !a.replace) {
    return report(world,
                  {EINVAL, "--force goes with --replace: it drops the changes of what is replaced"},
                  exit_usage);
  }
  return start_task(world, a,
                    to_json(control::requests::Load{.paths = a.paths,
                                                    .replace = a.replace,
                                                    .force = a.force,
                                                    .backend = {},
                                                    .offset = a.offset,
                                                    .size = a.size}));
}

}  // namespace efs::cli
