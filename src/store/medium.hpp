// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The storage below the journal: a directory of files that are mapped one window at a time, and the
// instructions that make stores durable. The real one (directory_medium) uses mmap and libpmem.
// Crash tests use a medium that keeps a durable image beside the visible one.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"

namespace efs::store {

/// A file of a medium. Not thread-safe, except sync(), which any thread may call at any time.
class MediumFile {
 public:
  virtual ~MediumFile() = default;
  /// The current size in bytes.
  virtual Result<std::uint64_t> size() = 0;
  /// Extends the file to `size` bytes, all allocated, so that a store never meets a full file
  /// system. New bytes are zero. Never shortens the file.
  virtual Status allocate(std::uint64_t size) = 0;
  /// Truncates the file to `size`.
  virtual Status cut(std::uint64_t size) = 0;
  /// Maps the window [offset, offset + length) and unmaps the previous one. In a file opened for
  /// reading only, bytes behind the end are zero.
  virtual Result<std::byte*> map(std::uint64_t offset, std::size_t length) = 0;
  /// Copies into the window. On persistent memory, also begins to make the bytes durable.
  virtual void store(std::byte* to, std::span<const std::byte> from) = 0;
  /// Waits for the stores so far: on persistent memory they are durable on return. Has no effect on
  /// other memory.
  virtual void drain() = 0;
  /// Returns when content and size are as durable as the medium permits, also without persistent
  /// memory.
  virtual Status sync() = 0;
};

/// A directory. Thread-safe.
class Medium {
 public:
  virtual ~Medium() = default;
  virtual Result<std::unique_ptr<MediumFile>> create(const std::string& name) = 0;  // EEXIST
  virtual Result<std::unique_ptr<MediumFile>> open(const std::string& name, bool read_only) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  /// Succeeds if there is no such file.
  virtual Status remove(const std::string& name) = 0;
  /// Returns when creations, renames and removals are durable.
  virtual Status sync_names() = 0;
};

/// A directory of a file system: persistent memory if libpmem recognises the mapping, else the page
/// cache. `directory` is borrowed and must outlive the medium and its files.
std::shared_ptr<Medium> directory_medium(int directory);

}  // namespace efs::store
