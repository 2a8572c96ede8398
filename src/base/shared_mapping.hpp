// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A shared mapping of a file, with MAP_SYNC if the file system supports it.

#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdlib>

namespace efs {

struct SharedMapping {
  void* address = nullptr;  // null: errno has the reason; the owner unmaps it
  // DAX on persistent memory: a store flushed from the processor's caches survives power loss
  bool synchronous = false;
};

/// Only the kernel's acceptance of MAP_SYNC proves persistent memory here. pmem_is_pmem() knows
/// only mappings that libpmem made (and PMEM_IS_PMEM_FORCE, see may_be_forced()).
inline SharedMapping map_shared(int fd, std::size_t length, off_t offset) {
  void* address =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, offset);
  if (address != MAP_FAILED) {
    return {address, true};
  }
  address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
  return {address == MAP_FAILED ? nullptr : address, false};
}

/// Returns whether to trust libpmem when the kernel denies persistent memory (PMEM_IS_PMEM_FORCE).
/// Only tests may, and they set an additional variable: a user with PMEM_IS_PMEM_FORCE set for
/// other programs must not lose synced data here.
inline bool may_be_forced() {
  return std::getenv("EFS_TEST_PMEM") != nullptr;
}

/// pmem_is_pmem() of libpmem, which this layer does not link.
using IsPmem = int (*)(const void* address, std::size_t length);

/// Returns whether a drained store into this mapping survives power loss. Tests can force it by
/// `is_pmem`.
inline bool is_persistent(const SharedMapping& mapping, std::size_t length, IsPmem is_pmem) {
  return mapping.address != nullptr &&
         (mapping.synchronous || (may_be_forced() && is_pmem(mapping.address, length) != 0));
}

}  // namespace efs
