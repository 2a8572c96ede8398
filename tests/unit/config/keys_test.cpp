// SPDX-License-Identifier: BSD-3-Clause
// The table of keys, and the manual pages beside it.
#include <catch2/catch_test_macros.hpp>

#include <algorithm>
#include <fstream>
#include <map>
#include <set>
#include <sstream>
#include <string>

#include "base/text.hpp"
#include "config/keys.hpp"

using namespace efs::config;

namespace {

// The text in brackets behind the term NAME in the section SECTION of a manual page.
std::string bracket_of(std::istream& page, const std::string& section, std::string_view name) {
  std::string in;
  for (std::string line; std::getline(page, line);) {
    if (line.starts_with(".SH ")) {
      in = line.substr(4);
    }
    const std::string term = ".BR " + std::string(name) + " \"";
    if (in == section && line.starts_with(term)) {
      return line.substr(term.size());
    }
  }
  return "";
}

// What the page must say of a key: its words or bounds, its default, and that it is mandatory.
template <typename Owner>
std::vector<std::string> expected(const KeyOf<Owner>& key) {
  std::vector<std::string> words;
  if (key.name == "type") {
    return {"default DRAM"};  // its values are terms of their own
  }
  for (const auto& word : key.range.words) {
    if (word.name != "yes" && word.name != "no" && word.name != "on" && word.name != "off") {
      words.emplace_back(word.name);
    }
  }
  const auto& range = key.range;
  if (range.type == Type::size && range.suffix.empty()) {
    words.push_back(efs::format_bytes(range.least));
    if (range.most != no_limit) {
      words.push_back(efs::format_bytes(range.most));
    }
  }
  if ((range.type == Type::number && range.suffix.empty()) || range.type == Type::seconds) {
    const auto least = static_cast<int>(range.least);
    words.push_back((least < 0 ? "\\" : "") + std::to_string(least) + " to " +
                    std::to_string(range.most));
  }
  const auto fallback = shown(key, Owner{});
  if (key.absent.empty() && key.field.get != nullptr && key.name != "vanished" && fallback) {
    words.push_back("default " + *fallback);
  }
  if ((key.flags & mandatory) != 0) {
    words.emplace_back("mandatory");
  }
  return words;
}

template <typename Owner>
std::string missing_from_page(const std::string& text, const std::string& section,
                              const KeyOf<Owner>& key) {
  std::istringstream page(text);
  const std::string bracket = bracket_of(page, section, key.name);
  for (const auto& word : expected(key)) {
    if (!bracket.contains(word)) {
      return std::string(key.name) + ": no '" + word + "' in: " + bracket;
    }
  }
  return "";
}

std::string page_of(const std::string& name) {
  std::ifstream page(std::string(EFS_SOURCE_DIR) + "/man/" + name);
  REQUIRE(page);
  return {std::istreambuf_iterator<char>(page), {}};
}

template <typename Owner>
void check_section(const std::string& text, const std::string& section,
                   std::span<const KeyOf<Owner>> keys) {
  for (const auto& key : keys) {
    CHECK(missing_from_page(text, section, key) == "");
  }
}

// A value that is not the default, as the file has it.
template <typename Owner>
std::string other_value(const KeyOf<Owner>& key) {
  const auto fallback = shown(key, Owner{});
  switch (key.range.type) {
    case Type::choice:
      for (const auto& word : key.range.words) {
        if (word.name != fallback) {
          return std::string(word.name);
        }
      }
      return "";
    case Type::size: return efs::format_bytes(std::max<std::uint64_t>(key.range.least, 3u << 20));
    case Type::mode: return "0640";
    case Type::number:
    case Type::seconds: {
      const auto least = static_cast<std::int64_t>(key.range.least);  // may be negative
      return std::to_string(std::max<std::int64_t>(least, 7));
    }
    case Type::path:
    case Type::directory: return "/some/where";
    default: return "word";
  }
}

template <typename Owner>
void check_round(std::span<const KeyOf<Owner>> keys) {
  for (const auto& key : keys) {
    if ((key.flags & read_elsewhere) != 0) {
      continue;
    }
    INFO(key.name);
    const std::string text = other_value(key);
    Section section{.title = "here"};
    section.values[std::string(key.name)] = {.text = text, .mark = {}};
    ProblemList problems;
    Owner owner;
    const auto before = shown(key, owner);
    read_key(section, key, owner, problems);
    CHECK(problems.empty());
    const auto after = shown(key, owner);
    REQUIRE(after);
    CHECK(after != before);
    CHECK(after->starts_with(text));
  }
}

}  // namespace

TEST_CASE("what a key has read is what it shows", "[config][keys]") {
  check_round(settings_keys());
  check_round(backend_keys());
  check_round(tier_keys());
  check_round(resource_keys());
  check_round(output_keys());
}

TEST_CASE("every key has a line of help and is there once", "[config][keys]") {
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const auto& key : describe_keys()) {
    INFO(key.section << " " << key.name);
    CHECK(seen.emplace(key.section, key.name).second);
    CHECK(key.help.size() > 5);
    CHECK(key.help.size() <= 80);
    CHECK_FALSE(key.values.empty());
    CHECK_FALSE(key.values.contains(' '));
  }
  CHECK(seen.size() == 70);
}

TEST_CASE("keys of one name have one kind of expansion", "[config][keys]") {
  std::map<std::string_view, std::set<Type>> types;
  const auto add = [&](const auto& keys) {
    for (const auto& key : keys) {
      types[key.name].insert(key.range.type);
    }
  };
  add(settings_keys());
  add(backend_keys());
  add(tier_keys());
  add(resource_keys());
  add(output_keys());
  for (const auto& [name, all] : types) {
    INFO(name);
    CHECK(all.size() == 1);
    CHECK(type_of(name) == *all.begin());
  }
  CHECK_FALSE(type_of("nosuch"));
}

TEST_CASE("every limit of a site is that of a key", "[config][keys]") {
  for (const auto& limit : limit_keys()) {
    INFO(limit.name);
    CHECK((find_key(settings_keys(), limit.name) != nullptr ||
           find_key(backend_keys(), limit.name) != nullptr));
  }
}

TEST_CASE("efs-job(5) has the values and the default of every key", "[config][keys]") {
  const std::string page = page_of("efs-job.5");
  check_section(page, "GLOBAL-SETTINGS", settings_keys());
  check_section(page, "BACKENDS", backend_keys());
  check_section(page, "TIERS", tier_keys());
  check_section(page, "RESOURCES", resource_keys());
  check_section(page, "OUTPUTS", output_keys());
  const auto& retries = *find_key(settings_keys(), "retries");
  const std::string wrong = ".SH GLOBAL-SETTINGS\n.TP\n.BR retries \" (0 to 99, default 6)\"\n";
  CHECK(missing_from_page(wrong, "GLOBAL-SETTINGS", retries).starts_with("retries: no '0 to 100'"));
}
