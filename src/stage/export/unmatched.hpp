// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Reports new files that a stage-out drops because no output rule matches them. The user may have
// wanted them.

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "stage/export/receipt.hpp"

namespace efs::stage {

/// The reason in such an entry. A file that a rule or `efs set` makes temporary has another reason.
inline constexpr const char* no_rule_matches = "no output rule matches it";

/// {"files", "bytes", "largest": [{"path", "bytes"}], "text"}; null if the stage-out dropped no
/// such file. `stays`: the buffer is not removed and still has the files.
nlohmann::json unmatched_in(const Receipt& receipt, bool stays);

}  // namespace efs::stage
