// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Temporary directories and seeds for tests.

#include <fcntl.h>

#include <algorithm>
#include <catch2/catch_message.hpp>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <random>
#include <string>

#include "base/unique_fd.hpp"

namespace efs::test {

/// A new directory below `parent`, removed with its content.
class TempDirectory {
 public:
  explicit TempDirectory(const std::string& parent = "/tmp") {
    std::string pattern = parent + "/efs-test-XXXXXX";
    path_ = ::mkdtemp(pattern.data());
  }

  ~TempDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }

  TempDirectory(const TempDirectory&) = delete;
  TempDirectory& operator=(const TempDirectory&) = delete;

  const std::string& path() const { return path_; }

  UniqueFd open() const {
    return UniqueFd(::open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  }

 private:
  std::string path_;
};

/// Returns EFS_TEST_SEED, or a new seed. Print it with a failure: INFO("seed " << seed).
inline std::uint64_t seed() {
  if (const char* given = std::getenv("EFS_TEST_SEED")) {
    return std::strtoull(given, nullptr, 10);
  }
  return std::random_device{}();
}

/// The numbers of a long enumeration to try: all by default. For slow runs, EFS_SAMPLE=K selects
/// one of every K, starting at a number that the seed selects.
struct Sample {
  explicit Sample(std::uint64_t from_seed) : first(from_seed % step) {}

  std::uint64_t step = [] {
    const char* given = std::getenv("EFS_SAMPLE");
    return std::max<std::uint64_t>(given != nullptr ? std::strtoull(given, nullptr, 10) : 1, 1);
  }();
  std::uint64_t first;  // counted from 0
};

}  // namespace efs::test
