// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Errors of the library as values.

#include <cerrno>
#include <expected>
#include <string>
#include <utility>

namespace efs::objects {

/// An error: the errno that the caller gets, the reason and the way out. An empty reason is the
/// text of the errno; an empty way out is the usual one of the errno.
struct Failure {
  int code = EIO;
  std::string reason;
  std::string remedy;
};

template <typename T>
using Result = std::expected<T, Failure>;
using Status = Result<void>;

inline std::unexpected<Failure> fail(int code, std::string reason = {}, std::string remedy = {}) {
  return std::unexpected(Failure{code, std::move(reason), std::move(remedy)});
}

/// Propagates the failure of an expression that yields a Result.
#define EO_TRY(expression)                                   \
  do {                                                       \
    if (auto eo_status_ = (expression); !eo_status_)         \
      return std::unexpected(std::move(eo_status_.error())); \
  } while (false)

/// The subject of a message: the verb, the name of the object and its file.
struct Subject {
  const char* verb = "";
  std::string object;
  std::string file;
};

/// Sets the text of eo_error() for this thread and returns the errno. Allocates; without memory the
/// text is a fixed one.
int report(const Subject& subject, const Failure& failure) noexcept;

/// Sets the text of eo_error() for this thread.
void set_text(const char* text) noexcept;

/// Returns the text of eo_error().
const char* last_text() noexcept;

}  // namespace efs::objects
