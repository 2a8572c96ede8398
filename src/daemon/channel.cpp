#include "daemon/channel.hpp"

#include <sys/socket.h>

#include <algorithm>
#include <cstring>

namespace efs::daemon {

void set_text(Message& message, std::string_view text) {
  const std::size_t length = std::min(text.size(), message.text.size() - 1);
  std::copy_n(text.data(), length, message.text.begin());
  message.text[length] = '\0';
}

Status send_message(int socket, const Message& message, std::span<const int> fds) {
  if (fds.size() > most_descriptors) return fail(EINVAL, "supervisor channel: too many descriptors");
  iovec part{const_cast<Message*>(&message), sizeof message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(most_descriptors * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (!fds.empty()) {
    header.msg_control = control.data();
    header.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = CMSG_LEN(fds.size_bytes());
    std::memcpy(CMSG_DATA(c), fds.data(), fds.size_bytes());
  }
  while (::sendmsg(socket, &header, MSG_NOSIGNAL) < 0)
    if (errno != EINTR) return fail_errno("supervisor channel");
  return {};
}

Result<std::optional<Received>> receive_message(int socket) {
  Received received;
  iovec part{&received.message, sizeof received.message};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(most_descriptors * sizeof(int))> control{};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  ssize_t n = 0;
  while ((n = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC)) < 0)
    if (errno != EINTR) return fail_errno("supervisor channel");
  for (cmsghdr* c = CMSG_FIRSTHDR(&header); c != nullptr; c = CMSG_NXTHDR(&header, c)) {
    if (c->cmsg_level != SOL_SOCKET || c->cmsg_type != SCM_RIGHTS) continue;
    for (std::size_t at = 0; at + sizeof(int) <= c->cmsg_len - CMSG_LEN(0); at += sizeof(int)) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(c) + at, sizeof fd);
      received.fds.emplace_back(fd);
    }
  }
  if (n == 0) return std::nullopt;
  if (n != static_cast<ssize_t>(sizeof received.message)) return fail(EPROTO, "supervisor channel: message of the wrong size");
  received.message.text.back() = '\0';
  received.message.count = std::min<std::uint32_t>(received.message.count, most_descriptors);
  return received;
}

}  // namespace efs::daemon
