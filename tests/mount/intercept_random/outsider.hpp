// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A process that uses the same files by system calls of its own: nothing is intercepted there.

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace efs::intercept_random {

/// One thread at a time. A failure of the connection ends the program.
class Outsider {
 public:
  static constexpr std::size_t largest = std::size_t{8} << 20;

  /// Forks. `paths`: of the files, which requests name by their index.
  explicit Outsider(const std::vector<std::string>& paths);
  Outsider(const Outsider&) = delete;
  Outsider& operator=(const Outsider&) = delete;
  ~Outsider();

  /// The whole file, by path. Fails the program if there is no such file.
  std::span<const std::uint8_t> read_all(int file);
  /// Returns the result of the kernel: -errno on failure.
  long write(int file, std::span<const std::uint8_t> bytes, std::uint64_t offset);
  long truncate(int file, std::uint64_t size);
  /// Sends the descriptor (SCM_RIGHTS). The outsider reads from its offset, and closes its copy.
  std::span<const std::uint8_t> read_from(int fd, std::size_t bytes);
  /// The same with a write at the offset.
  long write_to(int fd, std::span<const std::uint8_t> bytes);

 private:
  enum class Verb : std::uint8_t { read_all, write, truncate, read_from, write_to };

  struct Request {
    Verb verb;
    int file;
    std::uint64_t offset, bytes;
  };

  long ask(const Request& request, int fd = -1);
  void send(int fd) const;
  [[noreturn]] void serve();
  long answer(const Request& request);

  std::vector<std::string> paths_;
  std::uint8_t* shared_ = nullptr;
  int socket_ = -1;  // of this side
  pid_t child_ = -1;
};

}  // namespace efs::intercept_random
