// SPDX-License-Identifier: BSD-3-Clause
#include "base/socket.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>

#include <array>
#include <cstring>
#include <filesystem>

using namespace efs;

namespace {

struct SocketPair {
  UniqueFd a, b;

  SocketPair() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    a.reset(ends[0]);
    b.reset(ends[1]);
  }
};

std::size_t open_descriptors() {
  std::size_t found = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    ++found;
  }
  return found;
}

ino_t inode_of(int fd) {
  struct stat st{};
  REQUIRE(::fstat(fd, &st) == 0);
  return st.st_ino;
}

const std::array<std::byte, 3> hello{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};

}  // namespace

TEST_CASE("a message with a descriptor") {
  SocketPair pair;
  const UniqueFd sent(::open("/", O_PATH | O_CLOEXEC));
  REQUIRE(send_with_descriptors(pair.a.get(), hello, std::array{sent.get(), sent.get()}));
  std::array<std::byte, 8> into{};
  const auto got = receive_with_descriptors(pair.b.get(), into);
  REQUIRE(got);
  CHECK(got->size == hello.size());
  CHECK(std::memcmp(into.data(), hello.data(), hello.size()) == 0);
  REQUIRE(got->fds.size() == 2);
  for (const UniqueFd& fd : got->fds) {
    CHECK(inode_of(fd.get()) == inode_of(sent.get()));
    CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
  }
  CHECK(
      send_with_descriptors(pair.a.get(), hello, std::vector<int>(most_descriptors + 1, sent.get()))
          .error()
          .code == EINVAL);
}

TEST_CASE("a message without one, and the end of the other side") {
  SocketPair pair;
  REQUIRE(send_with_descriptors(pair.a.get(), hello, {}));
  std::array<std::byte, 8> into{};
  const auto got = receive_with_descriptors(pair.b.get(), into);
  REQUIRE(got);
  CHECK(got->size == hello.size());
  CHECK(got->fds.empty());
  pair.a.reset();
  CHECK(receive_with_descriptors(pair.b.get(), into)->size == 0);
  CHECK(send_with_descriptors(pair.b.get(), hello, {}).error().code == EPIPE);
}

TEST_CASE("of more descriptors than are wanted none is left open") {
  SocketPair pair;
  const UniqueFd first(::open("/", O_PATH | O_CLOEXEC)),
      second(::open("/proc", O_PATH | O_CLOEXEC));
  const std::array<int, 2> both{first.get(), second.get()};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof both)> control{};
  std::byte byte{};
  iovec part{&byte, 1};
  msghdr header{};
  header.msg_iov = &part;
  header.msg_iovlen = 1;
  header.msg_control = control.data();
  header.msg_controllen = control.size();
  cmsghdr* c = CMSG_FIRSTHDR(&header);
  c->cmsg_level = SOL_SOCKET;
  c->cmsg_type = SCM_RIGHTS;
  c->cmsg_len = CMSG_LEN(sizeof both);
  std::memcpy(CMSG_DATA(c), both.data(), sizeof both);
  REQUIRE(::sendmsg(pair.a.get(), &header, 0) == 1);
  const std::size_t before = open_descriptors();
  {
    std::array<std::byte, 8> into{};
    const auto got = receive_with_descriptors(pair.b.get(), into, 1);
    REQUIRE(got);
    REQUIRE(got->fds.size() == 1);
    CHECK(inode_of(got->fds.front().get()) == inode_of(first.get()));
    CHECK(open_descriptors() == before + 1);
  }
  CHECK(open_descriptors() == before);
}
