// SPDX-License-Identifier: BSD-3-Clause
#include "config/validate.hpp"

#include <algorithm>
#include <array>

#include "config/expand.hpp"
#include "config/paths.hpp"
#include "config/precedence.hpp"
#include "config/snapshot.hpp"

namespace efs::config {
namespace {

// Two keys with paths; the inner path must not be in the outer one.
struct Nesting {
  std::string_view inner, outer, why;
};

constexpr std::array nestings{
    Nesting{"mount-dir", "root-dir", "the mount would become its own input"},
    Nesting{"root-dir", "mount-dir", "the mount would hide the inputs"},
    Nesting{"results-dir", "mount-dir", "the mount would hide the results"},
    Nesting{"mount-dir", "results-dir", "results could end up in the mount"},
    Nesting{"root-dir", "results-dir", "a result could overwrite an input"},
    Nesting{"log-file", "mount-dir", "the mount would hide the log"},
    Nesting{"status-file", "mount-dir", "the mount would hide it"},
    Nesting{"trace", "mount-dir", "the mount would hide the trace"},
    Nesting{"access-log", "mount-dir", "the mount would hide the log"}};

const std::string& path_of(const JobConfig& config, std::string_view key) {
  return config.*find_key(settings_keys(), key)->field.text;
}

// Equal directories are reported once, for mount-dir. results-dir == root-dir has its own rule.
bool has_own_rule(const Nesting& nesting, bool equal, const JobConfig& config) {
  return (equal && (nesting.inner == "root-dir" || nesting.inner == "results-dir")) ||
         (nesting.outer == "results-dir" && config.results_dir == config.root_dir);
}

void check_nesting(const Section& settings, const JobConfig& config, ProblemList& problems) {
  for (const auto& nesting : nestings) {
    const std::string &inner = path_of(config, nesting.inner),
                      &outer = path_of(config, nesting.outer);
    const bool equal = inner == outer;
    if (inner.empty() || outer.empty() || !is_within(inner, outer) ||
        has_own_rule(nesting, equal, config)) {
      continue;
    }
    problems.add(settings.mark_of(nesting.inner),
                 in_quotes(nesting.inner) + (equal ? " is the same as " : " is inside ") +
                     in_quotes(nesting.outer) + ": " + std::string(nesting.why),
                 "choose a directory outside " + in_quotes(outer));
  }
}

// Returns the part of a path before the first pattern.
std::string_view fixed_part(std::string_view path) {
  const auto wildcard = path.find_first_of("*?[");
  return wildcard == path.npos ? path : path.substr(0, path.rfind('/', wildcard));
}

// Returns how `results` lies to the resource; "": apart from it.
std::string_view overlap_of(const std::string& results, const Resource& resource) {
  if (!resource.is_glob && is_within(results, resource.path)) {
    return results == resource.path ? "is the same as" : "is inside";
  }
  return is_within(resource.is_glob ? fixed_part(resource.path) : resource.path, results) ? "holds"
                                                                                          : "";
}

// Checks by names whether a result could overwrite an input; stage::make_plan() asks the file
// system.
void check_results_and_inputs(const Section& settings, const JobConfig& config,
                              ProblemList& problems) {
  const std::string& results = config.results_dir;
  if (config.root_dir.empty() || results.empty() || config.results_open ||
      results == config.root_dir || !is_within(results, config.root_dir)) {
    return;
  }
  for (const auto& resource : config.resources) {
    const auto how =
        resource.is_list || resource.open ? std::string_view() : overlap_of(results, resource);
    if (how.empty()) {
      continue;
    }
    return problems.add(settings.mark_of("results-dir"),
                        "'results-dir' " + std::string(how) + " the resource " +
                            in_quotes(resource.path) + ": a result could overwrite an input",
                        "choose a directory beside the resources");
  }
}

// The job file must say in-place if results overwrite inputs, and must not say it otherwise.
void check_in_place(const Section& settings, const JobConfig& config, ProblemList& problems) {
  if (config.root_dir.empty() || config.results_dir.empty()) {
    return;
  }
  const bool same = config.results_dir == config.root_dir;
  if (same && !config.in_place && !settings.bad.contains("in-place")) {
    problems.add(settings.mark_of("results-dir"),
                 "'results-dir' is the same as 'root-dir': results would overwrite inputs",
                 "say in-place: true if that is meant");
  } else if (!same && config.in_place) {
    problems.add(settings.mark_of("in-place"),
                 "'in-place' is true, but 'results-dir' is not 'root-dir'",
                 "remove one of the two");
  }
}

void check_deletions(const Section& settings, const JobConfig& config, ProblemList& problems) {
  if (config.deletions != Deletions::propagate || !config.results_dir.empty() || config.in_place ||
      settings.find("results-dir") || settings.bad.contains("results-dir")) {
    return;
  }
  problems.add(settings.mark_of("deletions"), "'deletions' is propagate, but nothing is exported",
               "name a results-dir, or say in-place: true");
}

void check_results_dir(const Section& settings, const JobConfig& config, ProblemList& problems) {
  // the value may be bad, which is already reported
  const bool given = settings.find("results-dir") || settings.bad.contains("results-dir");
  if (given || config.in_place || settings.malformed) {
    return;
  }
  const auto is_persistent = [](const auto& rule) {
    return rule.file_class == FileClass::persistent;
  };
  std::string reason;
  if (config.outputs.empty()) {
    reason = "without output rules every new file is persistent";
  }
  if (std::ranges::any_of(config.outputs, is_persistent)) {
    reason = "an output rule is persistent";
  }
  if (std::ranges::any_of(config.resources, is_persistent)) {
    reason = "a resource is persistent";
  }
  if (reason.empty()) {
    return;
  }
  problems.add(settings.mark, "'results-dir' is missing from global-settings: " + reason,
               "add results-dir: \"...\", or in-place: true to write results to root-dir");
}

void check_daxfs(const std::vector<Section>& sections, const JobConfig& config,
                 ProblemList& problems) {
  for (std::size_t i = 0; i < sections.size(); ++i) {
    const auto& daxfs = config.backends[i].daxfs;
    if (daxfs.empty() || config.mount_dir.empty() || !is_within(daxfs, config.mount_dir)) {
      continue;
    }
    problems.add(sections[i].mark_of("daxfs"), "'daxfs' is in 'mount-dir': the mount would hide it",
                 "choose a directory outside " + in_quotes(config.mount_dir));
  }
}

}  // namespace

JobConfig validate(Document document, const std::string& file, const Overrides& overrides,
                   const Surroundings& surroundings, ProblemList& problems) {
  document.settings =
      resolve_settings(std::move(document.settings), overrides, surroundings, problems);
  document.backends = resolve_backends(std::move(document.backends), surroundings, problems);
  for (auto* sections : {&document.resources, &document.outputs}) {
    for (auto& section : *sections) {
      expand(section, surroundings, problems);
    }
  }
  JobConfig config;
  read_settings(document.settings, file, config, problems);
  read_backends(document.backends, config, problems);
  if (document.tiers) {
    read_tiers(*document.tiers, config, problems);
  }
  read_placement(document.settings, config, problems);
  read_resources(document.resources, config, problems);
  read_outputs(document.outputs, config, problems);
  check_nesting(document.settings, config, problems);
  check_in_place(document.settings, config, problems);
  check_results_and_inputs(document.settings, config, problems);
  check_results_dir(document.settings, config, problems);
  check_deletions(document.settings, config, problems);
  check_daxfs(document.backends, config, problems);
  if (surroundings.site) {
    apply_limits(*surroundings.site, document, config, problems);
  }
  config.effective = effective_values(document, config, surroundings);
  if (surroundings.before_job) {
    config.snapshot = write_snapshot(document, problems);
  }
  return config;
}

}  // namespace efs::config
