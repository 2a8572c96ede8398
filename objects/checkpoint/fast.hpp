// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Memory for copies of the program's arrays: a file without a name on a file system in DRAM. It
// ends with the process, also by SIGKILL, so nothing is left over.

#include <cstdint>
#include <string>

#include "objects/files.hpp"

namespace efs::objects {

/// Returns the directory that is used if the user configures none: one for each user.
std::string default_fast_directory();

/// A file without a name, mapped. It keeps its pages between checkpoints: new ones cost more than a
/// copy. One thread at a time.
class Fast {
 public:
  /// Uses this directory from the next reserve() on. Creates it if it is missing. EPERM unless it
  /// belongs to the user and has mode 0700.
  Status use(const std::string& path);

  /// Provides memory of this size. What it contained is lost if it grows. With `allocate` it has
  /// its pages: ENOSPC if the file system is full. Without, a write must be by write().
  Status reserve(std::uint64_t size, bool allocate);

  char* data() const { return mapping_.data(); }

  /// Copies bytes to the offset. ENOSPC if a page is missing and the file system is full.
  Status write(const char* bytes, std::uint64_t size, std::uint64_t offset) const {
    return write_all(file_.get(), bytes, size, offset);
  }

 private:
  Status allocate();

  Fd directory_;
  std::string path_;
  Fd file_;
  Mapping mapping_;
  bool allocated_ = false;
};

}  // namespace efs::objects
