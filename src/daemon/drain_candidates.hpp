// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The files that output rules with `drain` cover: their names, which of them are due, and the
// results of their exports.

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.hpp"
#include "config/job_config.hpp"
#include "daemon/change_inbox.hpp"
#include "daemon/drain_schedule.hpp"
#include "daemon/kept_versions.hpp"
#include "fs/filesystem.hpp"
#include "fs/staging.hpp"
#include "stage/export/receipt.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::daemon {

/// Files to export together.
struct DrainBatch {
  static constexpr std::size_t most_files = 512;
  static constexpr std::uint64_t most_bytes = std::uint64_t{1} << 30U;
  /// A directory with more files goes file by file.
  static constexpr std::size_t most_files_of_set = 16384;

  std::map<std::string, std::uint64_t> files;  // name in the buffer -> inode
  std::vector<std::string> sets;               // directories that go whole or not at all
  std::uint64_t bytes = 0;

  bool is_full() const { return files.size() >= most_files || bytes >= most_bytes; }
};

/// The result of a batch.
struct DrainOutcome {
  std::uint64_t files = 0, bytes = 0;  // that went home
  std::uint64_t failed = 0;            // names that did not, and not for a program's sake
  std::string error;                   // the first of these, and the reason; "": none
};

/// For one thread. The arguments outlive this object. It makes no call to the PFS. It keeps the
/// name of each file that a rule covers, also of those that are home.
class DrainCandidates {
 public:
  using Time = DrainSchedule::Time;

  DrainCandidates(const config::JobConfig& config, fs::Filesystem& filesystem)
      : config_(config),
        sends_some_(config::sends_some_versions(config)),
        has_sets_(!stage::may_meet_others(config)),
        staging_(filesystem),
        kept_(config) {}

  /// Looks at all names for files that rules cover. Gives up when `is_over` is true.
  void look(Time now, const fs::IsOver& is_over = {});

  /// Drops what it knows of files that are not home. look() finds them again.
  void clear();

  /// Takes note of changes. If some are lost, looks for all files.
  void absorb(const ChangeInbox::Content& content, Time now, const fs::IsOver& is_over = {});

  /// The next files that are due and that no program can write to.
  DrainBatch choose(Time now);
  /// Takes note of how a batch went. `receipt`: of its export; null: it was not tried.
  /// `is_cancelled`: what was not exported was not tried.
  DrainOutcome settle(const DrainBatch& batch, const stage::Receipt* receipt, bool is_cancelled,
                      Time now);

  /// The versions to drop from the buffer: older than those that rules with `keep` keep, and home.
  std::vector<stage::OldVersion> choose_old(Time now);
  /// Takes note of how that went. `dropped`: null: it was not tried. Returns the versions that
  /// stayed for the first time, and not for a program's sake.
  std::vector<stage::Dropped::Stayed> settle_old(const std::vector<stage::OldVersion>& old,
                                                 const stage::Dropped* dropped, Time now);

  /// When a file or a version is due; nullopt: none waits.
  std::optional<Time> next() const {
    const auto file = schedule_.next(), version = kept_.next();
    return file && version ? std::min(*file, *version) : file ? file : version;
  }

  /// The number of inodes of the file system.
  std::size_t inodes() { return staging_.count(); }

  /// The number of files that are not home, about. Includes those that wait for the stop.
  std::size_t due() const { return schedule_.size() + refused_.size() + beside_.size(); }

 private:
  struct Known {
    std::string path;
    DrainSchedule::Duration interval{};
  };

  /// The outcome of one name. If a file has several names, the last one of these counts.
  enum class Fate : std::uint8_t { home, refused, beside, not_tried, busy, failed };
  using Fates = std::map<std::uint64_t, Fate>;  // by inode

  std::optional<DrainSchedule::Duration> interval_of(const fs::WalkItem& item) const;
  bool is_covered(const std::string& path) const;
  bool is_due(const fs::WalkItem& item) const;
  // `named_at`: when the file got the name; nullopt: unknown
  void look_below(const std::string& directory, Time now, std::optional<Nanoseconds> named_at,
                  const fs::IsOver& is_over);
  void absorb_one(const Change& change, Time now, const fs::IsOver& is_over);
  void notice(const fs::WalkItem& item, Time now, std::optional<Nanoseconds> named_at);
  void notice_change(std::uint64_t ino, Time now);
  void forget_removed();
  /// Adds the names of a file to the batch if it is due and no program can write to it.
  void add(std::uint64_t ino, DrainBatch& batch, Time now);
  /// The directory above that goes whole or not at all; "": none.
  std::string set_of(const std::string& path);
  void notice_set(const std::string& directory);
  void find_sets();
  void forget_sent(const DrainBatch& batch);

  struct Set {
    Nanoseconds renamed = 0;
    bool is_known_by_times = false;  // this process has not seen the rename
  };

  bool may_be_part(const fs::WalkItem& item, const Set& set) const;
  enum class SetState : std::uint8_t { none, busy, ready };
  /// `none`: its files go one by one. Appends the files that are due.
  SetState look_at_set(const std::string& set, std::vector<fs::WalkItem>& due);
  /// Adds the set of the file. False: it has none.
  bool add_set(std::uint64_t ino, const std::string& path, DrainBatch& batch, Time now);
  bool is_written(std::uint64_t ino);
  /// False if a rule with `to-pfs` does not send it.
  bool goes(const fs::WalkItem& item);
  /// True if no name of the file that rules cover has to go.
  bool is_home(std::uint64_t ino);
  /// True if the name still leads to this file, and the file is not home.
  bool is_still_due(const std::string& path, std::uint64_t ino);
  Fate fate_of(const stage::ReceiptEntry& entry, std::uint64_t ino, bool is_cancelled);
  Fates read(const DrainBatch& batch, const stage::Receipt& receipt, bool is_cancelled,
             DrainOutcome& outcome);
  void note_refusal(const std::string& path, Fate fate);
  void settle_file(std::uint64_t ino, Fate fate, Time now);
  /// `files`: how many have failed. `concern_all`: for a reason that all share.
  void note_failures(std::size_t files, bool concern_all, Time now);
  void notice_version(const fs::WalkItem& item, std::optional<Nanoseconds> named_at);
  void notice_close(std::uint64_t ino, Nanoseconds closed);
  KeptVersions::FileState state_of(const std::string& path, std::uint64_t ino);
  KeptVersions::Look look_at_versions();

  const config::JobConfig& config_;
  const bool sends_some_;
  const bool has_sets_;  // results-dir permits to hide directories
  bool has_looked_ = false;
  fs::Staging staging_;
  std::unordered_multimap<std::uint64_t, Known> names_;  // by inode; some are out of date
  std::size_t forget_at_ = 1024;                         // size of names_ for forget_removed()
  DrainSchedule schedule_;
  // names in conflict: they go again when their files change
  std::set<std::string> refused_;
  // Names whose results were exported beside other files. A further export would make a further
  // copy, so only the stop exports them again.
  std::set<std::string> beside_;
  KeptVersions kept_;
  // directories that got their names by a rename; some are gone. Not those that are known to be
  // home
  std::map<std::string, Set> sets_;
  std::set<std::string> busy_sets_;  // for choose()
};

}  // namespace efs::daemon
