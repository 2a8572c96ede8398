// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/status_file.hpp"

#include <fcntl.h>
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "base/json_text.hpp"
#include "base/log.hpp"
#include "base/memory.hpp"
#include "base/thread.hpp"
#include "base/unique_fd.hpp"

namespace efs::daemon {
namespace {

Status write_whole(const UniqueFd& fd, const std::string& text, const std::string& path) {
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::write(fd.get(), text.data() + done, text.size() - done);
    if (n > 0) {
      done += static_cast<std::size_t>(n);
    } else if (n < 0 && errno != EINTR) {
      return fail_errno(path);
    }
  }
  return {};
}

}  // namespace

Status replace_file(const std::string& path, const std::string& text, mode_t mode) {
  const std::string partial = path + ".efs-partial";
  ::unlink(partial.c_str());  // left by a killed daemon
  UniqueFd fd(::open(partial.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd) {
    return fail_errno(partial);
  }
  Status status = write_whole(fd, text, partial);
  if (status && ::close(fd.release()) != 0) {
    status = fail_errno(partial);
  }
  if (status && ::rename(partial.c_str(), path.c_str()) != 0) {
    status = fail_errno(path);
  }
  if (!status) {
    ::unlink(partial.c_str());
  }
  return status;
}

Result<std::unique_ptr<StatusFile>> StatusFile::open(const std::string& path, Snapshot snapshot,
                                                     std::function<void()> every_second,
                                                     mode_t mode) {
  std::unique_ptr<StatusFile> file(
      new StatusFile(path, std::move(snapshot), std::move(every_second), mode));
  EFS_TRY(file->write());
  EFS_TRY(file->begin(false));
  return file;
}

std::unique_ptr<StatusFile> StatusFile::open_later(const std::string& path, Snapshot snapshot,
                                                   std::function<void()> every_second,
                                                   mode_t mode) {
  std::unique_ptr<StatusFile> file(
      new StatusFile(path, std::move(snapshot), std::move(every_second), mode));
  file->poke();
  if (const Status begun = file->begin(true); !begun) {
    log::warn("event=no_thread_for_status_file file=\"{}\" reason=\"{}\"", path,
              describe(begun.error()));
  }
  return file;
}

// Opens the other files first: they are on the node, while the status file may be on a hanging file
// system.
Status StatusFile::begin(bool with_the_others) {
  auto thread = start_thread([this, with_the_others] {
    if (with_the_others) {
      tick();
    }
    work();
  });
  if (!thread) {
    return with_context(thread.error(), "a thread for it");
  }
  thread_ = std::move(*thread);
  return {};
}

StatusFile::~StatusFile() {
  {
    const MutexLock lock(mutex_);
    ended_ = true;
  }
  changed_.notify_all();
  if (thread_.joinable()) {
    thread_.join();
  }
  (void)write_or_say();
}

void StatusFile::poke() {
  const MutexLock lock(mutex_);
  poked_ = true;
  changed_.notify_all();
}

Status StatusFile::write() {
  auto document = snapshot_();
  if (document == written_) {
    return {};
  }
  auto stamped = document;
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  stamped["updated"] =
      static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec / 1'000'000) / 1000;
  EFS_TRY(replace_file(path_, json_to_text(stamped, 2) + "\n", mode_));
  written_ = std::move(document);
  is_running_ = written_.value("state", "") == "running";
  return {};
}

// Returns false at the end. Does not wake periodically while a job computes, because each wakeup
// disturbs the job.
bool StatusFile::wait() {
  const bool ticks = every_second_ || std::exchange(try_again_, false) || !is_running_;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(1);
  const MutexLock lock(mutex_);
  while (!ended_ && !poked_) {
    if (!ticks) {
      changed_.wait(mutex_);
    } else if (!changed_.wait_until(mutex_, end)) {
      break;
    }
  }
  poked_ = false;
  return !ended_;
}

// Logs only the first of several failures in a row.
bool StatusFile::write_or_say() noexcept {
  const ReservedMemory reserved_memory;
  try {
    const Status done = ReservedMemory::ready() ? write() : fail(ENOMEM);
    if (!done && !failed_) {
      log::warn("event=status_file_failed file=\"{}\" reason=\"{}\"", path_,
                describe(done.error()));
    }
    failed_ = !done;
  } catch (const std::exception& problem) {  // no memory for the document
    if (!failed_) {
      log::warn("event=status_file_failed file=\"{}\" reason=\"{}\"", path_, problem.what());
    }
    failed_ = true;
  }
  return !failed_;
}

void StatusFile::tick() noexcept {
  try {
    if (every_second_) {
      every_second_();
    }
  } catch (const std::exception& problem) {
    log::warn("event=event_file_not_written reason=\"{}\"", problem.what());
  }
}

void StatusFile::work() noexcept {
  while (wait()) {
    if (!write_or_say()) {
      try_again_ = true;
    }
    tick();
  }
}

}  // namespace efs::daemon
