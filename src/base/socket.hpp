#pragma once
// Messages with descriptors over Unix sockets (SCM_RIGHTS, unix(7)).

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// More never go with one message.
inline constexpr std::size_t most_descriptors = 32;

/// Sends one message and copies of the descriptors (EINVAL: more than most_descriptors). Blocks;
/// EPIPE and no signal when the other side is gone.
Status send_with_descriptors(int socket, std::span<const std::byte> message,
                             std::span<const int> fds);

struct ReceivedBytes {
  std::size_t size = 0;  // 0: the end of the other side
  std::vector<UniqueFd> fds;
};

/// Receives one message with at most `most` descriptors (close-on-exec); the kernel closes what is
/// more than that, and gives none where this process may have no more. `room`: what the descriptors
/// are put into; std::bad_alloc where it cannot hold `most`, before anything is received.
Result<ReceivedBytes> receive_with_descriptors(int socket, std::span<std::byte> message,
                                               std::size_t most = most_descriptors,
                                               std::vector<UniqueFd> room = {});

}  // namespace efs
