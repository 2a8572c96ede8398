// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The access log, in the format of JuiceFS' .accesslog. Each request that reaches the daemon
// becomes one line:
//   2026.11.21 13:05:07.000123 [uid:1000,gid:1000,pid:4711] read (/a/b,4096,0): OK (4096)
//   <0.000010>
// efsd(8) is the reference.

#include <string>

#include "base/line_file.hpp"
#include "fuse/observer.hpp"

namespace efs::fuse {

/// The line of an event, without a newline; times are UTC.
std::string access_line(const Event& event);

/// Writes to `file`. `file` must outlive the AccessLog.
class AccessLog : public EventSink {
 public:
  explicit AccessLog(LineFile& file) : file_(file) {}

  void operation(const Event& event) override { file_.append(access_line(event)); }

 private:
  LineFile& file_;
};

}  // namespace efs::fuse
