// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Drafts that several processes fill. The owner creates a join file beside its draft. A process
// that joins opens that file, holds a shared flock on it and appends a +; when it leaves it appends
// a -. The owner locks the file exclusively before it publishes: then no process is joined, and a +
// without its - belongs to a process that died.

#include <string>
#include <string_view>

#include "objects/files.hpp"
#include "objects/result.hpp"

namespace efs::objects {

/// The join file of a draft: of the owner, or of a process that has joined.
struct JoinFile {
  Fd fd;
  std::string name;

  explicit operator bool() const { return static_cast<bool>(fd); }
};

/// Creates the join file of a token. ENOTSUP: the file system has no flock.
Result<JoinFile> create_join_file(int directory, std::string_view token);

/// Opens and locks the join file of a token, and checks its owner. EBUSY: it is being published.
/// ESTALE: it does not exist any more. enter() must follow.
Result<JoinFile> open_join_file(int directory, std::string_view token);

/// Counts this process as joined.
Status enter(const JoinFile& joined);
/// Counts this process as gone. ESTALE: the owner has discarded the draft, or is dead.
Status leave(const JoinFile& joined, int directory);

/// Keeps other processes from joining during its lifetime.
class JoinsClosed {
 public:
  /// EBUSY: a process is joined. EOWNERDEAD: one ended without leaving. `file` may be empty.
  static Result<JoinsClosed> of(const JoinFile& file);

  JoinsClosed(JoinsClosed&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

  JoinsClosed& operator=(JoinsClosed&&) = delete;
  ~JoinsClosed();

 private:
  explicit JoinsClosed(int fd) : fd_(fd) {}

  int fd_ = -1;
};

/// EPERM unless the open file belongs to this user. ESTALE unless another process has locked it.
Status check_alive(int fd);

}  // namespace efs::objects
