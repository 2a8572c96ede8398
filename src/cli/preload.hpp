// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Libraries that efs preloads into programs.

#include <string>

#include "base/result.hpp"

namespace efs::cli {

/// Returns the path of the library `file`, such as "libefs-record.so": the library that is
/// installed with this efs, or the library of the same build. Fails with ENOENT, or with EINVAL if
/// the loader would reject the path. `feature` names the user of the library for the message.
Result<std::string> find_preloaded_library(const std::string& file, const std::string& feature);

/// Adds the library to LD_PRELOAD of this process's environment, behind the libraries of the
/// caller: the runtime of a sanitizer must be the first. Does nothing if it is there already.
void preload(const std::string& library);

}  // namespace efs::cli
