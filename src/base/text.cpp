#include "base/text.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <numeric>
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

std::string printable(std::string_view text, bool lines) {
  std::string shown;
  shown.reserve(text.size());
  const auto octal = [&](unsigned char c) {
    shown += '\\';
    for (const int shift : {6, 3, 0}) shown += static_cast<char>('0' + (c >> shift & 7));
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const auto next = static_cast<unsigned char>(i + 1 < text.size() ? text[i + 1] : 0);
    const bool c1 = c == 0xc2 && next >= 0x80 && next < 0xa0;  // controls, too, in UTF-8
    if (c1) octal(c), octal(next), ++i;
    else if ((c < 0x20 && !(lines && c == '\n')) || c == 0x7f) octal(c);
    else shown += text[i];
  }
  return shown;
}

// Levenshtein's distance, one row at a time.
static std::size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t substitute = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({substitute, row[j] + 1, row[j - 1] + 1});
    }
  }
  return row.back();
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

}  // namespace efs
