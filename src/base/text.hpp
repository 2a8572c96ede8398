#pragma once
// Text for people: sizes, rates, names that need not be text, and the distance between a misspelt
// word and the right one.

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace efs {

/// "1.5 GiB", "512 B": binary units, at most four significant digits.
std::string format_bytes(std::uint64_t bytes);

/// "2.0 s", "3m20s", "1h05m".
std::string format_seconds(double seconds);

/// For a terminal, a message: what would control it, what a reader does not see or takes for a
/// blank (such as a no-break space), and what is not UTF-8, is written in octal, as ls -b does
/// ("\033"). `lines`: but for the ends of lines. Names of files may hold anything, and whoever
/// reads them may be root. What is printable stays as it is.
std::string printable(std::string_view text, bool lines = false);

/// A character of a text that a reader does not see, or takes for another one.
struct OddCharacter {
  std::size_t at = 0, length = 0;  // bytes
  std::string name;                // "a no-break space, U+00A0"
};

/// The first character of `text` that is not seen, or looks like a blank, a hyphen or a quotation
/// mark and is none.
std::optional<OddCharacter> find_odd(std::string_view text);

/// " (WHAT holds a soft hyphen, U+00AD)" for messages; "" where find_odd() finds nothing.
std::string odd_note(std::string_view text, std::string_view what = "which");

/// A name for people, printable and unambiguous: from_octal() gives the name back.
std::string escaped(std::string_view name);

/// Any bytes as UTF-8: those that are none are written \ooo, in octal, and a backslash that begins
/// what looks like that is written \134.
std::string in_octal(std::string_view bytes);
/// Does in_octal() change it?
bool needs_octal(std::string_view bytes);
/// What in_octal() or escaped() made this text of.
std::string from_octal(std::string_view text);

/// The candidate nearest to `word` (edit distance at most a third of its length, at least 1); ""
/// when none is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

/// `text` as one word of a shell: names are chosen by others than who reads the advice. Control
/// characters become '?'.
std::string as_word(std::string_view text);

}  // namespace efs
