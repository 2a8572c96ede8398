// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// JSON as efs writes and reads it. JSON must be UTF-8, but file names need not be. In every string,
// efs writes a byte of invalid UTF-8 as \ooo (octal). A backslash followed by three such digits is
// written \134 (base/text.hpp). Reading restores the original bytes. All JSON that a process sends
// or receives passes through these functions.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace efs {

/// Returns the document as text. `indent` is the indentation of its lines; -1 writes a single line.
std::string json_to_text(const nlohmann::json& document, int indent = -1);

/// Parses a document that json_to_text() wrote. The result is discarded (is_discarded()) if the
/// text is not JSON, or if it nests deeper than any document of efs.
nlohmann::json json_from_text(std::string_view text);

}  // namespace efs
