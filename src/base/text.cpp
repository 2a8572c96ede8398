// SPDX-License-Identifier: BSD-3-Clause
#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <cstdio>
#include <numeric>
#include <utility>
#include <vector>

namespace efs {

std::string format_bytes(std::uint64_t bytes) {
  static constexpr std::array units{"B", "KiB", "MiB", "GiB", "TiB", "PiB", "EiB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < units.size()) {
    value /= 1024;
    ++unit;
  }
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), unit == 0 ? "%.0f %s" : "%.4g %s", value, units.at(unit));
  return text.data();
}

std::string format_seconds(double seconds) {
  std::array<char, 32> text{};
  const auto whole = static_cast<long>(seconds);
  if (seconds < 60) {
    std::snprintf(text.data(), text.size(), "%.1f s", seconds);
  } else if (seconds < 3600) {
    std::snprintf(text.data(), text.size(), "%ldm%02lds", whole / 60, whole % 60);
  } else {
    std::snprintf(text.data(), text.size(), "%ldh%02ldm", whole / 3600, whole / 60 % 60);
  }
  return text.data();
}

namespace {

struct Lead {
  unsigned first, last;                // first bytes of a character
  std::size_t length;                  // bytes of the character
  unsigned second_first, second_last;  // valid second bytes
};

// The second byte excludes overlong forms, surrogates, and code points beyond U+10FFFF.
constexpr std::array leads{
    Lead{0x00, 0x7F, 1, 0x00, 0x00}, Lead{0xC2, 0xDF, 2, 0x80, 0xBF},
    Lead{0xE0, 0xE0, 3, 0xA0, 0xBF}, Lead{0xE1, 0xEC, 3, 0x80, 0xBF},
    Lead{0xED, 0xED, 3, 0x80, 0x9F}, Lead{0xEE, 0xEF, 3, 0x80, 0xBF},
    Lead{0xF0, 0xF0, 4, 0x90, 0xBF}, Lead{0xF1, 0xF3, 4, 0x80, 0xBF},
    Lead{0xF4, 0xF4, 4, 0x80, 0x8F},
};

// Returns the length in bytes of the first character of `text`. Returns 0 for invalid UTF-8: cut
// short, overlong, a surrogate, or beyond U+10FFFF.
std::size_t utf8_length(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return i < text.size() ? static_cast<unsigned char>(text[i]) : 0U;
  };
  const auto lead = std::ranges::find_if(leads, [first = byte(0)](const Lead& range) {
    return first >= range.first && first <= range.last;
  });
  if (lead == leads.end()) {
    return 0;
  }
  if (lead->length > 1 && (byte(1) < lead->second_first || byte(1) > lead->second_last)) {
    return 0;
  }
  for (std::size_t i = 2; i < lead->length; ++i) {
    if ((byte(i) & 0xC0) != 0x80) {
      return 0;
    }
  }
  return lead->length;
}

// Returns whether `text` begins with an octal escape.
bool is_octal(std::string_view text) {
  const auto digit = [&](std::size_t i, char last) {
    return text[i] >= '0' && text[i] <= last;
  };
  return text.size() >= 4 && text[0] == '\\' && digit(1, '3') && digit(2, '7') && digit(3, '7');
}

// Returns whether the first character of `text` controls a terminal. U+0080 to U+009F do, too.
bool is_control(std::string_view text) {
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  return byte(0) < 0x20 || byte(0) == 0x7F || (byte(0) == 0xC2 && byte(1) < 0xA0);
}

// Returns the code point of the valid first character of `text`.
char32_t code_point(std::string_view text, std::size_t length) {
  const auto byte = [&](std::size_t i) {
    return static_cast<unsigned char>(text[i]);
  };
  char32_t code = length == 1 ? byte(0) : byte(0) & (0x7FU >> length);
  for (std::size_t i = 1; i < length; ++i) {
    code = code << 6U | (byte(i) & 0x3FU);
  }
  return code;
}

struct Odd {
  char32_t first, last;
  const char* name;
  bool is_seen;  // visible, but the reader takes it for another character
};

constexpr std::array odd_characters{
    Odd{0xA0, 0xA0, "a no-break space", false},
    Odd{0xAD, 0xAD, "a soft hyphen", false},
    Odd{0x34F, 0x34F, "an invisible character", false},
    Odd{0x61C, 0x61C, "a mark of direction", false},
    Odd{0x115F, 0x1160, "an invisible character", false},
    Odd{0x1680, 0x1680, "an odd space", false},
    Odd{0x17B4, 0x17B5, "an invisible character", false},
    Odd{0x180B, 0x180E, "an invisible character", false},
    Odd{0x2000, 0x200A, "an odd space", false},
    Odd{0x200B, 0x200B, "a zero-width space", false},
    Odd{0x200C, 0x200D, "a zero-width joiner", false},
    Odd{0x200E, 0x200F, "a mark of direction", false},
    Odd{0x2010, 0x2011, "a hyphen that is not -", true},
    Odd{0x2012, 0x2012, "a figure dash", true},
    Odd{0x2013, 0x2013, "an en dash", true},
    Odd{0x2014, 0x2015, "an em dash", true},
    Odd{0x2018, 0x201F, "a typographic quotation mark", true},
    Odd{0x2028, 0x2029, "a line separator", false},
    Odd{0x202A, 0x202E, "a mark of direction", false},
    Odd{0x202F, 0x202F, "a narrow no-break space", false},
    Odd{0x205F, 0x205F, "an odd space", false},
    Odd{0x2060, 0x2060, "a word joiner", false},
    Odd{0x2061, 0x206F, "an invisible character", false},
    Odd{0x2212, 0x2212, "a minus sign that is not -", true},
    Odd{0x3000, 0x3000, "an ideographic space", false},
    Odd{0x3164, 0x3164, "an invisible character", false},
    Odd{0xFEFF, 0xFEFF, "a byte order mark", false},
    Odd{0xFFA0, 0xFFA0, "an invisible character", false},
    Odd{0xFFF9, 0xFFFB, "an invisible character", false},
    Odd{0xE0000, 0xE0FFF, "an invisible character", false},
};

