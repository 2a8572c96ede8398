// SPDX-License-Identifier: BSD-3-Clause
#include "cli/cli.hpp"

namespace efs::cli {
namespace {

int set_pinned(World& world, const FileArguments& a, bool pinned) {
  const auto instance = find_instance_for(a);
  if (!instance) {
    return report(world, instance.error());
  }
  const auto answer =
      ask(*instance, to_json(control::requests::Pin{.paths = a.paths, .pinned = pinned}));
  if (!answer) {
    return report(world, answer.error());
  }
  if (world.json) {
    print_document(world, *answer);
  }
  return exit_good;
}

}  // namespace

int pin(World& world, const FileArguments& a) {
  return set_pinned(world, a, true);
}

int unpin(World& world, const FileArguments& a) {
  return set_pinned(world, a, false);
}

}  // namespace efs::cli
