// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The expansion of a job's resources, a part of make_plan(). Every name on the PFS that a resource
// means becomes an entry of the plan, is skipped with a reason, or is a problem.

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "config/job_config.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/plan/own_files.hpp"
#include "stage/plan/planner.hpp"
#include "stage/plan/results_dir.hpp"
#include "stage/plan/survey.hpp"

namespace efs::stage {

/// The reason for skipping a name with patterns that only the job's nodes know.
inline constexpr const char* for_the_nodes =
    "has patterns that only the job's nodes know: looked at when the job starts";

/// Not thread-safe. Adds problems and skipped names to the plan at once, and entries in finish().
class Expansion {
 public:
  /// `root`: root-dir, open and borrowed. All arguments must outlive the expansion.
  Expansion(const config::JobConfig& config, PfsIo& pfs, PfsRef root, Plan& plan)
      : config_(config),
        pfs_(pfs),
        root_(root),
        survey_(pfs, root),
        own_(config, pfs, root),
        plan_(plan) {}

  Expansion(const Expansion&) = delete;
  Expansion& operator=(const Expansion&) = delete;

  /// Call in the order of the job file.
  void add(const config::Resource& resource);

  /// Returns the directories that contain the inputs so far.
  InputDirectories input_directories() const;

  /// Moves the entries into the plan, in the order of their paths. Do not call add() afterwards.
  void finish();

 private:
  using Entries = std::map<std::string, PlanEntry>;

  /// A followed symbolic link and its target. The target appears at the link's path on the mount.
  struct Followed {
    std::string link, target;
    Identity identity{};
    PfsRef directory{};  // if the target is a directory
  };

  static constexpr std::size_t most_followed = 8;  // nested links

  void add_root();
  /// Checks, before the job starts, the part of the path without patterns, which must exist.
  void add_open(const config::Resource& resource, const std::string& prefix);
  /// Adds the paths that the list names. Looks at them in parallel.
  void add_list(const std::string& file);
  void add_glob(const std::string& pattern);
  /// Adds a named path with its parents. Returns false if there was a problem, which is recorded.
  bool add_path(const std::string& path);
  bool add_parents(const std::string& path, bool named = true);
  /// The attributes of the directory `parent`, which is above the input `path`. nullopt if it is no
  /// directory or cannot be read: that is then recorded.
  std::optional<struct stat> look_at_parent(const std::string& parent, const std::string& path);
  /// Adds the directories above the resource's destination on the mount. Each has the attributes of
  /// the directory of this path below root-dir, or of root-dir if there is none.
  bool add_places();
  /// Adds a found name, and all names below it if it is a directory and `whole` is set. Returns
  /// false if there is a problem.
  bool add_found(const Found& found, bool named, bool whole = true);
  /// The same for a name whose path on the mount the entry `known` has. Records a problem if that
  /// is of another file.
  bool add_again(PlanEntry& known, const std::string& path);
  /// The same for a name whose attributes, target or contents the PFS did not return.
  bool add_unseen(const Found& found);
  /// The same for a name whose path on the mount no other entry has.
  bool add_seen(const Found& found, bool whole);
  /// Adds the target of the link, at the link's path. Adds a directory with all names below it.
  bool add_target(const Found& link, bool named);
  /// Adds all names below the survey's directory `path`, which is at `prefix` below root-dir.
  /// Follows links after all other names.
  bool add_below(Survey& survey, const std::string& path, const std::string& prefix);
  /// True for a symbolic link whose target is to be staged in.
  bool is_followed_link(const Found& found) const;
  /// True if the survey must list this name's children, which then count as added.
  bool enters(const Found& found);
  bool add_children(const std::string& path);
  /// Returns the names in a directory. Records a problem if this fails.
  std::optional<std::vector<std::string>> list(const std::string& path, bool named);
  /// Adds the names below `path` that match, and all names below a matching directory.
  bool match_below(const std::string& pattern, const std::string& path, std::ptrdiff_t depth,
                   bool named = false);
  /// Returns a hint if a file has the pattern itself as its name; "" otherwise.
  std::string name_hint(const std::string& pattern);
  /// Records a listed path without a destination of its own that is below the destination of
  /// another line.
  void record_plain(const std::string& path);
  /// Keeps a few problems of a list and counts the rest, because a list may have a million missing
  /// paths.
  void shorten_problems(const std::string& file, std::size_t before);
  /// Returns the position in `path` after its deepest parent that is an entry at its own path. All
  /// directories above that parent are entries, too. 0 if there is no such parent.
  std::size_t behind_known_parent(const std::string& path) const;
  PlanEntry& insert(const std::string& path, EntryType type, const struct stat& attributes);
  PlanEntry& insert_at(const std::string& path, std::optional<std::string> source, EntryType type,
                       const struct stat& attributes);
  /// Returns the position of `path` in the entries, or its insert position, and whether it exists.
  /// Names mostly come in order, which saves the search.
  std::pair<Entries::iterator, bool> find(const std::string& path);
  /// Updates an entry that another resource names as well.
  void ask_again(PlanEntry& entry) const;
  void ask_again(const std::string& directory);
  /// Returns the file if efs made it for this job. Decides by the name alone if the PFS did not
  /// return attributes.
  std::optional<OwnFile> own_file(const Found& found) const;
  /// True if a name that a walk or a pattern found was removed or replaced before efs looked at it.
  bool is_vanishing(const Error& error) const;
  /// Skips the name, or records a problem and returns false.
  bool vanished(const std::string& path);
  /// Records each path once. Returns true, because a skip is not a problem.
  bool skip(const std::string& path, std::string reason, bool vanished = false);
  void problem(const std::string& path, std::string reason, std::string unreadable = {},
               std::string not_there = {});
  static std::string missing(const Error& error, const std::string& path);
  std::string absolute(const std::string& relative) const;
  /// Returns the path on the mount of the PFS path `path`.
  std::string placed(const std::string& path) const;
  /// Returns the part of `path` below the link that is being followed.
  std::string path_in_target(const std::string& path) const;

  const config::JobConfig& config_;
  PfsIo& pfs_;
  const PfsRef root_;
  Survey survey_;
  OwnFiles own_;
  Plan& plan_;
  int line_ = 0;
  int priority_ = 0;
  std::string place_;  // the line of the list that names the input: "FILE:LINE"; "": no list
  bool reusable_ = false;
  config::StageWhen stage_ = config::StageWhen::now;
  bool evictable_ = false;
  bool accepts_change_ = false;
  bool skips_vanished_ = false, follows_ = false;  // options of the resource that is being added
  // the resource names the path that is being added: it is not from a pattern or a walk
  bool named_ = false;
  std::vector<Followed> follows_to_;  // the links that are being followed, outermost first
  // directories that contain named inputs, with their paths below root-dir
  std::map<Identity, std::string> above_inputs_;
  std::set<std::string> skipped_;  // the paths of plan_.skipped
  Entries entries_;
  Entries::iterator newest_ = entries_.end();
  // the resource that is being added, if it has a destination other than its PFS path
  const config::Resource* as_ = nullptr;
  // directories (path on the mount, path on the PFS) whose children are in entries_
  std::set<std::pair<std::string, std::string>> complete_;
};

}  // namespace efs::stage
