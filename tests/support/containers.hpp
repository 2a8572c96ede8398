// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The containers of a store in a test's own directory.

#include <fcntl.h>
#include <sys/stat.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "backends/fsdax.hpp"

namespace efs::test {

/// Opens the containers in `path`/data; creates the directory if it is missing. Throws if
/// std::expected throws. `capacity`: bytes that the backend enforces; absent: the file system's.
inline std::unique_ptr<Backend> open_containers(const std::string& path,
                                                std::optional<std::uint64_t> capacity = {}) {
  const std::string data = path + "/data";
  ::mkdir(data.c_str(), 0700);
  FsdaxOptions options;
  options.directory.reset(::open(data.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  options.capacity = capacity;
  options.strict = capacity.has_value();
  return std::move(make_fsdax(std::move(options)).value());
}

}  // namespace efs::test
