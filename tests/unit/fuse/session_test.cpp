// SPDX-License-Identifier: BSD-3-Clause
// Tests of the INIT request of a kernel, and of the end of a session.
#include "fuse/session.hpp"

#include <fcntl.h>
#include <linux/fuse.h>
#include <sys/socket.h>

#include <array>
#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "fs/staging.hpp"
#include "fuse/wire.hpp"
#include "support/containers.hpp"
#include "support/temp.hpp"

namespace {

efs::fuse::InitRequest init_of(std::uint64_t flags, std::size_t size = sizeof(fuse_init_in)) {
  fuse_init_in said{};
  said.flags = static_cast<std::uint32_t>(flags);
  said.flags2 = static_cast<std::uint32_t>(flags >> 32);
  efs::fuse::InitRequest request(sizeof(fuse_in_header) + size);
  std::memcpy(request.data() + sizeof(fuse_in_header), &said, size);
  return request;
}

}  // namespace

TEST_CASE("a kernel says in INIT whether it sends requests again", "[fuse]") {
  using efs::fuse::has_resend, efs::fuse::offers_resend;
  CHECK(offers_resend(init_of(has_resend | FUSE_INIT_EXT)));
  CHECK_FALSE(offers_resend(init_of(has_resend)));  // flags2 is not valid
  CHECK_FALSE(offers_resend(init_of(FUSE_INIT_EXT)));
  CHECK_FALSE(offers_resend(init_of(has_resend | FUSE_INIT_EXT, 16)));  // before Linux 5.17
  CHECK_FALSE(offers_resend({}));
}

TEST_CASE("a session that fails closes nothing: a successor may go on with the connection",
          "[fuse]") {
  using namespace efs;
  const test::TempDirectory directory("/dev/shm");
  const UniqueFd metadata = directory.open();
  const auto backend = test::open_containers(directory.path());
  const auto filesystem =
      std::move(*fs::Filesystem::open(*backend, {.metadata_directory = metadata.get()}));
  const auto ino = filesystem->make_node({}, fs::root_ino, "f", S_IFREG | 0644, 0)->ino;
  const fs::Owner other{.kind = fs::Owner::Kind::session, .number = 1};
  REQUIRE(filesystem->open({}, ino, O_WRONLY));
  REQUIRE(filesystem->open({}, ino, O_RDONLY));
  REQUIRE(filesystem->open({.owner = other}, ino, O_RDONLY));
  std::array<int, 2> ends{};
  REQUIRE(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) == 0);
  UniqueFd kernel(ends[0]);
  kernel.reset();
  {
    fuse::Session session(*filesystem, nullptr, {});
    (void)session.serve(UniqueFd(ends[1]), {.most_threads = 2}, {}, {});  // no unmount: an error
  }
  const auto all = [](const fs::OpenFile&) {
    return true;
  };
  CHECK(filesystem->open_files().count(all) == 3);
  filesystem->close_all({.kind = fs::Owner::Kind::kernel});
  CHECK(filesystem->open_files().count(
            [&](const fs::OpenFile& file) { return file.owner == other; }) == 1);
  CHECK(filesystem->open_files().count(all) == 1);
  // A program with passthrough may have outlived the connection, so the counts prove nothing.
  fs::Staging staging(*filesystem);
  CHECK_FALSE(staging.is_counted_quiet(ino));
  CHECK_FALSE(staging.writers(ino)->possible);
}
