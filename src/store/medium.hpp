#pragma once
// What the journal stands on: a directory of files that are mapped a window at a time, and the
// instructions that make stores durable. The real one (directory_medium) uses mmap and libpmem;
// crash tests put one with a durable image beside the visible one in its place.

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.hpp"

namespace efs::store {

/// One file of a medium. Not thread-safe but for sync(), which any thread may call at any time.
class MediumFile {
 public:
  virtual ~MediumFile() = default;
  /// Bytes from the start that exist.
  virtual Result<std::uint64_t> size() = 0;
  /// Makes the file `size` bytes long, all of them allocated: a store must not meet a full file
  /// system. New bytes are zero. Never makes it shorter.
  virtual Status allocate(std::uint64_t size) = 0;
  /// Gives back what is behind `size`.
  virtual Status cut(std::uint64_t size) = 0;
  /// The window [offset, offset + length); the one before is gone. Bytes behind the end of a file
  /// that was opened for reading only are zero.
  virtual Result<std::byte*> map(std::uint64_t offset, std::size_t length) = 0;
  /// Copies into the window and begins to make it durable, where memory is persistent.
  virtual void store(std::byte* to, std::span<const std::byte> from) = 0;
  /// Waits for the stores so far: on persistent memory they survive power loss from here on.
  /// Nothing elsewhere.
  virtual void drain() = 0;
  /// Returns when content and size survive what the medium survives at all, also where memory is
  /// not persistent.
  virtual Status sync() = 0;
};

/// A directory. Thread-safe.
class Medium {
 public:
  virtual ~Medium() = default;
  virtual Result<std::unique_ptr<MediumFile>> create(const std::string& name) = 0;  // EEXIST
  virtual Result<std::unique_ptr<MediumFile>> open(const std::string& name, bool read_only) = 0;
  virtual Status rename(const std::string& from, const std::string& to) = 0;
  /// Ok where there is none.
  virtual Status remove(const std::string& name) = 0;
  /// Returns when creations, renames and removals survive.
  virtual Status sync_names() = 0;
};

/// A directory of a file system: persistent memory where libpmem says that a mapping lies in it,
/// else the page cache. `directory` is borrowed and must outlive the medium and its files.
std::shared_ptr<Medium> directory_medium(int directory);

}  // namespace efs::store
