// SPDX-License-Identifier: BSD-3-Clause
#include "stage/pfs/spelling.hpp"

#include <climits>
#include <clocale>
#include <cwctype>

#include <algorithm>
#include <cwchar>
#include <iterator>
#include <span>

#include "base/checksum.hpp"

namespace efs::stage {
namespace {

constexpr std::size_t most_names = 1'000'000;  // upper bound on remembered names

bool is_ascii(std::string_view text) {
  return std::ranges::all_of(text, [](char c) { return static_cast<unsigned char>(c) < 0x80; });
}

char lower_ascii(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

/// A Unicode locale, independent of the user's; null if the C library has none. Never freed.
locale_t unicode() {
  static const locale_t locale = ::newlocale(LC_CTYPE_MASK, "C.UTF-8", nullptr);
  return locale;
}

/// Bytes that are not UTF-8 stay unchanged.
std::string lower_unicode(std::string_view text) {
  std::string lower;
  const locale_t before = ::uselocale(unicode());
  std::mbstate_t reading{}, writing{};
  while (!text.empty()) {
    wchar_t wide = 0;
    const std::size_t length = std::mbrtowc(&wide, text.data(), text.size(), &reading);
    char bytes[MB_LEN_MAX];
    const std::size_t written =
        length == 0 || length > text.size()
            ? 0
            : std::wcrtomb(bytes, static_cast<wchar_t>(std::towlower(static_cast<wint_t>(wide))),
                           &writing);
    if (written == 0 || written > sizeof bytes) {
      lower += lower_ascii(text.front());
      text.remove_prefix(1);
      reading = writing = {};
      continue;
    }
    lower.append(bytes, written);
    text.remove_prefix(length);
  }
  ::uselocale(before);
  return lower;
}

}  // namespace

std::uint64_t case_folded(std::string_view path) {
  std::string lower;
  if (is_ascii(path) || unicode() == nullptr) {
    std::ranges::transform(path, std::back_inserter(lower), lower_ascii);
  } else {
    lower = lower_unicode(path);
  }
  return checksum(std::as_bytes(std::span(lower)));
}

std::vector<const fs::WalkItem*> move_twins_back(std::vector<const fs::WalkItem*>& items,
                                                 std::span<const fs::WalkItem> all) {
  std::unordered_map<std::uint64_t, const fs::WalkItem*> firsts;  // by folded name
  firsts.reserve(items.size());
  for (const auto& item : all) {
    if (item.pfs.is_exported() && !S_ISDIR(item.attributes.st_mode)) {
      firsts.try_emplace(case_folded(item.path), &item);
    }
  }
  std::vector<const fs::WalkItem*> elders;
  std::ranges::stable_partition(items, [&](const fs::WalkItem* item) {
    const auto [first, is_first] = firsts.try_emplace(case_folded(item->path), item);
    const bool is_twin = !is_first && first->second != item;
    if (is_twin) {
      elders.push_back(first->second);
    }
    return !is_twin;
  });
  return elders;
}

bool SpelledNames::is_anothers(const std::string& path, PfsRef directory, const std::string& name) {
  {
    const MutexLock lock(mutex_);
    if (const auto known = listed_.find(path);
        known != listed_.end() && known->second.exact.contains(name)) {
      return false;
    }
  }
  const auto names = pfs_.list(directory);
  if (!names) {
    return false;
  }
  const MutexLock lock(mutex_);
  if (names_ + names->size() > most_names) {
    listed_.clear(), names_ = 0;
  }
  Names& known = listed_[path];
  names_ -= known.exact.size();
  known = {.exact = {names->begin(), names->end()}, .folded = {}};
  for (const auto& one : *names) {
    known.folded.insert(case_folded(one));
  }
  names_ += known.exact.size();
  return !known.exact.contains(name) && known.folded.contains(case_folded(name));
}

}  // namespace efs::stage
