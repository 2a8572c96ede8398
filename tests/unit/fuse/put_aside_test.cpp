// SPDX-License-Identifier: BSD-3-Clause
// Requests that wait for a content: each comes back once, with the result of its fetch.
#include "fuse/put_aside.hpp"

#include <linux/fuse.h>
#include <poll.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <cerrno>
#include <cstring>
#include <thread>
#include <vector>

#include "fuse/wire.hpp"

namespace {

using efs::fuse::PutAside;
using efs::fuse::resent_bit;

std::vector<std::byte> request_of(std::uint64_t unique, std::uint32_t opcode = FUSE_OPEN) {
  fuse_in_header header{};
  header.len = sizeof header;
  header.opcode = opcode;
  header.unique = unique;
  std::vector<std::byte> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

struct Scene {
  std::vector<std::uint64_t> wanted;
  bool dying = true;
  std::unique_ptr<PutAside> aside =
      std::move(*PutAside::make([this](std::uint64_t ino) { wanted.push_back(ino); },
                                [this](std::uint32_t) { return dying; }));

  void park(std::uint64_t ino, std::uint64_t unique, bool interrupted = false) const {
    REQUIRE(aside->park(ino, request_of(unique)));
    aside->parked(ino, unique & ~resent_bit, interrupted);
  }

  struct Back {
    std::uint64_t unique = 0;  // 0: none
    int error = 0;

    bool operator==(const Back&) const = default;
  };

  Back take() const {
    std::array<std::byte, 100> bytes{};
    const auto taken = aside->take(bytes);
    fuse_in_header header{};
    std::memcpy(&header, bytes.data(), sizeof header);
    return taken.size == 0 ? Back{} : Back{header.unique, taken.error};
  }

  bool is_ready() const {
    pollfd ready{.fd = aside->ready_fd(), .events = POLLIN, .revents = 0};
    return ::poll(&ready, 1, 50) == 1;
  }
};

using Back = Scene::Back;

}  // namespace

TEST_CASE("a request comes back when its file was fetched, and no other does", "[fuse]") {
  const Scene s;
  s.park(1, 10);
  s.park(2, 20);
  s.park(1, 11);
  CHECK(s.wanted == std::vector<std::uint64_t>{1, 2, 1});
  CHECK(s.aside->waiting() == 3);
  CHECK_FALSE(s.is_ready());
  CHECK(s.take() == Back{});
  s.aside->fetched(1, 0);
  CHECK(s.is_ready());
  CHECK(s.aside->waiting() == 1);
  CHECK(s.take() == Back{10, 0});
  CHECK(s.is_ready());
  CHECK(s.take() == Back{11, 0});
  CHECK(s.take() == Back{});
  CHECK_FALSE(s.is_ready());
  s.aside->fetched(3, 0);
  CHECK_FALSE(s.is_ready());
}

TEST_CASE("a fetch that failed gives its requests the error, and later ones none", "[fuse]") {
  const Scene s;
  s.park(1, 10);
  s.aside->fetched(1, EIO);
  s.park(1, 11);
  CHECK(s.take() == Back{10, EIO});
  CHECK(s.take() == Back{});
  s.aside->fetched(1, 0);
  CHECK(s.take() == Back{11, 0});
}

TEST_CASE("an interrupt ends the wait, whenever it comes", "[fuse]") {
  const Scene s;
  s.park(1, 10);
  s.park(1, 12 | resent_bit);
  CHECK(s.aside->interrupt(10));
  CHECK(s.take() == Back{10, EINTR});
  CHECK(s.aside->interrupt(12));
  CHECK(s.take() == Back{12 | resent_bit, EINTR});
  CHECK_FALSE(s.aside->interrupt(14));  // before the request is put aside
  s.park(1, 14);
  CHECK(s.take() == Back{14, EINTR});
  s.park(1, 16, true);  // libfuse had it
  CHECK(s.take() == Back{16, EINTR});
  s.park(1, 18);
  CHECK(s.take() == Back{});
  CHECK(s.aside->waiting() == 1);
  s.aside->clear();
  CHECK(s.aside->waiting() == 0);
  s.aside->fetched(1, 0);
  CHECK(s.take() == Back{});
}

TEST_CASE("a signal that does not kill the client leaves it waiting, and a later one is noticed",
          "[fuse]") {
  Scene s;
  s.dying = false;
  s.park(1, 10);
  s.park(2, 20);
  CHECK(s.aside->interrupt(10));
  CHECK(s.aside->waiting() == 2);
  CHECK(s.take() == Back{});
  s.dying = true;
  Back back;
  while (back.unique == 0) {
    pollfd ready{.fd = s.aside->ready_fd(), .events = POLLIN, .revents = 0};
    REQUIRE(::poll(&ready, 1, 30000) == 1);
    back = s.take();
  }
  CHECK(back == Back{10, EINTR});
  CHECK(s.aside->waiting() == 1);
  s.aside->fetched(2, 0);
  CHECK(s.take() == Back{20, 0});
}

TEST_CASE("a request that waits again keeps the signal that came before", "[fuse]") {
  Scene s;
  s.dying = false;
  s.park(1, 10);
  CHECK(s.aside->interrupt(10));
  s.aside->fetched(1, 0);
  CHECK(s.take() == Back{10, 0});
  s.dying = true;
  s.park(2, 10);  // a rename of a directory waits for one file after the other
  CHECK(s.take() == Back{10, EINTR});
}

TEST_CASE("the kernel is told of names only while no request with its locks waits", "[fuse]") {
  for (const std::uint32_t opcode :
       {FUSE_RENAME, FUSE_RENAME2, FUSE_LINK, FUSE_SETATTR, FUSE_SETXATTR, FUSE_REMOVEXATTR}) {
    const Scene s;
    REQUIRE(s.aside->park(1, request_of(10, opcode)));
    std::atomic<bool> tells = false;
    std::jthread teller([&] {
      const PutAside::Telling telling(s.aside.get());
      tells = true;
    });
    s.aside->fetched(1, 0);
    std::array<std::byte, 100> bytes{};
    CHECK(s.aside->take(bytes).locks);
    REQUIRE(s.aside->park(2, request_of(10, opcode)));
    s.aside->handled();
    s.aside->fetched(2, 0);
    CHECK(s.aside->take(bytes).locks);
    CHECK_FALSE(tells);
    s.aside->handled();
    teller.join();
    CHECK(tells);
  }
  const Scene s;
  s.park(1, 10);
  {
    const PutAside::Telling telling(s.aside.get());
  }  // an open does not matter
  REQUIRE(s.aside->park(1, request_of(12, FUSE_RENAME)));
  std::jthread teller([&] { const PutAside::Telling telling(s.aside.get()); });
  s.aside->clear();
}

TEST_CASE("a request with locks of the kernel does not wait while the kernel is told of names",
          "[fuse]") {
  const Scene s;
  {
    const PutAside::Telling telling(s.aside.get(), GENERATE(false, true));
    CHECK_FALSE(s.aside->park(1, request_of(10, FUSE_RENAME)));
    CHECK(s.aside->waiting() == 0);
    CHECK(s.aside->park(1, request_of(12)));
    const PutAside::Telling another(s.aside.get());
  }
  CHECK(s.aside->park(1, request_of(14, FUSE_RENAME)));
}

TEST_CASE("only a signal that ends a process counts as its death", "[fuse]") {
  using efs::fuse::is_being_killed;
  const auto self = static_cast<std::uint32_t>(::gettid());
  CHECK_FALSE(is_being_killed(self));
  CHECK(is_being_killed(0));
  sigset_t set{}, before{};
  ::sigemptyset(&set);
  ::sigaddset(&set, SIGUSR1);
  ::pthread_sigmask(SIG_BLOCK, &set, &before);
  ::pthread_kill(::pthread_self(), SIGUSR1);
  CHECK_FALSE(is_being_killed(self));  // blocked
  int got = 0;
  ::sigwait(&set, &got);
  ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
}
