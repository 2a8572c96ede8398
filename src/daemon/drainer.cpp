// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/drainer.hpp"

#include <sys/resource.h>

#include <algorithm>
#include <new>
#include <utility>
#include <vector>

#include "base/log.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"

namespace efs::daemon {

namespace {

// Between small batches, so that a job that closes many files has few of them.
constexpr auto shortest_rest = std::chrono::milliseconds(500);
// Each batch looks at all inodes three times (fs::Staging::look() and revoke()) under the namespace
// lock, so the rest grows with their number.
constexpr std::size_t inodes_for_a_millisecond = 200, for_a_millisecond_if_full = 1000;
constexpr auto rest_when_refused = std::chrono::seconds(1);  // during a stop
constexpr auto rest_without_memory = std::chrono::seconds(1);
constexpr auto looks_at_run = std::chrono::seconds(10);
constexpr auto longest_standstill = std::chrono::minutes(1);
constexpr int lower_priority = 15;  // as that of tasks: programs of the job have priority

}  // namespace

/// A batch that is exported now. The drainer's thread and the task share it.
struct Drainer::Run {
  Run(DrainBatch files, std::vector<stage::OldVersion> versions, std::shared_ptr<ChangeInbox> told)
      : batch(std::move(files)), old(std::move(versions)), inbox(std::move(told)) {}

  const DrainBatch batch;
  const std::vector<stage::OldVersion> old;
  const std::shared_ptr<ChangeInbox> inbox;
  Mutex mutex;                                                      // rank 90 (leaf)
  const stage::Progress* progress EFS_GUARDED_BY(mutex) = nullptr;  // of the running task
  std::optional<stage::Receipt> receipt EFS_GUARDED_BY(mutex);
  std::optional<stage::Dropped> dropped EFS_GUARDED_BY(mutex);
  bool is_cancelled EFS_GUARDED_BY(mutex) = false;
  bool is_over EFS_GUARDED_BY(mutex) = false;
  // for the drainer's thread: how far it was when it last moved
  std::uint64_t moved = 0;
  Time moved_at{};
  bool is_standing = false;  // and this was logged
  std::string error_before;  // it stood

  void export_by(DrainTransfers& transfers, stage::Progress& of_task) {
    {
      const MutexLock lock(mutex);
      progress = &of_task;
    }
    if (!batch.files.empty()) {
      std::vector<std::string> paths;
      for (const auto& [path, ino] : batch.files) {
        paths.push_back(path);
      }
      stage::Receipt done = transfers.drain(std::move(paths), batch.sets, of_task);
      const MutexLock lock(mutex);
      receipt = std::move(done);
    }
    if (!old.empty() && !of_task.cancel) {
      stage::Dropped done = transfers.drop(old, of_task);
      const MutexLock lock(mutex);
      dropped = std::move(done);
    }
  }
};

/// The task's share of a run. Its end is that of the task, also of one that was cancelled before it
/// began, or that threw.
struct Drainer::Ending {
  explicit Ending(std::shared_ptr<Run> ended) : run(std::move(ended)) {}

  ~Ending() {
    {
      const MutexLock lock(run->mutex);
      run->progress = nullptr;
      run->is_over = true;
    }
    run->inbox->poke();
  }

  Ending(const Ending&) = delete;
  Ending& operator=(const Ending&) = delete;

