// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Colours for tables and verdicts on standard output: --color=auto|always|never.

#include <string>
#include <string_view>

namespace efs::cli {

/// Decides for `choice` ("auto", "always" or "never"). auto: standard output is a terminal that
/// follows escape sequences, and NO_COLOR is empty or not set (no-color.org).
bool wants_colour(std::string_view choice);

enum class Tone { plain, heading, good, warning, bad };

/// The tone of a state, a verdict, an outcome of a file or the level of a finding.
Tone tone_of(std::string_view word);

/// Returns `text`, which must have no control characters, between escape sequences; without
/// `colour` or in the plain tone as it is.
std::string painted(const std::string& text, Tone tone, bool colour);

/// The same in the tone of the word itself.
std::string painted(const std::string& word, bool colour);

/// A text of several lines: the first line gets the tone of `verdict`, each other line that begins
/// without a blank becomes a heading, and a word at the begin of an indented line that ends with a
/// colon gets its tone.
std::string painted_lines(const std::string& text, std::string_view verdict, bool colour);

/// Returns the first `width` characters of a line, in which escape sequences take no place, and
/// ends its colour. UTF-8.
std::string cut_painted(const std::string& line, std::size_t width);

}  // namespace efs::cli
