// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Checks for available memory, and reserves of memory.

#include <cstddef>
#include <cstdint>

namespace efs {

/// Returns whether this thread could now allocate `bytes` more, from the allocator or the system.
bool can_allocate(std::size_t bytes) noexcept;

/// Makes the allocator return free memory at the end of an arena to the system once it exceeds 128
/// KiB. Applies to the whole process; call it before the process starts threads. By default glibc
/// keeps twice the largest freed piece there, up to 64 MiB. Each thread may have an arena, and
/// malloc_trim(3) trims the end of the first arena only (mallopt(3), M_TRIM_THRESHOLD).
void keep_little_of_freed() noexcept;

/// Returns freed memory to the system. For use after a large release that no later work will reuse.
/// Takes a tenth of a second for some hundred MiB.
void give_back_freed() noexcept;

/// Reserved memory for work that must not fail. The reserve is a separate mapping, so the system
/// gets released pieces back regardless of the allocator's caching, and any later allocation can
/// use them. The pages are not touched: the reserve counts against limits of the process
/// (RLIMIT_DATA, RLIMIT_AS) and costs nothing else. Not thread-safe.
class SpareMemory {
 public:
  static constexpr std::size_t pieces = 16;
  static constexpr std::size_t piece_bytes = 512U << 10U;

  SpareMemory() = default;

  ~SpareMemory() { drop(); }

  SpareMemory(const SpareMemory&) = delete;
  SpareMemory& operator=(const SpareMemory&) = delete;

  /// Maps the missing pieces. If they cannot be mapped, releases the whole reserve and returns
  /// false.
  bool fill() noexcept;
  /// Releases one piece to the process; false if none is left.
  bool give() noexcept;

 private:
  void drop() noexcept;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Zeroed memory with all pages present from the start. The pages are locked as far as the system
/// permits. A store to it, also by the kernel, then causes no page fault. Throws std::bad_alloc.
class PresentMemory {
 public:
  explicit PresentMemory(std::size_t bytes);
  ~PresentMemory();
  PresentMemory(const PresentMemory&) = delete;
  PresentMemory& operator=(const PresentMemory&) = delete;

  std::byte* data() const { return data_; }

  std::size_t size() const { return size_; }

 private:
  std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

/// Protects library code that cannot handle a failed allocation. Destroying a Json may allocate,
/// and an exception there ends the process. While a ReservedMemory exists, operator new of its
/// thread falls back to a reserve that the process keeps for all of them. Meant for kilobytes.
class ReservedMemory {
 public:
  ReservedMemory() noexcept;
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;
  /// Call it before such code begins. Refills the reserve. Returns false if the reserve is empty
  /// and no other memory is available.
  static bool ready() noexcept;
};

}  // namespace efs
