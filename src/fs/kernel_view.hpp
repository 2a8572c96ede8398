#pragma once
// What the kernel has to be told when names change without its asking: it keeps names and
// attributes for as long as it likes (docs/dev/staging.md). The FUSE session implements it.

#include <cstdint>
#include <string>

namespace efs::fs {

/// Thread-safe. Calls may wait for requests of the kernel to be answered (it takes the directory's
/// lock), so no lock that a request needs is held around them, and no thread that serves requests
/// makes them (fuse/mapped_pages.hpp has the one exception). Errors are the implementation's to
/// log: a kernel that never knew the name is none.
class KernelView {
 public:
  virtual ~KernelView() = default;
  /// `name` in `parent` now leads to another inode, or to one where there was none.
  virtual void name_changed(std::uint64_t parent, const std::string& name) = 0;
  /// `name` led to `ino` and is gone; `last`: it was the only one.
  virtual void name_removed(std::uint64_t parent, const std::string& name, std::uint64_t ino,
                            bool last) = 0;
  /// Nobody knows what the kernel was told of `name`, and of `ino`, which it leads to (0: to
  /// nothing): it asks again. What is open or mapped stays so, and whoever works in a directory
  /// stays there.
  virtual void name_doubted(std::uint64_t parent, const std::string& name, std::uint64_t ino) = 0;
  virtual void attributes_changed(std::uint64_t ino) = 0;
  /// The file takes less space than the kernel may remember; its content is the same. Waits for
  /// nothing; any thread.
  virtual void space_given_back(std::uint64_t ino) = 0;
  /// Gives up what is kept for a file that nobody has open: its passthrough registration.
  virtual void let_go(std::uint64_t ino) = 0;
  /// The container of `ino` is gone, which held so many bytes. A registration would hold them; it
  /// ends soon. Waits for nothing; any thread.
  virtual void container_removed(std::uint64_t ino, std::uint64_t bytes) = 0;
  /// Returns when no registration of a removed container is left. Waits for the supervisor alone,
  /// so a thread that serves requests may call it.
  virtual void release_space() = 0;
};

}  // namespace efs::fs
