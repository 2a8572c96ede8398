// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <atomic>
#include <iostream>
#include <iterator>
#include <limits>

#include "base/boot.hpp"
#include "base/memory_bound.hpp"
#include "base/text.hpp"
#include "cli/backend_durability.hpp"
#include "cli/cli.hpp"
#include "cli/preflight.hpp"
#include "stage/pfs/paced_pfs.hpp"
#include "stage/plan/planner.hpp"

namespace efs::cli {

namespace {

// A missing input that an earlier job will create is reported but is not a problem.
void forgive_from_job(const config::JobConfig& config, stage::Plan& plan) {
  const auto is_awaited = [&](const stage::PlanProblem& problem) {
    return std::ranges::any_of(config.resources, [&](const config::Resource& resource) {
      return resource.from_job && resource.line == problem.line;
    });
  };
  for (const auto& problem : plan.problems) {
    if (is_awaited(problem)) {
      plan.skipped.push_back({.path = problem.path,
                              .reason = "awaited from an earlier job: " + problem.reason,
                              .awaited = true});
    }
  }
  std::erase_if(plan.problems, is_awaited);
}

// Returns the capacities of the job's stores. This may be a login node: its own memory is then
// irrelevant.
stage::Rooms rooms_of(const JobArguments& arguments, const config::JobConfig& config) {
  constexpr auto unknown = std::numeric_limits<std::uint64_t>::max();
  const auto given = [&](const std::string& size) {
    return config::parse_size(size).value_or(unknown);
  };
  const auto memory = arguments.at_submission
                          ? std::min(given(arguments.memory), given(arguments.node_memory))
                          : memory_bound(unpromised_memory()).bytes;
  stage::Rooms rooms;
  for (const auto& backend : config.backends) {
    rooms.push_back(memory != unknown  ? config::capacity_of(config, backend, memory)
                    : backend.capacity ? backend.capacity
                                       : backend.most_capacity);
  }
  return rooms;
}

// The classes that the daemon will find on this node; null: this process cannot find out.
Json durability_of(const config::JobConfig& config) {
  Json classes = Json::object();
  for (const auto& backend : config.backends) {
    const DurabilityProbe probe = probe_backend(backend);
    const bool is_known = probe.memory || probe.problem == 0;
    classes[backend.id] = is_known ? Json(name_of(probe.durability())) : Json();
  }
  return classes;
}

std::string describe_durability(const config::JobConfig& config) {
  std::string text;
  for (const auto& backend : config.backends) {
    text +=
        "backend " + escaped(backend.id) + ": " + durability_text(probe_backend(backend)) + "\n";
  }
  return text;
}

// `no_takeover`: why a worker that dies is not replaced; "": it is.
Json document_of_plan(const JobArguments& arguments, const config::JobConfig& config,
                      const std::string& no_takeover, stage::Plan& plan) {
  if (arguments.brief) {
    plan.entries.clear();
  }
  Json line = stage::to_json(plan);
  line["ok"] = plan.problems.empty();
  line["takeover"] = no_takeover.empty();
  if (!no_takeover.empty()) {
    line["takeover_reason"] = no_takeover;
  }
  if (!arguments.at_submission) {
    line["durability"] = durability_of(config);
  }
  if (arguments.show) {
    line["values"] = values_of(config);
  }
  return line;
}

int show_plan(World& world, const JobArguments& arguments) {
  const auto config = load_job(world, arguments);
  if (!config) {
    return config.error();
  }
  const stage::Pace pace = stage::pace_of(*config);
  const std::atomic<bool> never = false;
  stage::Throttle throttle(pace);
  stage::PacedPfs pfs(stage::posix_pfs(), pace, throttle, never);
  auto plan = stage::make_plan(*config, pfs, rooms_of(arguments, *config));
  if (!plan) {
    return report(world, plan.error());
  }
  if (arguments.at_submission) {
    forgive_from_job(*config, *plan);
  } else {
    std::ranges::move(preflight_problems(*config), std::back_inserter(plan->problems));
  }
  const std::string no_takeover = no_takeover_reason(kernel_release());
  if (world.json) {
    print_document(world, document_of_plan(arguments, *config, no_takeover, *plan));
  } else {
    if (arguments.show) {
      show_values(world, *config);
    }
    world.out << stage::describe(*plan)
              << (arguments.at_submission ? "" : describe_durability(*config)) << "takeover: "
              << (no_takeover.empty() ? "a worker that dies is replaced, on this kernel"
                                      : "none: " + no_takeover)
              << "\n";
  }
  return plan->problems.empty() ? exit_good : exit_failure;
}

}  // namespace

int plan(World& world, const JobArguments& arguments) {
  return as_job_user(world, arguments, [&] { return show_plan(world, arguments); });
}

}  // namespace efs::cli
