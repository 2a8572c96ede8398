// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Checks the words of the command line where the option parser's message is unclear: a misspelt
// verb, or a dash that is not a hyphen. Pure functions.

#include <span>
#include <string>
#include <string_view>

namespace efs::cli {

/// Returns the reason why `words` is not a command, or "". The first word names the verb.
std::string refusal_of(std::span<const std::string> words, std::span<const std::string_view> verbs);

/// Returns a hint to append to an error of the parser: an invisible character in a word, or a
/// misspelt option that is not in `options`. Returns "" if there is no hint.
std::string hint_for(std::span<const std::string> words, std::span<const std::string_view> options);

}  // namespace efs::cli
