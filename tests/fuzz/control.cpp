// SPDX-License-Identifier: BSD-3-Clause
// Lines of arbitrary bytes on the control socket: either an error, or a request, which the daemon's
// functions get.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <cstdlib>
#include <exception>

#include "base/json_text.hpp"
#include "control/protocol.hpp"
#include "control/requests.hpp"
#include "daemon/requests.hpp"

namespace {

using namespace efs::daemon;
using efs::control::Json;
namespace requests = efs::control::requests;

template <typename Work>
void attempt(Work work) {
  try {
    (void)work();
  } catch (const std::exception&) {  // the server refuses the request
  }
}

// Uses the fields of a request as the daemon does.
struct Use {
  void operator()(const requests::Load& request) const {
    attempt([&] { return load_of(request, {"name"}); });
  }

  void operator()(const requests::Unload& request) const {
    attempt([&] { return unload_of(request, {"name"}); });
  }

  void operator()(const requests::Stop& request) const {
    attempt([&] { return asked_ago_of(request); });
  }

  void operator()(const requests::WaitInputs& request) const {
    attempt([&] { return timeout_of(request.timeout_ms); });
  }

  void operator()(const requests::WaitTask& request) const {
    attempt([&] { return timeout_of(request.timeout_ms); });
  }

  void operator()(const auto&) const {}
};

// A request that is written and read again is the same.
template <typename Request>
void check_as(const Json& line) {
  attempt([&] {
    const Request request = requests::from_json<Request>(line);
    if (requests::from_json<Request>(requests::to_json(request)) != request) {
      std::abort();
    }
    Use{}(request);
    return 0;
  });
}

// As a request of each kind, whatever its verb is.
void check_request(const Json& line) {
  attempt([&] { return requests::verb_of(line); });
  requests::for_each([&]<typename Request>(const Request&) { check_as<Request>(line); });
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
    check_request(*line);
  }
  ::close(ends[1]);
  return 0;
}
