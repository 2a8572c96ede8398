#pragma once
// New files that a stage-out drops because no output rule matches them: the job may have wanted
// them.

#include <nlohmann/json_fwd.hpp>

#include <string>

#include "stage/export/receipt.hpp"

namespace efs::stage {

/// The reason of such an entry. A file that a rule or `efs set` makes temporary has another one.
inline constexpr const char* no_rule_matches = "no output rule matches it";

/// {"files", "bytes", "largest": [{"path", "bytes"}], "text"}; null where the stage-out dropped no
/// such file. `stays`: the buffer is not removed, and has the files still.
nlohmann::json unmatched_in(const Receipt& receipt, bool stays);

}  // namespace efs::stage
