#pragma once
// The containers of a store that a test keeps in a directory of its own.

#include <fcntl.h>
#include <sys/stat.h>

#include <memory>
#include <string>
#include <utility>

#include "backends/fsdax.hpp"

namespace efs::test {

/// Those in `path`/data, which is made where it is not there. Throws what std::expected throws.
inline std::unique_ptr<Backend> open_containers(const std::string& path) {
  const std::string data = path + "/data";
  ::mkdir(data.c_str(), 0700);
  FsdaxOptions options;
  options.directory.reset(::open(data.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  return std::move(make_fsdax(std::move(options)).value());
}

}  // namespace efs::test
