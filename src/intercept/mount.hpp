// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The efs mounts that this process has mapped files of, and their doors
// (base/intercept_door.hpp). A door is open while a file of its mount is mapped: an open door
// keeps the mount from being unmounted, as an open file does.

#include <atomic>
#include <cstdint>

#include "base/intercept_door.hpp"
#include "intercept/counts.hpp"

namespace efs::intercept {

class Mount {
 public:
  /// The mount whose device has this number; opens its door if it is not open. Returns a mount with
  /// a use counted, or null: no door is there, or there is no room for one more mount. One thread
  /// at a time.
  static Mount* of(std::uint64_t device);

  /// Ends a use. The last one closes the door, with a last report. Safe in a signal handler.
  void leave();

  /// The epoch of a file now, or no_epoch, which is none of any file: the page is lost with the
  /// daemon. One load, which may be of any thread's time.
  std::uint64_t epoch(std::uint64_t inode) const;
  static constexpr std::uint64_t no_epoch = ~std::uint64_t{0};

  /// True if the daemon and its supervisor are gone, so that nothing may be stored any more.
  bool is_dead() const { return dead_.load(std::memory_order_relaxed); }

  /// Tells the daemon what was served since the last report, and learns whether it is alive. Asks
  /// at most every 2^26 ticks of the processor's counter (some 25 ms).
  void report_if_due(std::uint64_t now);

  /// Before the process ends or becomes another program.
  static void report_all();

  /// The program closes or replaces these descriptors. If one is a door's, the next report opens
  /// the door anew.
  static void lose_range(unsigned first, unsigned last);
  /// True if the descriptor is a door's, which the program never got.
  static bool has_door(int fd);

  /// A forked child gets a session of its own at its next report.
  static void after_fork();

  Counts counts;  // since the last report
  std::atomic<std::uint32_t> mapped_files{0};

 private:
  bool open_door();
  int open_path() const;
  bool renew_door();
  bool is_door(int fd) const;
  void report();

  std::atomic<std::uint32_t> uses_{0};
  std::uint64_t device_ = 0;
  const DoorTable* table_ = nullptr;
  std::atomic<int> door_{-1};
  char path_[4096] = {};  // of the door
  std::atomic<std::uint64_t> reported_{0};
  std::atomic<bool> reporting_{false};
  std::atomic<bool> dead_{false};
  std::atomic<bool> foreign_{false};  // the door belongs to the parent's session
};

}  // namespace efs::intercept
