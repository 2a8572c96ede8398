// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Errors as values. The code below the entry points throws nothing; a library's exception is caught
// at the call.

#include <cerrno>
#include <expected>
#include <string>
#include <utility>

namespace efs {

/// An error: the errno that a program sees, and a text for people. The text is "" if the errno
/// suffices, as on the hot path of the file system: an empty string allocates nothing.
struct Error {
  int code = EIO;
  std::string what;
  // `what` has several lines; names in it are escaped(), so that no name can end a line
  bool lines = false;
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

inline std::unexpected<Error> fail(int code, std::string what = {}) {
  return std::unexpected(Error{code, std::move(what)});
}

/// Returns an error with a text of several lines; names in the text must be escaped().
inline std::unexpected<Error> fail_lines(int code, std::string what) {
  return std::unexpected(Error{code, std::move(what), true});
}

/// Returns the current errno, with the text "WHAT: strerror". Call it before any other call that
/// may change errno.
std::unexpected<Error> fail_errno(const std::string& what);

/// Returns the current errno without a text: for hot paths.
inline std::unexpected<Error> fail_errno() {
  return fail(errno);
}

/// Returns the text for people: error.what, or strerror(code) if that is empty.
std::string describe(const Error& error);

/// Returns the error with the failed action as a prefix.
inline std::unexpected<Error> with_context(const Error& error, const char* what) {
  return fail(error.code, std::string(what) + ": " + describe(error));
}

/// Propagates the error of an expression that yields a Result or Status.
#define EFS_TRY(expression)                                   \
  do {                                                        \
    if (auto efs_status_ = (expression); !efs_status_)        \
      return std::unexpected(std::move(efs_status_.error())); \
  } while (false)

}  // namespace efs
