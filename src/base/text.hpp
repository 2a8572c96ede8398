#pragma once
// Text for people: sizes, rates, and the distance between a misspelt word and the right one.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

namespace efs {

/// "1.5 GiB", "512 B": binary units, at most four significant digits.
std::string format_bytes(std::uint64_t bytes);

/// "2.0 s", "3m20s", "1h05m".
std::string format_seconds(double seconds);

/// For a terminal: what would control it is written in octal, as ls -b does ("\033"). `lines`: but for the ends of lines. Names of
/// files may hold anything, and whoever reads them may be root.
std::string printable(std::string_view text, bool lines = false);

/// The candidate nearest to `word` (edit distance at most a third of its length, at least 1); "" when none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

}  // namespace efs
