#pragma once
// libfuse's callbacks: each turns a request into one call of Filesystem and its result into one
// reply.

#include <cstddef>
#include <cstdint>
#include <vector>

struct fuse_lowlevel_ops;

namespace efs::fuse {

/// The table of callbacks; their user data is a Door.
fuse_lowlevel_ops adapter_operations();

/// What the callbacks on this thread may put answers into, for a scope: every request is handled
/// within one.
class LendAnswerBuffer {
 public:
  explicit LendAnswerBuffer(std::vector<std::byte>& buffer);
  ~LendAnswerBuffer();
  LendAnswerBuffer(const LendAnswerBuffer&) = delete;
  LendAnswerBuffer& operator=(const LendAnswerBuffer&) = delete;
};

struct Door;
/// Frees an inode without a name unless the kernel knows it. Call without a lock that a request may
/// need.
void free_if_forgotten(Door& self, std::uint64_t ino);

}  // namespace efs::fuse
