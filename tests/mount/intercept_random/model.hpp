// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The model: files, open file descriptions and descriptors in memory. Plain data and the effects of
// the calls on it; nothing of it touches a file system. Copies of Slot share the description, as
// descriptors of a forked process do.

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

namespace efs::intercept_random {

inline constexpr int file_names = 4;
inline constexpr std::size_t largest_file = std::size_t{4} << 20;

using Bytes = std::vector<std::uint8_t>;

struct File {
  Bytes data;
};

struct Description {
  std::shared_ptr<File> file;
  int flags = 0;                  // access mode, O_APPEND
  bool appends_for_good = false;  // opened with O_APPEND
  std::size_t offset = 0;

  bool reads() const;
  bool writes() const;
};

struct Slot {
  int fd = -1;
  std::shared_ptr<Description> description;
  bool closes_on_exec = false;
};

/// A mapping of a file, of the whole length that the file had.
struct Mapping {
  std::shared_ptr<File> file;
  std::uint8_t* address = nullptr;
  std::size_t offset = 0, bytes = 0;
};

/// A result as of a system call: -errno on failure.
struct Read {
  long result = 0;
  std::span<const std::uint8_t> bytes;  // valid until the next change of the file
};

Read read_at(const Description& from, std::size_t bytes, std::size_t offset);
Read read_next(Description& from, std::size_t bytes);
long write_at(Description& to, std::span<const std::uint8_t> bytes, std::size_t offset);
long write_next(Description& to, std::span<const std::uint8_t> bytes);
long resize(Description& of, std::size_t size);
void store(File& file, std::span<const std::uint8_t> bytes, std::size_t offset);

}  // namespace efs::intercept_random
