// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The channel between supervisor and worker: a socketpair that carries messages of fixed size, each
// with at most `most_descriptors` descriptors. The supervisor answers every message of the worker
// except those marked "never answered". The supervisor trusts no content of a message, because the
// worker runs as the user.

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.hpp"
#include "base/socket.hpp"
#include "base/unique_fd.hpp"

namespace efs::daemon {

enum class Ask : std::uint32_t {
  // number: bytes; count: number of the backend; numbers[0]: 1: the store must exist; numbers[1]:
  // AccessTimes; numbers[2]: 1: without huge pages -> descriptor of a private tmpfs of that size;
  // number: 1 if the tmpfs existed before
  memory_store,
  // -> number: available memory of the machine in bytes, less the promises to other stores in
  // memory
  unpromised,
  // descriptor: a file of a store that is not on a private tmpfs; for jobs with several backends
  store_at,
  // descriptor: the lock of a store, a file or its directory -> the descriptor to lock: the one
  // that a predecessor sent for this file, else the one in the message
  hold_store,
  // number: 1: the store stays when the instance ends; 0 (default): the store is removed
  keep_store,
  // descriptor: a directory; text: a name in it -> EBUSY if the mount there is alive
  drop_dead_mount,
  check_mount,  // descriptor: the mount point
  // descriptor: the mount point; number: config::MountFlag bits; text: source name -> /dev/fuse
  // descriptor
  mount,
  // number: 1: an unusual stop (StopRequest::is_unusual()), which a client has to repeat after a
  // takeover -> EBUSY while the mount is in use
  unmount,
  abort,  // ends the connection even if it is in use, because no worker serves it any more
  // descriptors: containers; inodes: their inode numbers -> numbers: for each container its backing
  // id or a negative errno
  open_backing,
  close_backing,  // numbers: backing ids; never answered
  keep_init,      // number: length; text: the INIT request of the connection, for a successor
  // from a successor -> /dev/fuse descriptor; number and text as in keep_init. ENOTCONN: not
  // mounted
  resume,
  inherited,  // -> descriptor of a memory file with number fuse::InheritedBacking
  // from a successor: it has answered a request that its predecessor did not leave behind
  progress,
};

struct Message {
  Ask ask{};
  std::int32_t error = 0;  // errno, in an answer
  std::uint64_t number = 0;
  std::uint32_t count = 0;  // valid elements of numbers
  std::array<std::int32_t, most_descriptors> numbers{};
  std::array<std::uint64_t, most_descriptors> inodes{};
  std::array<char, 256> text{};
};

void set_text(Message& message, std::string_view text);

/// Sends a message with copies of at most `most_descriptors` descriptors.
Status send_message(int socket, const Message& message, std::span<const int> fds = {});

struct Received {
  Message message;  // count <= most_descriptors
  std::vector<UniqueFd> fds;

  UniqueFd first() { return fds.empty() ? UniqueFd() : std::move(fds.front()); }
};

/// Receives a message. Returns nullopt if the peer has closed its end. A caller that must not fail
/// for want of memory passes a `room` with capacity for most_descriptors. Otherwise the function
/// may throw std::bad_alloc before it has received anything.
Result<std::optional<Received>> receive_message(int socket, std::vector<UniqueFd> room = {});

}  // namespace efs::daemon
