// SPDX-License-Identifier: BSD-3-Clause
#include "config/load.hpp"

#include <exception>

#include "base/text.hpp"
#include "config/read_file.hpp"
#include "config/site.hpp"
#include "config/validate.hpp"
#include "config/yaml_tree.hpp"

namespace efs::config {
namespace {

std::unexpected<Problems> one_problem(std::string text, std::string suggestion) {
  return std::unexpected(
      std::vector{Problem{.text = std::move(text), .suggestion = std::move(suggestion)}});
}

Checked<JobConfig> parse_checked(const std::string& text, const std::string& file,
                                 const Overrides& overrides, const Surroundings& surroundings) {
  const auto root = read_yaml(text);
  if (!root) {
    return std::unexpected(std::vector{root.error()});
  }
  ProblemList problems;
  auto config = validate(read_document(*root, problems), file, overrides, surroundings, problems);
  if (!problems.empty()) {
    return std::unexpected(problems.take_sorted());
  }
  return config;
}

}  // namespace

Checked<JobConfig> parse(const std::string& text, const std::string& file,
                         const Overrides& overrides, const Surroundings& surroundings) {
  if (text.size() > largest_file) {
    return one_problem("the job file is larger than 1 MiB",
                       "name directories or globs instead of single files");
  }
  try {
    auto config = parse_checked(text, file, overrides, surroundings);
    if (config) {
      config->text = text;
    }
    return config;
  } catch (const std::exception& error) {
    // bad_alloc and similar; YAML's exceptions are caught in yaml_tree
    return one_problem(std::string("the job file cannot be parsed: ") + error.what(), "");
  }
}

Checked<JobConfig> load(const std::string& file, const Overrides& overrides,
                        const Surroundings& surroundings) {
  const auto text = read_file(file, "the job file");
  if (!text) {
    return one_problem(describe(text.error()) + odd_note(file, "its name"), "");
  }
  return parse(*text, file, overrides, surroundings);
}

Checked<ReadFiles> read_files(const std::string& file, const std::optional<std::string>& given) {
  auto site = read_site(surroundings_of_process({}));
  if (!site) {
    return std::unexpected(std::move(site.error()));
  }
  auto text = given ? Result<std::string>(*given) : read_file(file, "the job file");
  if (!text) {
    return one_problem(describe(text.error()) + odd_note(file, "its name"), "");
  }
  ReadFiles read{.job = std::move(*text), .site_file = {}, .site = {}};
  if (*site) {
    read.site_file = std::move((*site)->file), read.site = std::move((*site)->text);
  }
  return read;
}

Checked<JobConfig> load_for_user(const std::string& file, const Overrides& overrides,
                                 const User& user, const Loading& how) {
  const auto read = read_files(file);
  if (!read) {
    return std::unexpected(read.error());
  }
  return parse_for_user(*read, file, overrides, user, how);
}

Checked<JobConfig> parse_for_user(const ReadFiles& read, const std::string& file,
                                  const Overrides& overrides, const User& user,
                                  const Loading& how) {
  auto surroundings = surroundings_of_process(user);
  auto site = site_of(read.site_file.empty()
                          ? std::nullopt
                          : std::optional(SiteText{.file = read.site_file, .text = read.site}));
  if (!site) {
    return std::unexpected(std::move(site.error()));
  }
  surroundings.site = std::move(*site);
  surroundings.before_job = how.before_job;
  surroundings.directory = how.directory;
  Circumstances used{.variables = {},
                     .settings = overrides.settings,
                     .user = surroundings.user,
                     .home = surroundings.home,
                     .node = surroundings.node};
  surroundings.variable = [&used, all = surroundings.variable](const std::string& name) {
    auto value = all(name);
    if (value) {
      used.variables[name] = *value;
    }
    return value;
  };
  auto config = parse(read.job, file, overrides, surroundings);
  if (config) {
    config->circumstances = std::move(used);
  }
  return config;
}

Checked<JobConfig> reload(const std::string& text, const std::string& file,
                          const Overrides& overrides, const Circumstances& circumstances) {
  Surroundings then{.variable = {},
                    .user = circumstances.user,
                    .home = circumstances.home,
                    .node = circumstances.node,
                    .site = nullptr};
  then.variable = [&circumstances](const std::string& name) -> std::optional<std::string> {
    const auto found = circumstances.variables.find(name);
    return found == circumstances.variables.end() ? std::nullopt : std::optional(found->second);
  };
  Overrides all = overrides;
  all.settings = circumstances.settings;
  const auto site = load_site(surroundings_of_process({}));
  auto config = parse(text, file, all, then);
  if (site) {
    then.site = *site;
    if (auto sited = parse(text, file, all, then)) {
      config = std::move(sited);
    }
  }
  if (config) {
    config->circumstances = circumstances;
  }
  return config;
}

}  // namespace efs::config
