// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds the cache of inputs without a job file.

#include <optional>
#include <string>

#include "config/load.hpp"

namespace efs::config {

struct CachePlace {
  std::string directory;                  // "": no cache is configured
  std::optional<std::uint64_t> capacity;  // bytes
};

/// Returns `named` if it is not empty, else the cache that EFS_CACHE or the site file sets for
/// `user`.
Checked<CachePlace> cache_place(const User& user, const std::string& named);

}  // namespace efs::config
