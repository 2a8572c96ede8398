// SPDX-License-Identifier: BSD-3-Clause
#include "fuse/counters.hpp"

namespace efs::fuse {

const char* name_of(Operation operation) {
  static constexpr std::array<const char*, operation_count> names{
      "lookup",    "forget",      "getattr",         "setattr",  "readlink", "mknod",
      "mkdir",     "unlink",      "rmdir",           "symlink",  "rename",   "link",
      "open",      "read",        "write",           "flush",    "release",  "fsync",
      "opendir",   "readdir",     "releasedir",      "fsyncdir", "statfs",   "setxattr",
      "getxattr",  "listxattr",   "removexattr",     "access",   "create",   "tmpfile",
      "fallocate", "readdirplus", "copy_file_range", "lseek",    "ioctl",    "other"};
  return names.at(static_cast<std::size_t>(operation));
}

std::uint64_t Counters::requests() const {
  std::uint64_t sum = 0;
  for (const auto& operation : operations) {
    sum += operation.count.load(std::memory_order_relaxed);
  }
  return sum;
}

std::uint64_t Counters::errors() const {
  std::uint64_t sum = 0;
  for (const auto& operation : operations) {
    sum += operation.errors.load(std::memory_order_relaxed);
  }
  return sum;
}

}  // namespace efs::fuse
