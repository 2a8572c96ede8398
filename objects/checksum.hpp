// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// XXH3-64 of the .npy bytes of an object, as `xxhsum -H3` prints it for a file.

#include <cstdint>

#include "objects/store.hpp"

namespace efs::objects {

Result<std::uint64_t> checksum(const Object& object);

}  // namespace efs::objects
