// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Messages with descriptors over Unix sockets (SCM_RIGHTS, unix(7)).

#include <cstddef>
#include <span>
#include <vector>

#include "base/result.hpp"
#include "base/unique_fd.hpp"

namespace efs {

/// The maximum number of descriptors in a message.
inline constexpr std::size_t most_descriptors = 32;

/// Sends one message and copies of the descriptors (EINVAL: more than most_descriptors). Blocks.
/// Returns EPIPE, and raises no signal, if the peer has closed its end.
Status send_with_descriptors(int socket, std::span<const std::byte> message,
                             std::span<const int> fds);

struct ReceivedBytes {
  std::size_t size = 0;  // 0: the peer has closed its end
  std::vector<UniqueFd> fds;
};

/// Receives one message with at most `most` descriptors (close-on-exec). The kernel closes further
/// descriptors, and delivers none if this process may open no more. `room` is the vector to fill;
/// the function throws std::bad_alloc before it receives anything if `room` cannot hold `most`.
Result<ReceivedBytes> receive_with_descriptors(int socket, std::span<std::byte> message,
                                               std::size_t most = most_descriptors,
                                               std::vector<UniqueFd> room = {});

}  // namespace efs
