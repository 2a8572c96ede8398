// SPDX-License-Identifier: BSD-3-Clause
#include "outsider.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "intercept/raw.hpp"

namespace efs::intercept_random {
namespace {

using intercept::raw;

[[noreturn]] void die(const char* what) {
  std::perror(what);
  std::exit(2);
}

// A message with a descriptor, if there is one, and its buffers.
struct Message {
  explicit Message(void* data, std::size_t bytes) : part{.iov_base = data, .iov_len = bytes} {
    head.msg_iov = &part;
    head.msg_iovlen = 1;
    head.msg_control = control.data();
    head.msg_controllen = control.size();
  }

  iovec part;
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr head{};
};

}  // namespace

Outsider::Outsider(const std::vector<std::string>& paths) : paths_(paths) {
  std::array<int, 2> ends{};
  void* const memory =
      ::mmap(nullptr, largest, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED || ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data())) {
    die("outsider");
  }
  shared_ = static_cast<std::uint8_t*>(memory);
  child_ = ::fork();
  if (child_ < 0) {
    die("fork");
  }
  socket_ = ends[child_ == 0 ? 1 : 0];
  raw(SYS_close, ends[child_ == 0 ? 0 : 1]);
  if (child_ == 0) {
    serve();
  }
}

Outsider::~Outsider() {
  ::close(socket_);
  ::waitpid(child_, nullptr, 0);
}

void Outsider::serve() {
  for (;;) {
    Request request{};
    if (raw(SYS_read, socket_, &request, sizeof request) != static_cast<long>(sizeof request)) {
      raw(SYS_exit_group, 0);
    }
    const long result = answer(request);
    raw(SYS_write, socket_, &result, sizeof result);
  }
}

long Outsider::answer(const Request& request) {
  const bool is_sent = request.verb == Verb::read_from || request.verb == Verb::write_to;
  int fd = -1;
  if (is_sent) {
    char byte = 0;
    Message message(&byte, 1);
    const long got = raw(SYS_recvmsg, socket_, &message.head, 0);
    const cmsghdr* const head = CMSG_FIRSTHDR(&message.head);
    if (got != 1 || head == nullptr) {
      return -EPROTO;
    }
    std::memcpy(&fd, CMSG_DATA(head), sizeof fd);
  } else {
    const char* const path = paths_[static_cast<std::size_t>(request.file)].c_str();
    fd = static_cast<int>(raw(SYS_openat, AT_FDCWD, path, O_RDWR | O_CLOEXEC));
  }
  if (fd < 0) {
    return fd;
  }
  long result = 0;
  switch (request.verb) {
    case Verb::read_all: result = raw(SYS_pread64, fd, shared_, largest, 0); break;
    case Verb::write: result = raw(SYS_pwrite64, fd, shared_, request.bytes, request.offset); break;
    case Verb::truncate: result = raw(SYS_ftruncate, fd, request.bytes); break;
    case Verb::read_from: result = raw(SYS_read, fd, shared_, request.bytes); break;
    case Verb::write_to: result = raw(SYS_write, fd, shared_, request.bytes); break;
  }
  raw(SYS_close, fd);
  return result;
}

void Outsider::send(int fd) const {
  char byte = 0;
  Message message(&byte, 1);
  cmsghdr* const head = CMSG_FIRSTHDR(&message.head);
  head->cmsg_level = SOL_SOCKET;
  head->cmsg_type = SCM_RIGHTS;
  head->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(head), &fd, sizeof fd);
  if (::sendmsg(socket_, &message.head, MSG_NOSIGNAL) != 1) {
    die("sendmsg to the outsider");
  }
}

long Outsider::ask(const Request& request, int fd) {
  if (::write(socket_, &request, sizeof request) != static_cast<ssize_t>(sizeof request)) {
    die("write to the outsider");
  }
  if (fd >= 0) {
    send(fd);
  }
  long result = 0;
  if (::read(socket_, &result, sizeof result) != static_cast<ssize_t>(sizeof result)) {
    die("read from the outsider");
  }
  return result;
}

std::span<const std::uint8_t> Outsider::read_all(int file) {
  const long got = ask({Verb::read_all, file, 0, 0});
  if (got < 0) {
    errno = static_cast<int>(-got);
    die("the outsider reads a file");
  }
  return {shared_, static_cast<std::size_t>(got)};
}

long Outsider::write(int file, std::span<const std::uint8_t> bytes, std::uint64_t offset) {
  std::memcpy(shared_, bytes.data(), bytes.size());
  return ask({Verb::write, file, offset, bytes.size()});
}

long Outsider::truncate(int file, std::uint64_t size) {
  return ask({Verb::truncate, file, 0, size});
}

std::span<const std::uint8_t> Outsider::read_from(int fd, std::size_t bytes) {
  const long got = ask({Verb::read_from, 0, 0, bytes}, fd);
  if (got < 0) {
    errno = static_cast<int>(-got);
    die("the outsider reads from a descriptor");
  }
  return {shared_, static_cast<std::size_t>(got)};
}

long Outsider::write_to(int fd, std::span<const std::uint8_t> bytes) {
  std::memcpy(shared_, bytes.data(), bytes.size());
  return ask({Verb::write_to, 0, 0, bytes.size()}, fd);
}

}  // namespace efs::intercept_random
