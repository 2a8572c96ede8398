// SPDX-License-Identifier: BSD-3-Clause
#include "base/door_memory.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>
#include <new>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // linux/memfd.h
#endif

namespace efs {
namespace {

// As for the other memory files of the supervisor: kernels before Linux 6.3 do not know the flag.
UniqueFd memory_file() {
  constexpr const char* name = "efs-door";
  constexpr unsigned sealable = MFD_CLOEXEC | MFD_ALLOW_SEALING;
  const int fd = ::memfd_create(name, sealable | MFD_NOEXEC_SEAL);
  return UniqueFd(fd < 0 && errno == EINVAL ? ::memfd_create(name, sealable) : fd);
}

}  // namespace

void DoorMemory::Unmap::operator()(DoorTable* table) const {
  ::munmap(table, sizeof *table);
}

// F_SEAL_FUTURE_WRITE leaves the mapping that exists.
Result<DoorMemory> DoorMemory::make() {
  DoorMemory made;
  // a signal would end the process
  if (rlimit limit{};
      ::getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < sizeof(DoorTable)) {
    return fail(EFBIG, "memory file of the door");
  }
  made.file_ = memory_file();
  if (!made.file_ || ::ftruncate(made.file_.get(), sizeof(DoorTable)) != 0) {
    return fail_errno("memory file of the door");
  }
  void* memory =
      ::mmap(nullptr, sizeof(DoorTable), PROT_READ | PROT_WRITE, MAP_SHARED, made.file_.get(), 0);
  if (memory == MAP_FAILED) {
    return fail_errno("memory file of the door");
  }
  made.table_.reset(new (memory) DoorTable{});
  made.table_->magic = door_magic;
  made.table_->slots = door_slots;
  constexpr int size_and_content = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_FUTURE_WRITE | F_SEAL_SEAL;
  if (::fcntl(made.file_.get(), F_ADD_SEALS, size_and_content) != 0) {
    return fail_errno("seals of the memory file of the door");
  }
  return made;
}

void DoorMemory::all_changed() {
  for (auto& epoch : table_->epochs) {
    epoch.fetch_add(1);
  }
}

}  // namespace efs
