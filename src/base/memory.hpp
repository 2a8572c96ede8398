#pragma once
// Whether memory is to be had, and some that is kept back.

#include <cstddef>
#include <cstdint>

namespace efs {

/// Whether `bytes` more could be allocated just now, by this thread: of what the allocator has, or
/// from the system.
bool can_allocate(std::size_t bytes) noexcept;

/// For the whole process, before it has threads: what is freed at the end of an arena of the
/// allocator goes back to the system when it is more than 128 KiB. By itself glibc keeps there
/// twice as much as was ever freed in one piece, up to 64 MiB; each thread may have had an arena,
/// and malloc_trim(3) looks at the end of the first only (mallopt(3), M_TRIM_THRESHOLD).
void keep_little_of_freed() noexcept;

/// Gives the system what was freed: after much was, which nothing else will need. Takes a tenth of
/// a second for some hundred MiB.
void give_back_freed() noexcept;

/// Memory that is kept back for what must not fail. It is a mapping of its own, so that what is
/// given back is the process's again, whatever the allocator does with what is freed: whoever asks
/// next can have it. Pages are not taken: it counts where a process is limited (RLIMIT_DATA,
/// RLIMIT_AS), and costs nothing else. Not thread-safe.
class SpareMemory {
 public:
  static constexpr std::size_t pieces = 16;
  static constexpr std::size_t piece_bytes = 512U << 10U;

  SpareMemory() = default;

  ~SpareMemory() { drop(); }

  SpareMemory(const SpareMemory&) = delete;
  SpareMemory& operator=(const SpareMemory&) = delete;

  /// Takes what is missing. False where it cannot be had: then nothing is kept back.
  bool fill() noexcept;
  /// Gives one piece back to the process; false where none is left.
  bool give() noexcept;

 private:
  void drop() noexcept;
  std::byte* memory_ = nullptr;
  std::size_t bytes_ = 0;
};

/// Memory whose pages are all there, from the beginning and, as far as the system lets them be
/// locked, for good: whoever stores there, the kernel included, meets no page fault. Zeros. Throws
/// std::bad_alloc.
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

/// For code of libraries that does not bear a failed allocation: to destroy a Json takes memory,
/// and what is thrown there ends the process. While one of these lives, what its thread asks
/// operator new for is found in memory that the process keeps back for all of them together, if
/// need be. Meant for kilobytes.
class ReservedMemory {
 public:
  ReservedMemory() noexcept;
  ~ReservedMemory();
  ReservedMemory(const ReservedMemory&) = delete;
  ReservedMemory& operator=(const ReservedMemory&) = delete;
  /// Asked before such code begins: false where nothing is kept back and nothing else is to be had.
  /// Fills up what was given.
  static bool ready() noexcept;
};

}  // namespace efs
