// SPDX-License-Identifier: BSD-3-Clause
#include "config/site.hpp"

#include <algorithm>
#include <array>
#include <exception>

#include "base/text.hpp"
#include "config/keys.hpp"
#include "config/read_file.hpp"

namespace efs::config {
namespace {

void mark_origin(Section& section, const std::string& file) {
  section.mark.origin = file;
  for (auto& [key, value] : section.values) {
    value.mark.origin = file;
    value.source = Source::site;
  }
}

bool has(std::span<const std::string_view> keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

// A fixed key must have a value.
void check_fixed(const Site& site, ProblemList& problems) {
  for (const auto& word : site.fixed) {
    const std::string& key = word.text;
    const bool of_settings = has(settings_schema(), key), of_backend = has(backend_schema(), key);
    if (key != "backends" && !of_settings && !of_backend) {
      std::vector<std::string_view> known(settings_schema().begin(), settings_schema().end());
      known.insert(known.end(), backend_schema().begin(), backend_schema().end());
      const auto near = nearest(key, known);
      problems.add(word.mark, in_quotes(key) + " cannot be fixed",
                   near.empty() ? "name a key of global-settings or of a backend, or 'backends'"
                                : "did you mean " + in_quotes(near) + "?");
    } else if (of_settings ? site.settings.find(key) == nullptr
                           : site.backends.empty() ||
                                 (of_backend && site.backends.front().find(key) == nullptr)) {
      problems.add(word.mark, in_quotes(key) + " is fixed, but has no value here",
                   of_settings ? "add it to global-settings" : "add it to the first backend");
    }
  }
}

void check_of_one_job(const Section& settings, ProblemList& problems) {
  for (const auto& key : settings_keys()) {
    if ((key.flags & of_one_job) != 0 && settings.find(key.name)) {
      problems.add(settings.mark_of(key.name),
                   in_quotes(key.name) + " is of one job: it cannot have a value for all",
                   "remove it");
    }
  }
}

void read_huge(const Section& top, Site& site, ProblemList& problems) {
  const auto* key = find_key(site_keys(), "huge");
  if (const Value* huge = top.find("huge"); huge && read_value(top, *key, problems)) {
    site.huge = *huge;
    site.huge->mark.origin = site.file;
    site.huge->source = Source::site;
  }
}

std::unexpected<Problems> problem_of_site(const std::string& file, std::string text) {
  return std::unexpected(
      Problems{Problem{.text = std::move(text), .suggestion = "", .origin = file}});
}

}  // namespace

Checked<Site> parse_site(const std::string& text, const std::string& file) {
  if (text.size() > largest_file) {
    return problem_of_site(file, "the site file is larger than 1 MiB");
  }
  const auto name = [&](Problems problems) {
    for (auto& problem : problems) {
      problem.origin = file;
    }
    return std::unexpected(std::move(problems));
  };
  auto root = read_yaml(text);
  if (!root) {
    return name({root.error()});
  }
  ProblemList problems;
  auto document = read_site_document(*root, problems);
  Site site{.file = file,
            .settings = std::move(document.settings),
            .backends = std::move(document.backends),
            .fixed = std::move(document.fixed),
            .limits = std::move(document.limits)};
  site.settings.title = "global-settings";
  if (const auto* directory = document.top.find("runtime-dir")) {
    site.runtime_dir = directory->text;
    if (!site.runtime_dir.starts_with('/')) {
      problems.add(directory->mark, "'runtime-dir' must be an absolute path");
    }
  }
  read_keys(document.top, site_keys(), site, problems);
  read_huge(document.top, site, problems);
  read_keys(site.limits, limit_keys(), site, problems);
  check_fixed(site, problems);
  check_of_one_job(site.settings, problems);
  mark_origin(site.settings, file);
  mark_origin(site.limits, file);
  for (auto& backend : site.backends) {
    mark_origin(backend, file);
  }
  if (!problems.empty()) {
    return name(problems.take_sorted());
  }
  return site;
}

Checked<std::optional<SiteText>> read_site(const Surroundings& surroundings) {
  const auto named = surroundings.find("EFS_SITE_FILE");
  const std::string file = named && !named->empty() ? *named : default_site_file;
  auto text = read_file(file, "the site file", true);
  if (!text && text.error().code == ENOENT && file == default_site_file) {
    return std::nullopt;
  }
  if (!text) {
    return problem_of_site(file, describe(text.error()));
  }
  return SiteText{.file = file, .text = std::move(*text)};
}

Checked<std::shared_ptr<const Site>> site_of(const std::optional<SiteText>& read) {
  if (!read) {
    return nullptr;
  }
  try {
    auto site = parse_site(read->text, read->file);
    if (!site) {
      return std::unexpected(std::move(site.error()));
    }
    return std::make_shared<const Site>(std::move(*site));
  } catch (const std::exception& error) {
    return problem_of_site(read->file,
                           std::string("the site file cannot be parsed: ") + error.what());
  }
}

Checked<std::shared_ptr<const Site>> load_site(const Surroundings& surroundings) {
  auto read = read_site(surroundings);
  if (!read) {
    return std::unexpected(std::move(read.error()));
  }
  return site_of(*read);
}

}  // namespace efs::config
