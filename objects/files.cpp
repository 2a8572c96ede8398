// SPDX-License-Identifier: BSD-3-Clause
#include "objects/files.hpp"

#include <dirent.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>

namespace efs::objects {

namespace {

constexpr std::uint64_t largest_call = 1U << 30U;

struct CloseDirectory {
  void operator()(DIR* directory) const { ::closedir(directory); }
};

Listed listed(int directory, const dirent& entry) {
  unsigned char type = entry.d_type;
  struct stat status{};
  if (type == DT_UNKNOWN && ::fstatat(directory, entry.d_name, &status, AT_SYMLINK_NOFOLLOW) == 0) {
    type = S_ISDIR(status.st_mode) ? DT_DIR : S_ISREG(status.st_mode) ? DT_REG : DT_UNKNOWN;
  }
  return {entry.d_name, type == DT_DIR, type == DT_REG};
}

}  // namespace

Fd& Fd::operator=(Fd&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Fd::~Fd() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

Mapping::~Mapping() {
  if (data_ != nullptr) {
    ::munmap(data_, size_);
  }
}

Result<Mapping> Mapping::of(int fd, std::size_t size, bool writable) {
  const int protection = writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* memory = ::mmap(nullptr, size, protection, MAP_SHARED, fd, 0);
  if (memory == MAP_FAILED && errno == ENODEV && !writable) {
    memory = ::mmap(nullptr, size, protection, MAP_PRIVATE, fd, 0);
  }
  if (memory == MAP_FAILED) {
    return fail(errno, std::string("mmap: ") + std::strerror(errno));
  }
  Mapping mapping;
  mapping.data_ = static_cast<char*>(memory);
  mapping.size_ = size;
  return mapping;
}

char* Mapping::release() {
  size_ = 0;
  return std::exchange(data_, nullptr);
}

Status write_all(int fd, const char* bytes, std::uint64_t size, std::uint64_t offset) {
  while (size > 0) {
    const auto done = ::pwrite(fd, bytes, std::min(size, largest_call), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done <= 0) {
      return fail(done == 0 ? EIO : errno);
    }
    bytes += done;
    size -= static_cast<std::uint64_t>(done);
    offset += static_cast<std::uint64_t>(done);
  }
  return {};
}

Status read_all(int fd, char* into, std::uint64_t size, std::uint64_t offset) {
  while (size > 0) {
    const auto done = ::pread(fd, into, std::min(size, largest_call), static_cast<off_t>(offset));
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done < 0) {
      return fail(errno);
    }
    if (done == 0) {
      return fail(EBADMSG, "the file ends before its data");
    }
    into += done;
    size -= static_cast<std::uint64_t>(done);
    offset += static_cast<std::uint64_t>(done);
  }
  return {};
}

Result<std::string> read_head(int fd, std::size_t size) {
  std::string head(size, '\0');
  std::size_t filled = 0;
  while (filled < size) {
    const auto done = ::pread(fd, head.data() + filled, size - filled, static_cast<off_t>(filled));
    if (done < 0 && errno == EINTR) {
      continue;
    }
    if (done < 0) {
      return fail(errno);
    }
    if (done == 0) {
      break;
    }
    filled += static_cast<std::size_t>(done);
  }
  head.resize(filled);
  return head;
}

Result<Fd> open_directory(int at, const std::string& name) {
  // The path that a user names may lead through links; a component below it may not be one.
  const int nofollow = at == AT_FDCWD ? 0 : O_NOFOLLOW;
  Fd fd(::openat(at, name.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | nofollow));
  if (!fd) {
    return fail(errno == ELOOP ? ENOTDIR : errno);
  }
  return fd;
}

Result<Entry> open_parent(int at, std::string_view name, bool make) {
  auto directory = open_directory(at, ".");
  std::size_t slash = 0;
  while (directory && (slash = name.find('/')) != std::string_view::npos) {
    const std::string component(name.substr(0, slash));
    if (make && ::mkdirat(directory->get(), component.c_str(), 0777) != 0 && errno != EEXIST) {
      return fail(errno);
    }
    directory = open_directory(directory->get(), component);
    name.remove_prefix(slash + 1);
  }
  if (!directory) {
    return std::unexpected(std::move(directory.error()));
  }
  return Entry{std::move(*directory), std::string(name)};
}

Result<Fd> open_file(int at, const std::string& name) {
  // O_NONBLOCK: the open of a FIFO must not wait.
  Fd fd(::openat(at, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    return errno == ELOOP ? fail(EBADMSG, "the file is a symbolic link") : fail(errno);
  }
  struct stat status{};
  if (::fstat(fd.get(), &status) != 0) {
    return fail(errno);
  }
  if (!S_ISREG(status.st_mode)) {
    return fail(EBADMSG, "the file is not a regular file");
  }
  return fd;
}

Status make_directories(const std::string& path) {
  for (std::size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
    const std::string part = path.substr(0, end);
    if (::mkdir(part.c_str(), 0777) == 0) {
      // EO_SYNC makes the store durable only down from its own directory.
      if (const auto made = open_directory(AT_FDCWD, part + "/..")) {
        (void)sync_entries(made->get());  // some file systems have no fsync of directories
      }
    } else if (errno != EEXIST) {
      // An existing directory on a read-only file system is no failure.
      const int error = errno;
      struct stat status{};
      if (::stat(part.c_str(), &status) != 0 || !S_ISDIR(status.st_mode)) {
        return fail(error);
      }
    }
    if (end == std::string::npos) {
      return {};
    }
  }
}

Status sync_parents(int at, std::string_view name) {
  for (std::size_t slash = name.rfind('/'); slash != std::string_view::npos;
       slash = name.rfind('/')) {
    auto parent = open_parent(at, std::string(name), false);
    if (!parent) {
      return std::unexpected(std::move(parent.error()));
    }
    EO_TRY(sync_entries(parent->directory.get()));
    name = name.substr(0, slash);
  }
  auto root = open_directory(at, ".");
  return root ? sync_entries(root->get()) : Status(std::unexpected(std::move(root.error())));
}

Status sync_data(int fd) {
  while (::fdatasync(fd) != 0) {
    if (errno != EINTR) {
      return fail(errno);
    }
  }
  return {};
}

Status sync_entries(int fd) {
  while (::fsync(fd) != 0) {
    if (errno != EINTR) {
      return fail(errno);
    }
  }
  return {};
}

Status check_writes(int fd) {
  // Each close of a descriptor flushes the file, not only the last one.
  while (true) {
    const int second = ::fcntl(fd, F_DUPFD_CLOEXEC, 0);
    if (second < 0) {
      return fail(errno);
    }
    if (::close(second) == 0) {
      return {};
    }
    if (errno != EINTR) {
      return fail(errno);
    }
  }
}

Result<std::vector<Listed>> list(int directory) {
  // A directory of its own: the position of a shared one would be shared, too.
  const int fd = ::openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) {
    return fail(errno);
  }
  const std::unique_ptr<DIR, CloseDirectory> stream(::fdopendir(fd));
  if (!stream) {
    const int error = errno;
    ::close(fd);
    return fail(error);
  }
  std::vector<Listed> entries;
  while (true) {
    errno = 0;
    const dirent* entry = ::readdir(stream.get());
    if (entry == nullptr) {
      break;
    }
    if (std::strcmp(entry->d_name, ".") != 0 && std::strcmp(entry->d_name, "..") != 0) {
      entries.push_back(listed(fd, *entry));
    }
  }
  if (errno != 0) {
    return fail(errno);
  }
  return entries;
}

}  // namespace efs::objects
