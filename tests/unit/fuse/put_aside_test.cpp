// SPDX-License-Identifier: BSD-3-Clause
// Requests that wait for a content: each comes back once, with the result of its fetch.
#include "fuse/put_aside.hpp"

#include <linux/fuse.h>
#include <poll.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <cstring>
#include <vector>

#include "fuse/wire.hpp"

namespace {

using efs::fuse::PutAside;
using efs::fuse::resent_bit;

std::vector<std::byte> request(std::uint64_t unique) {
  fuse_in_header header{};
  header.len = sizeof header;
  header.opcode = FUSE_OPEN;
  header.unique = unique;
  std::vector<std::byte> bytes(sizeof header);
  std::memcpy(bytes.data(), &header, sizeof header);
  return bytes;
}

struct Scene {
  std::vector<std::uint64_t> wanted;
  std::unique_ptr<PutAside> aside =
      std::move(*PutAside::make([this](std::uint64_t ino) { wanted.push_back(ino); }));

  void park(std::uint64_t ino, std::uint64_t unique, bool interrupted = false) const {
    aside->park(ino, request(unique));
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
    return ::poll(&ready, 1, 0) == 1;
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
