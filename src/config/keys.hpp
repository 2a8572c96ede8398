// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The keys of job files and site files as one table: from it they are parsed, shown (`efs check
// --show`, `efs check --keys`) and completed; a test compares the manual pages with it. A new key
// whose value is one scalar is one line of keys.cpp and the field that the line names.

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

#include "config/document.hpp"
#include "config/job_config.hpp"
#include "config/site.hpp"

namespace efs::config {

/// The upper bound of a size that has none.
inline constexpr auto no_limit = std::numeric_limits<std::uint64_t>::max();

enum class Type : std::uint8_t {
  text,
  name,       // of the instance; expanded
  path,       // expanded, and relative to the directory of the surroundings
  directory,  // a path other than "/"
  place,      // a path below root-dir or the mount point, or a pattern; expanded
  size,       // bytes
  number,
  seconds,
  choice,  // one of `words`
  mode,    // permissions in octal
  table,   // a section, not a scalar
};

/// One of the words that a key can have as its value. The first one of a value is shown.
struct Word {
  std::string_view name;
  int value;
};

/// The values that a key can have.
struct ValueRange {
  Type type;
  std::uint64_t least = 0, most = no_limit;  // of sizes and numbers
  std::string_view suffix = {};              // may follow them in the file, and is shown: "/s"
  std::span<const Word> words = {};          // of a choice
};

enum KeyFlags : unsigned {
  plain = 0,
  mandatory = 1,
  read_elsewhere = 2,  // read_keys() leaves it to code of its own
  of_one_job = 4,      // a site file has no value for it
};

struct Key {
  std::string_view name;
  ValueRange range;
  std::string_view absent;  // shown for "", for 0 and for no value; "": those are shown as they are
  std::string_view help;    // one line
  unsigned flags = plain;
};

/// The member of Owner that holds a key's value: `text`, or a number, enumerator or bool behind
/// `put` and `get` (nullopt: an optional without value). All null: no single member holds it.
template <typename Owner>
struct Field {
  std::string Owner::* text = nullptr;
  void (*put)(Owner&, std::uint64_t) = nullptr;
  std::optional<std::uint64_t> (*get)(const Owner&) = nullptr;
};

template <typename Owner>
struct KeyOf : Key {
  Field<Owner> field = {};
};

std::span<const KeyOf<JobConfig>> settings_keys();
std::span<const KeyOf<Backend>> backend_keys();
std::span<const KeyOf<Tiers>> tier_keys();
std::span<const KeyOf<Resource>> resource_keys();
std::span<const KeyOf<OutputRule>> output_keys();
std::span<const KeyOf<Site>> site_keys();
/// Limits of the keys of the same name.
std::span<const KeyOf<Site>> limit_keys();

/// The key of this name; null where there is none.
template <typename Owner>
const KeyOf<Owner>* find_key(std::span<const KeyOf<Owner>> keys, std::string_view name) {
  for (const auto& key : keys) {
    if (key.name == name) {
      return &key;
    }
  }
  return nullptr;
}

/// Of the key of a job file, in whichever section; nullopt where there is none. (Keys of one name
/// in several sections have one type.)
std::optional<Type> type_of(std::string_view name);

/// The value of `key` in `section`; nullopt where it is absent or bad (reported).
std::optional<std::string> read_text(const Section& section, const Key& key, ProblemList& problems);
std::optional<std::uint64_t> read_value(const Section& section, const Key& key,
                                        ProblemList& problems);

/// Reads `text` as a value of the key of this name in global-settings, which must exist and have a
/// number or a size as its value. EINVAL with a text if it is none.
Result<std::uint64_t> parse_setting(std::string_view key, const std::string& text);

/// Puts the value of `key` into its field, which keeps what it has where the section has no good
/// value.
template <typename Owner>
void read_key(const Section& section, const KeyOf<Owner>& key, Owner& owner,
              ProblemList& problems) {
  if ((key.flags & mandatory) != 0) {
    section.require(key.name, problems);
  }
  if (key.field.text != nullptr) {
    if (auto text = read_text(section, key, problems)) {
      owner.*key.field.text = std::move(*text);
    }
  } else if (const auto value = read_value(section, key, problems)) {
    key.field.put(owner, *value);
  }
}

/// read_key() of all keys that are not read elsewhere.
template <typename Owner>
void read_keys(const Section& section, std::span<const KeyOf<Owner>> keys, Owner& owner,
               ProblemList& problems) {
  for (const auto& key : keys) {
    if ((key.flags & read_elsewhere) == 0) {
      read_key(section, key, owner, problems);
    }
  }
}

/// A value for people, as efs uses it.
std::string shown(const Key& key, std::optional<std::uint64_t> value);

/// That of the field; nullopt where no single member holds it.
template <typename Owner>
std::optional<std::string> shown(const KeyOf<Owner>& key, const Owner& owner) {
  if (key.field.text != nullptr) {
    const std::string& text = owner.*key.field.text;
    return text.empty() ? std::string(key.absent) : text;
  }
  return key.field.get != nullptr ? std::optional(shown(key, key.field.get(owner))) : std::nullopt;
}

/// One key of a job file, for people and for completion.
struct KeyDescription {
  std::string_view section, name;
  std::string values;     // "path", "size", "number", or "fail|skip"
  std::string fallback;   // shown() of the default; "": none, or another key decides
  std::string_view site;  // what a site file may do: "", "fix" or "fix,limit"
  std::string_view help;
  bool is_mandatory = false;
};

/// All of them, by section, in the order of the table.
std::vector<KeyDescription> describe_keys();

}  // namespace efs::config
