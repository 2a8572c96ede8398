// SPDX-License-Identifier: BSD-3-Clause
#include "base/log.hpp"

#include <fcntl.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string_view>
#include <utility>

#include "base/mutex.hpp"
#include "base/text.hpp"
#include "base/thread.hpp"
#include "base/unique_fd.hpp"
#include "base/with_timeout.hpp"

namespace efs::log {
namespace {

// spdlog's own file sink opens by name, creates directories, and sets no mode.
//
// A line must be in the file when the call returns, so that the line survives a killed process. But
// a call must not hang when the file's storage hangs, least of all under a lock of the caller. So a
// thread writes the line, and the call waits one second for that thread. Later calls do not wait
// until that thread returns. No thread remains afterwards, because the supervisor forks.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(UniqueFd fd) : file_(std::make_shared<File>()) { file_->fd = std::move(fd); }

 private:
  static constexpr auto patience = std::chrono::seconds(1);
  static constexpr std::size_t most_waiting = 1u << 20;  // bytes

  struct File {
    UniqueFd fd;
    Mutex mutex;  // rank 95: no lock is acquired under it
    Condition written;
    std::string waiting EFS_GUARDED_BY(mutex);
    std::uint64_t lost EFS_GUARDED_BY(mutex) = 0;      // lines
    bool is_written_to EFS_GUARDED_BY(mutex) = false;  // a thread is in write_waiting()

    void write_waiting() noexcept {
      const MutexLock lock(mutex);
      while (!waiting.empty()) {
        const std::string lines = std::exchange(waiting, {});
        mutex.unlock();
        put(lines);
        mutex.lock();
      }
      is_written_to = false;
      written.notify_all();
    }

    void put(std::string_view rest) const {
      while (!rest.empty()) {
        const ssize_t n = ::write(fd.get(), rest.data(), rest.size());
        if (n < 0 && errno == EINTR) {
          continue;
        }
        if (n <= 0) {
          return;  // there is no place to report this
        }
        rest.remove_prefix(static_cast<std::size_t>(n));
      }
    }

    /// Returns false if another thread is writing; that thread then writes this line too.
    bool add(const std::string& line) {
      const MutexLock lock(mutex);
      if (waiting.size() + line.size() > most_waiting) {
        ++lost;
        return false;
      }
      if (lost > 0 && !is_written_to) {
        waiting += "log: " + std::to_string(std::exchange(lost, 0)) +
                   " lines were lost while it could not be written\n";
      }
      waiting += line;
      return !std::exchange(is_written_to, true);
    }

    void wait() {
      const auto end = std::chrono::steady_clock::now() + patience;
      const MutexLock lock(mutex);
      while (is_written_to) {
        if (!written.wait_until(mutex, end)) {
          return;
        }
      }
    }
  };

  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    // A name in the text must not begin another line.
    if (!file_->add(printable(std::string_view(text.data(), text.size() - 1)) + "\n")) {
      return;
    }
    auto writer = start_thread([file = file_] { file->write_waiting(); });
    if (!writer) {
      return file_->write_waiting();
    }
    writer->detach();
    file_->wait();
  }

  void flush_() override {}

  const std::shared_ptr<File> file_;
};

// Created as the trace and the access log are: only the owner may read it, because file names are
// private. To share the log, its owner creates the file first.
Result<UniqueFd> open_log(const std::string& file, std::chrono::milliseconds patience) {
  struct Opening {
    std::string file;
    UniqueFd fd;
    int code = ETIMEDOUT;
  };

  const auto opening = std::make_shared<Opening>(file);
  const auto open = [opening] {
    opening->fd.reset(::open(opening->file.c_str(),
                             O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC,
                             0600));
    opening->code = opening->fd ? 0 : errno;
  };
  if (!with_timeout(patience, open)) {
    return fail(ETIMEDOUT, file + ": its file system does not answer");
  }
  return opening->fd ? Result<UniqueFd>(std::move(opening->fd))
                     : fail(opening->code, file + ": " + describe(Error{opening->code, {}}));
}

}  // namespace

Status setup(const std::string& file, const std::string& level,
             std::chrono::milliseconds patience) {
  auto fd = file.empty() ? Result<UniqueFd>(UniqueFd()) : open_log(file, patience);
  spdlog::sink_ptr sink;
  if (fd && *fd) {
    sink = std::make_shared<FileSink>(std::move(*fd));
  } else {
    sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  }
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("", sink));
  set_level(level);
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%f %l pid=%P %v");
  spdlog::flush_on(spdlog::level::info);
  return fd ? Status{} : std::unexpected(fd.error());
}

void set_level(const std::string& level) {
  spdlog::set_level(spdlog::level::from_str(level));
}

}  // namespace efs::log
