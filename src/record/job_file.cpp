// SPDX-License-Identifier: BSD-3-Clause
#include "record/job_file.hpp"

#include <algorithm>
#include <iterator>
#include <map>
#include <string_view>

#include "base/text.hpp"
#include "config/expand.hpp"
#include "config/yaml_text.hpp"

namespace efs::record {
namespace {

constexpr std::size_t most_names = 20;  // that a comment lists
constexpr std::size_t most_rules = 40;
constexpr std::uint64_t MiB = 1U << 20U;

std::string count_text(std::uint64_t count, const char* noun) {
  return std::to_string(count) + " " + noun + (count == 1 ? "" : "s");
}

std::string words_text(const std::vector<std::string>& words) {
  std::string text;
  for (const auto& word : words) {
    text += (text.empty() ? "" : " ") + as_word(word);
  }
  return text;
}

std::string last_component(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// A ~ at the start would mean the home directory.
std::string value_of(const std::string& path) {
  return config::yaml_value(config::escape(path.starts_with('~') ? "./" + path : path));
}

void add_line(std::string& text, const std::string& line) {
  text += line + "\n";
}

// Returns the first two components of an absolute path; the path itself if it has no more.
std::string top_of(const std::string& path) {
  const auto second = path.find('/', 1);
  const auto third = second == path.npos ? path.npos : path.find('/', second + 1);
  return path.substr(0, third);
}

// Joins names of one directory if there are too many names for a comment.
std::vector<std::string> shortened(const std::vector<std::string>& names) {
  if (names.size() <= most_names) {
    return names;
  }
  std::map<std::string, std::size_t> count_of;
  for (const auto& name : names) {
    ++count_of[top_of(name)];
  }
  std::vector<std::string> lines;
  for (const auto& [top, count] : count_of) {
    lines.push_back(count == 1 ? top : top + ": " + count_text(count, "file"));
  }
  return lines;
}

// One line of a comment for each path or directory, and their number if they are too many.
void add_names(std::string& text, const std::vector<std::string>& names) {
  std::size_t shown = 0;
  for (const auto& line : shortened(names)) {
    if (shown++ == most_names) {
      add_line(text, "#   ... " + count_text(names.size(), "file") + " in all");
      return;
    }
    add_line(text, "#   " + escaped(line));
  }
}

void add_head(std::string& text, const Run& run) {
  add_line(text,
           "# efs record wrote this file. It describes one run of: " + words_text(run.command));
  if (run.exit_code != 0) {
    add_line(text, "# THE PROGRAM FAILED (exit status " + std::to_string(run.exit_code) +
                       "): files that it uses later are missing here.");
  }
  if (run.lost > 0) {
    add_line(text, "# THE RECORDING IS NOT COMPLETE: it has no space for " +
                       count_text(run.lost, "event") + ". Files may be missing here.");
  }
  add_line(text, "# Read it, then:");
  const std::string file = as_word(run.job_file);
  add_line(text, "#   efs check " + file + " && efs plan " + file);
  add_line(text, "#   efs run " + file + " -- " + words_text(command_on_mount(run)));
  add_line(text,
           "# The program must name its files below mount-dir, or relative to its directory.");
  add_line(text, "");
}

void add_settings(std::string& text, const Run& run) {
  add_line(text, "global-settings:");
  add_line(text, "  root-dir: " + value_of(run.root_dir));
  add_line(text, "  mount-dir: " + value_of(mount_dir_of(run)));
  add_line(text, "  results-dir: " + value_of(results_dir_of(run)) +
                     "  # under Slurm add .%j: a directory for each job");
  add_line(text, "");
}

// The capacity that such a run needs, with a quarter more.
std::string capacity_text(const Sizes& sizes) {
  constexpr std::uint64_t least = 64 * MiB;
  const std::uint64_t all = sizes.inputs + sizes.results + sizes.temporaries;
  const std::uint64_t wanted = std::max(all + all / 4, least);
  return std::to_string((wanted + MiB - 1) / MiB) + " MiB";
}

void add_sizes(std::string& text, const Sizes& sizes) {
  add_line(text, "# Sizes of this run: inputs " + format_bytes(sizes.inputs) + ", results " +
                     format_bytes(sizes.results) + ", temporary files " +
                     format_bytes(sizes.temporaries) + ".");
  add_line(text, "# Without a backend efs uses half of the job's memory. For another size:");
  add_line(text, "# backends:");
  add_line(text, "#   - id: ram");
  add_line(text, "#     type: DRAM");
  add_line(text, "#     capacity: " + capacity_text(sizes));
  add_line(text, "");
}

void add_resource(std::string& text, const Resource& resource) {
  const std::string indent = resource.is_gone ? "  # " : "  ";
  std::string line = indent + "- path: " + value_of(resource.path) + "  # " +
                     count_text(resource.files, "file") + ", " + format_bytes(resource.bytes);
  line += resource.note.empty() ? "" : "; " + resource.note;
  add_line(text, line);
  if (resource.follow) {
    add_line(text, indent + "  follow: true  # a link to a file outside of root-dir");
  }
}

void add_resources(std::string& text, const std::vector<Resource>& resources) {
  if (resources.empty()) {
    add_line(text, "# efs record saw no file that was read below root-dir.");
    add_line(text, "");
    return;
  }
  const bool are_gone = std::ranges::all_of(resources, &Resource::is_gone);
  add_line(text, are_gone ? "# resources:" : "resources:");
  for (const auto& resource : resources) {
    add_resource(text, resource);
  }
  if (std::ranges::any_of(resources, &Resource::is_gone)) {
    add_line(text,
             "  # Remove the # before names that the job needs; restore files that are gone.");
  }
  add_line(text, "");
}

void add_rule(std::string& text, const Rule& rule) {
  add_line(text, "  - path: " + value_of(rule.path) + "  # " + count_text(rule.files, "file") +
                     ", " + format_bytes(rule.bytes));
  if (rule.inputs) {
    add_line(text, "    inputs: true  # also files that exist in root-dir");
  }
  if (rule.is_temporary) {
    add_line(text, "    flags: temporary");
  }
}

void add_rules(std::string& text, const std::vector<Rule>& rules) {
  if (rules.empty()) {
    add_line(text, "# efs record saw no result below root-dir.");
    return;
  }
  add_line(text, "outputs:");
  std::size_t shown = 0;
  for (const auto& rule : rules) {
    // the last rule covers the others
    if (shown < most_rules || rule.is_temporary) {
      add_rule(text, rule);
      ++shown;
    }
  }
  add_line(text, "  - path: \"**\"  # results of other names; without this rule efs drops them");
  add_line(text, "    inputs: true");
}

void add_temporaries(std::string& text, const Summary& summary) {
  if (summary.temporaries.empty()) {
    return;
  }
  std::vector<std::string> names;
  std::ranges::transform(summary.temporaries, std::back_inserter(names), &Product::path);
  add_line(text, "");
  add_line(text, "# Temporary files: the program removed or renamed them.");
  add_names(text, names);
}

void add_outside(std::string& text, const char* title, const std::vector<std::string>& names) {
  if (!names.empty()) {
    add_line(text, "");
    add_line(text, title);
    add_names(text, names);
  }
}

// Replaces root-dir at the start of a path by mount-dir; also of the path in --option=PATH.
std::string on_mount(const std::string& word, const Run& run) {
  const auto equals = word.find('=');
  const std::size_t at = word.starts_with('/') || equals == word.npos ? 0 : equals + 1;
  const std::string path = word.substr(at);
  for (const auto& root : {run.root_dir, run.root}) {
    if (is_below(path, root)) {
      return word.substr(0, at) + mount_dir_of(run) + path.substr(root.size());
    }
  }
  return word;
}

}  // namespace

Sizes sizes_of(const Summary& summary, const std::vector<Resource>& resources) {
  Sizes sizes;
  for (const auto& resource : resources) {
    sizes.inputs += resource.bytes;
  }
  for (const auto& result : summary.results) {
    sizes.results += result.bytes;
  }
  for (const auto& temporary : summary.temporaries) {
    sizes.temporaries += temporary.bytes;
  }
  return sizes;
}

std::string mount_dir_of(const Run& run) {
  std::string name = last_component(run.root_dir);
  std::ranges::replace_if(
      name,
      [](char c) {
        return !std::string_view(
                    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")
                    .contains(c);
      },
      '-');
  std::string mount = "/tmp/efs-" + name;
  while (is_below(run.root_dir, mount) || is_below(run.root, mount)) {
    mount += "-job";
  }
  return mount;
}

std::string results_dir_of(const Run& run) {
  return run.root_dir + "-results";
}

std::vector<std::string> command_on_mount(const Run& run) {
  std::vector<std::string> words;
  if (is_below(run.directory, run.root)) {
    const std::string below = run.directory.substr(run.root.size());
    const std::string place = "\"$EFS_MOUNT\"" + (below.empty() ? "" : as_word(below));
    words = {"sh", "-c", "cd " + place + " && exec \"$@\"", "sh"};
  }
  for (const auto& word : run.command) {
    words.push_back(on_mount(word, run));
  }
  return words;
}

std::string write_job_file(const Run& run, const Summary& summary,
                           const std::vector<Resource>& resources, const std::vector<Rule>& rules) {
  std::string text;
  add_head(text, run);
  add_settings(text, run);
  add_sizes(text, sizes_of(summary, resources));
  add_resources(text, resources);
  add_rules(text, rules);
  add_temporaries(text, summary);
  add_outside(text, "# Read outside of root-dir. efs does not import these files.",
              summary.outside_read);
  add_outside(text, "# Written outside of root-dir. efs does not export these files.",
              summary.outside_written);
  return text;
}

}  // namespace efs::record
