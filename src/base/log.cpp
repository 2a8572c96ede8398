#include "base/log.hpp"

#include <fcntl.h>
#include <spdlog/sinks/base_sink.h>
#include <spdlog/sinks/stdout_sinks.h>
#include <sys/stat.h>

#include <mutex>
#include <string_view>
#include <utility>

#include "base/text.hpp"
#include "base/unique_fd.hpp"

namespace efs::log {
namespace {

// spdlog's own opens by name, makes directories, and knows no mode.
class FileSink : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit FileSink(UniqueFd fd) : fd_(std::move(fd)) {}

 private:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t text;
    formatter_->format(message, text);
    const std::string line = printable(std::string_view(text.data(), text.size() - 1)) + "\n";  // a name in it must not begin another
    std::string_view rest(line);
    while (!rest.empty()) {
      const ssize_t n = ::write(fd_.get(), rest.data(), rest.size());
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) return;  // there is no place to say so
      rest.remove_prefix(static_cast<std::size_t>(n));
    }
  }
  void flush_() override {}

  UniqueFd fd_;
};

// As the trace and the access log. Names of files are their owner's business: who wants others to read it makes it before.
Result<UniqueFd> open_log(const std::string& file) {
  UniqueFd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!fd) return fail_errno(file);
  return fd;
}

}  // namespace

Status setup(const std::string& file, const std::string& level) {
  auto fd = file.empty() ? Result<UniqueFd>(UniqueFd()) : open_log(file);
  spdlog::sink_ptr sink;
  if (fd && *fd) sink = std::make_shared<FileSink>(std::move(*fd));
  else sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("", sink));
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%f %l pid=%P %v");
  spdlog::flush_on(spdlog::level::info);
  return fd ? Status{} : std::unexpected(fd.error());
}

}  // namespace efs::log
