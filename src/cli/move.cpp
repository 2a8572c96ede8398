// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>

#include "cli/cli.hpp"

namespace efs::cli {

int move(World& world, const FileArguments& a) {
  const auto instance = find_instance_for(a);
  if (!instance) {
    return report(world, instance.error());
  }
  const auto answer =
      ask(*instance, to_json(control::requests::Move{.paths = a.paths, .to = a.to}));
  if (!answer) {
    // An unknown backend, or a path that is none of the job's.
    return report(world, answer.error(), answer.error().code == EINVAL ? exit_usage : exit_failure);
  }
  return follow_task(world, *instance, *answer, !a.no_wait);
}

}  // namespace efs::cli
