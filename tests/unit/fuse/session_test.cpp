// SPDX-License-Identifier: BSD-3-Clause
// What the INIT request of a kernel says.
#include "fuse/session.hpp"

#include <linux/fuse.h>

#include <catch2/catch_test_macros.hpp>
#include <cstring>

#include "fuse/wire.hpp"

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
