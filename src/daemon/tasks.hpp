// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Work that outlives its request: loads, fetches, moves, unloads, and the unload of a stop. Each
// kind has its own thread, which runs one task after the other, so two unloads never process the
// same file. Any client may ask for a task by its id.

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/mutex.hpp"
#include "base/unique_fd.hpp"
#include "control/replies.hpp"
#include "stage/copy/progress.hpp"
#include "stage/export/job_record.hpp"

namespace efs::daemon {

/// `stop_unload`: an unload that a stop with a deadline runs while programs use the mount. start()
/// accepts it also after close(). Start it when no other task is left; unloads wait until it has
/// ended. It runs at normal priority.
/// `drain`: the export of results that no client has asked for (daemon/drainer.hpp). It waits for
/// unloads of both kinds, and they wait for it. No list of tasks and no book has it, and close()
/// cancels it.
/// `fetch`: the fetch of contents that are not here (Fetcher::fetch_files).
/// `move`: the move of contents to another backend.
enum class TaskKind : std::uint8_t {
  load = 0,
  unload = 1,
  stop_unload = 2,
  drain = 3,
  fetch = 4,
  move = 5
};
constexpr std::size_t task_kinds = 6;
const char* name_of(TaskKind kind);

/// pending -> running -> done | failed | cancelled; pending -> cancelled.
enum class TaskState : std::uint8_t { pending, running, done, failed, cancelled };
const char* name_of(TaskState state);

/// Thread-safe.
class Tasks {
 public:
  static constexpr std::size_t most_waiting = 1024;  // for each kind; start() refuses more
  // kept after their end; the oldest are dropped first
  static constexpr std::size_t most_ended = 1024;

  /// Runs a task. An exception is a failure.
  using Work = std::function<control::replies::TaskOutcome(stage::Progress&)>;

  /// Starts a thread for each kind, or fails. `book`: a file that lists the tasks that have not
  /// ended, for a successor of this process; "": none. `drains`: also for that kind.
  static Result<std::unique_ptr<Tasks>> open(std::string book = {}, bool drains = false);
  /// Call this before all other functions. Unfinished tasks of a predecessor become failed tasks.
  /// If `successor` is false, the file belongs to an earlier instance and is ignored.
  void inherit(bool successor);
  /// The number of these tasks.
  std::size_t lost();
  /// Cancels all tasks and waits for the running ones.
  ~Tasks();

  /// Queues a task and returns its id. Fails with EAGAIN if too many tasks wait. Fails with
  /// ESHUTDOWN after close(), except for a stop_unload.
  Result<std::uint64_t> start(TaskKind kind, std::string what, Work work);

  /// Returns a task, after its end with its outcome. Fails with ESRCH if there is no such task.
  Result<control::replies::Task> look(std::uint64_t id);
  /// Returns all tasks that clients asked for without their outcomes, oldest first.
  std::vector<control::replies::Task> list();
  /// Returns the first `most` tasks that have begun and ended, oldest first. `unlisted`: how many
  /// more there are.
  std::vector<stage::JobTransfer> transfers(std::size_t most, std::uint64_t& unlisted);
  /// Waits until the task has ended or `time` has passed. Returns true if the task has ended. Fails
  /// with ESRCH if there is no such task.
  Result<bool> wait(std::uint64_t id, std::chrono::milliseconds time);
  /// Cancels a task. A waiting task ends at once; a running one ends soon and leaves no partial
  /// work. Fails with ESRCH, or with EALREADY if the task has ended.
  Status cancel(std::uint64_t id);

  /// Cancels all waiting and running tasks. Does not wait for them.
  void cancel_all();

  /// Refuses new tasks. Cancels loads, fetches and moves, because no program can read their files
  /// any more, and drains, because a stop exports what they leave. Cancels unloads unless
  /// `finish_unloads`, because their callers rely on them. Returns true when no task is left, and
  /// false at `end`.
  using Time = std::chrono::steady_clock::time_point;
  bool close(bool finish_unloads, Time end = Time::max());
  /// Accepts tasks again after close().
  void reopen();

 private:
  explicit Tasks(std::string book) : book_path_(std::move(book)) {}

  struct Task {
    std::uint64_t id = 0;
    TaskKind kind = TaskKind::load;
    std::string what;
    Work work;
    TaskState state = TaskState::pending;
    Nanoseconds ended = 0;  // wall clock
    stage::Progress progress;
    std::optional<control::replies::TaskOutcome> outcome;  // nullopt: it has not ended
    // allocated early: the outcome for a shortage of memory
    control::replies::TaskOutcome no_memory =
        control::replies::failed_task({ENOMEM, "out of memory"});
  };

  using TaskPointer = std::shared_ptr<Task>;

  static control::replies::TaskOutcome work_on(Task& task);
  static TaskState state_after(const Task& task, const control::replies::TaskOutcome& outcome);
  void run_lane(TaskKind kind);
  void end(Task& task, TaskState state, control::replies::TaskOutcome outcome) EFS_REQUIRES(mutex_);
  void cancel_locked(Task& task) EFS_REQUIRES(mutex_);
  void cancel_open(bool unloads) EFS_REQUIRES(mutex_);
  static control::replies::Task summary_of(const Task& task);
  bool idle() const EFS_REQUIRES(mutex_);
  /// True if the lane may begin its next task. Two that export never run together, so that they
  /// never process the same file.
  bool may_begin(TaskKind kind) const EFS_REQUIRES(mutex_);
  bool runs(TaskKind kind) const EFS_REQUIRES(mutex_);
  bool runs_or_waits(TaskKind kind) const EFS_REQUIRES(mutex_);
  void note(const control::Json& line) EFS_REQUIRES(mutex_);
  void record_end(std::uint64_t id) noexcept EFS_REQUIRES(mutex_);

  const std::string book_path_;
  Mutex mutex_;  // rank 6; under it only one line of the book is written
  Condition changed_;
  UniqueFd book_ EFS_GUARDED_BY(mutex_);  // empty: no book
  std::map<std::uint64_t, TaskPointer> tasks_ EFS_GUARDED_BY(mutex_);
  std::deque<TaskPointer> waiting_[task_kinds] EFS_GUARDED_BY(mutex_);
  TaskPointer running_[task_kinds] EFS_GUARDED_BY(mutex_);
  std::deque<std::uint64_t> ended_ EFS_GUARDED_BY(mutex_);
  std::uint64_t next_ EFS_GUARDED_BY(mutex_) = 1;
  std::size_t lost_ EFS_GUARDED_BY(mutex_) = 0;
  bool closed_ EFS_GUARDED_BY(mutex_) = false;
  bool stopping_ EFS_GUARDED_BY(mutex_) = false;
  std::vector<std::jthread> lanes_;  // last: joined first
};

}  // namespace efs::daemon
