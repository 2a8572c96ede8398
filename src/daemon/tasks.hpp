#pragma once
// Work that outlives the request that asked for it: loads, unloads, and the unload of a stop. Each
// kind has a thread of its own and runs one task after the other, so that no two unloads meet at
// one file; a task has an id, which is asked for by anybody.

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
#include "control/protocol.hpp"
#include "stage/copy/progress.hpp"

namespace efs::daemon {

/// `drain`: what a stop in a hurry brings out while programs are in the mount. Taken also after
/// close(); to be started when none is left, and unloads wait until it has ended. Gives way to no
/// program.
enum class TaskKind : std::uint8_t { load = 0, unload = 1, drain = 2 };
constexpr std::size_t task_kinds = 3;
const char* name_of(TaskKind kind);

/// pending -> running -> done | failed | cancelled; pending -> cancelled.
enum class TaskState : std::uint8_t { pending, running, done, failed, cancelled };
const char* name_of(TaskState state);

/// Thread-safe.
class Tasks {
 public:
  static constexpr std::size_t most_waiting = 1024;  // of each kind; more are refused
  static constexpr std::size_t most_ended = 1024;    // remembered; the oldest are forgotten first

  /// What a task does: its outcome as the result line of the protocol ("ok": false is a failure).
  /// Must not throw.
  using Work = std::function<control::Json(stage::Progress&)>;

  /// A thread for each kind: an error where they cannot be had. `book`: a file that says which
  /// tasks have not ended, for a successor of this process; "": none.
  static Result<std::unique_ptr<Tasks>> open(std::string book = {});
  /// To be called before anything else. Tasks of a predecessor that had not ended have failed, and
  /// are shown as such; `successor` false: what the file says is of an instance that is gone.
  void inherit(bool successor);
  /// How many those were.
  std::size_t lost();
  /// Cancels everything and waits for what runs.
  ~Tasks();

  /// Queues a task; its id. EAGAIN where too many wait, ESHUTDOWN after close() but for a drain.
  Result<std::uint64_t> start(TaskKind kind, std::string what, Work work);

  /// The task as status shows it: id, kind, what, state, progress, and once it has ended its
  /// outcome. ESRCH if there is none.
  Result<control::Json> look(std::uint64_t id);
  /// All of them without their outcomes, oldest first.
  control::Json list();
  /// Returns when the task has ended or the time is over; true if it has ended. ESRCH.
  Result<bool> wait(std::uint64_t id, std::chrono::milliseconds time);
  /// Asks a task to end. One that waits ends at once, one that runs soon, with nothing half done;
  /// ESRCH, and EALREADY for one that has ended.
  Status cancel(std::uint64_t id);

  /// All that wait or run; waits for none.
  void cancel_all();

  /// No new ones from now on; loads are cancelled, and unloads too unless `finish_unloads`. Returns
  /// when none is left, or at `end`: false. Loads are cancelled because nobody can read them any
  /// more; unloads are finished because somebody relies on them.
  using Time = std::chrono::steady_clock::time_point;
  bool close(bool finish_unloads, Time end = Time::max());
  /// After a close(): new ones are taken again.
  void reopen();

 private:
  explicit Tasks(std::string book) : book_path_(std::move(book)) {}

  struct Task {
    std::uint64_t id = 0;
    TaskKind kind = TaskKind::load;
    std::string what;
    Work work;
    TaskState state = TaskState::pending;
    stage::Progress progress;
    control::Json outcome;
    // made ahead: an outcome for when there is none
    control::Json no_memory = control::error_line({ENOMEM, "out of memory"});
  };

  using TaskPointer = std::shared_ptr<Task>;

  void run_lane(TaskKind kind);
  void end(Task& task, TaskState state, control::Json outcome) EFS_REQUIRES(mutex_);
  void cancel_locked(Task& task) EFS_REQUIRES(mutex_);
  void cancel_open(bool unloads) EFS_REQUIRES(mutex_);
  static control::Json summary_of(const Task& task);
  bool idle() const EFS_REQUIRES(mutex_);
  bool drains() const EFS_REQUIRES(mutex_);  // no unload begins meanwhile: no two meet at one file
  void note(const control::Json& line) EFS_REQUIRES(mutex_);
  void note_end(std::uint64_t id) noexcept EFS_REQUIRES(mutex_);

  const std::string book_path_;
  Mutex mutex_;  // rank 6; nothing is called under it, but that a line of the book is written
  Condition changed_;
  UniqueFd book_ EFS_GUARDED_BY(mutex_);  // empty: nothing is noted
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
