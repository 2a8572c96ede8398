// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The trace in the format of echofs, efs' ancestor. Each operation becomes one line:
//   epoch_microseconds:operation:pid:tid:path[:offset:size]
// A header line names the fields. efsd(8) is the reference.

#include <memory>
#include <string>

#include "base/line_file.hpp"
#include "fuse/observer.hpp"

namespace efs::fuse {

/// The line of an event, without a newline. Returns "" for an event that a trace does not show.
std::string trace_line(const Event& event);

/// Writes to `file`. `file` must outlive the Trace.
class Trace : public EventSink {
 public:
  static constexpr const char* header = "# epoch_microseconds:operation:pid:tid:path[:offset:size]";

  explicit Trace(LineFile& file) : file_(file) {}

  void operation(const Event& event) override;

 private:
  LineFile& file_;
};

}  // namespace efs::fuse
