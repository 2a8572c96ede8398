// SPDX-License-Identifier: BSD-3-Clause
#pragma once
#include <cerrno>

namespace efs {

/// True if the error is a lack of space, memory or descriptors. It may pass, and says nothing about
/// the state of an object.
inline bool is_shortage(int code) {
  return code == ENOSPC || code == EDQUOT || code == ENOMEM || code == EMFILE || code == ENFILE;
}

}  // namespace efs
