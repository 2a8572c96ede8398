#pragma once
// The line between supervisor and worker: fixed-size messages with at most one descriptor each, over a socketpair.
// The supervisor believes nothing that comes through it: the worker runs as the user.

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs::daemon {

enum class Ask : std::uint32_t {
  memory_store,     // number: bytes -> descriptor of a private tmpfs of that size; number: 1 if an earlier instance left it
  keep_store,       // number: 1 the store is left when all ends, 0 (at first) it goes
  drop_dead_mount,  // descriptor: a directory; text: a name in it -> EBUSY where something lives there
  check_mount,      // descriptor: the mount point
  mount,            // descriptor: the mount point; number: config::MountFlag bits; text: source name -> /dev/fuse descriptor
  unmount,          // -> EBUSY while it is in use
  abort,            // ends the connection, whoever uses it: nobody serves it any more
  open_backing,     // descriptor: a container -> number: backing id
  close_backing,    // number: backing id
};

struct Message {
  Ask ask{};
  std::int32_t error = 0;  // of an answer: errno
  std::uint64_t number = 0;
  std::array<char, 256> text{};
};

void set_text(Message& message, std::string_view text);

/// Sends a message and, where `fd` >= 0, a copy of the descriptor.
Status send_message(int socket, const Message& message, int fd = -1);

struct Received {
  Message message;
  UniqueFd fd;
};
/// nullopt at the end of the other side.
Result<std::optional<Received>> receive_message(int socket);

}  // namespace efs::daemon
