#pragma once
// The line between supervisor and worker: fixed-size messages with at most `most_descriptors` each,
// over a socketpair. Every message of the worker is answered, but those that say so. The supervisor
// believes nothing that comes through it: the worker runs as the user.

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
  // number: bytes; count: of the backend; numbers[0]: 1 it must be there; numbers[1]: AccessTimes;
  // numbers[2]: 1 without huge pages -> descriptor of a private tmpfs of that size; number: 1 if it
  // was there before
  memory_store,
  // -> number: bytes that the machine has available and no other store in memory was promised
  unpromised,
  // descriptor: a file of a store that is on no private tmpfs, where the job has several backends
  store_at,
  // descriptor: the lock of a store, a file or its directory -> the descriptor to lock: a
  // predecessor's of this file, else the one that came
  hold_store,
  keep_store,  // number: 1 the store is left when all ends, 0 (at first) it goes
  // descriptor: a directory; text: a name in it -> EBUSY where something lives there
  drop_dead_mount,
  check_mount,  // descriptor: the mount point
  // descriptor: the mount point; number: config::MountFlag bits; text: source name -> /dev/fuse
  // descriptor
  mount,
  // number: 1 it is to end otherwise than it usually does, as whoever asked for that has to say ->
  // EBUSY while it is in use
  unmount,
  abort,  // ends the connection, whoever uses it: nobody serves it any more
  // descriptors: containers; inodes: theirs -> numbers: for each its backing id, or a negative
  // errno
  open_backing,
  close_backing,  // numbers: backing ids; never answered
  // number: inode, open on the daemon's path (count 1), or not any more (0); never answered
  keep_to_daemon,
  keep_init,  // number: length; text: the INIT request of the connection, for a successor
  // of a successor -> /dev/fuse descriptor; number and text as in keep_init. ENOTCONN: not mounted
  resume,
  inherited,  // -> descriptor of a memory file with number fuse::InheritedBacking
  progress,   // of a successor: it has answered a request that is not of its predecessor's
};

struct Message {
  Ask ask{};
  std::int32_t error = 0;  // of an answer: errno
  std::uint64_t number = 0;
  std::uint32_t count = 0;  // of numbers
  std::array<std::int32_t, most_descriptors> numbers{};
  std::array<std::uint64_t, most_descriptors> inodes{};
  std::array<char, 256> text{};
};

void set_text(Message& message, std::string_view text);

/// Sends a message and copies of the descriptors, at most `most_descriptors`.
Status send_message(int socket, const Message& message, std::span<const int> fds = {});

struct Received {
  Message message;  // count <= most_descriptors
  std::vector<UniqueFd> fds;

  UniqueFd first() { return fds.empty() ? UniqueFd() : std::move(fds.front()); }
};

/// nullopt at the end of the other side. `room` for most_descriptors where there must be memory for
/// what comes; else std::bad_alloc, with which nothing was received.
Result<std::optional<Received>> receive_message(int socket, std::vector<UniqueFd> room = {});

}  // namespace efs::daemon
