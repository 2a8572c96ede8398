// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/access_log.hpp"

#include <spdlog/fmt/fmt.h>

#include <cstring>
#include <ctime>

namespace efs::fuse {
namespace {

bool moves_bytes(Operation o) {
  return o == Operation::read || o == Operation::write || o == Operation::copy_file_range;
}

std::string arguments_of(const Event& event) {
  std::string text = escape_line(event.path, ',');
  if (!event.other.empty()) {
    text += "," + escape_line(event.other, ',');
  }
  if (moves_bytes(event.operation) || event.operation == Operation::fallocate) {
    text += fmt::format(",{},{}", event.size, event.offset);
  } else if (event.truncates) {
    text += fmt::format(",{}", event.size);
  }
  return text;
}

std::string outcome_of(const Event& event) {
  char text[128];
  // GNU's strerror_r(3) may return text outside the buffer
  if (event.error != 0) {
    return ::strerror_r(event.error, text, sizeof text);
  }
  return moves_bytes(event.operation) ? fmt::format("OK ({})", event.bytes) : "OK";
}

}  // namespace

std::string access_line(const Event& event) {
  const auto seconds = static_cast<time_t>(event.started / 1'000'000'000);
  tm utc{};
  ::gmtime_r(&seconds, &utc);
  return fmt::format(
      "{:04}.{:02}.{:02} {:02}:{:02}:{:02}.{:06} [uid:{},gid:{},pid:{}] {} ({}): {} <{}.{:06}>",
      utc.tm_year + 1900, utc.tm_mon + 1, utc.tm_mday, utc.tm_hour, utc.tm_min, utc.tm_sec,
      event.started / 1000 % 1'000'000, event.uid, event.gid, event.pid, name_of(event.operation),
      arguments_of(event), outcome_of(event), event.duration / 1'000'000'000,
      event.duration / 1000 % 1'000'000);
}

}  // namespace efs::fuse
