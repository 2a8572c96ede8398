// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// When the results of output rules with `drain` go to results-dir. It knows numbers of files and
// times only, and has neither a clock nor a thread.

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

namespace efs::daemon {

/// A file waits from its change until take() returns it. The caller then reports how it went by
/// exactly one of home(), again() and later(). A change meanwhile makes the file wait again.
/// Not thread-safe. The times of the calls do not decrease.
class DrainSchedule {
 public:
  using Clock = std::chrono::steady_clock;
  using Time = Clock::time_point;
  using Duration = Clock::duration;

  /// A file goes when it has not changed for so long: a program may rename a file right after it
  /// has closed it. A file that changes all the time goes after the longest settling.
  static constexpr Duration settling = std::chrono::seconds(1);
  static constexpr Duration longest_settling = std::chrono::seconds(10);
  /// The wait of again(), doubled with each call for the file.
  static constexpr Duration first_wait = std::chrono::seconds(2);
  /// The longest such wait for a file that a program may write to, and for another one.
  static constexpr Duration longest_wait_for_programs = std::chrono::minutes(1);
  static constexpr Duration longest_wait = std::chrono::minutes(10);
  /// The pause of failed(), doubled with each call up to longest_wait.
  static constexpr Duration first_pause = std::chrono::seconds(5);

  /// The file has changed. It is due `interval` after the first change since it went home.
  void changed(std::uint64_t ino, Duration interval, Time now);

  /// A file that is due; nullopt: none is.
  std::optional<std::uint64_t> take(Time now);

  /// The file is home, or need not go.
  void home(std::uint64_t ino);
  /// The same, and it does not wait for changes meanwhile either.
  void forget(std::uint64_t ino);
  /// The file did not go. It is due again after a wait of at most `longest`.
  void again(std::uint64_t ino, Time now, Duration longest);
  /// The file was not tried. It is due again after `wait`.
  void later(std::uint64_t ino, Time now, Duration wait);

  /// No file went, for a reason that may concern all. None is due during a pause.
  void failed(Time now);
  /// A file went.
  void succeeded();

  /// True between failed() and succeeded(): the caller tries one file at a time.
  bool is_in_trouble() const { return failures_ > 0; }

  bool waits(std::uint64_t ino) const { return waiting_.contains(ino); }

  /// When the next file is due; nullopt: no file waits.
  std::optional<Time> next() const;

  /// The number of files that wait or are taken.
  std::size_t size() const { return waiting_.size() + taken_.size(); }

  /// Forgets all files, also those that are taken.
  void clear();

 private:
  struct File {
    Time first;  // change since it went home
    Time row;    // the first of the changes that followed each other within the settling
    Time last;   // change
    Duration interval{};
    unsigned tries = 0;
    Time due;
  };

  void put(std::uint64_t ino, const File& file);
  /// Removes the file from those that are taken. Returns it unless a change has made it wait again.
  std::optional<File> untake(std::uint64_t ino);
  static Duration doubled(Duration first, unsigned times, Duration longest);

  std::map<std::uint64_t, File> waiting_, taken_;
  std::set<std::pair<Time, std::uint64_t>> by_time_;  // of waiting_
  unsigned failures_ = 0;                             // in a row
  Time paused_until_{};
};

}  // namespace efs::daemon
