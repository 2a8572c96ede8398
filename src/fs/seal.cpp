// SPDX-License-Identifier: BSD-3-Clause
#include "fs/seal.hpp"

#include <sys/xattr.h>

#include "backends/container_marks.hpp"

namespace efs {
namespace {

constexpr mode_t plain_mode = 0600, sealed_mode = 0700;

}  // namespace

// In this order, because a container without seal and label belongs to no store.
Status seal(const Container& container) {
  const auto fd = container.descriptor();
  if (!fd) {
    return fail(EOPNOTSUPP, "sealing a container");
  }
  if (::fchmod(*fd, sealed_mode) != 0) {
    return fail_errno("sealing a container");
  }
  const bool gone = ::fremovexattr(*fd, label_name) == 0 || errno == ENODATA || errno == EOPNOTSUPP;
  return gone ? Status{} : fail_errno("the label of a container");
}

Status unseal(const Container& container) {
  const auto fd = container.descriptor();
  return fd && ::fchmod(*fd, plain_mode) == 0 ? Status{} : fail_errno("unsealing a container");
}

bool is_sealed(const struct stat& container) {
  return has_seal(container);
}

}  // namespace efs
