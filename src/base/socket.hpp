#pragma once
// Messages with a descriptor over Unix sockets (SCM_RIGHTS, unix(7)).

#include <cstddef>
#include <span>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// Sends one message and, where `fd` >= 0, a copy of the descriptor. Blocks; EPIPE and no signal when the other side is gone.
Status send_with_descriptor(int socket, std::span<const std::byte> message, int fd);

/// Receives one message: the bytes that came, 0 at the end of the other side. `fd` is set where a descriptor came with
/// it (close-on-exec); of several the first, the kernel closes the others. None where this process may have no more.
Result<std::size_t> receive_with_descriptor(int socket, std::span<std::byte> message, UniqueFd& fd);

}  // namespace efs
