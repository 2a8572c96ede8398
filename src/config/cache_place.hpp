#pragma once
// Where the cache of inputs lies, for whoever has no job file at hand.

#include <expected>
#include <optional>
#include <string>
#include <vector>

#include "config/load.hpp"

namespace efs::config {

struct CachePlace {
  std::string directory;                  // "": no cache is configured
  std::optional<std::uint64_t> capacity;  // bytes
};

/// `named`, or what EFS_CACHE or the site file says for `user`.
std::expected<CachePlace, std::vector<Problem>> cache_place(const User& user,
                                                            const std::string& named);

}  // namespace efs::config
