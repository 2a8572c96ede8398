// SPDX-License-Identifier: BSD-3-Clause
// The records of cases.
#include <dirent.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include "parity.hpp"

namespace parity {
namespace {

bool later(const timespec& left, const timespec& right) {
  return std::pair(left.tv_sec, left.tv_nsec) > std::pair(right.tv_sec, right.tv_nsec);
}

const char* relation(const timespec& before, const timespec& after) {
  if (later(after, before)) {
    return "advanced";
  }
  return later(before, after) ? "went back" : "same";
}

std::string octal(mode_t mode) {
  char text[8];
  std::snprintf(text, sizeof text, "%04o", mode & 07777U);
  return text;
}

std::string describe(const struct stat& st) {
  std::string text = std::string(type_name(st.st_mode)) + " " + octal(st.st_mode) +
                     " nlink=" + std::to_string(st.st_nlink) +
                     " owner=" + std::to_string(st.st_uid) + ":" + std::to_string(st.st_gid);
  if (!S_ISDIR(st.st_mode)) {
    text += " size=" + std::to_string(st.st_size);
  }
  return text;
}

const char* dirent_type(unsigned char type) {
  return type == DT_UNKNOWN ? "unknown" : type_name(DTTOIF(type));
}

}  // namespace

std::string errno_name(int code) {
  const char* name = strerrorname_np(code);
  return name != nullptr ? name : "errno " + std::to_string(code);
}

std::string open_flags(int flags) {
  static constexpr std::pair<int, const char*> names[] = {
      {O_CREAT, "O_CREAT"},         {O_EXCL, "O_EXCL"},         {O_TRUNC, "O_TRUNC"},
      {O_APPEND, "O_APPEND"},       {O_PATH, "O_PATH"},         {O_TMPFILE, "O_TMPFILE"},
      {O_DIRECTORY, "O_DIRECTORY"}, {O_NOFOLLOW, "O_NOFOLLOW"}, {O_SYNC, "O_SYNC"},
      {O_DSYNC, "O_DSYNC"},         {O_DIRECT, "O_DIRECT"},     {O_NONBLOCK, "O_NONBLOCK"},
      {O_NOATIME, "O_NOATIME"}};
  const int access = flags & O_ACCMODE;
  std::string text = access == O_RDONLY ? "O_RDONLY" : access == O_WRONLY ? "O_WRONLY" : "O_RDWR";
  if (access == O_ACCMODE) {
    text = "O_ACCMODE";
  }
  int rest = flags & ~O_ACCMODE;
  for (const auto& [bit, name] : names) {
    if ((rest & bit) != bit) {
      continue;
    }
    rest &= ~bit;
    text += std::string("|") + name;
  }
  return text;
}

std::string show(std::string_view bytes) {
  if (bytes.size() > 80) {
    std::uint64_t hash = 14695981039346656037U;
    for (const unsigned char byte : bytes) {
      hash = (hash ^ byte) * 1099511628211U;
    }
    char text[64];
    std::snprintf(text, sizeof text, "<%zu bytes, hash %016llx>", bytes.size(),
                  static_cast<unsigned long long>(hash));
    return text;
  }
  std::string text = "'";
  for (const unsigned char byte : bytes) {
    char part[8];
    const bool plain = byte >= ' ' && byte < 0x7f && byte != '\\';
    std::snprintf(part, sizeof part, plain ? "%c" : "\\x%02x", byte);
    text += part;
  }
  return text + "'";
}

const char* type_name(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG: return "file";
    case S_IFDIR: return "dir";
    case S_IFLNK: return "link";
    case S_IFIFO: return "fifo";
    case S_IFSOCK: return "socket";
    case S_IFCHR: return "char";
    case S_IFBLK: return "block";
    default: return "?";
  }
}

std::string pattern(std::size_t length, unsigned seed) {
  std::string data(length, '\0');
  std::uint32_t state = seed * 2654435761U + 1;
  for (char& byte : data) {
    state = state * 1664525U + 1013904223U;
    byte = static_cast<char>(state >> 24U);
  }
  return data;
}

bool become(uid_t uid, gid_t gid) {
  if (::setgroups(0, nullptr) != 0 || ::setresgid(gid, gid, gid) != 0 ||
      ::setresuid(uid, uid, uid) != 0) {
    return false;
  }
  // Otherwise /proc/self belongs to root, and /proc/self/fd is not accessible.
  return ::prctl(PR_SET_DUMPABLE, 1) == 0;
}

Gate::Gate() {
  if (::pipe2(ends_, O_CLOEXEC) != 0) {
    std::abort();
  }
}

void Gate::open() const {
  if (::write(ends_[1], "x", 1) != 1) {
    std::abort();
  }
}

void Gate::wait() const {
  char byte = 0;
  while (::read(ends_[0], &byte, 1) < 0 && errno == EINTR) {
  }
}

