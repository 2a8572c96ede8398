// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Marks of how programs use the mount, for the report of the job: which files they opened, and
// which names they looked up in vain. Fixed memory, no lock, no system call.

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace efs::fuse {

// The constructors of both classes initialise nothing: the owner provides zeroed memory
// (daemon/kept_figures.hpp), of which untouched pages then cost nothing. The memory is shared with
// the workers that come later. std::atomic would initialise itself, hence std::atomic_ref.

/// The inodes that a program has opened. Thread-safe. A number beyond `most` counts as opened.
class OpenedFiles {
 public:
  static constexpr std::uint64_t most = 4U << 20U;

  OpenedFiles() {}  // NOLINT(modernize-use-equals-default): it must not zero the array

  void mark(std::uint64_t ino) {
    if (ino >= most) {
      return;
    }
    const std::atomic_ref word(words_[ino / 64]);
    const std::uint64_t bit = std::uint64_t{1} << (ino % 64);
    // a file is opened often: do not write to the line each time
    if ((word.load(std::memory_order_relaxed) & bit) == 0) {
      word.fetch_or(bit, std::memory_order_relaxed);
    }
  }

  bool contains(std::uint64_t ino) const {
    return ino >= most ||
           (std::atomic_ref(words_[ino / 64]).load(std::memory_order_relaxed) >> (ino % 64) & 1U) !=
               0;
  }

 private:
  mutable std::uint64_t words_[most / 64];  // NOLINT(modernize-avoid-c-arrays)
};

/// Names of which a lookup found nothing. Thread-safe. Bounded: a name that finds no free place is
/// only counted. A name that a program makes leaves the set, since most lookups in vain precede a
/// create.
class MissedNames {
 public:
  static constexpr std::size_t most = 2048;
  static constexpr std::size_t probes = 8;  // places that a name may have
  static constexpr std::size_t longest = 255;

  MissedNames() {}  // NOLINT(modernize-use-equals-default)

  void add(std::uint64_t parent, std::string_view name);
  void remove(std::uint64_t parent, std::string_view name);

  struct Name {
    std::uint64_t parent = 0;  // inode
    std::string name;
  };

  std::vector<Name> all() const;

  /// Lookups whose names found no place.
  std::uint64_t not_kept() const {
    return std::atomic_ref(not_kept_).load(std::memory_order_relaxed);
  }

 private:
  /// `key` is 0 for a free place. `ready`: the key whose name is complete.
  struct Slot {
    mutable std::uint64_t key, ready;
    std::uint64_t parent;
    std::uint16_t length;
    char name[longest + 1];  // NOLINT(modernize-avoid-c-arrays)
  };

  static std::uint64_t key_of(std::uint64_t parent, std::string_view name);

  mutable std::uint64_t not_kept_;
  Slot slots_[most];  // NOLINT(modernize-avoid-c-arrays)
};

struct Usage {
  OpenedFiles opened;
  MissedNames missed;
};

}  // namespace efs::fuse
