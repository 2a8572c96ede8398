// SPDX-License-Identifier: BSD-3-Clause
#include "cli/slurm_site.hpp"

#include <glob.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>
#include <cstdio>
#include <fstream>
#include <sstream>

namespace efs::cli {
namespace {

std::optional<std::string> output_of(const std::string& command) {
  FILE* pipe = ::popen(command.c_str(), "re");
  if (pipe == nullptr) {
    return std::nullopt;
  }
  std::string text;
  std::array<char, 4096> buffer{};
  for (std::size_t n = 0; (n = std::fread(buffer.data(), 1, buffer.size(), pipe)) > 0;) {
    text.append(buffer.data(), n);
  }
  return ::pclose(pipe) == 0 ? std::optional(text) : std::nullopt;
}

void read_plugstack(const std::string& file, unsigned depth, PluginLine& found);

// Reads the files that match `pattern`, which is relative to the directory of `file`, until one has
// the plugin's line.
void read_included(const std::string& file, const std::string& pattern, unsigned depth,
                   PluginLine& found) {
  glob_t matches{};
  const std::string whole =
      pattern.starts_with('/') ? pattern : file.substr(0, file.rfind('/') + 1) + pattern;
  if (::glob(whole.c_str(), 0, nullptr, &matches) == 0) {
    for (std::size_t i = 0; i < matches.gl_pathc && found.plugin.empty(); ++i) {
      read_plugstack(matches.gl_pathv[i], depth + 1, found);
    }
  }
  ::globfree(&matches);
}

void read_plugstack(const std::string& file, unsigned depth, PluginLine& found) {
  std::ifstream in(file);
  for (std::string text; depth < 8 && found.plugin.empty() && std::getline(in, text);) {
    std::istringstream words(text.substr(0, text.find('#')));
    std::string kind, plugin;
    words >> kind >> plugin;
    if (kind == "include") {
      read_included(file, plugin, depth, found);
    }
    if ((kind != "required" && kind != "optional") || !plugin.ends_with("spank_efs.so")) {
      continue;
    }
    found = {kind == "required", plugin, {}, {}};
    for (std::string word; words >> word; found.words.push_back(word)) {
      if (const auto equals = word.find('='); equals != std::string::npos) {
        found.arguments[word.substr(0, equals)] = word.substr(equals + 1);
      }
    }
  }
}

std::string expand_node(std::string path) {
  std::array<char, 256> host{};
  ::gethostname(host.data(), host.size() - 1);
  const std::string name(host.data(), std::string(host.data()).find('.') == std::string::npos
                                          ? std::string(host.data()).size()
                                          : std::string(host.data()).find('.'));
  for (auto at = path.find("%n"); at != std::string::npos; at = path.find("%n", at + name.size())) {
    path.replace(at, 2, name);
  }
  return path;
}

}  // namespace

bool has_slurm() {
  return output_of("command -v scontrol").has_value();
}

std::optional<SlurmConfig> slurm_config() {
  const auto text = output_of("timeout 20 scontrol show config 2>/dev/null </dev/null");
  return text ? std::optional(parse_slurm_config(*text)) : std::nullopt;
}

SlurmConfig slurmd_unit() {
  const auto text = output_of(
      "timeout 5 systemctl show --property=LoadState,KillMode slurmd.service 2>/dev/null "
      "</dev/null");
  const SlurmConfig unit = parse_slurm_config(text.value_or(""));
  return value_of(unit, "LoadState") == "loaded" ? unit : SlurmConfig{};
}

std::string value_of(const SlurmConfig& config, const std::string& key) {
  const auto found = config.find(key);
  return found == config.end() ? "" : found->second;
}

SlurmConfig parse_slurm_config(std::string_view text) {
  SlurmConfig config;
  std::istringstream lines{std::string(text)};
  for (std::string line; std::getline(lines, line);) {
    const auto equals = line.find('=');
    if (equals == std::string::npos) {
      continue;
    }
    const auto trimmed = [](std::string word) {
      word.erase(0, word.find_first_not_of(" \t"));
      word.erase(word.find_last_not_of(" \t") + 1);
      return word;
    };
    const std::string value = trimmed(line.substr(equals + 1));
    config[trimmed(line.substr(0, equals))] = value == "(null)" ? "" : value;
  }
  return config;
}

PluginLine find_plugin_line(const std::string& plugstack) {
  PluginLine found;
  read_plugstack(plugstack, 0, found);
  return found;
}

std::string argument_of(const PluginLine& line, const std::string& key) {
  const auto at = line.arguments.find(key);
  return at == line.arguments.end() ? "" : expand_node(at->second);
}

std::string site_argument(const std::string& key) {
  const auto config = has_slurm() ? slurm_config() : std::nullopt;
  return config ? argument_of(find_plugin_line(value_of(*config, "PlugStackConfig")), key) : "";
}

std::optional<SlurmJob> parse_slurm_job(std::string_view line) {
  SlurmJob job;
  std::array<std::string*, 3> fields{&job.state, &job.reason, &job.start};
  const auto [rest, problem] = std::from_chars(line.data(), line.data() + line.size(), job.id);
  if (problem != std::errc{}) {
    return std::nullopt;
  }
  line.remove_prefix(static_cast<std::size_t>(rest - line.data()));
  for (std::string* field : fields) {
    if (!line.starts_with('|')) {
      return std::nullopt;
    }
    line.remove_prefix(1);
    *field = line.substr(0, line.find('|'));
    line.remove_prefix(field->size());
  }
  for (std::string* field : {&job.array, &job.task}) {
    if (!line.starts_with('|')) {
      break;
    }
    line.remove_prefix(1);
    *field = line.substr(0, line.find('|'));
    line.remove_prefix(field->size());
  }
  return job;
}

std::vector<SlurmJob> ask_slurm_for_all(const std::string& job) {
  if (job.empty() ||
      !std::ranges::all_of(job, [](unsigned char c) { return std::isdigit(c) != 0 || c == '_'; })) {
    return {};
  }
  const auto text = output_of("timeout 20 squeue --noheader --states=all --jobs=" + job +
                              " --format='%A|%T|%r|%S|%F|%K' 2>/dev/null </dev/null");
  std::istringstream lines(text.value_or(""));
  std::vector<SlurmJob> found;
  for (std::string line; std::getline(lines, line);) {
    if (auto one = parse_slurm_job(line)) {
      found.push_back(std::move(*one));
    }
  }
  return found;
}

std::optional<SlurmJob> ask_slurm(const std::string& job) {
  const auto all = ask_slurm_for_all(job);
  if (all.empty()) {
    return std::nullopt;
  }
  const auto own =
      std::ranges::find_if(all, [&](const SlurmJob& one) { return std::to_string(one.id) == job; });
  return own == all.end() ? all.front() : *own;
}

}  // namespace efs::cli