void Ctx::line(std::string_view text) const {
  std::string out;
  for (const char byte : text) {
    if (byte == '\n') {
      out += "\\n";
    } else {
      out += byte;
    }
  }
  out += '\n';
  // One write per line, so that lines of several processes do not mix.
  if (::write(transcript_, out.data(), out.size()) != static_cast<ssize_t>(out.size())) {
    std::abort();
  }
}

long Ctx::call(std::string_view what, long result) const {
  const int code = errno;
  line(std::string(what) + " = " + std::to_string(result) +
       (result == -1 ? " " + errno_name(code) : ""));
  return result;
}

int Ctx::opened(std::string_view what, int result) const {
  const int code = errno;
  line(std::string(what) + " = " + (result < 0 ? errno_name(code) : "ok"));
  return result;
}

long Ctx::must(std::string_view what, long result) const {
  const int code = errno;
  if (result == -1) {
    line("preparation failed: " + std::string(what) + " = " + errno_name(code));
  }
  return result;
}

void Ctx::check(std::string_view what, bool value) const {
  line(std::string(what) + ": " + (value ? "yes" : "no"));
}

int Ctx::open(const std::string& path, int flags, mode_t mode) const {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  return opened("open " + show(path) + " " + open_flags(flags), fd);
}

int Ctx::get(const std::string& path, int flags, mode_t mode) const {
  const int fd = ::open(path.c_str(), flags | O_CLOEXEC, mode);
  return static_cast<int>(must("open " + show(path) + " " + open_flags(flags), fd));
}

void Ctx::put(const std::string& path, std::string_view data, mode_t mode) const {
  const int fd = get(path, O_WRONLY | O_CREAT | O_TRUNC, mode);
  while (!data.empty()) {
    const ssize_t done = ::write(fd, data.data(), data.size());
    if (must("write " + show(path), done) <= 0) {
      break;
    }
    data.remove_prefix(static_cast<std::size_t>(done));
  }
  must("close " + show(path), ::close(fd));
}

void Ctx::dir(const std::string& path, mode_t mode) const {
  must("mkdir " + show(path), ::mkdir(path.c_str(), mode));
}

void Ctx::write(int fd, std::string_view data) const {
  const ssize_t done = ::write(fd, data.data(), data.size());
  call("write " + show(data), done);
}

void Ctx::pwrite(int fd, std::string_view data, off_t offset) const {
  const ssize_t done = ::pwrite(fd, data.data(), data.size(), offset);
  call("pwrite " + show(data) + " at " + std::to_string(offset), done);
}

void Ctx::read(int fd, std::size_t length) const {
  std::string data(length, '\0');
  const ssize_t done = ::read(fd, data.data(), length);
  call("read " + std::to_string(length), done);
  if (done > 0) {
    line("  " + show(std::string_view(data).substr(0, static_cast<std::size_t>(done))));
  }
}

void Ctx::pread(int fd, std::size_t length, off_t offset) const {
  std::string data(length, '\0');
  const ssize_t done = ::pread(fd, data.data(), length, offset);
  call("pread " + std::to_string(length) + " at " + std::to_string(offset), done);
  if (done > 0) {
    line("  " + show(std::string_view(data).substr(0, static_cast<std::size_t>(done))));
  }
}

void Ctx::stat(const std::string& path) const {
  struct stat st{};
  const int result = ::fstatat(AT_FDCWD, path.c_str(), &st, AT_SYMLINK_NOFOLLOW);
  const int code = errno;
  line("stat " + show(path) + ": " + (result == 0 ? describe(st) : errno_name(code)));
}

void Ctx::fstat(std::string_view what, int fd) const {
  struct stat st{};
  const int result = ::fstat(fd, &st);
  const int code = errno;
  line("fstat " + std::string(what) + ": " + (result == 0 ? describe(st) : errno_name(code)));
}

void Ctx::content(const std::string& path) const {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  const int code = errno;
  if (fd < 0) {
    line("content " + show(path) + ": " + errno_name(code));
    return;
  }
  content(show(path), fd);
  ::close(fd);
}

void Ctx::content(std::string_view what, int fd) const {
  std::string data;
  std::vector<char> part(65536);
  ssize_t got = 0;
  while ((got = ::pread(fd, part.data(), part.size(), static_cast<off_t>(data.size()))) > 0) {
    data.append(part.data(), static_cast<std::size_t>(got));
  }
  const int code = errno;
  line("content " + std::string(what) + ": " + (got == 0 ? show(data) : errno_name(code)));
}

void Ctx::target(const std::string& path) const {
  char text[PATH_MAX];
  const ssize_t length = ::readlink(path.c_str(), text, sizeof text);
  const int code = errno;
  line("readlink " + show(path) + ": " +
       (length < 0 ? errno_name(code)
                   : show(std::string_view(text, static_cast<std::size_t>(length)))));
}

