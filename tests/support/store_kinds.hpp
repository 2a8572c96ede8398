// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The kinds of stores that a test can run on: containers that are files, and containers that are
// none.

#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "backends/backend.hpp"
#include "backends/virtual_device.hpp"
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

inline constexpr StoreKind in_two_places{
    "two places", [](const std::string& directory) {
      VirtualDeviceOptions options;
      for (const std::string id : {"ram", "disk"}) {
        std::filesystem::create_directories(directory + "/" + id);
        options.members.push_back({.id = id, .backend = open_containers(directory + "/" + id)});
      }
      return make_virtual_device(std::move(options)).value();
    }};

}  // namespace efs::test
