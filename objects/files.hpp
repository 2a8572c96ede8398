// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Files below a directory: descriptors, mappings, drafts with a lock, directories. No function
// follows a symbolic link at the last component, and none uses the working directory.

#include <sys/stat.h>

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "objects/result.hpp"

namespace efs::objects {

/// Owns a descriptor. Move only.
class Fd {
 public:
  Fd() = default;

  explicit Fd(int fd) : fd_(fd) {}

  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

  Fd& operator=(Fd&& other) noexcept;
  ~Fd();

  int get() const { return fd_; }

  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// Owns a mapping of a file from its first byte. Move only.
class Mapping {
 public:
  Mapping() = default;

  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

  Mapping& operator=(Mapping&& other) noexcept;
  ~Mapping();

  /// Maps the first bytes of a file, shared. They must exist in the file.
  static Result<Mapping> of(int fd, std::size_t size, bool writable);

  char* data() const { return data_; }

  std::size_t size() const { return size_; }

  /// The caller must unmap the memory.
  char* release();

 private:
  char* data_ = nullptr;
  std::size_t size_ = 0;
};

/// A name in an open directory.
struct Entry {
  Fd directory;
  std::string name;
};

/// Writes all bytes at the offset.
Status write_all(int fd, const char* bytes, std::uint64_t size, std::uint64_t offset);
/// Reads all bytes; EBADMSG if the file ends before.
Status read_all(int fd, char* into, std::uint64_t size, std::uint64_t offset);
/// Reads at most `size` bytes from the head of the file.
Result<std::string> read_head(int fd, std::size_t size);

/// Opens a directory: one component below another directory, or a path with AT_FDCWD.
Result<Fd> open_directory(int at, const std::string& name);
/// Opens, and with `make` creates, the directory of a valid name, and returns its last component.
Result<Entry> open_parent(int at, std::string_view name, bool make);
/// Opens a regular file for reading.
Result<Fd> open_file(int at, const std::string& name);
/// Creates the directory of the path and all its parents, and syncs the entries that it made.
Status make_directories(const std::string& path);
/// Makes the entries of the directories durable that lead from `at` to a valid name.
Status sync_parents(int at, std::string_view name);
/// fdatasync or fsync, repeated after a signal.
Status sync_data(int fd);
Status sync_entries(int fd);
/// Returns the error that a close reports: a write that the file system delayed has failed. The
/// descriptor stays open, and so does its lock.
Status check_writes(int fd);

/// An entry of a directory that is listed. A link, a FIFO or a device is neither.
struct Listed {
  std::string name;
  bool directory = false;
  bool file = false;
};

/// Returns all entries but . and .., unsorted.
Result<std::vector<Listed>> list(int directory);

}  // namespace efs::objects
