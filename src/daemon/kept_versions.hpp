// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which versions of results are older than those that output rules with `keep` keep in the buffer.
// It knows names and times only.

#include <algorithm>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.hpp"
#include "config/job_config.hpp"
#include "daemon/drain_schedule.hpp"
#include "stage/live/drop.hpp"

namespace efs::daemon {

/// The versions of a series are ordered by the last close of any of their files. A version that a
/// program is writing is neither counted nor dropped.
/// Not thread-safe. `config` outlives this object.
class KeptVersions {
 public:
  using Time = DrainSchedule::Time;
  using Duration = DrainSchedule::Duration;

  /// The most files of one choose(), apart from those of its last version.
  static constexpr std::size_t most_files = 512;
  /// The wait of stayed(), doubled with each call for the version.
  static constexpr Duration first_wait = std::chrono::seconds(2);
  static constexpr Duration longest_wait = std::chrono::minutes(1);
  /// The longest such wait after an error that seldom passes.
  static constexpr Duration longest_wait_if_lasting = std::chrono::hours(1);
  /// The most files of OldVersion::newer, apart from those of its last version.
  static constexpr std::size_t most_newer_files = 4096;

  /// Why a version of choose() was not dropped.
  enum class Reason : std::uint8_t {
    program,  // a program uses it, or the drop was cancelled
    passing,
    lasting,
  };

  /// The present state of a file.
  enum class FileState : std::uint8_t {
    gone,       // the name does not exist, or leads to another file
    written,    // a program has it open for writing
    changed,    // results-dir does not have this version
    only_here,  // the same, and has no other version: fs::Staging::is_only_here()
    home,
  };
  using Look = std::function<FileState(const std::string& path, std::uint64_t ino)>;
  /// Returns the edits of the file (fs::Inode::edits).
  using Edits = std::function<std::optional<std::uint64_t>(std::uint64_t ino)>;
  /// For so long an unsent version must be unchanged before choose() returns it: each close before
  /// its `edits` were read is known by then.
  static constexpr Duration quiet_time = std::chrono::seconds(1);

  explicit KeptVersions(const config::JobConfig& config) : config_(config) {}

  /// A result has this name. `closed`: when it was closed, or any number of that order.
  void named(const std::string& path, std::uint64_t ino, Nanoseconds closed);
  /// The file with this name was closed by its last writer.
  void closed(const std::string& path, Nanoseconds now);
  /// The `closed` of this file with this name; nullopt: unknown.
  std::optional<Nanoseconds> closed_at(const std::string& path, std::uint64_t ino);

  /// Results went home, or versions of choose() were not tried.
  void look_again() { is_due_ = !series_.empty(); }

  /// False if this file, which is due to go, belongs to a version that the rule does not send
  /// (`to-pfs`). Decides that for the version, and for those that were closed before it: the first
  /// version of a series goes, and then one in so many. A version of which results-dir has some
  /// file goes in any case.
  bool goes(const std::string& path, const Look& look);
  /// A file that goes() let go is home.
  void went_home(const std::string& path);
  /// Versions that an earlier process dropped count. Call it before all other functions.
  void count_dropped(const std::vector<fs::DroppedResult>& dropped);

  /// The versions that are older than the newest ones and of which each file is home, or that the
  /// rule does not send.
  std::vector<stage::OldVersion> choose(const Look& look, const Edits& edits, Time now);
  /// This version of choose() was not dropped. Returns true if that is the first time for another
  /// reason than a program.
  bool stayed(const stage::OldVersion& version, Reason reason, Time now);

  /// Forgets files that are gone. The time for this is in proportion to all files.
  void forget_gone(const Look& look);

  /// When to call choose(); nullopt: not before something changes.
  std::optional<Time> next() const { return is_due_ ? std::optional(Time::min()) : next_; }

 private:
  struct File {
    std::uint64_t ino = 0;
    Nanoseconds closed = 0;
    // at an earlier choose(); no close came since
    std::optional<std::uint64_t> edits{};
  };

  enum class Choice : std::uint8_t { none, goes, stays };

  struct Version {
    std::map<std::string, File> files;  // by path
    unsigned tries = 0;
    bool is_told = false;
    Time due{};
    Choice choice = Choice::none;
    bool was_sent = false;  // results-dir has some state of one of its files

    Nanoseconds closed() const;
  };

  struct Series {
    std::size_t rule = 0;
    std::string directory;
    auto operator<=>(const Series&) const = default;
  };

  struct Versions {
    std::map<std::string, Version> by_name;  // in the directory
    std::uint64_t sent = 0, unsent = 0;      // those that goes() has chosen, also if they are gone

    /// The version is no longer the one that was chosen.
    void undo(Version& version);
  };

  /// A version among those of its series.
  struct Candidate {
    const std::string* name = nullptr;
    Version* version = nullptr;
    Nanoseconds closed = 0;
    bool is_home = true;
    bool is_only_here = true;

    bool is_unsent() const { return is_only_here && version->choice == Choice::stays; }
  };

  struct Place {
    const Series* series = nullptr;
    Versions* versions = nullptr;
    Version* version = nullptr;  // null: there is none
  };

  /// The version of a file with this name.
  Place place_of(const std::string& path);

  Version* find(const std::string& path) { return place_of(path).version; }

  /// The versions that no program writes, the newest first. Forgets files that are gone.
  static std::vector<Candidate> examine(Versions& versions, const Look& look);
  void choose(const Place& place, Version& version, const Look& look);

  using Files = std::vector<stage::OldVersion::File>;

  /// The files of the newest versions.
  struct Newest {
    std::shared_ptr<const Files> files;
    bool is_whole = true;  // false: there are too many files
  };

  static Newest newest(const std::vector<Candidate>& candidates, std::size_t keep);
  /// False if a file of the version has changed since the last call.
  static bool is_quiet(Version& version, const Edits& edits);
  /// Adds the version to those that are old, unless it waits or there are enough.
  void add(const std::string& directory, const Candidate& candidate,
           const std::shared_ptr<const Files>& newer, Time now);

  void wait_until(Time due) { next_ = next_ ? std::min(*next_, due) : due; }

  const config::JobConfig& config_;
  std::map<Series, Versions> series_;
  bool is_due_ = false;
  std::optional<Time> next_;
  // for choose()
  std::vector<stage::OldVersion> chosen_;
  std::size_t chosen_files_ = 0;
};

}  // namespace efs::daemon
