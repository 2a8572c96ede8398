// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Which remote files a program will probably open next: the files that follow in a directory whose
// files are opened one after the other.

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <unordered_map>
#include <vector>

namespace efs::daemon {

/// The names of a file system, for LookAhead.
class FileOrder {
 public:
  struct File {
    std::string name;
    std::uint64_t ino = 0;
    std::uint64_t size = 0;
  };

  FileOrder() = default;
  virtual ~FileOrder() = default;
  FileOrder(const FileOrder&) = delete;
  FileOrder& operator=(const FileOrder&) = delete;

  /// The directory of an imported file; 0: the file is elsewhere by now.
  virtual std::uint64_t directory_of(std::uint64_t ino) const = 0;
  /// The regular files of a directory, in the order in which programs read their names.
  virtual std::vector<File> files_in(std::uint64_t directory) const = 0;
  virtual bool is_remote(std::uint64_t ino) const = 0;
};

/// Follows a few directories. In each it compares the opens with three orders of the names: numbers
/// by value, byte by byte, and as a program lists them. When two opens follow each other in one of
/// these, the next two files are fetched ahead. With each further hit the window doubles. An open
/// out of this order ends it. Files that were fetched ahead and not opened never exceed the window.
/// Not thread-safe.
class LookAhead {
 public:
  static constexpr std::size_t most_files = 32;    // of a window
  static constexpr std::size_t most_followed = 8;  // directories
  static constexpr std::size_t behind = 8;         // an open so far back neither hits nor misses

  struct Next {
    std::vector<std::uint64_t> fetch;   // in this order
    std::vector<std::uint64_t> forget;  // no longer expected
  };

  /// A program has opened this file, or waits for it. `room`: bytes that all files which were
  /// fetched ahead and not opened may have.
  Next opened(std::uint64_t ino, std::uint64_t room, const FileOrder& names);
  /// Ends all windows. Returns the files that are no longer expected.
  std::vector<std::uint64_t> end_all();

 private:
  struct File {
    std::uint64_t ino = 0;
    std::uint64_t size = 0;
  };

  using Order = std::vector<File>;

  struct Followed {
    std::uint64_t directory = 0;
    std::uint64_t last = 0;  // the file that was opened last
    std::array<Order, 3> orders;
    std::size_t order = 0;   // the one that the opens follow, while `window` is not 0
    std::size_t window = 0;  // 0: they follow none
    std::size_t at = 0;      // behind `last` in that order
    std::size_t front = 0;   // behind what was fetched ahead
    std::unordered_map<std::uint64_t, std::uint64_t> expected;  // sizes of files
  };

  Followed& follow(std::uint64_t directory);
  static void list(Followed& followed, const FileOrder& names);
  bool goes_on(Followed& followed, std::uint64_t ino) const;
  static bool begins(Followed& followed, std::uint64_t ino);
  void end(Followed& followed, std::vector<std::uint64_t>& forget);
  void extend(Followed& followed, std::uint64_t room, const FileOrder& names, Next& next);

  std::deque<Followed> followed_;  // the one used last comes last
  std::uint64_t expected_bytes_ = 0;
};

/// Compares as people count: numbers in names by their value.
bool comes_before(const std::string& a, const std::string& b);

}  // namespace efs::daemon
