// SPDX-License-Identifier: BSD-3-Clause
#include "config/document.hpp"

#include <algorithm>
#include <array>
#include <span>
#include <utility>

#include "base/text.hpp"

namespace efs::config {
namespace {

using Kind = YamlNode::Kind;
using Keys = std::span<const std::string_view>;

bool contains(Keys keys, std::string_view key) {
  return std::ranges::find(keys, key) != keys.end();
}

Keys keys_of(std::string_view section) {
  return std::ranges::find(schema(), section, &SectionKeys::section)->keys;
}

struct Pair {
  std::string key;
  Mark mark;
  const YamlNode* value;
};

void pairs_of_map(const YamlNode& map, std::vector<Pair>& pairs, ProblemList& problems) {
  for (std::size_t i = 0; i + 1 < map.items.size(); i += 2) {
    const auto& key = map.items[i];
    if (key.kind == Kind::scalar) {
      pairs.push_back({key.text, key.mark, &map.items[i + 1]});
    } else {
      problems.add(key.kind == Kind::null ? map.mark : key.mark, "a key must be a word",
                   "write KEY: VALUE");
    }
  }
}

// Reads the (key, value) pairs of a table in either grammar: a map, or the ancestor's sequence of
// (single-pair) maps. Reports any other node and returns false.
bool read_pairs(const YamlNode& node, std::string_view title, std::vector<Pair>& pairs,
                ProblemList& problems) {
  if (node.kind == Kind::null) {
    return true;
  }
  if (node.kind == Kind::map) {
    pairs_of_map(node, pairs, problems);
    return true;
  }
  bool good = node.kind == Kind::sequence;
  if (!good) {
    problems.add(node.mark,
                 std::string(title) + " must hold KEY: VALUE pairs, not " + in_quotes(node.text));
  }
  for (const auto& item : node.items) {
    if (item.kind == Kind::map) {
      pairs_of_map(item, pairs, problems);
    } else {
      problems.add(item.mark,
                   std::string(title) + " must hold KEY: VALUE pairs" +
                       (item.text.empty() ? "" : ", not " + in_quotes(item.text)),
                   "a space must follow the colon");
      good = false;
    }
  }
  return good;
}

// Suggests the section that an unknown key belongs to, or the nearest key in `keys`.
std::string suggest_key(std::string_view key, Keys keys) {
  if (const auto near = nearest(key, keys); !near.empty()) {
    return "did you mean " + in_quotes(near) + "?";
  }
  for (const auto& place : schema()) {
    if (!place.section.starts_with("site ") && contains(place.keys, key)) {
      return "it belongs to " + std::string(place.section);
    }
  }
  std::string known = "known here:";
  for (const auto candidate : keys) {
    known.append(" ").append(candidate);
  }
  return known;
}

// Drops pairs with an unknown or repeated key, and reports each.
std::vector<Pair> known_pairs(std::vector<Pair> pairs, std::string_view title, Keys keys,
                              ProblemList& problems) {
  std::map<std::string, int, std::less<>> first_lines;
  std::vector<Pair> known;
  for (auto& pair : pairs) {
    if (!contains(keys, pair.key)) {
      problems.add(pair.mark, "unknown key " + in_quotes(pair.key) + " in " + std::string(title),
                   suggest_key(pair.key, keys));
    } else if (const auto [first, is_new] = first_lines.try_emplace(pair.key, pair.mark.line);
               !is_new) {
      problems.add(pair.mark, "duplicate key " + in_quotes(pair.key) + " in " + std::string(title),
                   "it is already at line " + std::to_string(first->second) + "; remove one");
    } else {
      known.push_back(std::move(pair));
    }
  }
  return known;
}

// Reads a list of words; accepts a single word as a list.
std::vector<Value> read_words(const YamlNode& node, std::string_view name, ProblemList& problems) {
  std::vector<Value> words;
  if (node.kind == Kind::scalar) {
    words.push_back({node.text, node.mark});
  }
  for (const auto& item : node.items) {
    if (item.kind == Kind::scalar) {
      words.push_back({item.text, item.mark});
    } else {
      problems.add(item.mark, in_quotes(name) + " must be a list of words");
    }
  }
  return words;
}

// The only key whose value is a list: "order" of tiers.
bool is_list_key(std::string_view key) {
  return key == "order";
}

Value list_value(const YamlNode& node, std::string_view name, ProblemList& problems) {
  Value value{.text = {}, .mark = node.mark};
  for (auto& word : read_words(node, name, problems)) {
    value.text += (value.text.empty() ? "" : ", ") + word.text;
    value.words.push_back(std::move(word.text));
  }
  return value;
}

Section read_section(const YamlNode& node, Mark mark, std::string title, Keys keys,
                     ProblemList& problems) {
  Section section{.title = std::move(title), .mark = mark};
  std::vector<Pair> pairs;
  section.malformed = !read_pairs(node, section.title, pairs, problems);
  for (const auto& pair : known_pairs(std::move(pairs), section.title, keys, problems)) {
    const auto& value = *pair.value;
    if (value.kind == Kind::sequence && is_list_key(pair.key)) {
      section.values[pair.key] = list_value(value, pair.key, problems);
      continue;
    }
    if (value.kind == Kind::scalar && !value.text.empty()) {
      section.values[pair.key] = {value.text, value.mark};
      continue;
    }
    section.bad.insert(pair.key);
    // yaml-cpp places a null at the next token; the key's position is better.
    if (value.kind == Kind::null || value.kind == Kind::scalar) {
      problems.add(pair.mark, in_quotes(pair.key) + " has no value",
                   "give it one, or remove the key");
    } else {
      problems.add(value.mark, in_quotes(pair.key) + " must be one value, not a list",
                   "quote a value that begins with [ or {");
    }
  }
  return section;
}

// Reads a list of tables; accepts a single table as a list.
std::vector<Section> read_list(const YamlNode& node, std::string_view name,
                               const std::string& title, Keys keys, ProblemList& problems) {
  std::vector<Section> tables;
  if (node.kind == Kind::null) {
    return tables;
  }
  if (node.kind == Kind::map) {
    tables.push_back(read_section(node, node.mark, title, keys, problems));
    return tables;
  }
  if (node.kind == Kind::scalar) {
    problems.add(node.mark, in_quotes(name) + " must be a list, not " + in_quotes(node.text),
                 "see the example in efs-job(5)");
    return tables;
  }
  for (const auto& item : node.items) {
    if (item.kind == Kind::map || item.kind == Kind::sequence) {
      tables.push_back(read_section(item, item.mark, title, keys, problems));
    } else {
      problems.add(item.mark,
                   "an entry of " + in_quotes(name) + " must hold KEY: VALUE pairs" +
                       (item.text.empty() ? "" : ", not " + in_quotes(item.text)),
                   contains(keys, "path") && !item.text.empty()
                       ? "write path: \"" + item.text.substr(0, 60) + "\""
                       : "");
    }
  }
  return tables;
}

}  // namespace

const Value* Section::find(std::string_view key) const {
  const auto found = values.find(key);
  return found == values.end() ? nullptr : &found->second;
}

const Value* Section::require(std::string_view key, ProblemList& problems) const {
  const auto* value = find(key);
  if (!value && !malformed && !bad.contains(key)) {
    problems.add(
        mark, in_quotes(key) + " is missing from " + title,
        "add " + std::string(key) + ": \"...\"" +
            (key == "mount-dir" ? "; for a job of Slurm's the site says it: --at-submission" : ""));
  }
  return value;
}

Mark Section::mark_of(std::string_view key) const {
  const auto* value = find(key);
  return value ? value->mark : mark;
}

Document read_document(const YamlNode& root, ProblemList& problems) {
  Document document;
  document.settings = {.title = "global-settings", .mark = {1, 1}};
  std::vector<Pair> pairs;
  document.settings.malformed = !read_pairs(root, "the job file", pairs, problems);
  for (const auto& pair :
       known_pairs(std::move(pairs), "the job file", keys_of("the top level"), problems)) {
    if (pair.key == "global-settings") {
      document.settings =
          read_section(*pair.value, pair.mark, pair.key, settings_schema(), problems);
    } else if (pair.key == "backends") {
      document.backends =
          read_list(*pair.value, pair.key, "this backend", backend_schema(), problems);
    } else if (pair.key == "tiers") {
      document.tiers = read_section(*pair.value, pair.mark, pair.key, keys_of("tiers"), problems);
    } else if (pair.key == "resources") {
      document.resources =
          read_list(*pair.value, pair.key, "this resource", keys_of("resources"), problems);
    } else {
      document.outputs =
          read_list(*pair.value, pair.key, "this output rule", keys_of("outputs"), problems);
    }
  }
  return document;
}

SiteDocument read_site_document(const YamlNode& root, ProblemList& problems) {
  SiteDocument document;
  document.top.title = "the site file";
  std::vector<Pair> pairs;
  document.top.malformed = !read_pairs(root, document.top.title, pairs, problems);
  for (const auto& pair :
       known_pairs(std::move(pairs), document.top.title, keys_of("site file"), problems)) {
    if (pair.key == "global-settings") {
      document.settings =
          read_section(*pair.value, pair.mark, pair.key, settings_schema(), problems);
    } else if (pair.key == "limits") {
      document.limits =
          read_section(*pair.value, pair.mark, pair.key, keys_of("site limits"), problems);
    } else if (pair.key == "backends") {
      document.backends =
          read_list(*pair.value, pair.key, "this backend", backend_schema(), problems);
    } else if (pair.key == "fixed") {
      document.fixed = read_words(*pair.value, pair.key, problems);
    } else if (pair.value->kind == Kind::scalar && !pair.value->text.empty()) {
      document.top.values[pair.key] = {pair.value->text, pair.value->mark};
    } else {
      problems.add(pair.mark, in_quotes(pair.key) + " must have one value");
    }
  }
  return document;
}

}  // namespace efs::config
