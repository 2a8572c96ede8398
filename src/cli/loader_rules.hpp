// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Predicts whether the loader of a program honours LD_PRELOAD.

#include <string>

namespace efs::cli {

/// Returns why the loader would not preload an x86-64 library of efs if this process executed
/// `program`, which it finds as execvp(3) does; "" if it would, or if that is unknown. Follows the
/// interpreters of scripts. Looks with the rights of this process, and opens regular files only.
std::string reason_not_preloaded(const std::string& program);

}  // namespace efs::cli
