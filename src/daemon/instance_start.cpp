// SPDX-License-Identifier: BSD-3-Clause
// The begin of an instance: by a start, with or without the store of an earlier instance, or by a
// takeover.
#include <dirent.h>
#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>
#include <span>
#include <utility>

#include "base/json_text.hpp"
#include "base/log.hpp"
#include "base/memory.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "config/mount_options.hpp"
#include "daemon/instance.hpp"
#include "daemon/status_file.hpp"
#include "fs/acl.hpp"
#include "fs/ledger_log.hpp"
#include "fs/placed_file.hpp"
#include "fs/staging.hpp"
#include "image/contents.hpp"
#include "image/image.hpp"
#include "stage/buffer.hpp"
#include "stage/import/stage_in.hpp"
#include "stage/pfs/merge.hpp"
#include "stage/pfs/merging_pfs.hpp"
#include "stage/pfs/pfs_io.hpp"
#include "stage/plan/distribute.hpp"
#include "stage/plan/planner.hpp"
#include "stage/plan/results_dir.hpp"
#include "stage/resume/booking.hpp"

namespace efs::daemon {
namespace {

// Clients that requested a stop from the predecessor repeat the request within moments.
constexpr auto patience_for_askers = std::chrono::seconds(10);

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

Status refuse_problems(const stage::Plan& plan) {
  if (plan.problems.empty()) {
    return {};
  }
  std::string text = "the job cannot start:";
  for (const auto& problem : plan.problems) {
    text += "\n  " + escaped(problem.path) + ": " + printable(problem.reason);
  }
  return fail_lines(EINVAL, text);
}

std::unexpected<Error> stage_in_failed(const stage::StageFailure& failure,
                                       const std::string& root_dir) {
  return fail(
      failure.error.code,
      "stage-in failed: " + (failure.path.empty() ? "" : root_dir + "/" + failure.path + ": ") +
          describe(failure.error));
}

void log_staged_in(const stage::StageReport& report, std::span<const stage::PlanSkip> skipped,
                   std::uint64_t retries) {
  log::info(
      "event=staged_in files={} directories={} bytes={} reused_files={} reused_bytes={} "
      "seconds={:.3f} retries={}",
      report.files, report.directories, report.bytes, report.reused_files, report.reused_bytes,
      report.seconds, retries);
  for (const auto& skip : skipped) {
    log::info("event=input_skipped path=\"{}\" reason=\"{}\"", skip.path, skip.reason);
  }
  if (report.not_kept > 0) {
    log::warn("event=cache_not_kept files={} first=\"{}\"", report.not_kept,
              report.not_kept_reason);
  }
}

}  // namespace

Status Instance::start() {
  // A failed start must not remove the store of an earlier instance.
  const UniqueFd directory(
      ::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  const auto before =
      directory ? image::read_manifest(directory.get()) : Result<image::Manifest>(fail(ENOENT));
  keep_image_ = before.has_value() || before.error().code != ENOENT;
  supervisor_.keep_store(keep_image_);
  EFS_TRY(open_watchers());
  if (before) {
    EFS_TRY(settle_former(*before));
  }
  EFS_TRY(prepare_mount_point());
  EFS_TRY(open_store());
  if (before) {
    EFS_TRY(refuse_second_store(*before));
  }
  keep_image_ = store_.left;
  supervisor_.keep_store(keep_image_);
  EFS_TRY(open_filesystem(false));
  {
    MutexLock lock(mutex_);
    start_has_store_ = true;
  }
  EFS_TRY(plan_and_stage_in());
  end_start();  // the start makes no more calls to the PFS
  // The plan of a million inputs used this thread's arena. The threads that serve programs have
  // other arenas and would never reuse its memory.
  give_back_freed();
  return mount();
}

// Call this before the store is opened. Fails if the results of the earlier instance may be lost or
// out of reach.
Status Instance::settle_former(const image::Manifest& before) {
  const bool is_over = before.left == image::ShutdownState::over;
  if (!is_over && image::is_out_of_reach(before, options_.directory)) {
    return fail(ENOENT, "an earlier instance of this name may have left results: " +
                            image::out_of_reach_text(before));
  }
  if (!is_over && image::is_gone(before)) {
    EFS_TRY(go_on_without(before));
  }
  return drop_former_mount(before);
}

// Fails if the earlier instance left its data in another store than the present one.
Status Instance::refuse_second_store(const image::Manifest& before) {
  if (before.store == store_.path || !image::find_store(before.store)) {
    return {};
  }
  const std::string where = store_.path;
  if (!store_.left) {
    remove_store(std::exchange(store_, Store{}));
  }
  return fail(EEXIST, "an earlier instance of this name left its data in " + before.store +
                          ", and this job's store is " + where + "; export the data (efs salvage " +
                          options_.config.name + ") and remove it (efs clean " +
                          options_.config.name + "), or choose another --name");
}

// Handles an earlier store in memory that no longer exists.
Status Instance::go_on_without(const image::Manifest& before) {
  const bool is_out =
      before.left == image::ShutdownState::kept || before.left == image::ShutdownState::salvaged;
  const bool restarted = before.boot_id != image::boot_id();
  if (!restarted && !is_out) {
    return fail(ENOENT, "an earlier instance of this name may have left results: its store " +
                            before.store +
                            " was removed or unmounted. If it is gone for good: efs clean " +
                            options_.config.name);
  }
  MutexLock lock(mutex_);
  lost_ = std::string("the data in memory of an earlier instance of this name is gone") +
          (restarted ? ": the machine was restarted" : "") +
          (is_out ? "; its results had been exported" : ", with results that were not exported");
  log::warn("event=memory_lost store={} restarted={} left={}", before.store, restarted,
            image::name_of(before.left));
  return {};
}

Status Instance::open_store() {
  auto store = set_up_store({.config = options_.config,
                             .instance = options_.directory,
                             .privileged = options_.privileged,
                             .takeover = options_.takeovers > 0,
                             .access_times = config::access_times(options_.mount_flags),
                             .supervisor = supervisor_});
  if (!store) {
    return std::unexpected(store.error());
  }
  store_ = std::move(*store);
  open_cache();
  return {};
}

void Instance::open_cache() {
  const config::JobConfig& config = options_.config;
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

// Records the start of the job by the PFS's clock: a newer file in results-dir at the end comes
// from another node. The manifest keeps the time for an instance that continues with the store. A
// store that was kept on purpose starts anew, because all its results were exported.
void Instance::record_merge_start() {
  config::JobConfig& config = options_.config;
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
void Instance::record_mount_point(bool takeover) {
  config::JobConfig& config = options_.config;
  if (config.results_dir.empty()) {
    return;
  }
  const image::Manifest& before = store_.manifest;
  const bool goes_on = store_.left && before.left != image::ShutdownState::kept &&
                       before.results_dir == config.results_dir && !before.results_mount.empty();
  // a takeover makes no call to the PFS: programs wait, and the PFS may hang
  if (takeover || goes_on) {
    config.results_mount = before.results_mount;
    config.mounts_below = before.mounts_below;
  } else {
    config.results_mount =
        stage::mount_point_of(config.results_dir, stage::posix_pfs()).value_or("");
    config.mounts_below = stage::mounts_below(config);
  }
}

// The ledger of exported names that may collide with files of other writers.
Status Instance::open_placed() {
  if (placed_ || !stage::may_meet_others(options_.config)) {
    return {};
  }
  // room for the exports of a salvage
  if (const auto file = fs::PlacedFile::open(store_.metadata.get()); !file) {
    return fail(file.error().code, store_.path + ": " + describe(file.error()));
  }
  auto log = std::make_unique<fs::LedgerLog>(*filesystem_);
  log->reserve_room();
  placed_ = std::make_unique<stage::PlacedNames>(std::move(log), options_.config.results_dir);
  return {};
}

// A salvage or a killed stop has not updated the export log.
Status Instance::book_what_is_out() {
  fs::Staging staging(*filesystem_);
  stage::Booking booking(options_.config, staging, results_pfs(), placed_.get());
  const auto before = image::job_of(store_.metadata.get(), store_.manifest);
  EFS_TRY(booking.forget_renamed(before ? &*before : nullptr));
  booking.salvaged();
  return {};
}

// Results that an earlier process of this node unloaded belong to this node, not to another one.
Status Instance::open_merging() {
  const config::JobConfig& config = options_.config;
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
  merging_ = stage::merging_pfs(config.merge_since, own);
  return {};
}

stage::PfsIo& Instance::results_pfs() {
  return merging_ ? *merging_ : stage::posix_pfs();
}

Status Instance::take_over() {
  open_watchers_later();
  keep_image_ = true;  // until a stop decides otherwise
  EFS_TRY(open_store());
  inherit_listed();
  inherit_staged_in();
  if (!store_.left) {
    return fail(ENOENT, "the predecessor's store " + store_.path + " is gone");
  }
  EFS_TRY(open_filesystem(true));
  auto connection = supervisor_.resume();
  if (!connection && connection.error().code != ENOTCONN) {
    return std::unexpected(connection.error());
  }
  log::warn("event=takeover takeovers={} predecessor=\"{}\" mounted={}", options_.takeovers,
            options_.predecessor, connection.has_value());
  if (connection && store_.manifest.left != image::ShutdownState::in_use) {
    put_manifest_right();
  }
  open_session();
  if (!connection) {
    filesystem_->close_all({.kind = fs::Owner::Kind::kernel});
    stops_.note_unmounted();
    if (!options_.stop_is_unusual) {
      stops_.go_on_alone_at(Clock::now() + patience_for_askers);
    }
    enter(Event::found_unmounted);
    return {};
  }
  session_->inherit(connection->backings);
  EFS_TRY(serve_in_thread(std::move(connection->fuse), std::move(connection->init)));
  catch_up_with_predecessor();
  probe_passthrough();
  keep_house();
  ready_ = true;
  enter(Event::resumed);
  return {};
}

// Another process used the store after the predecessor's death and, for example, recorded a
// salvage. Programs still write, so the record is wrong.
void Instance::put_manifest_right() {
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
Status Instance::prepare_manifests(bool takeover) {
  made_mount_point_ = made_mount_point_ || (store_.left && store_.manifest.made_mount_dir &&
                                            store_.manifest.mount_dir == options_.config.mount_dir);
  record_merge_start();
  record_mount_point(takeover);
  return store_.left ? Status()
                     : write_manifests(store_, options_.config, options_.directory,
                                       {.made_mount_dir = made_mount_point_});
}

fs::Filesystem::Options Instance::filesystem_options(mode_t root_mode, bool same_boot,
                                                     bool takeover) const {
  std::vector<std::uint64_t> segment_sizes;
  for (const auto& backend : options_.config.backends) {
    segment_sizes.push_back(backend.segment_size);
  }
  return {.metadata_directory = store_.metadata.get(),
          .root_mode = options_.root_mode.value_or(root_mode),
          .uid = ::geteuid(),
          .gid = ::getegid(),
          .after_power_loss = !same_boot,
          .takeover = takeover,
          .instance = store_.instance,
          .journal_to = store_.manifest.journal_to,
          .access_times = config::access_times(options_.mount_flags),
          .segment_size = segment_sizes.front(),
          .segment_sizes = segment_sizes,
          .place_of_new = placement_of(options_.config),
          .door = options_.door,
          .opens = options_.opens};
}

std::unexpected<Error> Instance::not_opened(const Error& error) const {
  const bool may_be_damaged =
      store_.left && error.code != EPROTONOSUPPORT && error.code != ENOSPC && error.code != ENOMEM;
  return fail(error.code,
              store_.path + ": " + describe(error) +
                  (may_be_damaged ? "; see the damage: efs check-image " + store_.path +
                                        "; export what is left: efs salvage " + store_.path
                                  : ""));
}

// A start on an earlier instance's store and a takeover replay the same journal. Only in a takeover
// the kernel still has state of the mount.
Status Instance::open_filesystem(bool takeover) {
  struct stat root{};
  if (!store_.left && ::stat(options_.config.root_dir.c_str(), &root) != 0) {
    return fail_errno("root-dir " + options_.config.root_dir);
  }
  EFS_TRY(prepare_manifests(takeover));
  const bool same_boot = !store_.left || store_.manifest.boot_id == image::boot_id();
  if (store_.left && !takeover) {
    EFS_TRY(refuse_changed_contents());
  }
  auto filesystem = fs::Filesystem::open(
      *store_.backend, filesystem_options(root.st_mode & 07777, same_boot, takeover));
  if (!filesystem) {
    return not_opened(filesystem.error());
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
  return store_.left && !takeover ? go_on_with_store(same_boot) : Status();
}

// For a start on the store of an earlier instance.
Status Instance::go_on_with_store(bool same_boot) {
  if (options_.figures != nullptr) {
    options_.figures->history.continued = true;
  }
  shut_what_was_opened();
  EFS_TRY(book_what_is_out());
  log::info("event=resumed store={} left={} same_boot={}", store_.path,
            image::name_of(store_.manifest.left), same_boot);
  // Write the manifests now, not earlier: a manifest of this boot states that everything uncertain
  // after a power loss has been dropped.
  EFS_TRY(write_manifests(
      store_, options_.config, options_.directory,
      {.made_mount_dir = made_mount_point_, .journal_to = filesystem_->durable_records()}));
  image::remove_contents(store_.metadata.get());
  return {};
}

// Copies the group, ACLs and other extended attributes of root-dir, so that new files inherit the
// same as in root-dir.
Status Instance::take_after_root_dir(gid_t gid) {
  auto& pfs = stage::posix_pfs();
  const auto root = pfs.open(AT_FDCWD, options_.config.root_dir, stage::directory_flags);
  if (!root && root.error().code == EACCES) {
    return {};  // root-dir may be searchable but not readable
  }
  auto xattrs = root ? pfs.xattrs(root->get()) : std::unexpected(root.error());
  if (!xattrs) {
    return fail(xattrs.error().code,
                "root-dir " + options_.config.root_dir +
                    ": reading its extended attributes: " + describe(xattrs.error()));
  }
  if (options_.root_mode) {
    xattrs->erase(fs::access_acl_name);  // -o mode= decides about the rights
  }
  return fs::Staging(*filesystem_).set_root(gid, *xattrs);
}

// Call this before recovery, which would accept the changed contents.
Status Instance::refuse_changed_contents() {
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
                           "). List them: efs check-image " + options_.config.name +
                           "; export the others: efs salvage " + options_.config.name + way_out);
}

void Instance::report_recovery() {
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

// Plans the import. Takes space of the cache if the inputs need it. Fails if the job cannot start.
Result<stage::Plan> Instance::plan_inputs(stage::PfsIo& pfs, fs::Staging& staging) {
  const auto by_place = staging.available_by_place();
  stage::Rooms rooms;
  if (!store_.left) {
    rooms.assign(by_place.begin(), by_place.end());
  }
  if (rooms.size() == 1 && rooms.front()) {
    *rooms.front() += spare_in_cache();
  }
  const auto available = staging.available_bytes();
  auto plan = stage::make_plan(options_.config, pfs, rooms);
  if (!plan) {
    return plan;
  }
  if (available && plan->needed > *available && cache_) {
    cache_->free_space(plan->needed - *available);
  }
  if (store_.left) {
    forgive_what_is_the_jobs(*plan, staging);
  }
  EFS_TRY(refuse_problems(*plan));
  return plan;
}

void Instance::record_inputs_in_place(const stage::Plan& plan, stage::PfsIo& pfs,
                                      fs::Staging& staging) {
  if (!placed_ || !config::has_results_in_place(options_.config)) {
    return;
  }
  stage::forget_staged(plan, pfs, staging, *placed_);
  for (const auto& entry : plan.entries) {
    if (entry.type == stage::EntryType::directory) {
      stage::record_came_in(entry, staging, *placed_);
    }
  }
}

Status Instance::plan_and_stage_in() {
  stage::PacedPfs pfs = paced_pfs(progress_.cancel);
  fs::Staging staging(*filesystem_);
  stage::StagingBuffer buffer(staging);
  auto plan = plan_inputs(pfs, staging);
  if (!plan) {
    return std::unexpected(plan.error());
  }
  EFS_TRY(keep_listed(std::move(plan->listed)));
  if (!plan->parts.empty()) {
    EFS_TRY(replace_file(options_.directory + "/parts", stage::lines_of(plan->parts), 0600));
  }
  const auto away = store_.left ? subtract_what_is_there(*plan, staging) : Result<std::uint64_t>(0);
  if (!away) {
    return std::unexpected(away.error());
  }
  enter(Event::planned);
  note(Moment::asked_in);
  const auto turn = turns_.take(queue::Direction::in, stage::data_of(*plan), progress_);
  if (!turn) {
    return std::unexpected(turn.error());
  }
  note(Moment::in_begun);
  const stage::StageReport report = stage::stage_in(*plan, buffer, pfs, stage_options(), progress_);
  record_inputs_in_place(*plan, pfs, staging);
  if (!report.ok()) {
    return stage_in_failed(*report.failure, options_.config.root_dir);
  }
  std::vector<stage::PlanSkip> skipped = std::move(plan->skipped);
  std::ranges::copy(report.skipped, std::back_inserter(skipped));
  log_staged_in(report, skipped, pfs.retried());
  note(Moment::in_ended);
  MutexLock lock(mutex_);
  slowest_inputs_ = report.slowest;
  staged_in_ = {.files = report.files,
                .bytes = report.bytes,
                .files_reused = report.reused_files,
                .bytes_reused = report.reused_bytes,
                .files_away = *away,
                .skipped = std::move(skipped)};
  keep_staged_in(*staged_in_);
  return {};
}

void Instance::keep_staged_in(const stage::StagedIn& staged_in) {
  if (options_.figures == nullptr) {
    return;
  }
  options_.figures->staged_in = {.files = staged_in.files,
                                 .bytes = staged_in.bytes,
                                 .files_reused = staged_in.files_reused,
                                 .bytes_reused = staged_in.bytes_reused,
                                 .files_away = staged_in.files_away};
  options_.figures->has_staged_in = true;
}

// The receipt of a successor's stop needs these figures.
void Instance::inherit_staged_in() {
  if (options_.figures == nullptr || !options_.figures->has_staged_in) {
    return;
  }
  MutexLock lock(mutex_);
  const KeptStagedIn& kept = options_.figures->staged_in;
  staged_in_ = {.files = kept.files,
                .bytes = kept.bytes,
                .files_reused = kept.files_reused,
                .bytes_reused = kept.bytes_reused,
                .files_away = kept.files_away,
                .skipped = {}};
}

// A successor does not read the lists again: they may have changed, and the PFS may hang.
Status Instance::keep_listed(std::map<std::string, std::string> listed) {
  options_.config.listed = std::move(listed);
  EFS_TRY(image::write_listed(store_.metadata.get(), options_.config.listed));
  return options_.config.listed.empty() ? Status{}
                                        : replace_file(options_.directory + "/listed",
                                                       json_to_text(options_.config.listed), 0600);
}

void Instance::inherit_listed() {
  std::ifstream file(options_.directory + "/listed", std::ios::binary);
  if (!file) {
    return;
  }
  const auto json = json_from_text(
      std::string((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>()));
  for (const auto& [place, source] : json.items()) {
    if (source.is_string()) {
      options_.config.listed[place] = source.get<std::string>();
    }
  }
}

std::uint64_t Instance::spare_in_cache() {
  const bool shares_all = !options_.config.backends.front().capacity && !store_.directory.empty();
  struct stat store{};
  return cache_ && shares_all && ::fstat(store_.metadata.get(), &store) == 0
             ? cache_->idle_bytes(store.st_dev)
             : 0;
}

// A start on a kept store has failed before a program could change the store. Keeps the store for
// the next start.
void Instance::give_back_what_was_kept(bool in_a_hurry) {
  // leave_image() logs its errors
  if (filesystem_ && !session_ && store_.left &&
      store_.manifest.left != image::ShutdownState::in_use) {
    (void)leave_image(store_.manifest.left,
                      in_a_hurry ? std::optional(Clock::now()) : std::nullopt);
  }
}

// For a store that survives a restart of the machine: group commit, and export log updates for data
// that have reached the medium.
void Instance::keep_house() {
  if (store_.backend->durability() == Durability::volatile_memory) {
    return;
  }
  constexpr auto interval = std::chrono::seconds(1);
  auto started = TimerThread::start(
      std::chrono::steady_clock::now() + interval, [this] { filesystem_->tend(); }, interval);
  if (started) {
    housekeeper_ = std::move(*started);
  } else {
    log::warn(
        "event=no_housekeeper reason=\"{}\" note=\"unsynced data reaches the medium at the end "
        "only\"",
        describe(started.error()));
  }
}

}  // namespace efs::daemon
