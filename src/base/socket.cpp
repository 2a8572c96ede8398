#include "base/socket.hpp"

#include <sys/socket.h>

#include <array>
#include <cerrno>
#include <cstring>

namespace efs {
namespace {

// Room for one descriptor and no more: CMSG_SPACE is padded, and the padding would hold a second one.
struct alignas(cmsghdr) Control {
  std::array<char, CMSG_SPACE(sizeof(int))> bytes{};
  static constexpr std::size_t length = CMSG_LEN(sizeof(int));
};

}  // namespace

Status send_with_descriptor(int socket, std::span<const std::byte> message, int fd) {
  iovec part{const_cast<std::byte*>(message.data()), message.size()};
  Control control;
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  if (fd >= 0) {
    header.msg_control = control.bytes.data();
    header.msg_controllen = control.bytes.size();
    cmsghdr* c = CMSG_FIRSTHDR(&header);
    c->cmsg_level = SOL_SOCKET;
    c->cmsg_type = SCM_RIGHTS;
    c->cmsg_len = Control::length;
    std::memcpy(CMSG_DATA(c), &fd, sizeof fd);
  }
  while (::sendmsg(socket, &header, MSG_NOSIGNAL) < 0)
    if (errno != EINTR) return fail_errno();
  return {};
}

Result<std::size_t> receive_with_descriptor(int socket, std::span<std::byte> message, UniqueFd& fd) {
  iovec part{message.data(), message.size()};
  Control control;
  msghdr header{};
  ssize_t n = 0;
  do {
    header.msg_iov = &part;
    header.msg_iovlen = 1;
    header.msg_control = control.bytes.data();
    header.msg_controllen = Control::length;
    n = ::recvmsg(socket, &header, MSG_CMSG_CLOEXEC);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return fail_errno();
  const cmsghdr* c = CMSG_FIRSTHDR(&header);
  if (c != nullptr && c->cmsg_level == SOL_SOCKET && c->cmsg_type == SCM_RIGHTS && c->cmsg_len >= Control::length) {
    int received = -1;
    std::memcpy(&received, CMSG_DATA(c), sizeof received);
    fd.reset(received);
  }
  return static_cast<std::size_t>(n);
}

}  // namespace efs
