// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/pfs_handle.hpp"

#include <fcntl.h>

#include <catch2/catch_test_macros.hpp>
#include <cerrno>
#include <utility>
#include <vector>

#include "stage/pfs/pfs_io.hpp"
#include "stage/pfs/posix_handle.hpp"

namespace efs::stage {
namespace {

/// The closer of a PFS whose numbers are no descriptors.
class NotedCloses final : public PfsCloser {
 public:
  void close(int number) noexcept override { closed.push_back(number); }

  std::vector<int> closed;
};

TEST_CASE("a handle closes once what it owns, and tells only its PFS", "[stage][pfs]") {
  NotedCloses pfs;
  {
    const PfsHandle none;
    CHECK_FALSE(none);
    PfsHandle first = PfsNumbers::handle(0, pfs), second = PfsNumbers::handle(1'000'000, pfs);
    CHECK(first);
    const PfsRef ref = second;
    CHECK(PfsNumbers::number_of(ref) == 1'000'000);

    PfsHandle third = std::move(second);
    CHECK(PfsNumbers::number_of(third) == 1'000'000);
    CHECK(pfs.closed.empty());

    first = std::move(third);
    CHECK(pfs.closed == std::vector{0});
    CHECK(PfsNumbers::number_of(first) == 1'000'000);

    PfsHandle& same = first;
    first = std::move(same);
    CHECK(first);
    CHECK(pfs.closed == std::vector{0});
  }
  CHECK(pfs.closed == std::vector{0, 1'000'000});
}

TEST_CASE("a handle that is given up closes at once, and none of another PFS", "[stage][pfs]") {
  NotedCloses one, other;
  PfsHandle handle = PfsNumbers::handle(1, one);
  handle = PfsNumbers::handle(2, other);
  CHECK(one.closed == std::vector{1});
  CHECK(other.closed.empty());
  handle = {};
  CHECK_FALSE(handle);
  CHECK(other.closed == std::vector{2});
  CHECK(one.closed == std::vector{1});
}

TEST_CASE("a reference is to none, to no directory, or to what its handle owns", "[stage][pfs]") {
  CHECK_FALSE(PfsRef());
  CHECK_FALSE(PfsRef(PfsHandle()));
  CHECK(no_directory);
  CHECK(fd_of(PfsRef()) == -1);
  CHECK(fd_of(no_directory) == AT_FDCWD);
}

TEST_CASE("the handles of the PFS are descriptors, and are closed as such", "[stage][pfs]") {
  int number = -1;
  {
    const auto handle = posix_pfs().open(no_directory, "/", directory_flags).value();
    number = fd_of(handle);
    CHECK(::fcntl(number, F_GETFD) == FD_CLOEXEC);
  }
  CHECK((::fcntl(number, F_GETFD) == -1 && errno == EBADF));
}

}  // namespace
}  // namespace efs::stage
