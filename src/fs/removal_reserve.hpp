// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The journal, and its space for removals.

#include <cstdint>
#include <string>

#include "store/journal.hpp"

namespace efs::fs {

inline constexpr const char* journal_name = "journal";

/// Journal space to keep back for the removal of a name, so that unlink works when all is full.
inline std::int64_t removal_reserve(const std::string& name) {
  return static_cast<std::int64_t>(store::Journal::record_size(name.size() + 32));
}

}  // namespace efs::fs
