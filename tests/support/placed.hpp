// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The ledger of a store without a running instance.

#include <catch2/catch_test_macros.hpp>
#include <memory>
#include <string_view>
#include <utility>

#include "fs/placed_file.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::test {

/// As a new process of the store with this metadata directory.
inline std::unique_ptr<stage::PlacedNames> placed_names(int metadata,
                                                        std::string_view results_dir) {
  auto file = fs::PlacedFile::open(metadata);
  REQUIRE(file);
  return std::make_unique<stage::PlacedNames>(std::move(*file), results_dir);
}

}  // namespace efs::test
