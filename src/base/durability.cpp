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

const char* name_of(Durability durability) {
  static constexpr std::array names{"memory", "page cache", "persistent memory"};
  return names.at(static_cast<std::size_t>(durability));
}

const char* meaning_of(Durability durability) {
  static constexpr std::array meanings{
      "volatile memory: it does not survive a restart of the node",
      "page cache: durable by fsync or msync",
      "DAX on persistent memory: durable by a flush of the CPU's caches"};
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
