// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The trace of echofs, efs' ancestor: one line per operation,
//   epoch_microseconds:operation:pid:tid:path[:offset:size]
// behind a header line that says so. efsd(8) is the reference.

#include <memory>
#include <string>

#include "base/line_file.hpp"
#include "fuse/observer.hpp"

namespace efs::fuse {

/// The line of an event, without a newline; "" for what a trace does not show.
std::string trace_line(const Event& event);

/// Writes to `file`, which must outlive it.
class Trace : public EventSink {
 public:
  static constexpr const char* header = "# epoch_microseconds:operation:pid:tid:path[:offset:size]";

  explicit Trace(LineFile& file) : file_(file) {}

  void operation(const Event& event) override;

 private:
  LineFile& file_;
};

}  // namespace efs::fuse
