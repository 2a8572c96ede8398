#pragma once
// Containers that somebody besides their store has a name for, and relies on: a cache of inputs.
// Such a container is sealed: its bytes are what they were when it was sealed. The mark is the
// inode's, so it is seen under every name, and whoever is about to change the bytes takes it away
// first, also where the other names cannot be found any more.

#include <sys/stat.h>

#include <string>

#include "base/result.hpp"

namespace efs {

/// The mark is the owner's execute bit of the file, which means nothing for a container and which
/// every file system has. `container`: open in any way. Whose it was is forgotten (its label,
/// backends/fsdax.hpp): the next one may be another job's.
Status seal(int container);
Status unseal(int container);
bool is_sealed(const struct stat& container);

/// Who shares sealed containers. Thread-safe.
class Sharer {
 public:
  virtual ~Sharer() = default;
  /// A sealed container is about to be changed, and is unsealed when this returns. Until then
  /// nobody changes it: what the sharer wants to keep of it, it copies now. May take long. Cannot
  /// fail: what cannot be kept is given up. `staged_as`: the paths, relative to the root, that it
  /// was staged in under, with a NUL between them; "": not known.
  virtual void part(int container, const std::string& staged_as) = 0;
};

}  // namespace efs
