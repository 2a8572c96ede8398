// SPDX-License-Identifier: BSD-3-Clause
#include <algorithm>
#include <optional>

#include "config/job_config.hpp"
#include "config/paths.hpp"

namespace efs::config {
namespace {

// Returns the length of the longest leading part of `path` (whole components, the whole path first)
// that satisfies `matches`: a rule for a directory covers all files below it.
template <typename Predicate>
std::optional<std::size_t> deepest_match(std::string_view path, Predicate matches) {
  std::string_view part = path;
  while (true) {
    if (matches(part)) {
      return part.size();
    }
    if (part.empty()) {
      return std::nullopt;
    }
    const auto slash = part.rfind('/');
    part = slash == part.npos ? std::string_view{} : part.substr(0, slash);
  }
}

const OutputRule* output_rule(const JobConfig& config, std::string_view path, bool staged_in) {
  for (const auto& rule : config.outputs) {
    if (staged_in && !rule.holds_inputs) {
      continue;
    }
    if (deepest_match(path, [&](auto part) { return glob_match(rule.pattern, part); })) {
      return &rule;
    }
  }
  return nullptr;
}

// Returns the resource that names `path` or contains it most deeply. At equal depth a plain path
// wins over a glob, then the first resource wins.
const Resource* owning_resource(const JobConfig& config, std::string_view path) {
  const Resource* owner = nullptr;
  std::size_t owner_depth = 0;
  for (const auto& resource : config.resources) {
    if (resource.is_list) {
      continue;  // only the planner knows the names in a list
    }
    const auto name = place_of(config, resource);
    const auto depth = deepest_match(
        path, [&](auto part) { return resource.is_glob ? glob_match(name, part) : part == name; });
    if (!depth) {
      continue;
    }
    const bool deeper = !owner || *depth > owner_depth;
    const bool plainer = owner && *depth == owner_depth && owner->is_glob && !resource.is_glob;
    if (deeper || plainer) {
      owner = &resource;
      owner_depth = *depth;
    }
  }
  return owner;
}

// For inputs without another resource: all lists of a job file have the same flags.
const Resource* first_list(const JobConfig& config) {
  const auto list = std::ranges::find(config.resources, true, &Resource::is_list);
  return list == config.resources.end() ? nullptr : &*list;
}

// Returns the deepest destination of a list that is `path` or contains it.
auto listed_place(const JobConfig& config, std::string_view path) {
  auto found = config.listed.end();
  if (!config.listed.empty()) {
    (void)deepest_match(path, [&](auto part) {
      return (found = config.listed.find(std::string(part))) != config.listed.end();
    });
  }
  return found;
}

// The class of a file and its reason: a rule, a resource, or neither.
struct Decision {
  FileClass file_class;
  const OutputRule* rule = nullptr;
  const Resource* resource = nullptr;
};

Decision decide(const JobConfig& config, std::string_view path, bool staged_in) {
  if (path.starts_with('/')) {
    path.remove_prefix(1);
  }
  // Without output rules no new file is dropped, not even below a temporary resource.
  if (!staged_in && config.outputs.empty()) {
    return {.file_class = FileClass::persistent};
  }
  if (const auto* rule = output_rule(config, path, staged_in)) {
    return {.file_class = rule->file_class, .rule = rule};
  }
  if (const auto* owner = owning_resource(config, path)) {
    return {.file_class = owner->file_class, .resource = owner};
  }
  if (const auto* list = staged_in ? first_list(config) : nullptr) {
    return {.file_class = list->file_class, .resource = list};
  }
  return {.file_class = config.outputs.empty() ? FileClass::persistent : FileClass::temporary};
}

std::string reason_of(const JobConfig& config, const Decision& decision, bool staged_in) {
  if (decision.rule != nullptr) {
    return "the output rule " + decision.rule->pattern +
           (staged_in ? ", which holds inputs, too" : "");
  }
  if (decision.resource != nullptr) {
    const Resource& resource = *decision.resource;
    return (resource.is_list ? "the list " : "the resource ") + resource.path +
           (resource.line > 0 ? " (line " + std::to_string(resource.line) + " of the job file)"
                              : "");
  }
  if (!staged_in && config.outputs.empty()) {
    return "a new file, and the job file has no output rules: all new files are persistent";
  }
  return config.outputs.empty() ? "no resource names it, and the job file has no output rules"
                                : "no output rule and no resource matches it";
}

// Returns the resource with the deepest place that is `path` or contains it; not a list or a glob.
const Resource* deepest_place(const JobConfig& config, std::string_view path) {
  const Resource* owner = nullptr;
  for (const auto& resource : config.resources) {
    if (resource.is_list || resource.is_glob) {
      continue;
    }
    const auto place = place_of(config, resource);
    if ((place.empty() || is_within(path, place)) &&
        (owner == nullptr || place.size() > place_of(config, *owner).size())) {
      owner = &resource;
    }
  }
  return owner;
}

// Returns the path below `to` that `path` has below `from`.
std::string moved(std::string_view path, std::string_view from, std::string_view to) {
  const auto below = part_below(path, from);
  return std::string(to) + (to.empty() || below.empty() ? "" : "/") + std::string(below);
}

}  // namespace

std::string_view place_of(const JobConfig& config, const Resource& resource) {
  return resource.as.empty() ? part_below(resource.path, config.root_dir)
                             : std::string_view(resource.as);
}

std::string source_of(const JobConfig& config, std::string_view path) {
  const Resource* owner = deepest_place(config, path);
  if (const auto listed = listed_place(config, path);
      listed != config.listed.end() &&
      (owner == nullptr || listed->first.size() > place_of(config, *owner).size())) {
    return moved(path, listed->first, listed->second);
  }
  return owner == nullptr || owner->as.empty()
             ? std::string(path)
             : moved(path, owner->as, part_below(owner->path, config.root_dir));
}

std::string result_path(const JobConfig& config, std::string_view path) {
  const OutputRule* rule = nullptr;  // the deepest rule
  for (const auto& other : config.outputs) {
    if (!other.as.empty() && is_within(path, other.pattern) &&
        (rule == nullptr || other.pattern.size() > rule->pattern.size())) {
      rule = &other;
    }
  }
  return rule == nullptr ? std::string(path) : moved(path, rule->pattern, rule->as);
}

bool renames_results(const JobConfig& config) {
  return std::ranges::any_of(config.outputs,
                             [](const OutputRule& rule) { return !rule.as.empty(); });
}

bool has_results_in_place(const JobConfig& config) {
  return config.in_place || config.results_dir == config.root_dir;
}

bool is_input(const JobConfig& config, std::string_view path) {
  return owning_resource(config, path) != nullptr;
}

std::optional<std::size_t> find_backend(const JobConfig& config, std::string_view id) {
  for (std::size_t i = 0; i < config.backends.size(); ++i) {
    if (config.backends[i].id == id) {
      return i;
    }
  }
  return std::nullopt;
}

std::size_t backend_of(const JobConfig& config, std::string_view path, bool staged_in) {
  if (config.backends.size() < 2) {
    return 0;
  }
  if (path.starts_with('/')) {
    path.remove_prefix(1);
  }
  if (staged_in) {
    const auto* owner = owning_resource(config, path);
    return owner == nullptr ? config.new_files : find_backend(config, owner->backend).value_or(0);
  }
  const auto* rule = output_rule(config, path, false);
  return rule == nullptr || rule->backend.empty()
             ? config.new_files
             : find_backend(config, rule->backend).value_or(config.new_files);
}

std::size_t rank(const JobConfig& config, std::string_view path) {
  if (path.starts_with('/')) {
    path.remove_prefix(1);
  }
  for (std::size_t i = 0; i < config.outputs.size(); ++i) {
    if (deepest_match(path, [&](auto part) {
          return glob_match(config.outputs[i].pattern, part) ||
                 (!part.empty() && part == config.outputs[i].as);
        })) {
      return i;
    }
  }
  const auto* owner = owning_resource(config, path);
  return config.outputs.size() + (owner == nullptr
                                      ? config.resources.size()
                                      : static_cast<std::size_t>(owner - config.resources.data()));
}

bool has_output_rule(const JobConfig& config, std::string_view path) {
  if (path.starts_with('/')) {
    path.remove_prefix(1);
  }
  return output_rule(config, path, false) != nullptr;
}

std::optional<std::chrono::seconds> drain_of(const JobConfig& config, std::string_view path,
                                             bool staged_in) {
  if (path.starts_with('/')) {
    path.remove_prefix(1);
  }
  const auto* rule = output_rule(config, path, staged_in);
  return rule == nullptr ? std::nullopt : rule->drain;
}

bool evicts_result(const JobConfig& config, std::string_view path) {
  const auto* rule = output_rule(config, path, false);
  return rule != nullptr && rule->evict == Evict::when_full;
}

// Only the planner knows which names are in a list, so a list that keeps its inputs keeps all.
bool evicts_input(const JobConfig& config, std::string_view path) {
  bool is_named = false;
  for (const auto& resource : config.resources) {
    if (resource.is_list) {
      if (resource.evict != Evict::when_full) {
        return false;
      }
      is_named = true;
      continue;
    }
    const auto name = place_of(config, resource);
    const bool names_it = deepest_match(path, [&](auto part) {
                            return resource.is_glob ? glob_match(name, part) : part == name;
                          }).has_value();
    if (names_it && resource.evict != Evict::when_full) {
      return false;
    }
    is_named = is_named || names_it;
  }
  return is_named;
}

bool evicts(const JobConfig& config) {
  const auto may_evict = [](const auto& one) {
    return one.evict == Evict::when_full;
  };
  return std::ranges::any_of(config.resources, may_evict) ||
         std::ranges::any_of(config.outputs, may_evict);
}

bool drains_results(const JobConfig& config) {
  return std::ranges::any_of(config.outputs,
                             [](const OutputRule& rule) { return rule.drain.has_value(); });
}

std::string_view version_pattern(std::string_view pattern) {
  std::size_t end = pattern.size();
  while (end > 0) {
    const auto slash = pattern.rfind('/', end - 1);
    const std::size_t begin = slash == pattern.npos ? 0 : slash + 1;
    if (has_wildcard(pattern.substr(begin, end - begin))) {
      return pattern.substr(0, end);
    }
    end = begin == 0 ? 0 : begin - 1;
  }
  return {};
}

std::optional<VersionName> version_name(const JobConfig& config, std::string_view path) {
  if (path.starts_with('/')) {
    path.remove_prefix(1);
  }
  const auto* rule = output_rule(config, path, false);
  if (rule == nullptr || rule->keep == 0) {
    return std::nullopt;
  }
  const auto pattern = version_pattern(rule->pattern);
  // The shortest part: a directory is one version with all below it.
  for (std::size_t begin = 0; begin < path.size();) {
    const std::size_t end = std::min(path.find('/', begin), path.size());
    if (glob_match(pattern, path.substr(0, end))) {
      return VersionName{.rule = static_cast<std::size_t>(rule - config.outputs.data()),
                         .directory = std::string(path.substr(0, begin == 0 ? 0 : begin - 1)),
                         .name = std::string(path.substr(begin, end - begin))};
    }
    begin = end + 1;
  }
  return std::nullopt;
}

bool keeps_versions(const JobConfig& config) {
  return std::ranges::any_of(config.outputs, [](const OutputRule& rule) { return rule.keep != 0; });
}

bool sends_some_versions(const JobConfig& config) {
  return std::ranges::any_of(config.outputs,
                             [](const OutputRule& rule) { return rule.send_one_in > 1; });
}

FileClass classify(const JobConfig& config, std::string_view path, bool staged_in) {
  return decide(config, path, staged_in).file_class;
}

FileClass classify(const JobConfig& config, std::string_view path, bool staged_in,
                   std::string& why) {
  const Decision decision = decide(config, path, staged_in);
  why = reason_of(config, decision, staged_in);
  return decision.file_class;
}

}  // namespace efs::config
