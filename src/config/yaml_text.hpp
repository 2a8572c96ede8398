// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Texts as YAML scalars, for job files that efs writes.

#include <string>
#include <string_view>

namespace efs::config {

/// Returns `text` in double quotes, on one line. read_yaml() returns the text again if it is UTF-8.
std::string yaml_string(std::string_view text);

/// Returns `text` without quotes where YAML reads it as the same text, else yaml_string().
std::string yaml_value(std::string_view text);

}  // namespace efs::config
