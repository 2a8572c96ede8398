// SPDX-License-Identifier: BSD-3-Clause
#include "image/sealed_text.hpp"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>  // renameat
#include <span>

#include "base/checksum.hpp"

namespace efs::image {
namespace {

constexpr std::string_view seal_begins = "\n# checksum ";
constexpr std::size_t seal_size = seal_begins.size() + 16 + 1;

// Checks and removes the checksum. EPROTO if it does not verify.
Result<std::string> unsealed(std::string text, const char* name) {
  const std::size_t at = text.size() - std::min(text.size(), seal_size);
  const std::string said = text.substr(at);
  text.resize(at);
  if (said != std::string(seal_begins) + checksum_of(text) + "\n") {
    return fail(EPROTO, std::string(name) + ": damaged");
  }
  return text;
}

}  // namespace

Result<std::string> read_text(int directory, const char* name, std::size_t most) {
  const UniqueFd fd(::openat(directory, name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  if (!fd) {
    return fail_errno(name);
  }
  struct stat st{};
  if (::fstat(fd.get(), &st) != 0 || !S_ISREG(st.st_mode) ||
      static_cast<std::size_t>(st.st_size) > most) {
    return fail(EPROTO, std::string(name) + ": not a file of efs");
  }
  std::string text(static_cast<std::size_t>(st.st_size), '\0');
  const ssize_t n = ::pread(fd.get(), text.data(), text.size(), 0);
  if (n < 0) {
    return fail_errno(name);
  }
  text.resize(static_cast<std::size_t>(n));
  return text;
}

std::string checksum_of(std::string_view text) {
  return to_hex(checksum(std::as_bytes(std::span(text))));
}

Status put(int fd, const std::string& text) {
  std::size_t done = 0;
  while (done < text.size()) {
    const ssize_t n =
        ::pwrite(fd, text.data() + done, text.size() - done, static_cast<off_t>(done));
    if (n < 0 && errno == EINTR) {
      continue;
    }
    if (n < 0) {
      return fail_errno("write");
    }
    done += static_cast<std::size_t>(n);
  }
  return ::fsync(fd) == 0 ? Status{} : fail_errno("fsync");
}

Result<UniqueFd> make_anew(int directory, const std::string& name) {
  (void)::unlinkat(directory, name.c_str(), 0);
  UniqueFd fd(::openat(directory, name.c_str(),
                       O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (!fd) {
    return fail_errno(name);
  }
  return fd;
}

Status name_error(const Status& done, const std::string& name) {
  return done ? done : fail(done.error().code, name + ": " + describe(done.error()));
}

Status write_text(int directory, const char* name, const std::string& text) {
  if (const auto there = read_text(directory, name, largest_text); there && *there == text) {
    return {};
  }
  const std::string partial = std::string(name) + ".new";
  const auto fd = make_anew(directory, partial);
  if (!fd) {
    return std::unexpected(fd.error());
  }
  if (const Status stored = put(fd->get(), text); !stored) {
    (void)::unlinkat(directory, partial.c_str(), 0);  // a full store needs the space
    return name_error(stored, partial);
  }
  if (::renameat(directory, partial.c_str(), directory, name) != 0 || ::fsync(directory) != 0) {
    return fail_errno(name);
  }
  return {};
}

std::string sealed(const std::string& text) {
  return text + std::string(seal_begins) + checksum_of(text) + "\n";
}

Result<std::string> read_sealed(int directory, const char* name, std::size_t most) {
  auto text = read_text(directory, name, most);
  return text ? unsealed(std::move(*text), name) : text;
}

}  // namespace efs::image