// Returns the entry for the first character of `text`; null for an ordinary character.
const Odd* odd_at(std::string_view text) {
  const std::size_t length = utf8_length(text);
  if (length < 2) {
    return nullptr;
  }
  const char32_t code = code_point(text, length);
  const auto odd = std::ranges::find_if(
      odd_characters, [code](const Odd& o) { return o.first <= code && code <= o.last; });
  return odd == odd_characters.end() ? nullptr : &*odd;
}

// Returns whether a message shows the first character of `text` in octal.
bool is_unseen(std::string_view text) {
  if (is_control(text)) {
    return true;
  }
  const Odd* odd = odd_at(text);
  return odd != nullptr && !odd->is_seen;
}

// Writes invalid UTF-8, and characters for which `special` holds, in octal.
template <typename Special>
std::string with_octal(std::string_view text, const Special& special) {
  std::string shown;
  shown.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const auto character = text.substr(0, std::max<std::size_t>(length, 1));
    if (length == 0 || special(text)) {
      for (const char c : character) {
        shown += '\\';
        for (const int shift : {6, 3, 0}) {
          shown += static_cast<char>('0' + (static_cast<unsigned char>(c) >> shift & 7));
        }
      }
    } else {
      shown += character;
    }
    text.remove_prefix(character.size());
  }
  return shown;
}

}  // namespace

std::optional<OddCharacter> find_odd(std::string_view text) {
  for (std::size_t at = 0, length = 0; at < text.size(); at += std::max<std::size_t>(length, 1)) {
    const auto rest = text.substr(at);
    length = utf8_length(rest);
    const Odd* odd = odd_at(rest);
    if (odd == nullptr) {
      continue;
    }
    std::array<char, 32> code{};
    std::snprintf(code.data(), code.size(), ", U+%04X",
                  static_cast<unsigned>(code_point(rest, length)));
    return OddCharacter{.at = at, .length = length, .name = odd->name + std::string(code.data())};
  }
  return std::nullopt;
}

std::string odd_note(std::string_view text, std::string_view what) {
  const auto odd = find_odd(text);
  return odd ? " (" + std::string(what) + " holds " + odd->name + ")" : "";
}

std::string printable(std::string_view text, bool lines) {
  return with_octal(text, [lines](std::string_view rest) {
    return is_unseen(rest) && !(lines && rest.front() == '\n');
  });
}

std::string escaped(std::string_view name) {
  return with_octal(name, [](std::string_view rest) { return is_unseen(rest) || is_octal(rest); });
}

std::string in_octal(std::string_view bytes) {
  return with_octal(bytes, is_octal);
}

bool needs_octal(std::string_view bytes) {
  for (; !bytes.empty(); bytes.remove_prefix(utf8_length(bytes))) {
    if (utf8_length(bytes) == 0 || is_octal(bytes)) {
      return true;
    }
  }
  return false;
}

std::string from_octal(std::string_view text) {
  std::string bytes;
  bytes.reserve(text.size());
  while (!text.empty()) {
    const bool octal = is_octal(text);
    bytes += octal
                 ? static_cast<char>((text[1] - '0') << 6 | (text[2] - '0') << 3 | (text[3] - '0'))
                 : text.front();
    text.remove_prefix(octal ? 4 : 1);
  }
  return bytes;
}

// Levenshtein's distance, computed row by row; a swap of two neighbours counts once.
static std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> before, last(b.size() + 1), row(b.size() + 1);
  std::iota(last.begin(), last.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({substitute, last[j] + 1, row[j - 1] + 1});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    before = std::exchange(last, row);
  }
  return last.back();
}

std::string_view nearest(std::string_view word, std::span<const std::string_view> candidates) {
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(1, word.size() / 3) + 1;
  for (const auto candidate : candidates) {
    if (const auto d = distance(word, candidate); d < best_distance) {
      best = candidate;
      best_distance = d;
    }
  }
  return best;
}

std::string as_word(std::string_view text) {
  constexpr std::string_view harmless = "/._-+,:=@%";
  std::string word;
  bool plain = !text.empty();
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if ((byte >= 0x80 || std::isalnum(byte) != 0 || harmless.contains(c))) {
      word += c;
    } else if (plain = false; c == '\'') {
      word += "'\\''";
    } else {
      word += byte < 0x20 || byte == 0x7f ? '?' : c;
    }
  }
  return plain ? word : "'" + word + "'";
}

}  // namespace efs
