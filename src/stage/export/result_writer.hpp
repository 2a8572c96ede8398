#pragma once
// How one result gets to its place: what is there already, the partial, its check, its name, and
// the policy for versions that others have put there meanwhile.

#include <atomic>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>

#include "base/mutex.hpp"
#include "config/job_config.hpp"
#include "stage/copy/transfer.hpp"
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

/// Thread-safe for different results. Nothing here makes anything durable but the fsync of single
/// files.
class ResultWriter {
 public:
  /// `placed`: what the names that it gives are noted in; null: nowhere.
  ResultWriter(const config::JobConfig& config, Buffer& buffer, PfsIo& pfs, ResultsTree& tree,
               Progress& progress, const Options& options);

  /// Its name is for no other result that on-conflict: keep-both puts beside its file.
  void reserve(const fs::WalkItem& item);

  /// Writes the partials: `written`, `named` where an earlier stage-out has brought the result out,
  /// or settled.
  void write(std::span<Outgoing> task);

  /// Of those that are `written`, and durable: compares what the PFS holds with what was written
  /// (verify: read-back).
  void verify(std::span<Outgoing> task);

  /// Those that are `written` get their names, but for those that have theirs and are hidden with
  /// their directory. They stay so, and are `held`, where another is about to give or to take the
  /// name.
  void publish(std::span<Outgoing> task);

  /// Makes `out` another name of `first`, which must be settled as staged out or kept: `named`.
  /// False where the PFS cannot, or `first` is not what it should be: then it is to be written like
  /// any other. Stays `waiting` where its name is `held`, or that of `first`.
  bool link(Outgoing& out, const Outgoing& first);

  /// Removes the partials of those that failed after theirs was whole.
  void remove_partials(std::span<Outgoing> batch);

  /// Settles it as failed (or not saved: cancelled).
  void give_up(Outgoing& out, const Error& error);

  /// Settles what is `held` still.
  void give_up_held(Outgoing& out);

  /// After a full PFS nothing new is begun: partials would take the last space from one another,
  /// and possibly none would be whole.
  void note_full(const Error& error);

  bool full() const { return full_; }

  /// There may be space again.
  void forget_full() { full_ = false; }

 private:
  DirectoryCursor cursor() const;
  /// The same, where it did not get its name: another node may have one there (merge.hpp).
  void give_up_name(Outgoing& out, const Error& error);
  Result<PartialFile> write_in(const Outgoing& out, int directory, Scratch& scratch);
  void write_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch);
  void verify_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch);
  std::optional<PartialJob> look_again(Outgoing& out, int directory, Scratch& scratch,
                                       PfsCheck& there);
  void publish_one(Outgoing& out, DirectoryCursor& directories, Scratch& scratch);
  std::optional<mode_t> handed_down_acl(const std::string& path, int directory);
  bool is_elders(const Outgoing& out, int directory);
  bool is_own_copy(const Outgoing& out, int directory);
  bool is_spelled_so(Outgoing& out, int directory);
  bool is_over_input(Outgoing& out, int directory);
  Result<PfsCheck> check(const Outgoing& out, int directory, Scratch& scratch);
  bool may_conflict(const Outgoing& out) const;
  bool is_anothers(const Outgoing& out, const PfsCheck& there) const;
  bool is_in_the_way(const Outgoing& out, const PfsCheck& there) const;
  bool is_unsure() const;
  bool is_looked_at(const Outgoing& out) const;
  bool is_guarded(const Outgoing& out) const;
  bool may_write(Outgoing& out, int directory, Scratch& scratch);
  bool resolve(Outgoing& out, const PfsCheck& there, int directory, Scratch& scratch);
  bool take_kept_name(const Outgoing& out, const std::string& name);
  void found_there(Outgoing& out, std::optional<FileSum> checksum);
  void note_naming(const Outgoing& out, const PartialJob& job, const struct stat& copy,
                   bool is_shared);
  Result<struct stat> named_copy(const Outgoing& out, int directory);
  void note_named(Outgoing& out, int directory, bool is_theirs);
  Status note_placed(const Outgoing& out, int directory, const struct stat& copy);
  void note_linked(const Outgoing& first, int directory);

  const config::JobConfig& config_;
  Buffer& buffer_;
  PfsIo& pfs_;
  ResultsTree& tree_;
  Progress& progress_;
  PlacedNames* const placed_;
  const bool in_place_;
  InputGuard inputs_;
  SpelledNames spelled_;
  ScratchPool scratches_;
  std::atomic<bool> full_{false};
  Mutex mutex_;  // rank 90 (leaf)
  // handed_down_acl(), where it was asked.
  std::unordered_map<std::string, std::optional<mode_t>> acl_directories_ EFS_GUARDED_BY(mutex_);
  // taken by these: on-conflict: keep-both
  std::unordered_map<std::string, const fs::WalkItem*> kept_names_ EFS_GUARDED_BY(mutex_);
};

}  // namespace efs::stage
