// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files that no program can write to, and whose pages may be freed. The file system implements it,
// for its parts that free pages without data.

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>

#include "backends/backend.hpp"
#include "base/result.hpp"
#include "fs/mapped_file.hpp"
#include "fs/zero_pages.hpp"

namespace efs::fs {

/// Thread-safe. Takes the namespace lock: call it with no lock held.
class QuietFiles {
 public:
  // runs that a caller punches at once, because punch() holds the namespace lock: about 0.2 ms
  static constexpr std::size_t runs_at_once = 64;

  virtual ~QuietFiles() = default;
  /// The container of a regular file. EIO: it is missing.
  virtual Result<std::shared_ptr<Container>> container(std::uint64_t ino) const = 0;
  /// The content of a regular file, for the daemon's own I/O path.
  virtual Result<std::shared_ptr<MappedFile>> file(std::uint64_t ino) = 0;
  /// True if no open for writing is counted, and pages without data may be taken from the file.
  virtual bool is_closed(std::uint64_t ino) const = 0;
  /// The same for zero pages, which a program may have stored on purpose.
  virtual bool is_closed_with_zeros(std::uint64_t ino) const = 0;
  /// Calls `use` if an open for writing is counted, and pages without data may be taken from the
  /// file; otherwise EAGAIN. No program reserves space in the file meanwhile. `use` takes only
  /// locks of higher ranks than the namespace lock.
  virtual Status while_open(std::uint64_t ino, const std::function<Status(MappedFile&)>& use) = 0;
  /// Proves that no program can write to a file, and returns the file's Inode::edits of that
  /// moment. Returns nothing without a proof. `tries`: the attempts, a millisecond apart.
  virtual std::optional<std::uint64_t> prove_no_writer(std::uint64_t ino, int tries) = 0;
  /// Frees the pages `runs` of a file. No program could write to the file when its edits were
  /// `proof`, and the pages were seen to be without data after that. EAGAIN if a program may have
  /// written since.
  virtual Status punch(std::uint64_t ino, std::uint64_t proof, MappedFile& content,
                       std::span<const Run> runs) = 0;
  /// Call it when pages of a file were freed: the kernel may have cached how many it had.
  virtual void space_given_back(std::uint64_t ino) = 0;
};

}  // namespace efs::fs
