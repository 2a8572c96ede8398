// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Text for people: sizes, rates, names of any bytes, and the edit distance between words.

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

/// Makes a text safe for a terminal or a message. Writes these in octal, as ls -b does ("\033"):
/// control characters, invisible characters, characters that look like a blank (such as a no-break
/// space), and invalid UTF-8. With `lines`, newlines stay. File names may contain any bytes, and
/// the reader may be root. Printable characters stay unchanged.
std::string printable(std::string_view text, bool lines = false);

/// A character that a reader does not see or mistakes for another character.
struct OddCharacter {
  std::size_t at = 0, length = 0;  // bytes
  std::string name;                // "a no-break space, U+00A0"
};

/// Returns the first character of `text` that is invisible, or that looks like a blank, a hyphen or
/// a quotation mark without being the ASCII one.
std::optional<OddCharacter> find_odd(std::string_view text);

/// Returns " (WHAT holds a soft hyphen, U+00AD)" for messages; "" if find_odd() finds nothing.
std::string odd_note(std::string_view text, std::string_view what = "which");

/// Returns a name for people, printable and unambiguous: from_octal() restores the name.
std::string escaped(std::string_view name);

/// Returns any bytes as UTF-8. Invalid bytes become \ooo (octal). A backslash that begins such a
/// sequence becomes \134.
std::string in_octal(std::string_view bytes);
/// Returns whether in_octal() changes it.
bool needs_octal(std::string_view bytes);
/// Restores the original of a text that in_octal() or escaped() returned.
std::string from_octal(std::string_view text);

/// Returns the candidate nearest to `word` (edit distance at most a third of its length, at least
/// 1); "" if no candidate is near.
std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates);

/// Returns `text` quoted as one word of a shell. For advice to a reader: another user may have
/// chosen the name. Control characters become '?'.
std::string as_word(std::string_view text);

}  // namespace efs
