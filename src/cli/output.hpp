#pragma once
// Standard output of a command. Other programs read it: output that is lost must not end with 0.

#include <array>
#include <ostream>
#include <streambuf>

namespace efs::cli {

/// Writes to a descriptor, and keeps the first error; what comes after it is dropped.
class OutputBuffer final : public std::streambuf {
 public:
  explicit OutputBuffer(int fd) : fd_(fd) { setp(buffer_.data(), buffer_.data() + buffer_.size()); }

  /// errno of the first write that failed; 0: none has.
  int error() const { return error_; }

  /// Writes the rest. Closes the descriptor if anything was written: some file systems report a
  /// full disk only then. As error().
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

/// Ends the output of a verb that ended with `code`, and reports output that could not be written.
/// Returns the exit code, which is not exit_good then.
int finish_output(World& world, int code);

}  // namespace efs::cli
