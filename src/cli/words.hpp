#pragma once
// The words of the command line, where the parser of options says too little: a misspelt verb, a
// dash that is no hyphen. Pure.

#include <span>
#include <string>
#include <string_view>

namespace efs::cli {

/// Why `words`, of which the first names a verb, are no command; "" where nothing speaks against
/// them.
std::string refusal_of(std::span<const std::string> words, std::span<const std::string_view> verbs);

/// What an error of the parser may come from, to be put behind its text: a character that is not
/// seen, or an option that is
/// none of `options`. "" where nothing is found.
std::string hint_for(std::span<const std::string> words, std::span<const std::string_view> options);

}  // namespace efs::cli
