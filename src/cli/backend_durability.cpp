// SPDX-License-Identifier: BSD-3-Clause
#include "cli/backend_durability.hpp"

#include <fcntl.h>
#include <libpmem.h>

#include <cerrno>
#include <cstring>

#include "base/unique_fd.hpp"

namespace efs::cli {

DurabilityProbe probe_directory(const std::string& path) {
  // O_PATH: a directory for the stores of all users need not be readable
  const UniqueFd directory(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!directory) {
    return {.problem = errno};
  }
  return probe_durability(directory.get(), ::pmem_is_pmem);
}

DurabilityProbe probe_backend(const config::Backend& backend) {
  return backend.type == config::BackendType::dram ? DurabilityProbe{.memory = true}
                                                   : probe_directory(backend.daxfs);
}

std::string durability_text(Durability durability) {
  return std::string(name_of(durability)) + ": " + meaning_of(durability);
}

std::string durability_text(const DurabilityProbe& probe) {
  return durability_text(probe.durability()) +
         (probe.problem == 0 || probe.memory
              ? ""
              : std::string(" (no file can be made and mapped there: ") +
                    std::strerror(probe.problem) + ")");
}

}  // namespace efs::cli
