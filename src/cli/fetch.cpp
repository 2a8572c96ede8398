// SPDX-License-Identifier: BSD-3-Clause
#include "cli/cli.hpp"

namespace efs::cli {

int fetch(World& world, const FileArguments& a) {
  FileArguments fetched = a;
  fetched.wait = !a.no_wait;
  return start_task(world, fetched, to_json(control::requests::Fetch{.paths = a.paths}));
}

}  // namespace efs::cli
