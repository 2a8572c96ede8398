// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Whether the kernel should be told of files when a directory is listed (READDIRPLUS).

#include <atomic>
#include <cstdint>

namespace efs::fuse {

/// A file that the kernel is told of with its directory's listing costs some microseconds. A file
/// that it is not told of costs a LOOKUP when a program looks at it or opens it, some ten times as
/// much. So telling pays if programs look at more than a quarter of what they list (ls -l, du, a
/// loader of files), and not for find -name. Of a kernel that was told the daemon learns nothing:
/// each 16th file is not told of, and counts. Thread-safe.
class WalkPolicy {
 public:
  static constexpr std::uint32_t sample = 16;
  // Many programs read a whole directory before they look at its files. Beyond so many samples
  // that nobody looked at, the rest of a directory is not told of.
  static constexpr std::uint32_t longest_trial = 1024;

  /// A walk of a directory begins: only now can programs have looked at what earlier walks listed.
  void begin() {
    const auto untold = untold_.load(relaxed), looked_up = looked_up_.load(relaxed);
    if (untold < sample) {
      return;
    }
    pays_.store(looked_up >= untold / 4, relaxed);
    untold_.store(0, relaxed);
    looked_up_.store(0, relaxed);
  }

  /// True if the kernel should be told of the next file that it does not know.
  bool tells() {
    const bool pays = pays_.load(relaxed);
    if (pays && listed_.fetch_add(1, relaxed) % sample != sample - 1) {
      return true;
    }
    const auto untold = untold_.fetch_add(1, relaxed);
    if (pays && untold >= longest_trial && looked_up_.load(relaxed) == 0) {
      pays_.store(false, relaxed);
    }
    return false;
  }

  /// A LOOKUP told the kernel of a file that it did not know.
  void looked_up() { looked_up_.fetch_add(1, relaxed); }

 private:
  static constexpr auto relaxed = std::memory_order_relaxed;
  std::atomic<bool> pays_{true};
  std::atomic<std::uint32_t> listed_{0}, untold_{0}, looked_up_{0};
};

}  // namespace efs::fuse
