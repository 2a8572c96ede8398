// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The expansion of a job's resources: every name on the PFS that they mean becomes an entry of the
// plan, or is skipped with a reason, or is a problem. A part of make_plan().

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

/// What is said of a name with patterns that only the job's nodes know.
inline constexpr const char* for_the_nodes =
    "has patterns that only the job's nodes know: looked at when the job starts";

/// Not thread-safe. Adds problems and skipped names to a plan at once, entries at the end.
class Expansion {
 public:
  /// `root`: root-dir, open and borrowed. All arguments must outlive the expansion.
  Expansion(const config::JobConfig& config, PfsIo& pfs, int root, Plan& plan)
      : config_(config),
        pfs_(pfs),
        root_(root),
        survey_(pfs, root),
        own_(config, pfs, root),
        plan_(plan) {}

  Expansion(const Expansion&) = delete;
  Expansion& operator=(const Expansion&) = delete;

  /// In the order of the job file.
  void add(const config::Resource& resource);

  /// The directories that the inputs so far come from.
  InputDirectories input_directories() const;

  /// Moves the entries into the plan, in the order of their paths. Nothing can be added afterwards.
  void finish();

 private:
  using Entries = std::map<std::string, PlanEntry>;

  /// A symbolic link, and what is at its place on the mount.
  struct Followed {
    std::string link, target;
    Identity identity{};
    int directory = -1;  // open, of a directory
  };

  static constexpr std::size_t most_followed = 8;  // links within what links lead to

  void add_root();
  /// Before the job: what holds it has to be there.
  void add_open(const config::Resource& resource, const std::string& prefix);
  /// What the list names, looked at side by side.
  void add_list(const std::string& file);
  void add_glob(const std::string& pattern);
  /// A named path with its parents; false where there is a problem (which is recorded).
  bool add_path(const std::string& path);
  bool add_parents(const std::string& path, bool named = true);
  /// The directories above it on the mount: such as root-dir has of these names, or else like
  /// root-dir itself.
  bool add_places();
  /// Something that was found; a directory with all that is below it if `whole`. False where there
  /// is a problem.
  bool add_found(const Found& found, bool named, bool whole = true);
  /// The same, where the PFS did not say what it is, or what is in it.
  bool add_unseen(const Found& found);
  /// The same, where nothing else is in its place.
  bool add_seen(const Found& found, bool whole);
  /// What the link leads to, in the place of the link; a directory with all below it.
  bool add_target(const Found& link, bool named);
  /// All below the survey's directory `path`, which is at `prefix` below root-dir. Links are
  /// followed when all else is there.
  bool add_below(Survey& survey, const std::string& path, const std::string& prefix);
  bool add_children(const std::string& path);
  /// The names in a directory; a problem is recorded where that fails.
  std::optional<std::vector<std::string>> list(const std::string& path, bool named);
  /// Adds what matches below `path`; what lies below a matching directory comes with it.
  bool match_below(const std::string& pattern, const std::string& path, std::ptrdiff_t depth,
                   bool named = false);
  /// Where a file has the name that the pattern was perhaps meant for.
  std::string name_hint(const std::string& pattern);
  /// Below a destination, and in its own place all the same.
  void note_plain(const std::string& path);
  /// A list of a million paths that are not there is told of by a few of them.
  void shorten_problems(const std::string& file, std::size_t before);
  /// Where in `path` the names begin below its deepest directory that is an entry, with all
  /// directories above it.
  std::size_t behind_known_parent(const std::string& path) const;
  PlanEntry& insert(const std::string& path, EntryType type, const struct stat& attributes);
  PlanEntry& insert_at(const std::string& path, std::optional<std::string> source, EntryType type,
                       const struct stat& attributes);
  /// Where `path` is, or is to be, and whether it is. Names come in order, mostly: then nothing is
  /// searched.
  std::pair<Entries::iterator, bool> find(const std::string& path);
  /// Another resource names what is there already.
  void ask_again(PlanEntry& entry) const;
  void ask_again(const std::string& directory);
  /// What efs made for this job: by its name alone where the PFS says nothing more of it.
  std::optional<OwnFile> own_file(const Found& found) const;
  /// Was what a walk or a pattern found taken away, or put something else in its place, before it
  /// was looked at?
  bool is_vanishing(const Error& error) const;
  /// Leaves it out, or records the problem: false.
  bool vanished(const std::string& path);
  /// Notes each path once; true, as a skip is no problem.
  bool skip(const std::string& path, std::string reason, bool vanished = false);
  void problem(const std::string& path, std::string reason, std::string unreadable = {},
               std::string not_there = {});
  static std::string missing(const Error& error, const std::string& path);
  std::string absolute(const std::string& relative) const;
  /// Where on the mount appears what the PFS has at `path`.
  std::string placed(const std::string& path) const;
  /// Where below the target of the link that is being followed.
  std::string path_in_target(const std::string& path) const;

  const config::JobConfig& config_;
  PfsIo& pfs_;
  const int root_;
  Survey survey_;
  OwnFiles own_;
  Plan& plan_;
  int line_ = 0;
  int priority_ = 0;
  std::string place_;  // the line of a list that asks for it: "FILE:LINE"; "": no list does
  bool reusable_ = false;
  bool skips_vanished_ = false, follows_ = false;  // of the resource that is being added
  // the resource names what is being added, and not a directory above it or a pattern
  bool named_ = false;
  std::vector<Followed> follows_to_;  // the links that are being followed, the outermost first
  // directories that named inputs are in, and where they are below root-dir
  std::map<Identity, std::string> above_inputs_;
  std::set<std::string> skipped_;  // the paths of plan_.skipped
  Entries entries_;
  Entries::iterator newest_ = entries_.end();
  // the resource that is being added, where it appears elsewhere than on the PFS
  const config::Resource* as_ = nullptr;
  // directories, here and on the PFS, whose children are in entries_
  std::set<std::pair<std::string, std::string>> complete_;
};

}  // namespace efs::stage
