// Lines of any bytes on the control socket: requests or errors, and the fields that the daemon reads from them.
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cstdint>

#include "control/protocol.hpp"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size > 65536) return 0;  // what a socket takes without a reader
  std::array<int, 2> ends{};
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0) return 0;
  (void)!::write(ends[0], data, size);
  ::close(ends[0]);
  efs::control::LineReader reader(ends[1], 1u << 20);
  while (auto line = reader.next()) {
    try {
      (void)line->value("verb", "");
      for (const char* field : {"stage_out", "keep", "cut_off", "merge", "receipt"}) (void)line->value(field, true);
      for (const char* field : {"deadline", "asked_ago"}) (void)line->value(field, 0.0);
    } catch (const efs::control::Json::exception&) {  // a field of the wrong type: the server answers EINVAL
    }
  }
  ::close(ends[1]);
  return 0;
}
