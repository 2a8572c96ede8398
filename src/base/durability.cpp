// SPDX-License-Identifier: BSD-3-Clause
#include "base/durability.hpp"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>

#include "base/unique_fd.hpp"

namespace efs {

namespace {

constexpr std::array names{"memory", "page cache", "persistent memory"};
constexpr std::array meanings{"volatile, lost at a restart of the node",
                              "durable by fsync or msync",
                              "real DAX, made durable by flushes of the CPU's caches"};

}  // namespace

const char* name_of(Durability durability) {
  return names.at(static_cast<std::size_t>(durability));
}

std::optional<Durability> durability_named(std::string_view name) {
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (name == names[i]) {
      return static_cast<Durability>(i);
    }
  }
  return std::nullopt;
}

const char* meaning_of(Durability durability) {
  return meanings.at(static_cast<std::size_t>(durability));
}

Durability DurabilityProbe::durability() const {
  if (memory) {
    return Durability::volatile_memory;
  }
  return maps_persistent ? Durability::cache_line : Durability::page;
}

DurabilityProbe probe_durability(int directory, IsPmem is_pmem) {
  constexpr std::size_t length = 4096;
  DurabilityProbe found;
  struct statfs fs{};
  if (::fstatfs(directory, &fs) == 0) {
    found.memory = fs.f_type == TMPFS_MAGIC || fs.f_type == RAMFS_MAGIC;
  }
  const UniqueFd fd(::openat(directory, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  if (!fd || ::ftruncate(fd.get(), length) != 0) {
    found.problem = errno;
    return found;
  }
  const SharedMapping mapping = map_shared(fd.get(), length, 0);
  if (mapping.address == nullptr) {
    found.problem = errno;
    return found;
  }
  found.maps_persistent = is_persistent(mapping, length, is_pmem);
  ::munmap(mapping.address, length);
  return found;
}

}  // namespace efs
