// SPDX-License-Identifier: BSD-3-Clause
// efs top: samples of instances, as a table (cli/top_table.hpp) on a screen (cli/screen.hpp).
#include <chrono>
#include <iostream>
#include <thread>

#include "cli/cli.hpp"
#include "cli/screen.hpp"
#include "cli/top_table.hpp"

namespace efs::cli {
namespace {

template <typename Clock>
double seconds_of() {
  return std::chrono::duration<double>(Clock::now().time_since_epoch()).count();
}

Result<std::vector<control::Instance>> watched(const std::string& which) {
  if (which.empty()) {
    return control::list_instances();
  }
  auto instance = find_instance(which);
  if (!instance) {
    return std::unexpected(instance.error());
  }
  return std::vector{*instance};
}

Result<TopSamples> take_samples(const std::string& which) {
  const auto instances = watched(which);
  if (!instances) {
    return std::unexpected(instances.error());
  }
  TopSamples samples;
  for (const auto& instance : *instances) {
    const Json status = status_of(instance, false, soon);
    samples[instance.directory] = sample_of(status, seconds_of<std::chrono::steady_clock>(),
                                            seconds_of<std::chrono::system_clock>());
  }
  return samples;
}

TopForm form_of(const Screen& screen, bool rates, bool colour) {
  return {.width = screen.columns, .height = screen.rows, .rates = rates, .colour = colour};
}

int print_statuses(World& world, const std::string& which) {
  const auto instances = watched(which);
  if (!instances) {
    return report(world, instances.error());
  }
  Json all = Json::array();
  for (const auto& instance : *instances) {
    all.push_back(status_of(instance, false, soon));
  }
  print_document(world, all);
  return exit_good;
}

// Prints totals; with an interval, rates over it.
int print_once(World& world, const TopArguments& arguments) {
  auto samples = take_samples(arguments.which);
  const auto before = samples;
  if (samples && arguments.interval) {
    std::this_thread::sleep_for(std::chrono::duration<double>(*arguments.interval));
    samples = take_samples(arguments.which);
  }
  if (!samples) {
    return report(world, samples.error());
  }
  const bool rates = arguments.interval.has_value();
  Screen screen = screen_of_output();
  screen.rows = 0;
  world.out << table_of(rates ? rates_of(*samples, *before) : totals_of(*samples),
                        form_of(screen, rates, world.colour));
  return exit_good;
}

}  // namespace

int top(World& world, const TopArguments& arguments) {
  constexpr double usual_interval = 2;  // seconds
  if (world.json) {
    return print_statuses(world, arguments.which);
  }
  if (arguments.once || !screen_of_output().is_terminal) {
    return print_once(world, arguments);
  }
  TopSamples before;
  return show_repeatedly(world, arguments.interval.value_or(usual_interval),
                         [&](const Screen& screen) -> Result<std::string> {
                           auto samples = take_samples(arguments.which);
                           if (!samples) {
                             return std::unexpected(samples.error());
                           }
                           const auto rows = rates_of(*samples, before);
                           before = std::move(*samples);
                           return table_of(rows, form_of(screen, true, world.colour));
                         });
}

}  // namespace efs::cli
