// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/trace.hpp"

#include <spdlog/fmt/fmt.h>

namespace efs::fuse {
namespace {

// Uses the word of echofs if it had one.
const char* word_of(const Event& event) {
  switch (event.operation) {
    case Operation::lookup:
    case Operation::getattr: return "stat";
    case Operation::setattr: return event.truncates ? "truncate" : "setattr";
    case Operation::release: return "close";
    case Operation::releasedir: return "closedir";
    case Operation::readdirplus: return "readdir";
    default: return name_of(event.operation);
  }
}

bool has_range(const Event& event) {
  return event.operation == Operation::read || event.operation == Operation::write ||
         event.operation == Operation::fallocate || event.operation == Operation::copy_file_range ||
         (event.operation == Operation::setattr && event.truncates);
}

}  // namespace

std::string trace_line(const Event& event) {
  // the kernel sends these, not a program
  if (event.operation == Operation::forget || event.operation == Operation::flush) {
    return {};
  }
  auto line = fmt::format("{}:{}:{}:{}:{}", event.started / 1000, word_of(event), event.pid,
                          event.tid, escape_line(event.path, ':'));
  if (!event.other.empty()) {
    line += ":" + escape_line(event.other, ':');
  }
  if (has_range(event)) {
    line += fmt::format(":{}:{}", event.offset, event.size);
  }
  return line;
}

void Trace::operation(const Event& event) {
  if (event.error == 0) {
    if (const auto line = trace_line(event); !line.empty()) {
      file_.append(line);
    }
  }
}

}  // namespace efs::fuse
