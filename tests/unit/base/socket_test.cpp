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

struct Pair {
  UniqueFd a, b;
  Pair() {
    std::array<int, 2> ends{};
    REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
    a.reset(ends[0]);
    b.reset(ends[1]);
  }
};

std::size_t open_descriptors() {
  std::size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) ++count;
  return count;
}

ino_t inode_of(int fd) {
  struct stat st {};
  REQUIRE(::fstat(fd, &st) == 0);
  return st.st_ino;
}

const std::array<std::byte, 3> hello{std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};

}  // namespace

TEST_CASE("a message with a descriptor") {
  Pair pair;
  const UniqueFd sent(::open("/", O_PATH | O_CLOEXEC));
  REQUIRE(send_with_descriptor(pair.a.get(), hello, sent.get()));
  std::array<std::byte, 8> into{};
  UniqueFd fd;
  REQUIRE(receive_with_descriptor(pair.b.get(), into, fd) == hello.size());
  CHECK(std::memcmp(into.data(), hello.data(), hello.size()) == 0);
  REQUIRE(fd);
  CHECK(inode_of(fd.get()) == inode_of(sent.get()));
  CHECK((::fcntl(fd.get(), F_GETFD) & FD_CLOEXEC) != 0);
}

TEST_CASE("a message without one, and the end of the other side") {
  Pair pair;
  REQUIRE(send_with_descriptor(pair.a.get(), hello, -1));
  std::array<std::byte, 8> into{};
  UniqueFd fd;
  REQUIRE(receive_with_descriptor(pair.b.get(), into, fd) == hello.size());
  CHECK_FALSE(fd);
  pair.a.reset();
  CHECK(receive_with_descriptor(pair.b.get(), into, fd) == 0U);
  CHECK(send_with_descriptor(pair.b.get(), hello, -1).error().code == EPIPE);
}

TEST_CASE("of several descriptors the first is taken and none is left open") {
  Pair pair;
  const UniqueFd first(::open("/", O_PATH | O_CLOEXEC)), second(::open("/proc", O_PATH | O_CLOEXEC));
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
    UniqueFd fd;
    REQUIRE(receive_with_descriptor(pair.b.get(), into, fd) == 1U);
    REQUIRE(fd);
    CHECK(inode_of(fd.get()) == inode_of(first.get()));
    CHECK(open_descriptors() == before + 1);
  }
  CHECK(open_descriptors() == before);
}
