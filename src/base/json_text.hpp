#pragma once
// JSON as efs writes and reads it. JSON must be UTF-8, and names of files need not be: in every
// string, a byte that is not of valid UTF-8 is written \ooo, in octal, and a backslash that such
// three digits follow is written \134 (base/text.hpp). What is read is what was written. Everything
// that leaves a process as JSON, or comes as such, goes through here.

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>

namespace efs {

/// The document as text; on one line unless `indent` says how far lines are indented.
std::string json_to_text(const nlohmann::json& document, int indent = -1);

/// The document that json_to_text() wrote; discarded (is_discarded()) where it is none, or one of
/// more levels than anything of ours has.
nlohmann::json json_from_text(std::string_view text);

}  // namespace efs
