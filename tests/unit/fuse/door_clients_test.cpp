// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/door_clients.hpp"

#include <unistd.h>

#include <catch2/catch_test_macros.hpp>
#include <limits>

using namespace efs;
using fuse::DoorClients;
using fuse::DoorTotals;

namespace {

constexpr auto largest_count = std::numeric_limits<std::uint64_t>::max();

}  // namespace

TEST_CASE("door: a client is known from its open to its close", "[fuse][door]") {
  DoorTotals totals;
  DoorClients clients(totals);
  const auto handle = clients.opened(::getpid());
  CHECK(clients.open() == 1);
  clients.reported(handle, ::getpid(), {.reads = 2, .read_bytes = 10, .mapped_files = 3});
  clients.reported(handle, ::getpid(), {.reads = 1, .writes = 1, .mapped_files = 1});
  const auto list = clients.list(8);
  REQUIRE(list.size() == 1);
  CHECK(list[0].pid == ::getpid());
  CHECK_FALSE(list[0].program.empty());
  CHECK(list[0].counts.reads == 3);
  CHECK(list[0].counts.read_bytes == 10);
  CHECK(list[0].counts.mapped_files == 1);
  CHECK(clients.closed(handle));
  CHECK(clients.open() == 0);
  CHECK(clients.list(8).empty());
  CHECK(totals.clients == 1);
  CHECK(totals.reads == 3);
}

TEST_CASE("door: a handle of an earlier worker", "[fuse][door]") {
  DoorTotals totals;
  DoorClients before(totals);
  const auto handle = before.opened(0);
  DoorClients clients(totals);
  CHECK(clients.opened(0) > handle);
  CHECK_FALSE(clients.closed(handle));
  CHECK(clients.open() == 1);
  clients.reported(handle, 0, {.reads = 1});
  CHECK(clients.kept() == 2);
  CHECK_FALSE(clients.closed(handle));
  CHECK(clients.kept() == 1);
  CHECK(clients.open() == 1);
}

TEST_CASE("door: figures saturate", "[fuse][door]") {
  DoorTotals totals;
  DoorClients clients(totals);
  const auto handle = clients.opened(0);
  for (int i = 0; i < 2; ++i) {
    clients.reported(handle, 0, {.reads = largest_count - 1, .kernel_calls = largest_count});
  }
  CHECK(totals.reads == largest_count);
  CHECK(totals.kernel_calls == largest_count);
  CHECK(clients.list(1)[0].counts.reads == largest_count);
}

TEST_CASE("door: only so many clients are kept", "[fuse][door]") {
  DoorTotals totals;
  DoorClients clients(totals);
  std::uint64_t last = 0;
  for (std::size_t i = 0; i < DoorClients::most + 2; ++i) {
    last = clients.opened(0);
  }
  CHECK(clients.kept() == DoorClients::most);
  CHECK(clients.list(64).size() == 64);
  clients.reported(last, 0, {.reads = 1});
  CHECK(clients.kept() == DoorClients::most);
  CHECK(totals.reads == 1);
  CHECK(clients.open() == DoorClients::most + 2);
  CHECK(clients.closed(last));
}
