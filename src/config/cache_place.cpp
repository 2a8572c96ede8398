// SPDX-License-Identifier: BSD-3-Clause
#include "config/cache_place.hpp"

#include "config/keys.hpp"
#include "config/precedence.hpp"

namespace efs::config {

Checked<CachePlace> cache_place(const User& user, const std::string& named) {
  auto surroundings = surroundings_of_process(user);
  auto site = load_site(surroundings);
  if (!site) {
    return std::unexpected(std::move(site.error()));
  }
  surroundings.site = std::move(*site);
  Overrides overrides;
  if (!named.empty()) {
    overrides.settings.emplace_back("cache", named);
  }
  ProblemList problems;
  JobConfig config;
  const auto settings = resolve_settings({}, overrides, surroundings, problems);
  for (const auto* name : {"cache", "cache-capacity"}) {
    read_key(settings, *find_key(settings_keys(), name), config, problems);
  }
  if (!problems.empty()) {
    return std::unexpected(problems.take_sorted());
  }
  return CachePlace{.directory = std::move(config.cache), .capacity = config.cache_capacity};
}

}  // namespace efs::config
