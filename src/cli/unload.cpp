// SPDX-License-Identifier: BSD-3-Clause
#include "cli/cli.hpp"

namespace efs::cli {

int unload(World& world, const FileArguments& a) {
  return start_task(world, a, {{"verb", "unload"}, {"as_is", a.as_is}, {"remove", a.remove}});
}

}  // namespace efs::cli
