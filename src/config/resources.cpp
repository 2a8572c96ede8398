// SPDX-License-Identifier: BSD-3-Clause
#include <strings.h>

#include <algorithm>
#include <charconv>
#include <sstream>

#include "base/text.hpp"
#include "config/paths.hpp"
#include "config/validate.hpp"

namespace efs::config {
namespace {

// Removes trailing slashes: the ancestor's files name a backend with and without them.
std::string_view without_slashes(std::string_view id) {
  return id.substr(0, id.find_last_not_of('/') + 1);
}

// `..` after a wildcard cannot be resolved as text, and no pattern needs it.
bool is_usable_pattern(const Value& value, ProblemList& problems) {
  if (!is_usable_path(value, "path", problems)) {
    return false;
  }
  if (!has_wildcard(value.text) || !has_dot_dot(value.text)) {
    return true;
  }
  problems.add(value.mark, "pattern " + in_quotes(value.text) + " holds '..'",
               "write the pattern without it");
  return false;
}

// The words of messages about a path that is relative to `start`.
struct PathWords {
  const char *name, *start, *key;
};

constexpr PathWords of_resource{"resource ", "root-dir", "root-dir"},
    of_output{"output ", "the mount point", "mount-dir"};

// Returns the normalised relative path; nullopt if it leaves its start (reported).
std::optional<std::string> path_inside(const Value& value, const PathWords& words,
                                       ProblemList& problems) {
  auto path = relative_path(value.text);
  if (!path) {
    problems.add(value.mark,
                 words.name + in_quotes(value.text) + " leaves " + words.start + " through '..'",
                 std::string("name a path below ") + words.key);
  }
  return path;
}

// Returns the path relative to root-dir; nullopt if it is bad (reported).
std::optional<std::string> path_below_root(const Value& value, const std::string& root_dir,
                                           ProblemList& problems) {
  if (!is_usable_pattern(value, problems)) {
    return std::nullopt;
  }
  if (!value.text.starts_with('/')) {
    return path_inside(value, of_resource, problems);
  }
  if (root_dir.empty()) {
    return std::nullopt;  // already reported
  }
  const auto path = *absolute_path(value.text);
  if (is_within(path, root_dir)) {
    return std::string(part_below(path, root_dir));
  }
  problems.add(
      value.mark,
      "resource " + in_quotes(value.text) + " is not below root-dir " + in_quotes(root_dir),
      "only what is below root-dir can be staged in; or leave out the leading '/'");
  return std::nullopt;
}

// Returns the pattern relative to the mount point; an absolute pattern may name a path below
// root-dir. nullopt if it is bad (reported).
std::optional<std::string> output_pattern(const Value& value, const JobConfig& config,
                                          ProblemList& problems) {
  if (!is_usable_pattern(value, problems)) {
    return std::nullopt;
  }
  if (!value.text.starts_with('/')) {
    return path_inside(value, of_output, problems);
  }
  // already reported
  if (config.root_dir.empty() || config.mount_dir.empty()) {
    return std::nullopt;
  }
  const auto path = *absolute_path(value.text);
  for (const auto& directory : {config.mount_dir, config.root_dir}) {
    if (is_within(path, directory)) {
      return std::string(part_below(path, directory));
    }
  }
  problems.add(value.mark,
               "output " + in_quotes(value.text) + " is neither below mount-dir nor below root-dir",
               "leave out the leading '/': output paths are relative to mount-dir");
  return std::nullopt;
}

// Compares a list with the earlier ones.
void check_other_lists(const Value& value, const Resource& resource, const JobConfig& config,
                       ProblemList& problems) {
  for (const auto& other : config.resources) {
    if (!other.is_list) {
      continue;
    }
    if (other.path == resource.path) {
      problems.add(value.mark, "list " + in_quotes(value.text) + " is named twice",
                   "it is already at line " + std::to_string(other.line));
    } else if (other.file_class != resource.file_class) {
      problems.add(
          value.mark, "lists with different flags",
          "the one at line " + std::to_string(other.line) + " has others; give all the same");
    }
  }
}

// Reads a resource that lists names of inputs. Only the planner reads the list, with the job's
// rights.
void read_list(const Section& section, Resource& resource, const JobConfig& config,
               ProblemList& problems) {
  resource.is_list = true;
  resource.line = section.mark_of("list").line;
  const auto refuse = [&](std::string_view key, const char* why) {
    if (section.find(key)) {
      problems.add(section.mark_of(key), in_quotes(key) + " does not go with 'list'", why);
    }
  };
  refuse("path", "make two resources of it");
  refuse("as", "write the destination behind the path, in the line of the list");
  refuse("distribute", "every node gets what a list names");
  refuse("from-job", "a list is read when the job is submitted, too");
  const auto* value = section.find("list");
  if (!value || !is_usable_path(*value, "list", problems)) {
    return;
  }
  // already reported
  if (config.root_dir.empty() && !value->text.starts_with('/')) {
    return;
  }
  resource.open = value->open || (config.root_open && !value->text.starts_with('/'));
  resource.path = *absolute_path(
      value->text.starts_with('/') ? value->text : config.root_dir + "/" + value->text);
  check_other_lists(*value, resource, config, problems);
}

std::optional<std::string> relative_or_none(std::string_view path) {
  return path.starts_with('/') ? std::nullopt : relative_path(path);
}

// Reads the resource's destination, if it differs from its path below root-dir.
void read_as(const Section& section, Resource& resource, const JobConfig& config,
             ProblemList& problems) {
  const auto* value = section.find("as");
  if (!value || !is_usable_path(*value, "as", problems)) {
    return;
  }
  const auto path = relative_or_none(value->text);
  if (!path || path->empty() || has_wildcard(*path)) {
    problems.add(value->mark, "'as' is " + in_quotes(value->text),
                 "name a path below the mount point, as in inputs/mesh.h5");
  } else if (resource.is_glob) {
    problems.add(value->mark, "'as' does not go with a pattern",
                 "name the directory above its files, or each of them");
  } else if (config.in_place) {
    problems.add(value->mark,
                 "'as' does not go with in-place: a result would not go to where its input is",
                 "name a results-dir");
  } else {
    resource.as = *path;
  }
}

// `line`: of the first resource with this place.
void refuse_second(const Section& section, const Resource& resource, int line,
                   ProblemList& problems) {
  if (resource.as.empty()) {
    const auto* value = section.find("path");
    problems.add(value->mark, "resource " + in_quotes(value->text) + " is listed twice",
                 "it is already at line " + std::to_string(line));
  } else {
    problems.add(section.mark_of("as"),
                 "another resource is at " + in_quotes(resource.as) + ", too",
                 "it is at line " + std::to_string(line));
  }
}

void check_follow(const Section& section, const JobConfig& config, ProblemList& problems) {
  if (config.in_place) {
    problems.add(section.mark_of("follow"),
                 "'follow' does not go with in-place: a result would take the place of the link",
                 "name a results-dir");
  }
}

void check_changed(const Section& section, const Resource& resource, ProblemList& problems) {
  if (resource.changed == Changed::accept && resource.stage == StageWhen::now) {
    problems.add(section.mark_of("changed"),
                 "'changed' is accept, and the contents are copied before the job starts",
                 "add stage: on-access or stage: background");
  }
}

// Reads the result's name in results-dir.
void read_result_name(const Section& section, OutputRule& rule, const JobConfig& config,
                      ProblemList& problems) {
  const auto* value = section.find("as");
  if (!value || !is_usable_path(*value, "as", problems)) {
    return;
  }
  const auto name = relative_or_none(value->text);
  if (!name || name->empty() || name->contains('/') || has_wildcard(*name)) {
    problems.add(value->mark, "'as' of an output is " + in_quotes(value->text),
                 "name what it is called in results-dir, as in final.h5");
  } else if (has_wildcard(rule.pattern)) {
    problems.add(value->mark, "'as' does not go with a pattern", "name the file or directory");
  } else if (std::ranges::find(config.outputs, *name, &OutputRule::as) != config.outputs.end()) {
    problems.add(value->mark, "another output is called " + in_quotes(*name) + ", too",
                 "give it another name");
  } else {
    rule.as = *name;
  }
}

// Reads when results go home while the job runs.
void read_drain(const Section& section, OutputRule& rule, ProblemList& problems) {
  const auto* value = section.find("drain");
  if (value == nullptr) {
    return;
  }
  const bool on_close = strcasecmp(value->text.c_str(), "on-close") == 0;
  rule.drain = on_close ? std::chrono::seconds(0) : parse_time(value->text);
  constexpr auto longest = std::chrono::days(365);
  if (!rule.drain || (!on_close && rule.drain->count() == 0) || *rule.drain > longest) {
    problems.add(value->mark, "'drain' is " + in_quotes(value->text),
                 "say on-close, or a time from a second to a year, as in 30 s, 10 min or 2 h");
  } else if (rule.file_class == FileClass::temporary) {
    problems.add(value->mark, "'drain' does not go with flags: temporary",
                 "temporary files stay on the node; leave out one of the two");
  }
}

// Checks what the number of versions to keep goes with.
void check_keep(const Section& section, const OutputRule& rule, ProblemList& problems) {
  if (rule.keep == 0) {
    return;
  }
  const auto mark = section.mark_of("keep");
  const auto versions = version_pattern(rule.pattern);
  if (section.find("drain") == nullptr) {
    problems.add(mark, "'keep' goes with 'drain' only",
                 "add drain: on-close; efs drops only versions that results-dir has");
  } else if (rule.holds_inputs) {
    problems.add(mark, "'keep' does not go with inputs: true",
                 "leave out one of the two; inputs stay in the buffer");
  } else if (!rule.pattern.empty() && versions.empty()) {
    problems.add(mark, "'keep' goes with a pattern only",
                 "the matches of its last wildcard are the versions, as in ckpt/step*");
  } else if (versions == "**" || versions.ends_with("/**")) {
    problems.add(mark, "'keep' does not go with a pattern whose last wildcard is **",
                 "the matches of its last wildcard are the versions, as in ckpt/step*");
  }
}

/// What a section must have beside a key.
struct Needed {
  bool is_there = false;
  const char* what;
  const char* advice;
};

// Checks what the eviction of contents goes with.
void check_evict(const Section& section, const Needed& needed, const JobConfig& config,
                 ProblemList& problems) {
  const auto mark = section.mark_of("evict");
  if (!needed.is_there) {
    problems.add(mark, std::string("'evict: when-full' goes with ") + needed.what + " only",
                 needed.advice);
  } else if (config.backends.size() > 1) {
    problems.add(mark, "'evict: when-full' goes with one backend only",
                 "leave it out, or name one backend");
  } else if (config.backends.front().type != BackendType::dram &&
             !config.backends.front().capacity) {
    problems.add(mark, "'evict: when-full' goes with a backend that has a capacity only",
                 "say how much of the file system is the job's, as in capacity: 100 GiB");
  }
}

// Reads which versions go home while the job runs: "1 in N".
void read_to_pfs(const Section& section, OutputRule& rule, ProblemList& problems) {
  constexpr unsigned most = 1'000'000;
  const auto* value = section.find("to-pfs");
  if (value == nullptr) {
    return;
  }
  std::istringstream words(value->text);
  std::string one, in, number, more;
  words >> one >> in >> number >> more;
  const char* const end = number.data() + number.size();
  const auto [stop, error] = std::from_chars(number.data(), end, rule.send_one_in);
  if (one != "1" || in != "in" || !more.empty() || error != std::errc() || stop != end ||
      rule.send_one_in == 0 || rule.send_one_in > most) {
    rule.send_one_in = 1;
    problems.add(value->mark, "'to-pfs' is " + in_quotes(value->text),
                 "say 1 in N, with N from 1 to 1000000, as in 1 in 10");
  } else if (section.find("keep") == nullptr && !section.bad.contains("keep")) {
    problems.add(value->mark, "'to-pfs' goes with 'drain' and 'keep' only",
                 "add drain: on-close and keep: 2; to-pfs says which of these versions go home");
  }
}

}  // namespace

std::string read_backend_id(const Section& section, std::string_view key,
                            const std::string& fallback, const JobConfig& config,
                            ProblemList& problems) {
  const auto* value = section.find(key);
  if (!value) {
    return fallback;
  }
  std::vector<std::string_view> ids;
  for (const auto& backend : config.backends) {
    if (backend.id.empty()) {
      return {};  // the value may mean this backend without an id, which is already reported
    }
    if (without_slashes(backend.id) == without_slashes(value->text)) {
      return backend.id;
    }
    ids.push_back(backend.id);
  }
  const auto near = nearest(value->text, ids);
  problems.add(value->mark, "unknown backend " + in_quotes(value->text),
               near.empty() ? "defined here: " + in_quotes(ids.front())
                            : "did you mean " + in_quotes(near) + "?");
  return {};
}

void read_placement(const Section& settings, JobConfig& config, ProblemList& problems) {
  config.new_files =
      find_backend(config, read_backend_id(settings, "new-files", config.backends.front().id,
                                           config, problems))
          .value_or(0);
}

void read_resources(const std::vector<Section>& sections, JobConfig& config,
                    ProblemList& problems) {
  std::map<std::string, int> first_lines;
  for (const auto& section : sections) {
    Resource resource{.backend = read_backend_id(section, "backend", config.backends.front().id,
                                                 config, problems),
                      .vanished = config.vanished,
                      .line = section.mark_of("path").line};
    read_keys(section, resource_keys(), resource, problems);
    if (resource.follow) {
      check_follow(section, config, problems);
    }
    if (resource.evict == Evict::when_full) {
      check_evict(section,
                  {.is_there = resource.stage != StageWhen::background,
                   .what = "stage: now or on-access",
                   .advice = "the background fetches all its contents, so they must stay"},
                  config, problems);
    }
    check_changed(section, resource, problems);
    if (section.find("list") || section.bad.contains("list")) {
      read_list(section, resource, config, problems);
      config.resources.push_back(std::move(resource));
      continue;
    }
    const auto* value = section.require("path", problems);
    const auto path = value ? path_below_root(*value, config.root_dir, problems) : std::nullopt;
    if (path) {
      resource.open = value->open;
      resource.is_glob = has_wildcard(*path);
      resource.path = path->empty() ? config.root_dir : config.root_dir + "/" + *path;
      read_as(section, resource, config, problems);
      const auto [first, is_new] =
          first_lines.try_emplace(resource.as.empty() ? *path : resource.as, resource.line);
      if (!is_new) {
        refuse_second(section, resource, first->second, problems);
      }
    }
    config.resources.push_back(std::move(resource));
  }
}

void read_outputs(const std::vector<Section>& sections, JobConfig& config, ProblemList& problems) {
  for (const auto& section : sections) {
    OutputRule rule{.backend = read_backend_id(section, "backend", "", config, problems)};
    read_keys(section, output_keys(), rule, problems);
    if (const auto* value = section.require("path", problems)) {
      // The mount point itself stands for all files below it.
      if (const auto pattern = output_pattern(*value, config, problems)) {
        rule.pattern = pattern->empty() ? "**" : *pattern;
      }
    }
    if (!rule.pattern.empty()) {
      read_result_name(section, rule, config, problems);
    }
    read_drain(section, rule, problems);
    check_keep(section, rule, problems);
    if (rule.evict == Evict::when_full) {
      check_evict(section,
                  {.is_there = rule.drain.has_value(),
                   .what = "'drain'",
                   .advice = "add drain: on-close; only results that are home can give their room"},
                  config, problems);
    }
    read_to_pfs(section, rule, problems);
    config.outputs.push_back(std::move(rule));
  }
}

}  // namespace efs::config
