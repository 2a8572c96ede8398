#include "base/log.hpp"

#include <fcntl.h>
#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

#include "base/unique_fd.hpp"

namespace efs::log {

void setup(const std::string& file, const std::string& level) {
  spdlog::sink_ptr sink = std::make_shared<spdlog::sinks::stderr_sink_mt>();
  std::string problem;
  try {
    // Names of files are their owner's business: who wants others to read it makes it before.
    if (!file.empty()) (void)UniqueFd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC, 0600));
    if (!file.empty()) sink = std::make_shared<spdlog::sinks::basic_file_sink_mt>(file);
  } catch (const spdlog::spdlog_ex& error) {
    problem = error.what();
  }
  spdlog::set_default_logger(std::make_shared<spdlog::logger>("", sink));
  if (!problem.empty()) spdlog::warn("event=log_file_unusable file={} reason=\"{}\"", file, problem);
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%f %l pid=%P %v");
  spdlog::flush_on(spdlog::level::info);
}

}  // namespace efs::log
