// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The store of a job and the file system on it: opens them, also those of an earlier instance or a
// dead worker, and leaves or removes the store at the end.

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/door_memory.hpp"
#include "base/mutex.hpp"
#include "base/timer_thread.hpp"
#include "config/job_config.hpp"
#include "daemon/control_parts.hpp"
#include "daemon/store_setup.hpp"
#include "daemon/supervisor_client.hpp"
#include "fs/filesystem.hpp"
#include "image/manifest.hpp"
#include "stage/import/reuse.hpp"
#include "stage/pfs/opened_directories.hpp"
#include "stage/pfs/publisher.hpp"
#include "stage/versions/placed_names.hpp"

namespace efs::daemon {

struct JobStoreOptions {
  std::string directory;    // of the instance
  bool privileged = false;  // the supervisor is root
  bool takeover = false;    // a dead worker used the store
  std::uint64_t mount_flags = 0;
  std::optional<std::uint32_t> root_mode{};  // nullopt: the mode of root-dir
  DoorMemory* door = nullptr;                // outlives the store; null: the mount has no door
  fs::OpenTable* opens = nullptr;            // likewise; null: the file system has its own
};

/// One backend of the store. Borrowed from the JobStore.
struct StorePlace {
  std::string id;  // as in the job file
  Backend& backend;
  int root;  // the directory with the containers
  int lock;  // the lock file, on the file system of the containers
};

/// One thread, that of the instance, opens, leaves and closes the store. The functions of
/// BufferAccess and StatusSource, is_kept() and has_files() are thread-safe. Durability: leave()
/// and give_up() return after their records have reached the medium.
class JobStore final : public BufferAccess, public StatusSource {
 public:
  using Time = std::chrono::steady_clock::time_point;

  /// `config` and `supervisor` outlive this object. The store notes in `config` the facts about
  /// results-dir that its manifest keeps.
  JobStore(config::JobConfig& config, JobStoreOptions options, SupervisorClient& supervisor);
  ~JobStore() override;

  // -- before programs use it

  /// The manifest in the instance's directory, by an earlier instance of this name or a dead
  /// worker. ENOENT if there is none.
  Result<image::Manifest> earlier() const;
  /// Call before open(). Fails if the results of the earlier instance may be lost or out of reach.
  Status check_reach(const image::Manifest& before);
  /// Opens the store, and the cache of inputs. Without a usable cache, efs imports everything from
  /// the PFS.
  Status open();
  /// Fails if the earlier instance left its data in another store than this one.
  Status refuse_second(const image::Manifest& before);
  /// Opens the file system. `made_mount_dir`: for the manifest; see also made_mount_dir().
  Status open_files(bool made_mount_dir);
  /// In a takeover of a mount: another process used the store after the death of the worker and,
  /// for example, recorded a salvage. Programs still write, so the record is wrong.
  void correct_manifest();
  /// From here on programs use the files, and requests may. Starts the upkeep: group commit, and
  /// a record of the files whose content has reached the medium.
  void publish();

  // -- facts

  /// True once the file system is open: open() and open_files() change nothing any more.
  bool has_files() const { return has_files_; }

  const std::string& path() const { return store_.path; }

  /// Did an earlier instance of this name, or a dead worker, leave data in the store?
  bool is_left() const { return store_.left; }

  /// How it left them; only if is_left().
  image::ShutdownState left_as() const { return store_.manifest.left; }

  /// True if efs created the mount directory: now, or for the earlier instance.
  bool made_mount_dir() const { return made_mount_dir_; }

  const store::InstanceId& id() const { return store_.instance; }

  int metadata() const { return store_.metadata.get(); }

  Space space() const { return store_.backend->space(); }

  fs::Filesystem& files() { return *filesystem_; }

  OpenBuffer buffer() { return {.files = *filesystem_, .backend = *store_.backend}; }

  std::vector<StorePlace> places() const;

  stage::Cache* cache() { return cache_.get(); }

  /// The bytes that the cache can free for this job if cache and store share one file system.
  std::uint64_t spare_in_cache();

  stage::OpenedDirectories* opened() { return opened_.get(); }

  stage::PlacedNames* placed() { return placed_.get(); }

