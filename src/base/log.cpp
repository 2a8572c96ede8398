#include "base/log.hpp"

#include <spdlog/sinks/basic_file_sink.h>
#include <spdlog/sinks/stdout_sinks.h>

namespace efs::log {

void setup(const std::string& file, const std::string& level) {
  try {
    auto logger = file.empty() ? spdlog::stderr_logger_mt("efs") : spdlog::basic_logger_mt("efs", file);
    spdlog::set_default_logger(logger);
  } catch (const spdlog::spdlog_ex& problem) {
    spdlog::set_default_logger(spdlog::stderr_logger_mt("efs"));
    spdlog::warn("event=log_file_unusable file={} reason=\"{}\"", file, problem.what());
  }
  spdlog::set_level(spdlog::level::from_str(level));
  spdlog::set_pattern("%Y-%m-%dT%H:%M:%S.%f %l pid=%P %v");
  spdlog::flush_on(spdlog::level::info);
}

}  // namespace efs::log
