#pragma once
// A shared mapping of a file, with MAP_SYNC where the file system gives it.

#include <sys/mman.h>
#include <sys/types.h>

#include <cstddef>
#include <cstdlib>

namespace efs {

struct SharedMapping {
  void* address = nullptr;  // null: errno says why; the owner unmaps it
  // DAX on persistent memory: a store that is flushed from the processor's caches survives power
  // loss
  bool synchronous = false;
};

/// Nothing but the kernel's yes to MAP_SYNC proves persistent memory here: pmem_is_pmem() knows
/// only mappings that libpmem made itself (and PMEM_IS_PMEM_FORCE, see may_be_forced()).
inline SharedMapping map_shared(int fd, std::size_t length, off_t offset) {
  void* address =
      ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED_VALIDATE | MAP_SYNC, fd, offset);
  if (address != MAP_FAILED) {
    return {address, true};
  }
  address = ::mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_SHARED, fd, offset);
  return {address == MAP_FAILED ? nullptr : address, false};
}

/// Is libpmem to be believed where the kernel says no (PMEM_IS_PMEM_FORCE)? In tests only, which
/// say so besides: who has that variable set for programs of his own is not to lose what he has
/// synced here.
inline bool may_be_forced() {
  return std::getenv("EFS_TEST_PMEM") != nullptr;
}

}  // namespace efs