void Ctx::list(const std::string& path) const {
  DIR* stream = ::opendir(path.c_str());
  if (stream == nullptr) {
    const int code = errno;
    line("list " + show(path) + ": " + errno_name(code));
    return;
  }
  std::vector<std::string> names;
  errno = 0;
  while (const dirent* entry = ::readdir(stream)) {
    names.push_back(show(entry->d_name) + " " + dirent_type(entry->d_type));
  }
  if (errno != 0) {
    line("readdir " + show(path) + ": " + errno_name(errno));
  }
  ::closedir(stream);
  std::sort(names.begin(), names.end());
  line("list " + show(path) + ": " + std::to_string(names.size()) + " entries");
  if (names.size() <= 40) {
    for (const std::string& name : names) {
      line("  " + name);
    }
  } else {
    std::string all;
    for (const std::string& name : names) {
      all += name;
    }
    line("  " + show(all));
  }
}

void Ctx::same_inode(const std::string& left, const std::string& right) const {
  struct stat one{};
  struct stat two{};
  must("stat", ::lstat(left.c_str(), &one));
  must("stat", ::lstat(right.c_str(), &two));
  check(show(left) + " and " + show(right) + " are one inode",
        one.st_ino == two.st_ino && one.st_dev == two.st_dev);
}

void Ctx::cwd() const {
  char text[PATH_MAX];
  if (::getcwd(text, sizeof text) == nullptr) {
    const int code = errno;
    line("getcwd: " + errno_name(code));
    return;
  }
  std::string_view path = text;
  if (path.starts_with(base_)) {
    line("getcwd: BASE" + std::string(path.substr(base_.size())));
  } else {
    line("getcwd: elsewhere");
  }
}

Times Ctx::times(const std::string& path) const {
  struct stat st{};
  must("times of " + path, ::lstat(path.c_str(), &st));
  return {st.st_atim, st.st_mtim, st.st_ctim};
}

void Ctx::tick() const {
  timespec before{};
  timespec now{};
  // The fine clock: a kernel with multigrain time stamps may have issued stamps ahead of the coarse
  // clock.
  ::clock_gettime(CLOCK_REALTIME, &before);
  do {
    ::clock_gettime(CLOCK_REALTIME_COARSE, &now);
  } while (!later(now, before));
}

void Ctx::moved(const std::string& path, const Times& before) const {
  const Times after = times(path);
  line("  times of " + show(path) + ": mtime " + relation(before.modify, after.modify) +
       ", ctime " + relation(before.change, after.change));
}

void Ctx::moves(std::string_view what, std::initializer_list<const char*> paths,
                const std::function<void()>& body) const {
  std::vector<Times> before;
  for (const char* path : paths) {
    before.push_back(times(path));
  }
  tick();
  line(std::string(what) + ":");
  body();
  std::size_t index = 0;
  for (const char* path : paths) {
    moved(path, before[index++]);
  }
}

pid_t Ctx::start(const std::function<void()>& body) const {
  const pid_t pid = ::fork();
  must("fork", pid);
  if (pid == 0) {
    body();
    ::_exit(0);
  }
  return pid;
}

void Ctx::finish(pid_t pid) const {
  int status = 0;
  while (::waitpid(pid, &status, 0) < 0 && errno == EINTR) {
  }
  if (status != 0) {
    line("process ended with status " + std::to_string(status));
  }
}

void Ctx::in_child(const std::function<void()>& body) const {
  finish(start(body));
}

void Ctx::as_user(uid_t uid, gid_t gid, const std::function<void()>& body) const {
  in_child([&] {
    if (!become(uid, gid)) {
      line("preparation failed: become another user");
    }
    body();
  });
}

void Ctx::in_children(int count, const std::function<void(int)>& body) const {
  std::vector<pid_t> pids;
  for (int number = 0; number < count; ++number) {
    pids.push_back(start([&] { body(number); }));
  }
  for (const pid_t pid : pids) {
    finish(pid);
  }
}

void Ctx::run(std::string_view what, const std::function<void()>& program) const {
  // A successful exec closes the pipe; a failed one writes its errno.
  int ends[2];
  must("pipe", ::pipe2(ends, O_CLOEXEC));
  const pid_t pid = ::fork();
  if (pid == 0) {
    program();
    const int code = errno;
    if (::write(ends[1], &code, sizeof code) < 0) {
      ::_exit(126);
    }
    ::_exit(127);
  }
  ::close(ends[1]);
  int code = 0;
  const bool failed = ::read(ends[0], &code, sizeof code) == sizeof code;
  ::close(ends[0]);
  int status = 0;
  ::waitpid(pid, &status, 0);
  line(std::string(what) + ": " +
       (failed ? errno_name(code) : "exit " + std::to_string(WEXITSTATUS(status))));
}

void Ctx::put_program(const std::string& path, mode_t mode) const {
  const int from = get("/proc/self/exe", O_RDONLY);
  std::string data;
  std::vector<char> part(65536);
  ssize_t got = 0;
  while ((got = ::read(from, part.data(), part.size())) > 0) {
    data.append(part.data(), static_cast<std::size_t>(got));
  }
  ::close(from);
  put(path, data, mode);
}

}  // namespace parity
