// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <spdlog/sinks/ostream_sink.h>

#include <memory>
#include <sstream>
#include <string>

#include "base/log.hpp"

namespace efs::test {

/// The log's lines, while it lives, whatever other tests have set up.
class LogLines {
 public:
  LogLines() {
    spdlog::set_default_logger(std::make_shared<spdlog::logger>(
        "test", std::make_shared<spdlog::sinks::ostream_sink_mt>(text_)));
  }

  ~LogLines() { spdlog::set_default_logger(before_); }

  LogLines(const LogLines&) = delete;
  LogLines& operator=(const LogLines&) = delete;

  bool have(const std::string& part) const { return text_.str().contains(part); }

  bool empty() const { return text_.str().empty(); }

 private:
  const std::shared_ptr<spdlog::logger> before_ = spdlog::default_logger();
  std::ostringstream text_;
};

}  // namespace efs::test
