// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/channel.hpp"

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <catch2/catch_test_macros.hpp>
#include <thread>

#include "daemon/supervisor.hpp"
#include "daemon/supervisor_client.hpp"
#include "support/temp.hpp"

using namespace efs;
using namespace efs::daemon;

namespace {

std::pair<UniqueFd, UniqueFd> make_channel() {
  std::array<int, 2> pair{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) == 0);
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

}  // namespace

TEST_CASE("a message carries as many descriptors as it may, in order, and no more") {
  auto [here, there] = make_channel();
  const test::TempDirectory directory;
  std::vector<UniqueFd> files;
  std::vector<int> fds;
  for (std::size_t i = 0; i < most_descriptors; ++i) {
    files.emplace_back(
        ::open((directory.path() + "/" + std::to_string(i)).c_str(), O_CREAT | O_RDWR, 0600));
    fds.push_back(files.back().get());
  }
  Message message;
  message.ask = Ask::open_backing;
  REQUIRE(send_message(here.get(), message, fds));
  auto received = receive_message(there.get());
  REQUIRE(received);
  REQUIRE((*received)->fds.size() == most_descriptors);
  for (std::size_t i = 0; i < most_descriptors; ++i) {
    struct stat sent{}, got{};
    REQUIRE(::fstat(fds[i], &sent) == 0);
    REQUIRE(::fstat((*received)->fds[i].get(), &got) == 0);
    CHECK(sent.st_ino == got.st_ino);
    CHECK((::fcntl((*received)->fds[i].get(), F_GETFD) & FD_CLOEXEC) != 0);
  }
  fds.push_back(fds.front());
  CHECK(send_message(here.get(), message, fds).error().code == EINVAL);
  // An impossible count is reduced, not trusted.
  message.count = 1'000'000;
  REQUIRE(send_message(here.get(), message));
  CHECK((*receive_message(there.get()))->message.count == most_descriptors);
}

TEST_CASE("closing ids is not answered, and questions around it get their own answers") {
  auto [worker_end, supervisor_end] = make_channel();
  std::jthread served([channel = std::move(supervisor_end)] {
    Supervisor supervisor({});
    (void)supervisor.serve(channel.get());
  });
  SupervisorClient client(std::move(worker_end));
  const test::TempDirectory directory;
  const UniqueFd file(::open((directory.path() + "/f").c_str(), O_CREAT | O_RDWR, 0600));
  const std::array<fuse::Registration, 3> files{
      {{2, file.get()}, {3, file.get()}, {4, file.get()}}};
  std::vector<int> ids(most_descriptors, 7);
  for (int round = 0; round < 100; ++round) {
    client.close_backing(ids);
    client.close_backing(std::span(ids).first(1));
    CHECK(client.unmount(false));
    const auto opened = client.open_backing(files);  // nothing is mounted: each file is refused
    REQUIRE(opened.size() == 3);
    for (const auto& one : opened) {
      CHECK(one.error().code == EBADF);
    }
  }
}

TEST_CASE("the supervisor knows whether the last unmount was asked for") {
  for (const bool asked : {true, false}) {
    auto [worker_end, supervisor_end] = make_channel();
    Supervisor supervisor({});
    {
      const std::jthread served([&supervisor, channel = std::move(supervisor_end)] {
        (void)supervisor.serve(channel.get());
      });
      SupervisorClient client(std::move(worker_end));
      CHECK(client.unmount(!asked));
      CHECK(client.unmount(asked));
    }
    CHECK(supervisor.stop_is_unusual() == asked);
  }
}

TEST_CASE("where the supervisor is gone, questions fail and closing does not hang") {
  auto [worker_end, supervisor_end] = make_channel();
  supervisor_end.reset();
  SupervisorClient client(std::move(worker_end));
  client.close_backing(std::array{0});
  const auto opened = client.open_backing(std::array{fuse::Registration{2, 0}});
  REQUIRE(opened.size() == 1);
  CHECK_FALSE(opened.front());
}
