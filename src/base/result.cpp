// SPDX-License-Identifier: BSD-3-Clause
#include "base/result.hpp"

#include <cstring>

namespace efs {

std::unexpected<Error> fail_errno(const std::string& what) {
  const int code = errno;
  return fail(code, what + ": " + std::strerror(code));
}

std::string describe(const Error& error) {
  return error.what.empty() ? std::strerror(error.code) : error.what;
}

}  // namespace efs
