// SPDX-License-Identifier: BSD-3-Clause
#include "model.hpp"

#include <fcntl.h>

#include <algorithm>
#include <cerrno>

namespace efs::intercept_random {

bool Description::reads() const {
  return (flags & O_ACCMODE) != O_WRONLY;
}

bool Description::writes() const {
  return (flags & O_ACCMODE) != O_RDONLY;
}

void store(File& file, std::span<const std::uint8_t> bytes, std::size_t offset) {
  if (bytes.empty()) {
    return;
  }
  file.data.resize(std::max(file.data.size(), offset + bytes.size()));
  std::ranges::copy(bytes, file.data.begin() + static_cast<std::ptrdiff_t>(offset));
}

Read read_at(const Description& from, std::size_t bytes, std::size_t offset) {
  if (!from.reads()) {
    return {.result = -EBADF, .bytes = {}};
  }
  const std::span<const std::uint8_t> all = from.file->data;
  const auto found = offset >= all.size()
                         ? std::span<const std::uint8_t>()
                         : all.subspan(offset, std::min(bytes, all.size() - offset));
  return {.result = static_cast<long>(found.size()), .bytes = found};
}

Read read_next(Description& from, std::size_t bytes) {
  const Read read = read_at(from, bytes, from.offset);
  from.offset += read.bytes.size();
  return read;
}

long write_at(Description& to, std::span<const std::uint8_t> bytes, std::size_t offset) {
  if (!to.writes()) {
    return -EBADF;
  }
  // Linux appends, against POSIX; see pwrite(2).
  store(*to.file, bytes, (to.flags & O_APPEND) != 0 ? to.file->data.size() : offset);
  return static_cast<long>(bytes.size());
}

long write_next(Description& to, std::span<const std::uint8_t> bytes) {
  const std::size_t at = (to.flags & O_APPEND) != 0 ? to.file->data.size() : to.offset;
  const long result = write_at(to, bytes, at);
  if (result > 0) {
    to.offset = at + bytes.size();
  }
  return result;
}

long resize(Description& of, std::size_t size) {
  if (!of.writes()) {
    return -EINVAL;
  }
  of.file->data.resize(size);
  return 0;
}

}  // namespace efs::intercept_random
