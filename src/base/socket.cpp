// SPDX-License-Identifier: BSD-3-Clause
#include "base/socket.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

namespace efs {
namespace {

struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(most_descriptors * sizeof(int))> bytes{};
};

}  // namespace

Status send_with_descriptors(int socket, std::span<const std::byte> message,
                             std::span<const int> fds) {
  if (fds.size() > most_descriptors) {
    return fail(EINVAL, "too many descriptors in one message");
  }
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  Control control;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  while (::sendmsg(socket, &header, MSG_NOSIGNAL) < 0) {
    if (errno != EINTR) {
      return fail_errno();
    }
  }
  return {};
}

Result<ReceivedBytes> receive_with_descriptors(int socket, std::span<std::byte> message,
                                               std::size_t most, std::vector<UniqueFd> room) {
  room.reserve(std::min(most, most_descriptors));  // before anything is received
  iovec part{message.data(), message.size()};
  Control control;
  msghdr header{};
  ssize_t n = 0;
  do {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.data();
    // CMSG_LEN, not CMSG_SPACE: the padding would hold one more descriptor.
    header.msg_controllen = CMSG_LEN(std::min(most, most_descriptors) * sizeof(int));
    n = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) {
    return fail_errno();
  }
  ReceivedBytes received{.size = static_cast<std::size_t>(n), .fds = std::move(room)};
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) {
      continue;
    }
    for (std::size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
      received.fds.emplace_back(fd);
    }
  }
  return received;
}

}  // namespace efs
