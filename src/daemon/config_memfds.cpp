// SPDX-License-Identifier: BSD-3-Clause
#include "daemon/config_memfds.hpp"

#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <string_view>
#include <utility>

#ifndef MFD_NOEXEC_SEAL
#define MFD_NOEXEC_SEAL 0x0008U  // linux/memfd.h
#endif

namespace efs::daemon {
namespace {

// A complete file starts with this byte, which is written last. A file without it, after a death or
// an error, is ignored.
constexpr char whole = '+';

// A system may prohibit executable files in memory. Kernels before Linux 6.3 do not know the flag
// for other files.
UniqueFd memory_file(const char* name) {
  const int fd = ::memfd_create(name, MFD_CLOEXEC | MFD_NOEXEC_SEAL);
  return UniqueFd(fd < 0 && errno == EINVAL ? ::memfd_create(name, MFD_CLOEXEC) : fd);
}

Status write_at(int fd, std::string_view text, off_t at) {
  while (!text.empty()) {
    const ssize_t n = ::pwrite(fd, text.data(), text.size(), at);
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return n < 0 ? fail_errno("memory file") : fail(EIO, "memory file");
    }
    text.remove_prefix(static_cast<std::size_t>(n));
    at += n;
  }
  return {};
}

Status write_file(int fd, std::string_view text) {
  if (fd < 0) {
    return fail(ENOTSUP, "memory file");
  }
  if (::ftruncate(fd, 0) != 0) {
    return fail_errno("memory file");
  }
  EFS_TRY(write_at(fd, text, 1));
  return write_at(fd, {&whole, 1}, 0);
}

std::optional<std::string> read_file(int fd) {
  struct stat st{};
  if (fd < 0 || ::fstat(fd, &st) != 0 || st.st_size < 1) {
    return {};
  }
  std::string text(static_cast<std::size_t>(st.st_size), '\0');
  for (std::size_t done = 0; done < text.size();) {
    const ssize_t n = ::pread(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n <= 0) {
      return {};
    }
    done += static_cast<std::size_t>(n);
  }
  if (text.front() != whole) {
    return {};
  }
  return text.substr(1);
}

}  // namespace

Result<ConfigMemfds> ConfigMemfds::make() {
  ConfigMemfds made;
  made.job_ = memory_file("efs-job-file");
  if (!made.job_) {
    return fail_errno("memory file");
  }
  made.site_ = memory_file("efs-site-file");
  if (!made.site_) {
    return fail_errno("memory file");
  }
  return made;
}

// The text of the site file follows its path and a NUL. The job file is written last: without the
// job file read() returns nothing.
Status ConfigMemfds::keep(const config::ReadFiles& files) const {
  EFS_TRY(write_file(site_.get(), files.site_file + '\0' + files.site));
  return write_file(job_.get(), files.job);
}

std::optional<config::ReadFiles> ConfigMemfds::read() const {
  auto job = read_file(job_.get());
  const auto site = read_file(site_.get());
  const auto end = site ? site->find('\0') : std::string::npos;
  if (!job || end == std::string::npos) {
    return {};
  }
  return config::ReadFiles{
      .job = std::move(*job), .site_file = site->substr(0, end), .site = site->substr(end + 1)};
}

}  // namespace efs::daemon
