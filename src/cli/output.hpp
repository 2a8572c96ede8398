// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Standard output of a command. Other programs read this output, so the command must not exit with
// 0 if output was lost.

#include <array>
#include <ostream>
#include <streambuf>

namespace efs::cli {

/// Writes to a descriptor. Records the first error and discards all later output.
class OutputBuffer final : public std::streambuf {
 public:
  explicit OutputBuffer(int fd) : fd_(fd) { setp(buffer_.data(), buffer_.data() + buffer_.size()); }

  /// The errno of the first failed write, or 0.
  int error() const { return error_; }

  /// Writes the buffered rest. Closes the descriptor if anything was written, because some file
  /// systems report a full disk only at close. Returns the same value as error().
  int finish();

 protected:
  int_type overflow(int_type c) override;
  int sync() override;

 private:
  const int fd_;
  int error_ = 0;
  bool has_written_ = false;
  std::array<char, 8192> buffer_{};
};

struct World;

/// Finishes the output of a verb that returned `code` and reports lost output. Returns the exit
/// code of the command: never exit_good if output was lost.
int finish_output(World& world, int code);

}  // namespace efs::cli
