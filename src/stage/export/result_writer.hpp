// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Exports one result: looks at the file that has its name, writes and checks the partial, gives it
// the name, and applies the policy for versions from elsewhere.

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/mutex.hpp"
#include "config/job_config.hpp"
#include "stage/copy/transfer.hpp"
#include "stage/export/conflict.hpp"
#include "stage/export/export_context.hpp"
#include "stage/export/outgoing.hpp"
#include "stage/export/partial.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/options.hpp"
#include "stage/pfs/directory_cursor.hpp"
#include "stage/pfs/spelling.hpp"
#include "stage/versions/input_guard.hpp"
#include "stage/versions/placed_names.hpp"
#include "stage/versions/version_check.hpp"

namespace efs::stage {

/// Thread-safe for different results. Makes nothing durable except by fsync of single files.
class ResultWriter {
 public:
  /// Records the names given in the export log, `placed` of the options, unless that is null.
  explicit ResultWriter(const ExportContext& context);

  /// Reserves the item's name, so that on-conflict: keep-both does not choose it for another
  /// result.
  void reserve(const fs::WalkItem& item);

  /// Writes the partials. Each result is then `written`, or `named` if an earlier stage-out has
  /// exported it, or settled.
  void write(std::span<Outgoing> task);

  /// Compares the PFS's data of `written`, durable results with the written data (verify:
  /// read-back).
  void verify(std::span<Outgoing> task);

  /// Gives `written` results their names. Results in a hidden directory already have theirs. A
  /// result stays `written` and becomes `held` if another node or job has a claim to its name.
  void publish(std::span<Outgoing> task);

  /// Makes `out` another name of `first`, which must be settled as staged out or kept; `out`
  /// becomes `named`. Returns false if the PFS cannot link, or if `first` has changed; the caller
  /// then writes `out` as any other result. `out` stays `waiting` if its name or the name of
  /// `first` is `held`.
  bool link(Outgoing& out, const Outgoing& first);

  /// Removes the partials of results that failed after their partial was whole.
  void remove_partials(std::span<Outgoing> batch);

  /// Settles the result as failed (or not-saved after a cancel).
  void fail_result(Outgoing& out, const Error& error);

  /// Settles a result that is still `held`.
  void fail_held(Outgoing& out);

  /// Records a full PFS. No new result is begun afterwards: partials would compete for the last
  /// space, and possibly none would become whole.
  void record_full(const Error& error);

  bool full() const { return full_; }

  /// Forgets that the PFS was full.
  void forget_full() { full_ = false; }

 private:
  /// A result that the PFS has, and that gets a further name: `now` is its copy in the open
  /// `directory`.
  struct LinkedCopy {
    const Outgoing& first;
    int directory = -1;
    const struct stat& now;
  };

  DirectoryCursor cursor() const;
  /// The same for a result that did not get its name; another node may have a result of that name
  /// (merge.hpp).
  void fail_name(Outgoing& out, const Error& error);
  Result<PartialFile> write_in(const Outgoing& out, int directory, Scratch& scratch);
  void write_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch);
  void take_written(Outgoing& out, const PartialFile& written);
  bool may_meet_another(const Outgoing& out) const;
  void verify_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch);
  std::optional<PartialJob> look_again(Outgoing& out, int directory, Scratch& scratch,
                                       PfsCheck& there);
  void publish_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch);
  bool take_name(Outgoing& out, int directory, Scratch& scratch);
  std::optional<mode_t> handed_down_acl(const std::string& path, int directory);
  bool is_elders(const Outgoing& out, int directory);
  bool is_own_copy(const Outgoing& out, int directory);
  bool is_spelled_so(Outgoing& out, int directory);
  bool is_over_input(Outgoing& out, int directory);
  Result<PfsCheck> check(const Outgoing& out, int directory, Scratch& scratch);
  VersionMeans means(Scratch& scratch) const;
  bool may_conflict(const Outgoing& out) const;
  Encounter encounter(const Outgoing& out, const PfsCheck& there) const;
  Decision decide(const Outgoing& out, const PfsCheck& there) const;
  bool is_own(const Outgoing& out, const struct stat& there) const;
  bool is_unsure() const;
  bool is_looked_at(const Outgoing& out) const;
  bool is_guarded(const Outgoing& out) const;
  bool may_write(Outgoing& out, int directory, Scratch& scratch);
  bool resolve(Outgoing& out, const Decision& decision, int directory, Scratch& scratch);
  std::optional<bool> keep_beside(Outgoing& out, std::string_view why, int directory,
                                  Scratch& scratch);
  bool take_kept_name(const Outgoing& out, const std::string& name);
  void found_there(Outgoing& out, std::optional<FileSum> checksum);
  void record_naming(const Outgoing& out, const PartialJob& job, const struct stat& copy,
                     bool is_shared);
  Result<struct stat> named_copy(const Outgoing& out, int directory);
  void record_named(Outgoing& out, int directory, bool is_theirs);
  Status record_placed(const Outgoing& out, int directory, const struct stat& copy);
  void record_linked(const Outgoing& first, int directory);
  bool link_copy(Outgoing& out, const LinkedCopy& copy, int directory);
  bool make_link(Outgoing& out, const LinkedCopy& copy, int directory, const struct stat* present);
  void take_link(Outgoing& out, const LinkedCopy& copy, int directory);

  const config::JobConfig& config_;
  Buffer& buffer_;
  PfsIo& pfs_;
  ResultsTree& tree_;
  Progress& progress_;
  PlacedNames* const placed_;
  const bool in_place_;
  const ConflictRules rules_;
  InputGuard inputs_;
  SpelledNames spelled_;
  ScratchPool scratches_;
  std::atomic<bool> full_{false};
  Mutex mutex_;  // rank 90 (leaf)
  // A cache of handed_down_acl().
  std::unordered_map<std::string, std::optional<mode_t>> acl_directories_ EFS_GUARDED_BY(mutex_);
  // names reserved or chosen for these items (on-conflict: keep-both)
  std::unordered_map<std::string, const fs::WalkItem*> kept_names_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::stage
