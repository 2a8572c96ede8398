// SPDX-License-Identifier: BSD-3-Clause
// Lines of arbitrary bytes on the control socket: either an error, or a request. Reads every field
// of a request as the daemon does.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>

#include "base/json_text.hpp"
#include "daemon/requests.hpp"

namespace {

using namespace efs::daemon;
using efs::control::Json;

// A read that throws is a request that the server rejects; the later fields are still read.
template <typename... Read>
void read_each(const Json& request, Read... read) {
  const auto attempt = [&](auto one) {
    try {
      (void)one(request);
    } catch (const std::exception&) {
    }
  };
  (attempt(read), ...);
}

void read_fields(const Json& request) {
  read_each(request, verb_of, is_of_starter, keeps, stop_of, paths_of, has_paths, path_of,
            backend_of, class_of, task_of, timeout_of);
  read_each(
      request, [](const Json& one) { return load_of(one, {"name"}); },
      [](const Json& one) { return unload_of(one, {"name"}); });
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) {
    return 0;  // capacity of a socket without a reader
  }
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) {
    return 0;
  }
  (void)!::write(ends[0], data, size);
  ::close(ends[0]);
  efs::control::LineReader reader(ends[1], 1u << 20);
  while (auto line = reader.next()) {
    // reading restores the written document
    if (efs::json_from_text(efs::json_to_text(*line)) != *line) {
      std::abort();
    }
    read_fields(*line);
  }
  ::close(ends[1]);
  return 0;
}
