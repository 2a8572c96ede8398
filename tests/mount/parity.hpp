// SPDX-License-Identifier: BSD-3-Clause
// The cases of the parity test: the tools of a case, and the tables of the families.
//
// A case issues system calls in a fresh directory (its working directory) and writes its
// observations to a transcript. The runner runs the case once in the native directory and once in
// the tested one, and compares the transcripts line by line. So a case judges nothing: it records
// everything that must be the same, and nothing that may differ (inode numbers, absolute times,
// block counts, the order of readdir). A case runs in its own process; its open descriptors,
// mappings and child processes end with it.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace parity {

/// The three times of a file, for comparing before and after an operation.
struct Times {
  timespec access{};
  timespec modify{};
  timespec change{};
};

/// "ENOENT" for ENOENT.
std::string errno_name(int code);
/// "O_RDWR|O_CREAT" for the flags of open.
std::string open_flags(int flags);
/// Bytes as text: short ones escaped in quotes, long ones as length and hash.
std::string show(std::string_view bytes);
/// "file", "dir", "link", ...
const char* type_name(mode_t mode);
/// `length` bytes that depend on position and seed.
std::string pattern(std::size_t length, unsigned seed = 1);

/// A one-way signal between processes: one process opens the gate, the other waits.
class Gate {
 public:
  Gate();
  void open() const;
  void wait() const;

 private:
  int ends_[2];
};

/// The interface of a case. All paths are relative to the case's directory.
class Ctx {
 public:
  Ctx(int transcript, std::string base) : transcript_(transcript), base_(std::move(base)) {}

  /// Appends a line; newlines in it are escaped.
  void line(std::string_view text) const;
  /// Records a call: its result, or -1 and the name of errno. Returns the result.
  long call(std::string_view what, long result) const;
  /// Like call, for calls whose positive result is arbitrary (a descriptor): records "ok".
  int opened(std::string_view what, int result) const;
  /// For preparations: records only a failure.
  long must(std::string_view what, long result) const;
  /// Records a boolean.
  void check(std::string_view what, bool value) const;

  /// open(2), recorded.
  int open(const std::string& path, int flags, mode_t mode = 0644) const;
  /// open(2), recorded only when it fails.
  int get(const std::string& path, int flags, mode_t mode = 0644) const;
  /// Makes a file with this content (preparation).
  void put(const std::string& path, std::string_view data = "", mode_t mode = 0644) const;
  /// Makes a directory (preparation).
  void dir(const std::string& path, mode_t mode = 0755) const;

  void write(int fd, std::string_view data) const;
  void pwrite(int fd, std::string_view data, off_t offset) const;
  void read(int fd, std::size_t length) const;
  void pread(int fd, std::size_t length, off_t offset) const;

  /// Records type, mode, nlink, owner and (not for directories) size; links are not followed.
  void stat(const std::string& path) const;
  void fstat(std::string_view what, int fd) const;
  /// Records the bytes of a file.
  void content(const std::string& path) const;
  void content(std::string_view what, int fd) const;
  /// Records the target of a symbolic link.
  void target(const std::string& path) const;
  /// Records the names in a directory, sorted, each with its d_type.
  void list(const std::string& path = ".") const;
  /// Records whether two paths are the same inode.
  void same_inode(const std::string& left, const std::string& right) const;
  /// Records getcwd, relative to the case's directory.
  void cwd() const;

  /// Times of a path; links are not followed.
  Times times(const std::string& path) const;
  /// Waits until a new time stamp is later than every earlier one.
  void tick() const;
  /// Records which of mtime and ctime moved since `before`.
  void moved(const std::string& path, const Times& before) const;
  /// Ticks, runs `body`, and records which times of the paths moved by it.
  void moves(std::string_view what, std::initializer_list<const char*> paths,
             const std::function<void()>& body) const;

  /// Starts a process that runs `body`.
  pid_t start(const std::function<void()>& body) const;
  /// Waits for a process; records only an end other than exit 0.
  void finish(pid_t pid) const;
  /// Runs `body` in another process, to its end.
  void in_child(const std::function<void()>& body) const;
  /// Runs `body` in another process as another user (needs root).
  void as_user(uid_t uid, gid_t gid, const std::function<void()>& body) const;
  /// Runs `body` in `count` processes at once; `body` gets its number.
  void in_children(int count, const std::function<void(int)>& body) const;
  /// Runs a program and records how it ended; `program` calls exec.
  void run(std::string_view what, const std::function<void()>& program) const;
  /// Copies the running program to `path`. The copy accepts "--helper exit N" and "--helper wait".
  void put_program(const std::string& path, mode_t mode = 0755) const;

  const std::string& base() const { return base_; }

 private:
  int transcript_;
  std::string base_;
};

/// Requirements of a case beyond a directory.
enum Need : unsigned { anyone = 0, root = 1 };

struct Case {
  const char* name;
  void (*run)(Ctx&);
  unsigned needs;
};

/// Drops all privileges of the process permanently. Returns false on failure.
bool become(uid_t uid, gid_t gid);

std::span<const Case> open_cases();
std::span<const Case> io_cases();
std::span<const Case> size_cases();
std::span<const Case> transfer_cases();
std::span<const Case> space_cases();
std::span<const Case> rename_cases();
std::span<const Case> link_cases();
std::span<const Case> dir_cases();
std::span<const Case> attr_cases();
std::span<const Case> xattr_cases();
std::span<const Case> acl_cases();
std::span<const Case> privilege_cases();
std::span<const Case> time_cases();
std::span<const Case> atime_cases();
std::span<const Case> perm_cases();
std::span<const Case> lock_cases();
std::span<const Case> map_cases();
std::span<const Case> special_cases();
std::span<const Case> race_cases();

}  // namespace parity
