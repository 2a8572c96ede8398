// SPDX-License-Identifier: BSD-3-Clause
// The use and the end of a job's store.
#include "daemon/job_store.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <thread>
#include <utility>

#include "backends/virtual_device.hpp"
#include "base/log.hpp"
#include "daemon/watchers.hpp"
#include "fs/staging.hpp"
#include "image/contents.hpp"
#include "image/image.hpp"
#include "image/removal.hpp"
#include "stage/pfs/merge.hpp"
#include "stage/pfs/merging_publisher.hpp"

namespace efs::daemon {

namespace replies = control::replies;
using Clock = std::chrono::steady_clock;

namespace {

// The times at which record_contents() stops to wait for writers.
struct Patience {
  std::chrono::steady_clock::time_point patient_until;  // for a file that is written
  std::chrono::steady_clock::time_point tired_at;       // for all files together
};

// True if a program may still change the file. Waits some time for its writers.
bool may_still_change(fs::Staging& staging, const fs::WalkItem& item, const Patience& limits) {
  if (!S_ISREG(item.attributes.st_mode)) {
    return false;
  }
  // with hundreds of thousands of files the last ones stay unchecked
  if (std::chrono::steady_clock::now() >= limits.tired_at) {
    return !staging.is_counted_quiet(item.ino);
  }
  while (!staging.is_counted_quiet(item.ino) && staging.is_written(item.ino)) {
    if (std::chrono::steady_clock::now() >= limits.patient_until) {
      return true;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

}  // namespace

JobStore::JobStore(config::JobConfig& config, JobStoreOptions options, SupervisorClient& supervisor)
    : config_(config), options_(std::move(options)), supervisor_(supervisor) {}

JobStore::~JobStore() = default;

std::vector<StorePlace> JobStore::places() const {
  std::vector<StorePlace> all;
  for (unsigned place = 0; place < store_.backend->places(); ++place) {
    const StoreMember* const other = place == 0 ? nullptr : &store_.others.at(place - 1);
    all.push_back({.id = config_.backends.at(place).id,
                   .backend = store_.backend->at(place),
                   .root = other != nullptr ? other->root.get() : store_.metadata.get(),
                   .lock = other != nullptr ? other->lock.get() : store_.lock.get()});
  }
  return all;
}

std::uint64_t JobStore::spare_in_cache() {
  const bool shares_all = !config_.backends.front().capacity && !store_.directory.empty();
  struct stat store{};
  return cache_ && shares_all && ::fstat(store_.metadata.get(), &store) == 0
             ? cache_->idle_bytes(store.st_dev)
             : 0;
}

stage::Publisher& JobStore::publisher() {
  return merging_ ? *merging_ : stage::guarded_publisher();
}

Status JobStore::begin_merging(bool made_mount_dir) {
  if (merging_ || config_.results_dir.empty()) {
    return {};
  }
  const auto items = fs::Staging(*filesystem_).walk();
  if (!items) {
    return std::unexpected(items.error());
  }
  config_.merges = true;
  EFS_TRY(write_manifests_as(
      {.made_mount_dir = made_mount_dir, .journal_to = filesystem_->durable_records()}));
  EFS_TRY(open_placed());
  merging_ = stage::merging_publisher(config_.merge_since, stage::saved_copies(*items));
  return {};
}

// Only a store that survives a restart of the machine needs the upkeep.
void JobStore::start_upkeep() {
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

void JobStore::publish() {
  start_upkeep();
  is_published_ = true;
}

void JobStore::keep_in_any_case(bool kept) {
  kept_ = kept;
  supervisor_.keep_store(kept);
}

Status JobStore::leave(image::ShutdownState left, std::optional<Time> end) {
  if (const Status done = filesystem_->settle(); !done) {
    log::warn("event=not_settled reason=\"{}\"", describe(done.error()));
  }
  const Status synced = filesystem_->fsync_metadata();
  if (!synced) {
    log::error("event=journal_not_synced reason=\"{}\"", describe(synced.error()));
  }
  Standing standing{.left = left, .journal_to = synced ? filesystem_->durable_records() : 0};
  if (!end || Clock::now() < *end) {
    // A successor may find this manifest: it must not name a list that is being replaced.
    if (!store_.manifest.contents.empty()) {
      EFS_TRY(write_manifests_as(standing));
    }
    standing.contents = record_contents(end);
  }
  const Status written = write_manifests_as(standing);
  if (!written) {
    log::error("event=manifest_not_written reason=\"{}\"", describe(written.error()));
  }
  if (!synced) {
    return fail(synced.error().code,
                "the buffer stays in " + store_.path +
                    ", but its journal could not be synced: " + describe(synced.error()));
  }
  if (!written) {
    return fail(written.error().code,
                "the buffer stays in " + store_.path +
                    ", but its end could not be recorded: " + describe(written.error()));
  }
  return {};
}

// Without this list the store is equally usable, but fewer changes from outside are detected.
std::string JobStore::record_contents(std::optional<Time> end) try {
  fs::Staging staging(*filesystem_);
  const auto is_over = [&] {
    return end && Clock::now() >= *end;
  };
  auto items = staging.walk({}, is_over);
  // A program that was cut off, by efs, by root or by the death of an earlier instance, may still
  // write. After an unmount the kernel needs a moment to close files.
  const auto begin = Clock::now();
  const Patience limits{
      .patient_until = begin + std::chrono::seconds(1),
      .tired_at = std::min(begin + std::chrono::seconds(3), end.value_or(Time::max()))};
  if (items) {
    std::erase_if(
        *items, [&](const fs::WalkItem& item) { return may_still_change(staging, item, limits); });
  }
  const bool is_late = items && is_over() && items->size() >= fs::many_names;
  if (is_late) {
    items = fail(ECANCELED, "there was no time for it");
  }
  const auto noted =
      items ? image::write_contents(store_.metadata.get(), *items) : std::unexpected(items.error());
  if (noted) {
    return *noted;
  }
  log::warn("event=contents_not_noted reason=\"{}\"", describe(noted.error()));
  return "";
} catch (const std::bad_alloc&) {
  return "";
}

// leave() logs its errors.
void JobStore::give_back(bool in_a_hurry) {
  if (filesystem_ && store_.left && store_.manifest.left != image::ShutdownState::in_use) {
    (void)leave(store_.manifest.left, in_a_hurry ? std::optional(Clock::now()) : std::nullopt);
  }
}

void JobStore::record_end(image::ShutdownState left) {
  const UniqueFd directory(
      ::open(options_.directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (const Status noted = image::write_left(directory.get(), left); !noted) {
    log::warn("event=manifest_not_written reason=\"{}\"", describe(noted.error()));
  }
}

Status JobStore::give_up() {
  record_end(image::ShutdownState::over);
  const Status begun = image::begin_removal(store_.metadata.get());
  stays_ = !begun;
  if (begun) {
    return {};
  }
  log::error("event=store_not_removed directory={} reason=\"{}\"", store_.path,
             describe(begun.error()));
  return fail(begun.error().code,
              "the buffer cannot be removed from " + store_.path + ": " + describe(begun.error()) +
                  ". Before the next start under this name, remove it: efs clean " + config_.name);
}

void JobStore::remove() {
  remove_store(store_);
}

void JobStore::close(const std::function<void()>& end_session) {
  is_published_ = false;
  housekeeper_.reset();
  {
    const WriteLock users(in_use_);
    end_session();
    placed_.reset();
    filesystem_.reset();
    store_.backend.reset();
    store_.metadata.reset();
  }
  keep_or_remove();
  // release the lock last: otherwise a start could use the store while it is removed
  store_.lock.reset();
}

void JobStore::close_in_use() {
  is_published_ = false;
  housekeeper_.reset();
  keep_or_remove();
}

void JobStore::keep_or_remove() {
  supervisor_.keep_store(kept_ || stays_);
  if (!kept_) {
    remove_store(store_);
  }
}

bool JobStore::use(const std::function<void(const OpenBuffer&)>& work) {
  const ReadLock using_files(in_use_);
  if (!is_published_ || !filesystem_) {
    return false;
  }
  work({.files = *filesystem_, .backend = *store_.backend});
  return true;
}

void JobStore::add_status(replies::Status& status) {
  {
    MutexLock lock(mutex_);
    if (!lost_.empty()) {
      status.lost_before = lost_;
    }
  }
  (void)use([&](const OpenBuffer& buffer) {
    const Space space = buffer.backend.space();
    status.store = {.backend = buffer.backend.description(),
                    .capacity = space.capacity,
                    .used = space.used,
                    .available = space.available,
                    .durability = name_of(weakest_durability(buffer.backend)),
                    .read_only = buffer.files.failed(),
                    .open_files = figures_of(buffer.files.open_files()),
                    .backends = figures_of_backends()};
  });
}

std::vector<replies::BackendFigures> JobStore::figures_of_backends() const {
  std::vector<replies::BackendFigures> all;
  if (store_.backend->places() < 2) {
    return all;
  }
  for (unsigned place = 0; const auto& one : places()) {
    const Space its = one.backend.space();
    all.push_back({.id = one.id,
                   .description = one.backend.description(),
                   .capacity = its.capacity,
                   .used = its.used,
                   .available = its.available,
                   .durability = name_of(one.backend.durability()),
                   .journal = place == 0,
                   .new_files = place == config_.new_files,
                   .io = {}});
    ++place;
  }
  return all;
}

}  // namespace efs::daemon
