// SPDX-License-Identifier: BSD-3-Clause
#include "objects/checkpoint/fast.hpp"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

#include "objects/name.hpp"

namespace efs::objects {

namespace {

constexpr mode_t others = 077;

/// Names the directory in a failure of it.
std::unexpected<Failure> of_directory(const std::string& path, int code, const char* reason,
                                      const char* remedy) {
  return fail(code, "the directory " + printable(path) + " for copies in memory: " + reason,
              remedy);
}

std::unexpected<Failure> system_failure(const std::string& path, int code) {
  return of_directory(path, code, std::strerror(code),
                      "Set the option fast to a directory in memory with room for the arrays, or "
                      "use the strategy copy");
}

/// Opens the directory, and creates it if it is missing.
Result<Fd> open_private(const std::string& path) {
  if (::mkdir(path.c_str(), 0700) != 0 && errno != EEXIST) {
    return system_failure(path, errno);
  }
  Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC | O_NOFOLLOW));
  struct stat status{};
  if (!fd || ::fstat(fd.get(), &status) != 0) {
    return system_failure(path, errno);
  }
  if (status.st_uid != ::geteuid() || (status.st_mode & others) != 0) {
    return of_directory(path, EPERM, "other users may have access to it",
                        "Name a directory of your own with mode 0700");
  }
  return fd;
}

}  // namespace

std::string default_fast_directory() {
  return "/dev/shm/efs-objects-" + std::to_string(::geteuid());
}

Status Fast::use(const std::string& path) {
  auto opened = open_private(path);
  if (!opened) {
    return std::unexpected(std::move(opened.error()));
  }
  *this = Fast();
  directory_ = std::move(*opened);
  path_ = path;
  return {};
}

Status Fast::allocate() {
  int error = EINTR;
  while (error == EINTR) {
    error = ::posix_fallocate(file_.get(), 0, static_cast<off_t>(mapping_.size()));
  }
  if (error != 0) {
    return system_failure(path_, error);
  }
  // Without it the first copy would fault at each page.
  ::madvise(mapping_.data(), mapping_.size(), MADV_POPULATE_WRITE);
  allocated_ = true;
  return {};
}

Status Fast::reserve(std::uint64_t size, bool allocate) {
  if (!directory_) {
    EO_TRY(use(default_fast_directory()));
  }
  size = std::max<std::uint64_t>(size, 1);
  if (!file_ || size > mapping_.size()) {
    file_ = Fd();
    mapping_ = Mapping();
    allocated_ = false;
    Fd file(::openat(directory_.get(), ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
    if (!file || ::ftruncate(file.get(), static_cast<off_t>(size)) != 0) {
      return system_failure(path_, errno);
    }
    auto mapping = Mapping::of(file.get(), size, true);
    if (!mapping) {
      return std::unexpected(std::move(mapping.error()));
    }
    file_ = std::move(file);
    mapping_ = std::move(*mapping);
  }
  if (allocate && !allocated_) {
    if (auto status = this->allocate(); !status) {
      file_ = Fd();  // the pages that it has
      mapping_ = Mapping();
      return status;
    }
  }
  return {};
}

}  // namespace efs::objects
