// SPDX-License-Identifier: BSD-3-Clause
#include "base/memory.hpp"

#include <malloc.h>
#include <sys/mman.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <new>

#include "base/mutex.hpp"

namespace efs {

bool can_allocate(std::size_t bytes) noexcept {
  // volatile: a compiler removes an allocation that is only freed
  void* volatile memory = std::malloc(bytes);
  std::free(memory);
  return memory != nullptr;
}

void keep_little_of_freed() noexcept {
  ::mallopt(M_TRIM_THRESHOLD, 128 << 10);
  // fastbins of ended threads would prevent the release of the free memory behind them
  ::mallopt(M_MXFAST, 0);
  // larger blocks are rare: each gets its own mapping, which the kernel clears
  ::mallopt(M_MMAP_THRESHOLD, 1 << 20);
}

void give_back_freed() noexcept {
  (void)::malloc_trim(0);
}

PresentMemory::PresentMemory(std::size_t bytes) : size_(bytes) {
  void* memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) {
    throw std::bad_alloc();
  }
  data_ = static_cast<std::byte*>(memory);
  if (::madvise(memory, bytes, MADV_POPULATE_WRITE) != 0) {
    if (errno == ENOMEM) {
      ::munmap(memory, bytes);
      throw std::bad_alloc();
    }
    constexpr std::size_t page = 4096;  // before Linux 5.14; the smallest page size
    for (std::size_t at = 0; at < bytes; at += page) {
      static_cast<volatile std::byte*>(data_)[at] = std::byte{};
    }
  }
  // users may lock a few MiB; an unlocked page is lost only to swap
  (void)::mlock(memory, bytes);
}

PresentMemory::~PresentMemory() {
  ::munmap(data_, size_);
}

bool SpareMemory::fill() noexcept {
  if (bytes_ == pieces * piece_bytes) {
    return true;
  }
  drop();
  void* memory = ::mmap(nullptr, pieces * piece_bytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) {
    return false;
  }
  memory_ = static_cast<std::byte*>(memory);
  bytes_ = pieces * piece_bytes;
  return true;
}

// Unmap from the end, so that one mapping never becomes two: the number of mappings is limited.
bool SpareMemory::give() noexcept {
  if (bytes_ == 0) {
    return false;
  }
  bytes_ -= piece_bytes;
  ::munmap(memory_ + bytes_, piece_bytes);
  return true;
}

void SpareMemory::drop() noexcept {
  if (bytes_ > 0) {
    ::munmap(memory_, bytes_);
  }
  bytes_ = 0;
}

namespace {

// A new-handler has no argument, so the process has one reserve.
struct Reserve {
  Mutex mutex;  // rank 99: acquired inside operator new
  // A new thread without an arena of the allocator uses a page for the smallest object, so the
  // reserve is not small.
  std::array<SpareMemory, 3> kept EFS_GUARDED_BY(mutex);
};

Reserve& shelter() {
  static Reserve only;
  return only;
}

thread_local unsigned reserved_memory = 0;  // ReservedMemory objects of this thread

// operator new calls this when malloc fails, and retries when this returns.
void give_or_throw() {
  if (reserved_memory > 0) {
    Reserve& all = shelter();
    const MutexLock lock(all.mutex);
    for (SpareMemory& kept : all.kept) {
      if (kept.give()) {
        return;
      }
    }
  }
  throw std::bad_alloc();
}

}  // namespace

ReservedMemory::ReservedMemory() noexcept {
  static const auto before = std::set_new_handler(give_or_throw);
  (void)before;
  ++reserved_memory;
}

ReservedMemory::~ReservedMemory() {
  --reserved_memory;
}

bool ReservedMemory::ready() noexcept {
  // a reserve is useless once the process exceeds its limit
  constexpr std::size_t enough = 1U << 20U;
  Reserve& all = shelter();
  const MutexLock lock(all.mutex);
  for (SpareMemory& kept : all.kept) {
    if (!kept.fill()) {
      return false;
    }
  }
  return can_allocate(enough);
}

}  // namespace efs
