// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Notifies the kernel of changes that it did not request, because it may cache names and attributes
// for any time (docs/dev/staging.md). The FUSE session implements it.

#include <cstdint>
#include <string>

namespace efs::fs {

/// Thread-safe. A call may wait until requests of the kernel are answered, because the kernel takes
/// the directory's lock. So the caller must hold no lock that a request needs, and must not be a
/// thread that serves requests (fuse/mapped_pages.hpp has the only exception). The implementation
/// logs errors. An unknown name is not an error.
class KernelView {
 public:
  virtual ~KernelView() = default;
  /// `name` in `parent` now leads to another inode, or was made.
  virtual void name_changed(std::uint64_t parent, const std::string& name) = 0;
  /// `name`, which led to `ino`, was removed; `last`: it was the only name.
  virtual void name_removed(std::uint64_t parent, const std::string& name, std::uint64_t ino,
                            bool last) = 0;
  /// Invalidates the kernel's entry `name` and the inode `ino` to which it leads (0: none), so that
  /// the kernel asks again. Open and mapped files and working directories stay valid. Needed if the
  /// kernel's state is unknown.
  virtual void name_doubted(std::uint64_t parent, const std::string& name, std::uint64_t ino) = 0;
  virtual void attributes_changed(std::uint64_t ino) = 0;
  /// The file takes less space than the kernel may have cached. Its content is unchanged. Does not
  /// wait; any thread may call it.
  virtual void space_given_back(std::uint64_t ino) = 0;
  /// Returns when the container has all data that programs had stored in the file before the call,
  /// by a mapping or through the kernel's write cache. The kernel drops its pages of the file.
  virtual void write_back(std::uint64_t ino) = 0;
  /// Closes the passthrough registration of a file that is not open.
  virtual void let_go(std::uint64_t ino) = 0;
  /// The container of `ino` with so many bytes was removed. Closes its registration soon, which
  /// would keep the space. Does not wait; any thread may call it.
  virtual void container_removed(std::uint64_t ino, std::uint64_t bytes) = 0;

  /// True if another thread calls Filesystem::remove_put_off() soon. Any thread may call it.
  virtual bool removes_later() = 0;
  /// The first of a series of removals was put off. Does not wait.
  virtual void removals_wait() = 0;

  /// Returns when no registration of a removed container is left. Waits only for the supervisor, so
  /// a thread that serves requests may call it.
  virtual void release_space() = 0;
  /// Returns when each request that another thread has received is handled or in its slow work. So
  /// the RELEASE of a file that was closed before the caller's request is counted. Waits a second
  /// at most; a thread that serves requests may call it.
  virtual void await_received() = 0;
};

}  // namespace efs::fs
