// SPDX-License-Identifier: BSD-3-Clause
#include "cli/cli.hpp"

namespace efs::cli {

int unload(World& world, const FileArguments& a) {
  return start_task(world, a,
                    to_json(control::requests::Unload{.paths = a.paths,
                                                      .as_is = a.as_is,
                                                      .remove = a.remove,
                                                      .backend = {},
                                                      .offset = a.offset,
                                                      .size = a.size}));
}

}  // namespace efs::cli
