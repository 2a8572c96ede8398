// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/tasks.hpp"

#include <fcntl.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <exception>
#include <fstream>

#include "base/json_text.hpp"
#include "base/log.hpp"
#include "base/memory.hpp"
#include "base/thread.hpp"

namespace efs::daemon {
namespace {

using control::Json;
namespace replies = control::replies;

std::size_t lane_of(TaskKind kind) {
  return static_cast<std::size_t>(kind);
}

TaskKind kind_of(std::string_view name) {
  return name == name_of(TaskKind::load)          ? TaskKind::load
         : name == name_of(TaskKind::fetch)       ? TaskKind::fetch
         : name == name_of(TaskKind::move)        ? TaskKind::move
         : name == name_of(TaskKind::stop_unload) ? TaskKind::stop_unload
                                                  : TaskKind::unload;
}

std::unexpected<Error> unknown(std::uint64_t id) {
  return fail(ESRCH, "there is no task " + std::to_string(id) +
                         " (efs forgets ended tasks after a while); see efs status");
}

}  // namespace

const char* name_of(TaskKind kind) {
  switch (kind) {
    case TaskKind::load: return "load";
    case TaskKind::unload: return "unload";
    case TaskKind::stop_unload: return "stop-unload";
    case TaskKind::drain: return "drain";
    case TaskKind::fetch: return "fetch";
    case TaskKind::move: return "move";
  }
  return "?";
}

const char* name_of(TaskState state) {
  switch (state) {
    case TaskState::pending: return "pending";
    case TaskState::running: return "running";
    case TaskState::done: return "done";
    case TaskState::failed: return "failed";
    case TaskState::cancelled: return "cancelled";
  }
  return "?";
}

Result<std::unique_ptr<Tasks>> Tasks::open(std::string book, bool drains) {
  std::unique_ptr<Tasks> tasks(new Tasks(std::move(book)));
  std::vector kinds{TaskKind::load, TaskKind::fetch, TaskKind::move, TaskKind::unload,
                    TaskKind::stop_unload};
  if (drains) {
    kinds.push_back(TaskKind::drain);
  }
  for (const auto kind : kinds) {
    auto lane = start_thread([raw = tasks.get(), kind] { raw->run_lane(kind); });
    if (!lane) {
      return with_context(lane.error(), "a thread for loads and unloads");
    }
    tasks->lanes_.push_back(std::move(*lane));
  }
  return tasks;
}

// Each line is a task that has begun or the number of one that has ended. A death can truncate only
// a line whose request was not yet answered. Lost tasks stay in the book, so that a second
// successor knows them, too.
void Tasks::inherit(bool successor) {
  const MutexLock lock(mutex_);
  std::ifstream lines(successor ? book_path_ : "");
  for (std::string text; std::getline(lines, text);) {
    const Json line = json_from_text(text);
    if (!line.is_object()) {
      continue;
    }
    if (line.contains("ended")) {
      tasks_.erase(line.value("ended", std::uint64_t{0}));
      continue;
    }
    auto task = std::make_shared<Task>();
    task->id = line.value("task", std::uint64_t{0});
    task->kind = kind_of(line.value("kind", ""));
    task->what = line.value("what", "");
    tasks_.insert_or_assign(task->id, task);
    next_ = std::max(next_, task->id + 1);
  }
  std::vector<TaskPointer> lost;
  for (const auto& [id, task] : tasks_) {
    lost.push_back(task);
  }
  lost_ = lost.size();
  book_.reset(::open(
      book_path_.c_str(),
      O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC | O_NOFOLLOW | (successor ? 0 : O_TRUNC), 0600));
  for (const auto& task : lost) {
    log::warn("event=task_lost task={} kind={}", task->id, name_of(task->kind));
    end(*task, TaskState::failed,
        replies::failed_task(
            {ECONNABORTED, "lost when the daemon was replaced; ask for it again"}));
  }
}

std::size_t Tasks::lost() {
  const MutexLock lock(mutex_);
  return lost_;
}

void Tasks::note(const Json& line) {
  if (!book_) {
    return;
  }
  const std::string text = json_to_text(line) + "\n";
  // without this line a successor does not know the task
  (void)!::write(book_.get(), text.data(), text.size());
}

// Allocates no memory, so that a task can end during a shortage.
void Tasks::record_end(std::uint64_t id) noexcept {
  if (!book_) {
    return;
  }
  std::array<char, 48> text{};
  const int length = std::snprintf(text.data(), text.size(), "{\"ended\":%llu}\n",
                                   static_cast<unsigned long long>(id));
  // without this line a successor reports the task as lost
  (void)!::write(book_.get(), text.data(), static_cast<std::size_t>(length));
}

Tasks::~Tasks() {
  close(false);
  {
    const MutexLock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
}

Result<std::uint64_t> Tasks::start(TaskKind kind, std::string what, Work work) {
  const MutexLock lock(mutex_);
  if (closed_ && kind != TaskKind::stop_unload) {
    return fail(ESHUTDOWN, "the instance is being stopped: no new tasks");
  }
  if (waiting_[lane_of(kind)].size() >= most_waiting) {
    return fail(EAGAIN, "too many " + std::string(name_of(kind)) +
                            "s wait; try again when some have ended");
  }
  auto task = std::make_shared<Task>();
  task->id = next_++;
  task->kind = kind;
  task->what = std::move(what);
  task->work = std::move(work);
  auto& queue = waiting_[lane_of(kind)];
  queue.push_back(task);
  try {
    tasks_.emplace(task->id, task);
    if (kind != TaskKind::drain) {
      note({{"task", task->id}, {"kind", name_of(kind)}, {"what", task->what}});
    }
    // the client gets the error, and no task stays that never begins
  } catch (const std::bad_alloc&) {
    tasks_.erase(task->id);
    queue.pop_back();
    throw;
  }
  if (running_[lane_of(TaskKind::drain)] && !may_begin(kind)) {
    running_[lane_of(TaskKind::drain)]->progress.gives_way = true;
  }
  changed_.notify_all();
  return task->id;
}

// Carries out a task, without the lock. An exception becomes its outcome.
replies::TaskOutcome Tasks::work_on(Task& task) {
  try {
    return task.work(task.progress);
  } catch (const std::exception& problem) {
    log::warn("event=task_failed task={} reason=\"{}\"", task.id, problem.what());
    return std::move(task.no_memory);
  }
}

TaskState Tasks::state_after(const Task& task, const replies::TaskOutcome& outcome) {
  if (outcome.ok) {
    return TaskState::done;
  }
  const bool stopped = task.progress.cancel && outcome.failure.code == ECANCELED;
  return stopped ? TaskState::cancelled : TaskState::failed;
}

void Tasks::run_lane(TaskKind kind) {
  // Applies to this thread and to those that a task starts: programs of the job have priority on
  // busy processors. At nice value 15 a thread has a thirtieth of a program's weight.
  if (kind != TaskKind::stop_unload) {
    ::setpriority(PRIO_PROCESS, 0, 15);
  }
  const ReservedMemory reserved_memory;  // for outcomes
  const std::size_t lane = lane_of(kind);
  mutex_.lock();
  while (true) {
    while (!stopping_ && (waiting_[lane].empty() || !may_begin(kind))) {
      changed_.wait(mutex_);
    }
    if (waiting_[lane].empty()) {
      break;
    }
    const TaskPointer task = waiting_[lane].front();
    waiting_[lane].pop_front();
    running_[lane] = task;
    task->state = TaskState::running;
    mutex_.unlock();
    changed_.notify_all();
    log::debug("event=task_started task={} kind={}", task->id, name_of(kind));
    auto outcome = work_on(*task);
    mutex_.lock();
    running_[lane] = nullptr;
    const TaskState state = state_after(*task, outcome);
    end(*task, state, std::move(outcome));
    if (kind == TaskKind::drain) {
      continue;
    }
    record_end(task->id);
    log::info("event=task_ended task={} kind={} state={}", task->id, name_of(kind),
              name_of(task->state));
  }
  mutex_.unlock();
}

void Tasks::end(Task& task, TaskState state, replies::TaskOutcome outcome) {
  task.state = state;
  task.ended = wall_clock();
  task.outcome = std::move(outcome);
  task.work = nullptr;
  if (task.kind == TaskKind::drain) {
    tasks_.erase(task.id);
    changed_.notify_all();
    return;
  }
  try {
    ended_.push_back(task.id);
  } catch (const std::bad_alloc&) {
  }  // this ended task is then kept longer than others
  while (ended_.size() > most_ended) {
    tasks_.erase(ended_.front());
    ended_.pop_front();
  }
  changed_.notify_all();
}

replies::Task Tasks::summary_of(const Task& task) {
  const auto p = task.progress.snapshot();
  return {.task = task.id,
          .kind = name_of(task.kind),
          .what = task.what,
          .task_state = name_of(task.state),
          .bytes_done = p.bytes_done,
          .bytes_total = p.bytes_total,
          .files_done = p.files_done,
          .files_total = p.files_total,
          .started = static_cast<double>(p.started) / 1e9,
          .turn = {},
          .state = {},
          .outcome = {}};
}

Result<replies::Task> Tasks::look(std::uint64_t id) {
  const MutexLock lock(mutex_);
  const auto found = tasks_.find(id);
  if (found == tasks_.end()) {
    return unknown(id);
  }
  auto seen = summary_of(*found->second);
  seen.outcome = found->second->outcome;
  return seen;
}

std::vector<replies::Task> Tasks::list() {
  const MutexLock lock(mutex_);
  std::vector<replies::Task> all;
  for (const auto& [id, task] : tasks_) {
    if (task->kind != TaskKind::drain) {
      all.push_back(summary_of(*task));
    }
  }
  return all;
}

std::vector<stage::JobTransfer> Tasks::transfers(std::size_t most, std::uint64_t& unlisted) {
  const MutexLock lock(mutex_);
  std::vector<stage::JobTransfer> all;
  for (const auto& [id, task] : tasks_) {
    const auto p = task->progress.snapshot();
    if (task->ended == 0 || p.started == 0) {
      continue;
    }
    if (all.size() == most) {
      ++unlisted;
      continue;
    }
    all.push_back({.kind = name_of(task->kind),
                   .state = name_of(task->state),
                   .begin = p.started,
                   .end = task->ended,
                   .bytes = p.bytes_done});
  }
  return all;
}

Result<bool> Tasks::wait(std::uint64_t id, std::chrono::milliseconds time) {
  const auto end_of_wait = std::chrono::steady_clock::now() + time;
  const MutexLock lock(mutex_);
  const auto found = tasks_.find(id);
  if (found == tasks_.end()) {
    return unknown(id);
  }
  const TaskPointer task = found->second;
  while (!task->outcome && changed_.wait_until(mutex_, end_of_wait)) {
  }
  return task->outcome.has_value();
}

void Tasks::cancel_locked(Task& task) {
  task.progress.cancel = true;
  if (task.state != TaskState::pending) {
    return;
  }
  auto& queue = waiting_[lane_of(task.kind)];
  auto outcome = replies::failed_task({ECANCELED, "cancelled before it began"});
  std::erase_if(queue, [&](const TaskPointer& other) { return other.get() == &task; });
  end(task, TaskState::cancelled, std::move(outcome));
  if (task.kind != TaskKind::drain) {
    record_end(task.id);
  }
}

Status Tasks::cancel(std::uint64_t id) {
  const MutexLock lock(mutex_);
  const auto found = tasks_.find(id);
  if (found == tasks_.end()) {
    return unknown(id);
  }
  const TaskPointer task = found->second;
  if (task->outcome) {
    return fail(EALREADY, "task " + std::to_string(id) + " has ended: " + name_of(task->state));
  }
  cancel_locked(*task);
  return {};
}

bool Tasks::runs(TaskKind kind) const {
  return running_[lane_of(kind)] != nullptr;
}

bool Tasks::runs_or_waits(TaskKind kind) const {
  return runs(kind) || !waiting_[lane_of(kind)].empty();
}

bool Tasks::may_begin(TaskKind kind) const {
  switch (kind) {
    case TaskKind::load:
    case TaskKind::fetch:
    case TaskKind::move: return true;
    case TaskKind::unload: return !runs_or_waits(TaskKind::stop_unload) && !runs(TaskKind::drain);
    case TaskKind::stop_unload: return !runs(TaskKind::drain);
    case TaskKind::drain:
      return !runs_or_waits(TaskKind::stop_unload) && !runs_or_waits(TaskKind::unload);
  }
  return true;
}

bool Tasks::idle() const {
  return std::ranges::all_of(waiting_, [](const auto& queue) { return queue.empty(); }) &&
         std::ranges::all_of(running_, [](const auto& task) { return task == nullptr; });
}

void Tasks::cancel_open(bool unloads) {
  std::vector<TaskPointer> open;
  for (const auto& [id, task] : tasks_) {
    const bool may_go_on = task->kind == TaskKind::unload || task->kind == TaskKind::stop_unload;
    if (!task->outcome && (!may_go_on || unloads)) {
      open.push_back(task);
    }
  }
  for (const auto& task : open) {
    cancel_locked(*task);
  }
}

void Tasks::cancel_all() {
  const MutexLock lock(mutex_);
  cancel_open(true);
}

bool Tasks::close(bool finish_unloads, Time end) {
  const MutexLock lock(mutex_);
  closed_ = true;
  cancel_open(!finish_unloads);
  while (!idle()) {
    if (end == Time::max()) {
      changed_.wait(mutex_);
    } else if (!changed_.wait_until(mutex_, end)) {
      return idle();
    }
  }
  return true;
}

void Tasks::reopen() {
  const MutexLock lock(mutex_);
  closed_ = false;
}

}  // namespace efs::daemon
