// SPDX-License-Identifier: BSD-3-Clause
#include "support/failing_new.hpp"

#include <cstdlib>
#include <new>

#include "base/memory.hpp"

namespace {

thread_local std::uint64_t left = 0;  // allocations up to the failing one; 0: none fails
thread_local bool fails_on = false;   // all later ones fail too
thread_local bool failed = false;
thread_local std::uint64_t count = 0;
thread_local std::size_t freed = 0;  // bytes that a handler has freed

// aligned_alloc requires a multiple of the alignment.
void* take(std::size_t bytes, std::size_t alignment) noexcept {
  return alignment == 0
             ? std::malloc(bytes)
             : std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment);
}

void* allocate(std::size_t bytes, std::size_t alignment) noexcept {
  ++count;
  if (left == 1 && freed >= bytes) {
    freed -= bytes;
    return take(bytes, alignment);
  }
  if (left == 1) {
    failed = true;
    if (!fails_on) {
      left = 0;
    }
    return nullptr;
  }
  if (left > 1) {
    --left;
  }
  return take(bytes, alignment);
}

// As in operator new, the handler may free memory (ReservedMemory), or it throws; without a handler
// the allocation fails.
void* allocate_or_throw(std::size_t bytes, std::size_t alignment) {
  if (void* memory = allocate(bytes, alignment)) {
    return memory;
  }
  const auto handler = std::get_new_handler();
  if (handler == nullptr) {
    throw std::bad_alloc();
  }
  handler();
  freed = efs::SpareMemory::piece_bytes;
  void* memory = allocate(bytes, alignment);
  if (memory == nullptr) {
    throw std::bad_alloc();
  }
  return memory;
}

std::size_t number(std::align_val_t alignment) {
  return static_cast<std::size_t>(alignment);
}

}  // namespace

// All variants, so that the library and the test program never free each other's memory.
void* operator new(std::size_t bytes) {
  return allocate_or_throw(bytes, 0);
}

void* operator new[](std::size_t bytes) {
  return allocate_or_throw(bytes, 0);
}

void* operator new(std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, number(alignment));
}

void* operator new[](std::size_t bytes, std::align_val_t alignment) {
  return allocate_or_throw(bytes, number(alignment));
}

void* operator new(std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 0);
}

void* operator new[](std::size_t bytes, const std::nothrow_t&) noexcept {
  return allocate(bytes, 0);
}

void* operator new(std::size_t bytes, std::align_val_t alignment, const std::nothrow_t&) noexcept {
  return allocate(bytes, number(alignment));
}

void* operator new[](std::size_t bytes, std::align_val_t alignment,
                     const std::nothrow_t&) noexcept {
  return allocate(bytes, number(alignment));
}

void operator delete(void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

void operator delete[](void* memory, const std::nothrow_t&) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}

void operator delete[](void* memory, std::align_val_t, const std::nothrow_t&) noexcept {
  std::free(memory);
}

void operator delete(void* memory) noexcept {
  std::free(memory);
}

void operator delete[](void* memory) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t) noexcept {
  std::free(memory);
}

void operator delete[](void* memory, std::size_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

void operator delete[](void* memory, std::align_val_t) noexcept {
  std::free(memory);
}

void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

void operator delete[](void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}

namespace efs::test {

FailingNew::FailingNew(std::uint64_t n, Shortage shortage) {
  failed = false;
  freed = 0;
  fails_on = shortage == Shortage::for_good;
  left = n;
}

FailingNew::~FailingNew() {
  left = 0;
}

bool FailingNew::met() const {
  return failed;
}

SparedAllocations::SparedAllocations() : left_(left) {
  left = 0;
}

SparedAllocations::~SparedAllocations() {
  left = left_;
}

std::uint64_t allocations() {
  return count;
}

}  // namespace efs::test
