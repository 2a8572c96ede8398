#pragma once
// Errors as values. Below the doors nothing throws; a library that does is caught where it is
// called.

#include <cerrno>
#include <expected>
#include <string>
#include <utility>

namespace efs {

/// An error: the errno a program would see, and what a person should read ("" where the errno says
/// it all, as on the hot path of the file system: an empty string allocates nothing).
struct Error {
  int code = EIO;
  std::string what;
  // `what` has several; what it names is escaped(), so that no name can end one
  bool lines = false;
};

template <typename T>
using Result = std::expected<T, Error>;
using Status = Result<void>;

inline std::unexpected<Error> fail(int code, std::string what = {}) {
  return std::unexpected(Error{code, std::move(what)});
}

/// An error with a text of several lines, in which names are escaped().
inline std::unexpected<Error> fail_lines(int code, std::string what) {
  return std::unexpected(Error{code, std::move(what), true});
}

/// The current errno, with the text "WHAT: strerror". Call it before anything else touches errno.
std::unexpected<Error> fail_errno(const std::string& what);

/// The current errno without a text: for hot paths.
inline std::unexpected<Error> fail_errno() {
  return fail(errno);
}

/// The text for people: what, or strerror(code) where there is none.
std::string describe(const Error& error);

/// The error, with what was being done in front of it.
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
