#include "config/cache_place.hpp"

#include "config/precedence.hpp"
#include "config/validate.hpp"

namespace efs::config {

std::expected<CachePlace, std::vector<Problem>> cache_place(const User& user,
                                                            const std::string& named) {
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
  read_cache(resolve_settings({}, overrides, surroundings, problems), config, problems);
  if (!problems.empty()) {
    return std::unexpected(problems.take_sorted());
  }
  return CachePlace{.directory = std::move(config.cache), .capacity = config.cache_capacity};
}

}  // namespace efs::config
