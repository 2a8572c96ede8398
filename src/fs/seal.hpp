// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Seals containers that a cache of inputs shares with their store. The bytes of a sealed container
// have not changed since the seal. The seal is a mark on the file's inode, so it is visible under
// every name. A process removes the seal before it changes the bytes, even if it cannot find the
// other names.

#include <sys/stat.h>

#include <string>

#include "backends/backend.hpp"
#include "base/result.hpp"

namespace efs {

/// Seals a container. The mark is the owner's execute bit, which has no other use for a container
/// and which every file system has. `container`: open with any access mode; EOPNOTSUPP if it is no
/// file. Removes the container's label (backends/fsdax.hpp), because another job may adopt it next.
Status seal(const Container& container);
Status unseal(const Container& container);
bool is_sealed(const struct stat& container);

/// The interface to the sharer of sealed containers. Thread-safe.
class Sharer {
 public:
  virtual ~Sharer() = default;
  /// Called before a sealed container changes. The caller removes the seal after the return, and no
  /// process changes the container before. The sharer copies the content now, or drops its entry if
  /// it cannot. May take long. Cannot fail. `staged_as`: the import paths, relative to the root,
  /// separated by NUL; "": not known.
  virtual void part(Container& container, const std::string& staged_as) = 0;
};

}  // namespace efs
