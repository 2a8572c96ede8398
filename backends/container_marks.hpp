// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Marks of a container's file: the label that says whose it is, and the seal of one that a cache of
// inputs relies on as well (fs/seal.hpp).

#include <sys/stat.h>

namespace efs {

/// Extended attribute of each container that was created: "STORE/NUMBER", STORE as in owner_link
/// (fsdax.hpp), 16 hexadecimal digits. The directory has it where its file system can and the store
/// was made so; then a container without one is refused, but for a sealed one.
inline constexpr const char* label_name = "user.efs.container";

/// The seal: the owner's execute bit of a regular file.
inline bool has_seal(const struct stat& container) {
  return S_ISREG(container.st_mode) && (container.st_mode & S_IXUSR) != 0;
}

}  // namespace efs
