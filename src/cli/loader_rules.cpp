// SPDX-License-Identifier: BSD-3-Clause
#include "cli/loader_rules.hpp"

#include <elf.h>
#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "base/unique_fd.hpp"

namespace efs::cli {
namespace {

constexpr std::size_t first_line = 256;  // of a script: BINPRM_BUF_SIZE of Linux
constexpr int most_interpreters = 5;     // that Linux follows
constexpr std::size_t most_headers = 512;

struct Program {
  UniqueFd fd;
  struct stat attributes{};
};

bool is_executable_file(const std::string& path) {
  struct stat st{};
  return ::stat(path.c_str(), &st) == 0 && S_ISREG(st.st_mode) && ::access(path.c_str(), X_OK) == 0;
}

// Returns "" if there is no such program.
std::string path_of(const std::string& program) {
  if (program.contains('/')) {
    return program;
  }
  const char* const given = std::getenv("PATH");
  std::string_view path = given == nullptr ? "/bin:/usr/bin" : given;
  for (bool more = true; more;) {
    const auto end = path.find(':');
    const std::string directory(path.substr(0, end));
    const std::string candidate = (directory.empty() ? "." : directory) + "/" + program;
    if (is_executable_file(candidate)) {
      return candidate;
    }
    more = end != std::string_view::npos;
    path.remove_prefix(more ? end + 1 : path.size());
  }
  return "";
}

// The descriptor is empty if the file is not regular or not readable: then nothing is known.
Program open_program(const std::string& path) {
  Program program;
  struct stat before{};
  if (::stat(path.c_str(), &before) != 0 || !S_ISREG(before.st_mode)) {
    return program;
  }
  UniqueFd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  if (fd && ::fstat(fd.get(), &program.attributes) == 0 && S_ISREG(program.attributes.st_mode)) {
    program.fd = std::move(fd);
  }
  return program;
}

std::string read_at(int fd, std::size_t bytes, off_t offset) {
  std::string text(bytes, '\0');
  const ssize_t n = ::pread(fd, text.data(), bytes, offset);
  text.resize(n > 0 ? static_cast<std::size_t>(n) : 0);
  return text;
}

// Returns the interpreter of a script; "": not a script.
std::string interpreter_of(int fd) {
  const std::string begin = read_at(fd, first_line, 0);
  if (!begin.starts_with("#!")) {
    return "";
  }
  const auto from = begin.find_first_not_of(" \t", 2);
  if (from == std::string::npos) {
    return "";
  }
  return begin.substr(from, begin.find_first_of(" \t\n", from) - from);
}

// The loader ignores libraries by path if the kernel raises privilege (AT_SECURE).
std::string reason_of_privilege(const Program& program) {
  struct statvfs mount{};
  const bool is_ignored =
      ::prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) == 1 ||
      (::fstatvfs(program.fd.get(), &mount) == 0 && (mount.f_flag & ST_NOSUID) != 0);
  if (is_ignored) {
    return "";
  }
  const auto& file = program.attributes;
  if ((file.st_mode & S_ISUID) != 0 && file.st_uid != ::getuid()) {
    return "it is set-user-ID";
  }
  if ((file.st_mode & S_ISGID) != 0 && (file.st_mode & S_IXGRP) != 0 && file.st_gid != ::getgid()) {
    return "it is set-group-ID";
  }
  if (::getuid() != 0 && ::fgetxattr(program.fd.get(), "security.capability", nullptr, 0) > 0) {
    return "it has file capabilities";
  }
  return "";
}

std::string reason_of_loader(int fd, const Elf64_Ehdr& header) {
  if (header.e_phentsize != sizeof(Elf64_Phdr) || header.e_phnum > most_headers) {
    return "";
  }
  std::vector<Elf64_Phdr> entries(header.e_phnum);
  const std::size_t bytes = entries.size() * sizeof(Elf64_Phdr);
  if (::pread(fd, entries.data(), bytes, static_cast<off_t>(header.e_phoff)) !=
      static_cast<ssize_t>(bytes)) {
    return "";
  }
  for (const auto& entry : entries) {
    if (entry.p_type == PT_INTERP && entry.p_filesz <= PATH_MAX) {
      const auto loader = read_at(fd, entry.p_filesz, static_cast<off_t>(entry.p_offset));
      return loader.contains("ld-musl") ? "it uses the C library musl" : "";
    }
  }
  return "it is linked statically";
}

std::string reason_of_format(int fd) {
  Elf64_Ehdr header{};
  if (::pread(fd, &header, sizeof header, 0) != static_cast<ssize_t>(sizeof header) ||
      std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) {
    return "";
  }
  // These two fields have the same place in files of both classes.
  if (header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_machine != EM_X86_64) {
    return "it is not an x86-64 program";
  }
  return reason_of_loader(fd, header);
}

}  // namespace

std::string reason_not_preloaded(const std::string& program) {
  std::string path = path_of(program);
  for (int depth = 0; depth <= most_interpreters && !path.empty(); ++depth) {
    const Program file = open_program(path);
    if (!file.fd) {
      return "";
    }
    std::string interpreter = interpreter_of(file.fd.get());
    if (interpreter.empty()) {
      const std::string reason = reason_of_format(file.fd.get());
      return reason.empty() ? reason_of_privilege(file) : reason;
    }
    path = std::move(interpreter);
  }
  return "";
}

}  // namespace efs::cli
