// SPDX-License-Identifier: BSD-3-Clause
// Opens the store of a job and its file system.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/log.hpp"
#include "base/shortage.hpp"
#include "config/mount_options.hpp"
#include "daemon/job_store.hpp"
#include "fs/acl.hpp"
#include "fs/ledger_log.hpp"
#include "fs/placed_file.hpp"
#include "fs/staging.hpp"
#include "image/contents.hpp"
#include "image/image.hpp"
#include "stage/export/results_tree.hpp"
#include "stage/pfs/merge.hpp"
#include "stage/pfs/merging_publisher.hpp"
#include "stage/plan/results_dir.hpp"
#include "stage/resume/booking.hpp"

namespace efs::daemon {
namespace {

// Returns the function that selects the backend of a new file; empty if no rule names a backend.
std::function<std::optional<unsigned>(const std::string&)> placement_of(
    const config::JobConfig& config) {
  if (config.backends.size() < 2 ||
      std::ranges::all_of(config.outputs, [](const auto& rule) { return rule.backend.empty(); })) {
    return {};
  }
  return [&config](const std::string& path) -> std::optional<unsigned> {
    return static_cast<unsigned>(config::backend_of(config, path, false));
  };
}

}  // namespace

Result<image::Manifest> JobStore::earlier() const {
  const UniqueFd directory(
      ::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  return directory ? image::read_manifest(directory.get()) : Result<image::Manifest>(fail(ENOENT));
}

Status JobStore::check_reach(const image::Manifest& before) {
  if (before.left == image::ShutdownState::over) {
    return {};
  }
  if (image::is_out_of_reach(before, options_.directory)) {
    return fail(ENOENT, "an earlier instance of this name may have left results: " +
                            image::out_of_reach_text(before));
  }
  return image::is_gone(before) ? go_on_without(before) : Status();
}

// Handles an earlier store in memory that no longer exists.
Status JobStore::go_on_without(const image::Manifest& before) {
  const bool is_out =
      before.left == image::ShutdownState::kept || before.left == image::ShutdownState::salvaged;
  const bool restarted = before.boot_id != image::boot_id();
  if (!restarted && !is_out) {
    return fail(ENOENT, "an earlier instance of this name may have left results: its store " +
                            before.store +
                            " was removed or unmounted. If it is gone for good: efs clean " +
                            config_.name);
  }
  MutexLock lock(mutex_);
  lost_ = std::string("the data in memory of an earlier instance of this name is gone") +
          (restarted ? ": the machine was restarted" : "") +
          (is_out ? "; its results had been exported" : ", with results that were not exported");
  log::warn("event=memory_lost store={} restarted={} left={}", before.store, restarted,
            image::name_of(before.left));
  return {};
}

Status JobStore::open() {
  auto store = set_up_store({.config = config_,
                             .instance = options_.directory,
                             .privileged = options_.privileged,
                             .takeover = options_.takeover,
                             .access_times = config::access_times(options_.mount_flags),
                             .supervisor = supervisor_});
  if (!store) {
    return std::unexpected(store.error());
  }
  store_ = std::move(*store);
  open_cache();
  return {};
}

void JobStore::open_cache() {
  const config::JobConfig& config = config_;
  if (config.cache.empty()) {
    return;
  }
  auto cache = stage::Cache::open(config.cache, config.cache_capacity);
  if (!cache) {
    return log::warn("event=cache_unusable reason=\"{}\" note=\"nothing is reused\"",
                     describe(cache.error()));
  }
  cache_ = std::move(*cache);
  sharer_ = std::make_unique<stage::InputSharer>(*cache_, config);
}

Status JobStore::refuse_second(const image::Manifest& before) {
  if (before.store == store_.path || !image::find_store(before.store)) {
    return {};
  }
  const std::string where = store_.path;
  if (!store_.left) {
    remove_store(std::exchange(store_, Store{}));
  }
  return fail(EEXIST, "an earlier instance of this name left its data in " + before.store +
                          ", and this job's store is " + where + "; export the data (efs salvage " +
                          config_.name + ") and remove it (efs clean " + config_.name +
                          "), or choose another --name");
}

// Records the start of the job by the PFS's clock: a newer file in results-dir at the end comes
// from another node. The manifest keeps the time for an instance that continues with the store. A
// store that was kept on purpose starts anew, because all its results were exported.
void JobStore::record_merge_start() {
  config::JobConfig& config = config_;
  config.merges =
      store_.left && store_.manifest.left != image::ShutdownState::kept && store_.manifest.merges;
  if (!config.of_batch_job || config.results_dir.empty()) {
    return;
  }
  if (store_.left && store_.manifest.left != image::ShutdownState::kept) {
    config.merge_since = store_.manifest.merge_since;
  } else if (const auto now = stage::pfs_now(config.results_dir)) {
    config.merge_since = *now;
  }
}

// The manifest keeps this, too: the PFS may be absent when a later instance continues with the
// store.
void JobStore::record_mount_point() {
  config::JobConfig& config = config_;
  if (config.results_dir.empty()) {
    return;
  }
  const image::Manifest& before = store_.manifest;
  const bool goes_on = store_.left && before.left != image::ShutdownState::kept &&
                       before.results_dir == config.results_dir && !before.results_mount.empty();
  // a takeover makes no call to the PFS: programs wait, and the PFS may hang
  if (options_.takeover || goes_on) {
    config.results_mount = before.results_mount;
    config.mounts_below = before.mounts_below;
  } else {
    config.results_mount =
        stage::mount_point_of(config.results_dir, stage::posix_pfs()).value_or("");
    config.mounts_below = stage::mounts_below(config);
  }
}

// The ledger of exported names that may collide with files of other writers.
Status JobStore::open_placed() {
  if (placed_ || !stage::may_meet_others(config_)) {
    return {};
  }
  // room for the exports of a salvage
  if (const auto file = fs::PlacedFile::open(store_.metadata.get()); !file) {
    return fail(file.error().code, store_.path + ": " + describe(file.error()));
  }
  auto log = std::make_unique<fs::LedgerLog>(*filesystem_);
  log->reserve_room();
  placed_ = std::make_unique<stage::PlacedNames>(std::move(log), config_.results_dir);
  return {};
}

// A salvage or a killed stop has not updated the ledger.
Status JobStore::book_what_is_out() {
  fs::Staging staging(*filesystem_);
  stage::Booking booking(config_, staging, stage::posix_pfs(), publisher(), placed_.get());
  const auto before = image::job_of(store_.metadata.get(), store_.manifest);
  EFS_TRY(booking.forget_renamed(before ? &*before : nullptr));
  booking.salvaged();
  return {};
}

// Results that an earlier process of this node unloaded belong to this node, not to another one.
Status JobStore::open_merging() {
  const config::JobConfig& config = config_;
  if ((config.nodes < 2 && !config.merges) || config.results_dir.empty()) {
    return {};
  }
  std::vector<fs::Origin> own;
  if (store_.left) {
    const auto items = fs::Staging(*filesystem_).walk();
    if (!items) {
      return std::unexpected(items.error());
    }
    own = stage::saved_copies(*items);
    std::ranges::copy(placed_->copies(), std::back_inserter(own));
  }
  merging_ = stage::merging_publisher(config.merge_since, own);
  return {};
}

void JobStore::correct_manifest() {
  if (store_.manifest.left == image::ShutdownState::in_use) {
    return;
  }
  log::error("event=manifest_contradicted left={} note=\"it is mounted\" action=\"goes on\"",
             image::name_of(store_.manifest.left));
  store_.manifest.left = image::ShutdownState::in_use;
  if (const Status written = image::write_left(store_.metadata.get(), image::ShutdownState::in_use);
      !written) {
    log::warn("event=manifest_not_written reason=\"{}\"", describe(written.error()));
  }
}

// Notes in the configuration the facts that the manifest keeps. Writes the manifests of a new
// store.
Status JobStore::prepare_manifests(bool made_mount_dir) {
  made_mount_dir_ = made_mount_dir || (store_.left && store_.manifest.made_mount_dir &&
                                       store_.manifest.mount_dir == config_.mount_dir);
  record_merge_start();
  record_mount_point();
  return store_.left ? Status() : write_manifests_as({.made_mount_dir = made_mount_dir_});
}

Status JobStore::write_manifests_as(const Standing& standing) const {
  return write_manifests(store_, config_, options_.directory, standing);
}

fs::Filesystem::Options JobStore::files_options(mode_t root_mode, bool same_boot) const {
  std::vector<std::uint64_t> segment_sizes;
  for (const auto& backend : config_.backends) {
    segment_sizes.push_back(backend.segment_size);
  }
  return {.metadata_directory = store_.metadata.get(),
          .root_mode = options_.root_mode.value_or(root_mode),
          .uid = ::geteuid(),
          .gid = ::getegid(),
          .after_power_loss = !same_boot,
          .takeover = options_.takeover,
          .instance = store_.instance,
          .journal_to = store_.manifest.journal_to,
          .access_times = config::access_times(options_.mount_flags),
          .segment_size = segment_sizes.front(),
          .segment_sizes = segment_sizes,
          .place_of_new = placement_of(config_),
          .door = options_.door,
          .opens = options_.opens};
}

std::unexpected<Error> not_opened(const std::string& store, bool is_left, const Error& error) {
  const bool may_be_damaged = is_left && error.code != EPROTONOSUPPORT && !is_shortage(error.code);
  return fail(error.code, store + ": " + describe(error) +
                              (may_be_damaged ? "; see the damage: efs check-image " + store +
                                                    "; export what is left: efs salvage " + store
                                              : ""));
}

// A start on an earlier instance's store and a takeover replay the same journal. Only in a takeover
// the kernel still has state of the mount.
Status JobStore::open_files(bool made_mount_dir) {
  struct stat root{};
  if (!store_.left && ::stat(config_.root_dir.c_str(), &root) != 0) {
    return fail_errno("root-dir " + config_.root_dir);
  }
  EFS_TRY(prepare_manifests(made_mount_dir));
  const bool same_boot = !store_.left || store_.manifest.boot_id == image::boot_id();
  if (store_.left && !options_.takeover) {
    EFS_TRY(refuse_changed_contents());
  }
  auto filesystem =
      fs::Filesystem::open(*store_.backend, files_options(root.st_mode & 07777, same_boot));
  if (!filesystem) {
    return not_opened(store_.path, store_.left, filesystem.error());
  }
  filesystem_ = std::move(*filesystem);
  filesystem_->share_with(sharer_.get());
  if (!store_.left) {
    EFS_TRY(take_after_root_dir(root.st_gid));
  }
  if (store_.left) {
    report_recovery();
  }
  EFS_TRY(open_placed());
  opened_ = stage::OpenedDirectories::open(store_.metadata.get());
  EFS_TRY(open_merging());
  if (store_.left && !options_.takeover) {
    EFS_TRY(continue_with_left(same_boot));
  }
  has_files_ = true;
  return {};
}

// For a start on the store of an earlier instance.
Status JobStore::continue_with_left(bool same_boot) {
  restore_opened_directories();
  EFS_TRY(book_what_is_out());
  log::info("event=resumed store={} left={} same_boot={}", store_.path,
            image::name_of(store_.manifest.left), same_boot);
  // Write the manifests now, not earlier: a manifest of this boot states that everything uncertain
  // after a power loss has been dropped.
  EFS_TRY(write_manifests_as(
      {.made_mount_dir = made_mount_dir_, .journal_to = filesystem_->durable_records()}));
  image::remove_contents(store_.metadata.get());
  return {};
}

// Restores the modes of directories that a killed export had changed for a while. These temporary
// modes are not the PFS's.
void JobStore::restore_opened_directories() {
  const std::string& results = config_.results_dir;
  if (results.empty() || !opened_->has_any_of_before()) {
    return;
  }
  auto& pfs = stage::posix_pfs();
  if (!pfs.lstat(stage::no_directory, results) || !stage::check_mounted(config_, pfs)) {
    return;
  }
  stage::ResultsTree tree(pfs, opened_.get());
  Status shut = tree.open(results);
  if (shut) {
    shut = tree.restore_access(false);  // a missing directory may only be not mounted yet
  }
  if (!shut) {
    log::warn("event=not_shut reason=\"{}\"", describe(shut.error()));
  }
}

// Copies the group, ACLs and other extended attributes of root-dir, so that new files inherit the
// same as in root-dir.
Status JobStore::take_after_root_dir(gid_t gid) {
  auto& pfs = stage::posix_pfs();
  const auto root = pfs.open(stage::no_directory, config_.root_dir, stage::directory_flags);
  if (!root && root.error().code == EACCES) {
    return {};  // root-dir may be searchable but not readable
  }
  auto xattrs = root ? pfs.xattrs(*root) : std::unexpected(root.error());
  if (!xattrs) {
    return fail(xattrs.error().code,
                "root-dir " + config_.root_dir +
                    ": reading its extended attributes: " + describe(xattrs.error()));
  }
  if (options_.root_mode) {
    xattrs->erase(fs::access_acl_name);  // -o mode= decides about the rights
  }
  return fs::Staging(*filesystem_).set_root(gid, *xattrs);
}

// Call this before recovery, which would accept the changed contents.
Status JobStore::refuse_changed_contents() {
  const auto changed =
      image::changed_contents(store_.metadata.get(), store_.manifest, *store_.backend);
  const std::string way_out = "; to continue with the present contents, remove " + store_.path +
                              "/meta/" + image::contents_name;
  if (!changed) {
    return fail(changed.error().code, store_.path + ": " + describe(changed.error()) + way_out);
  }
  if (changed->empty()) {
    return {};
  }
  const auto& [container, how] = *changed->begin();
  return fail(EUCLEAN, store_.path + ": the contents of " + std::to_string(changed->size()) +
                           " files were changed since the instance was left (container " +
                           std::to_string(container) + ": " + how +
                           "). List them: efs check-image " + config_.name +
                           "; export the others: efs salvage " + config_.name + way_out);
}

void JobStore::report_recovery() {
  const auto& met = filesystem_->recovery();
  log::info(
      "event=recovered records={} torn={} nameless={} unknown_containers={} emptied={} dropped={} "
      "lost={}",
      met.journal.records, met.journal.torn, met.nameless, met.unknown_containers,
      met.emptied.size(), met.dropped.size(), met.lost.size());
  if (!met.unlisted.empty()) {
    log::error("event=containers_not_listed reason=\"{}\" note=\"its files cannot be read\"",
               met.unlisted);
  }
  for (const auto& path : met.lost) {
    log::error("event=container_gone path=\"{}\" note=\"its content cannot be read\"", path);
  }
  if (!met.lost.empty()) {
    MutexLock lock(mutex_);
    lost_ = std::to_string(met.lost.size()) + " files cannot be read, first /" + met.lost.front() +
            ": their containers were removed from the store";
  }
  for (const auto& path : met.emptied) {
    log::warn("event=content_lost path=\"{}\" reason=\"power loss before its first fsync\"", path);
  }
}

}  // namespace efs::daemon
