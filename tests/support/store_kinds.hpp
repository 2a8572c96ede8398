// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The kinds of stores that a test can run on: containers that are files, and containers that are
// none.

#include <memory>
#include <string>

#include "backends/backend.hpp"
#include "support/containers.hpp"
#include "support/slab_backend.hpp"

namespace efs::test {

struct StoreKind {
  const char* name;
  /// Opens the store in this directory; creates it if it is missing.
  std::unique_ptr<Backend> (*open)(const std::string& directory);
};

inline constexpr StoreKind in_files{"files", [](const std::string& directory) {
                                      return open_containers(directory);
                                    }};

inline constexpr StoreKind in_slab{"slab", [](const std::string& directory) {
                                     return make_slab({.path = directory + "/slab"}).value();
                                   }};

}  // namespace efs::test
