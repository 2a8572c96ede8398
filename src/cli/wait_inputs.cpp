// SPDX-License-Identifier: BSD-3-Clause
#include <cerrno>
#include <cmath>
#include <string>

#include "base/text.hpp"
#include "cli/cli.hpp"

namespace efs::cli {

namespace replies = control::replies;

int wait_for_inputs(World& world, const FileArguments& a) {
  const auto instance = find_instance_for(a);
  if (!instance) {
    return report(world, instance.error());
  }
  control::requests::WaitInputs request;
  if (a.timeout) {
    request.timeout_ms = static_cast<std::uint64_t>(std::ceil(*a.timeout * 1000));
  }
  auto answer = ask_until_answered(world, *instance, to_json(request));
  if (!answer) {
    return report(world, answer.error());
  }
  if (!replies::is_success(*answer)) {
    return report(world, error_in(*answer));
  }
  const auto inputs = replies::from_json<replies::BackgroundInputs>(*answer);
  const bool is_late = inputs.left > 0;
  const int code = is_late ? int{exit_failure} : inputs.failed > 0 ? int{exit_some_failed} : 0;
  if (world.json) {
    answer->erase("event");
    print_document(world, *answer);
    return code;
  }
  if (is_late) {
    return report(world, {ETIMEDOUT, "time is up: " + std::to_string(inputs.left) +
                                         " inputs of the background are not here"});
  }
  if (inputs.failed > 0) {
    return report(
        world,
        {EIO, std::to_string(inputs.failed) + " inputs of the background could not be fetched" +
                  (inputs.last_error ? ": " + printable(*inputs.last_error) : "") +
                  ". Try again: efs fetch"},
        code);
  }
  return code;
}

}  // namespace efs::cli