  /// How results get their names. With several nodes it never replaces another node's results.
  stage::Publisher& publisher();

  bool is_merging() const { return merging_ != nullptr; }

  /// From here on the export merges. It may replace only files that this instance itself exported.
  /// The manifest records this for a salvage or a later start.
  Status begin_merging(bool made_mount_dir);

  // -- the end

  bool is_kept() const override { return kept_; }

  /// Does the store stay when the instance ends?
  void keep(bool kept) { kept_ = kept; }

  /// The same, also if this process dies.
  void keep_in_any_case(bool kept);

  /// Ends the upkeep. No program uses the mount any more.
  void end_upkeep() { housekeeper_.reset(); }

  /// Writes the state of the store that stays. Returns the first error but completes the other
  /// steps. Records the contents of each file until `end`, because this has to look at each file.
  Status leave(image::ShutdownState left, std::optional<Time> end = {});
  /// For a start on a kept store that failed before a program could change the store: leaves it for
  /// the next start. Without effect on another store.
  void give_back(bool in_a_hurry);
  /// Begins the removal of the store, which is no longer needed. If the removal cannot even begin
  /// with the journal, the next start would continue with the store; the record of the end stays,
  /// too.
  Status give_up();
  /// Removes the store at once, for a process that is about to exit. Logs errors.
  void remove();
  /// Records the end in the instance's directory. Logs an error. With `over`, the store is removed
  /// from here on: if the worker dies meanwhile, its successor only completes this.
  void record_end(image::ShutdownState left);
  /// Ends what requests may use. Calls `end_session` when no request uses the files; then closes
  /// the file system and the store, and removes a store that is not kept.
  void close(const std::function<void()>& end_session);
  /// As close(), but the file system stays, because a thread still uses it. The process must end.
  void close_in_use();

  // -- for requests

  bool use(const std::function<void(const OpenBuffer&)>& work) override;
  void add_status(control::replies::Status& status) override;

 private:
  void keep_or_remove();
  void open_cache();
  void start_upkeep();
  Status go_on_without(const image::Manifest& before);
  Status prepare_manifests(bool made_mount_dir);
  void record_merge_start();
  void record_mount_point();
  fs::Filesystem::Options files_options(mode_t root_mode, bool same_boot) const;
  Status refuse_changed_contents();
  Status take_after_root_dir(gid_t gid);
  void report_recovery();
  Status open_placed();
  Status open_merging();
  Status continue_with_left(bool same_boot);
  void restore_opened_directories();
  Status book_what_is_out();
  std::string record_contents(std::optional<Time> end);
  Status write_manifests_as(const Standing& standing) const;
  std::vector<control::replies::BackendFigures> figures_of_backends() const;

  config::JobConfig& config_;
  const JobStoreOptions options_;
  SupervisorClient& supervisor_;
  Store store_;
  std::unique_ptr<stage::Cache> cache_;
  std::unique_ptr<stage::InputSharer> sharer_;  // outlives filesystem_, which reports changes to it
  std::unique_ptr<fs::Filesystem> filesystem_;
  std::unique_ptr<stage::OpenedDirectories> opened_;
  // names of results that may collide with other files; uses filesystem_
  std::unique_ptr<stage::PlacedNames> placed_;
  // for a job on several nodes, or since a stop with merge
  std::unique_ptr<stage::Publisher> merging_;
  bool made_mount_dir_ = false;
  std::atomic<bool> has_files_{false};
  std::atomic<bool> is_published_{false};
  std::atomic<bool> kept_{false};
  std::atomic<bool> stays_{false};  // the store is no longer needed and could not be removed
  std::unique_ptr<TimerThread> housekeeper_;  // destroyed before filesystem_
  // rank 4: requests that use the store hold it shared; the end of the store holds it exclusively
  SharedMutex in_use_;
  mutable Mutex mutex_;                      // rank 90 (leaf)
  std::string lost_ EFS_GUARDED_BY(mutex_);  // text about losses of an earlier instance
};

/// The error of a start that cannot open the files of this store. `is_left`: an earlier instance
/// left it, so the text says how to look at the damage, if the error may come from damage.
std::unexpected<Error> not_opened(const std::string& store, bool is_left, const Error& error);

}  // namespace efs::daemon