  const std::shared_ptr<Run> run;
};

Drainer::Drainer(Parts parts)
    : its_(parts),
      figures_(its_.figures != nullptr ? *its_.figures : own_figures_),
      inbox_(std::make_shared<ChangeInbox>()) {}

Drainer::~Drainer() {
  end();
}

Status Drainer::begin(fs::Filesystem& files) {
  // before the thread looks for files: it then misses none
  files.watch(inbox_.get());
  auto thread = start_thread([this, &files] { work(files); });
  if (!thread) {
    files.watch(nullptr);
    return with_context(thread.error(), "a thread for results that go home while the job runs");
  }
  files_ = &files;
  thread_ = std::move(*thread);
  return {};
}

void Drainer::end() {
  if (files_ == nullptr) {
    return;
  }
  files_->watch(nullptr);
  files_ = nullptr;
  ending_ = true;
  inbox_->poke();
  thread_.join();
}

void Drainer::work(fs::Filesystem& files) {
  ::setpriority(PRIO_PROCESS, 0, lower_priority);
  DrainCandidates candidates(its_.config, files);
  bool must_look = true;  // programs and earlier processes came before the watch
  while (!ending_) {
    const Time now = DrainSchedule::Clock::now();
    try {
      if (must_look) {
        candidates.look(now, [this] { return ending_.load(); });
      }
      must_look = false;
      step(candidates, now);
      due_ = candidates.due();
      inbox_->wait(next_look(candidates, now));
    } catch (const std::bad_alloc&) {
      // some changes may be lost
      candidates.clear();
      must_look = true;
      inbox_->wait(now + rest_without_memory);
    }
  }
}

void Drainer::step(DrainCandidates& candidates, Time now) {
  candidates.absorb(inbox_->take(), now, [this] { return ending_.load(); });
  if (run_) {
    look_at_run(now);
    end_run(candidates, now);
  }
  if (!run_ && now >= rest_until_) {
    begin_run(candidates, now);
  }
}

std::optional<Drainer::Time> Drainer::next_look(const DrainCandidates& candidates, Time now) const {
  if (run_) {
    return now + looks_at_run;
  }
  const auto next = candidates.next();
  return next ? std::optional(std::max(*next, rest_until_)) : std::nullopt;
}

void Drainer::begin_run(DrainCandidates& candidates, Time now) {
  // A choice of versions would be out of date after a batch, so a run has one of the two.
  auto old = exported_last_ ? candidates.choose_old(now) : std::vector<stage::OldVersion>();
  DrainBatch batch = old.empty() ? candidates.choose(now) : DrainBatch();
  exported_last_ = !batch.files.empty();
  if (!exported_last_ && old.empty()) {
    old = candidates.choose_old(now);
  }
  if (!exported_last_ && old.empty()) {
    return;
  }
  const std::uint64_t inodes = candidates.inodes();
  rest_until_ =
      now + (batch.is_full()
                 ? std::chrono::milliseconds(inodes / for_a_millisecond_if_full)
                 : shortest_rest + std::chrono::milliseconds(inodes / inodes_for_a_millisecond));
  run_ = std::make_shared<Run>(std::move(batch), std::move(old), inbox_);
  run_->moved_at = now;
  const auto ending = std::make_shared<Ending>(run_);
  const auto started =
      its_.tasks.start(TaskKind::drain, "results with drain",
                       [ending, &transfers = its_.transfers](stage::Progress& progress) {
                         ending->run->export_by(transfers, progress);
                         const MutexLock lock(ending->run->mutex);
                         ending->run->is_cancelled = progress.cancel || progress.gives_way;
                         return control::replies::TaskOutcome{
                             .ok = true, .failure = {}, .loaded = {}, .unloaded = {}};
                       });
  if (!started) {
    (void)candidates.settle(run_->batch, nullptr, true, now);
    (void)candidates.settle_old(run_->old, nullptr, now);
    run_ = nullptr;
    rest_until_ = now + rest_when_refused;
  }
}

void Drainer::end_run(DrainCandidates& candidates, Time now) {
  std::optional<stage::Receipt> receipt;
  bool is_cancelled = false;
  {
    const MutexLock lock(run_->mutex);
    if (!run_->is_over) {
      return;
    }
    receipt = std::move(run_->receipt);
    is_cancelled = run_->is_cancelled;
  }
  const auto run = std::exchange(run_, nullptr);
  if (run->is_standing) {
    log::info("event=drain_goes_on");
    set_error(run->error_before);
  }
  if (!run->batch.files.empty()) {
    tell(candidates.settle(run->batch, receipt ? &*receipt : nullptr, is_cancelled, now));
  }
  end_drop(candidates, *run, now);
}

void Drainer::end_drop(DrainCandidates& candidates, Run& run, Time now) {
  std::optional<stage::Dropped> dropped;
  {
    const MutexLock lock(run.mutex);
    dropped = std::move(run.dropped);
  }
  if (dropped) {
    tell_dropped(*dropped);
  }
  for (const auto& stayed : candidates.settle_old(run.old, dropped ? &*dropped : nullptr, now)) {
    log::warn("event=version_stays version=\"{}\" file=\"{}\" reason=\"{}\"",
              printable(stayed.version), printable(stayed.file), printable(describe(stayed.why)));
  }
}

void Drainer::tell_dropped(const stage::Dropped& dropped) {
  std::uint64_t files = 0, bytes = 0, unsent = 0, unsent_bytes = 0;
  for (const auto& entry : dropped.entries) {
    const bool is_home = entry.action == stage::Action::kept;
    ++(is_home ? files : unsent);
    (is_home ? bytes : unsent_bytes) += entry.bytes;
  }
  figures_.dropped += files;
  figures_.dropped_bytes += bytes;
  figures_.unsent += unsent;
  figures_.unsent_bytes += unsent_bytes;
  if (files > 0) {
    log::info("event=dropped files={} bytes={} reason=\"keep\"", files, bytes);
  }
  if (unsent > 0) {
    log::info("event=dropped_unsent files={} bytes={} reason=\"to-pfs: never sent\"", unsent,
              unsent_bytes);
  }
}

void Drainer::tell(const DrainOutcome& outcome) {
  figures_.files += outcome.files;
  figures_.bytes += outcome.bytes;
  figures_.failures += outcome.failed;
  if (outcome.files > 0) {
    log::debug("event=drained files={} bytes={}", outcome.files, outcome.bytes);
  }
  if (outcome.failed > 0) {
    if (!is_failing_) {
      log::warn(
          "event=drain_failed failed={} reason=\"{}\" note=\"efs status has the last error; "
          "further "
          "failures are not logged until a result goes home\"",
          outcome.failed, printable(outcome.error));
    }
    is_failing_ = true;
    return set_error(outcome.error);
  }
  if (outcome.files > 0) {
    if (is_failing_) {
      log::info("event=drain_goes_on");
    }
    is_failing_ = false;
    set_error({});
  }
}

// A wait for a turn at the PFS is none.
void Drainer::look_at_run(Time now) {
  std::uint64_t moved = 0;
  {
    const MutexLock lock(run_->mutex);
    if (run_->progress == nullptr) {
      return;  // it waits for an unload, or is over
    }
    const auto snapshot = run_->progress->snapshot();
    moved = snapshot.bytes_done + snapshot.files_done;
  }
  const auto turn = its_.turns.view(queue::Direction::out);
  const bool waits = turn && turn->standing == queue::Standing::waiting;
  if (waits || moved != run_->moved) {
    run_->moved = moved;
    run_->moved_at = now;
  } else if (!run_->is_standing && now - run_->moved_at >= longest_standstill) {
    run_->is_standing = true;
    log::warn("event=drain_stands reason=\"the PFS has not answered for a minute\"");
    const MutexLock lock(mutex_);
    run_->error_before = std::exchange(error_, "the PFS does not answer");
  }
}

void Drainer::set_error(std::string error) {
  const MutexLock lock(mutex_);
  error_ = std::move(error);
}

void Drainer::add_status(control::replies::Status& status) {
  auto& drain = status.drain.emplace();
  drain.drained = figures_.files;
  drain.drained_bytes = figures_.bytes;
  drain.failures = figures_.failures;
  drain.due = due_;
  drain.dropped = figures_.dropped;
  drain.dropped_bytes = figures_.dropped_bytes;
  drain.unsent = figures_.unsent;
  drain.unsent_bytes = figures_.unsent_bytes;
  const MutexLock lock(mutex_);
  if (!error_.empty()) {
    drain.last_error = error_;
  }
}

}  // namespace efs::daemon
