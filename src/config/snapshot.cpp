// SPDX-License-Identifier: BSD-3-Clause
#include "config/snapshot.hpp"

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "config/expand.hpp"
#include "config/yaml_text.hpp"

namespace efs::config {
namespace {

std::string text_for_nodes(std::string_view key, const Value& value) {
  if (!is_expanded(key)) {
    return value.text;
  }
  const std::string text =
      value.source == Source::command_line ? escape(value.text) : value.for_nodes;
  if (text.starts_with('/')) {
    return text;
  }
  if (!is_path_of_its_own(key)) {
    return text.starts_with('~') ? "./" + text : text;
  }
  std::error_code gone;
  // a removed working directory is already reported
  return escape(std::filesystem::current_path(gone).string()) + "/" + text;
}

// Writes flow style with brackets: there, lines can be broken anywhere.
class Writer {
 public:
  explicit Writer(ProblemList& problems) : problems_(problems) {}

  void section(const Section& section) {
    std::vector<std::pair<std::string_view, const Value*>> values;
    for (const auto& [key, value] : section.values) {
      if (value.source != Source::site) {
        values.emplace_back(key, &value);
      }
    }
    std::ranges::stable_sort(values, {}, [](const auto& entry) {
      return std::pair(entry.second->mark.line, entry.second->mark.column);
    });
    go_to(section.mark.line);
    text_ += "{";
    for (const auto& [key, value] : values) {
      go_to(value->mark.line);
      text_ += std::string(key) + ": ";
      put(key, *value);
      text_ += ", ";
    }
    text_ += "}, ";
  }

  void list(std::string_view title, const std::vector<Section>& sections) {
    begin(title, sections.front().mark.line);
    text_ += "[";
    for (const auto& one : sections) {
      section(one);
    }
    text_ += "], ";
  }

  void begin(std::string_view title, int line) {
    go_to(line);
    text_ += std::string(title) + ": ";
  }

  std::string take() { return "{" + text_ + "}\n"; }

 private:
  void go_to(int line) {
    for (; line_ < line; ++line_) {
      text_ += '\n';
    }
  }

  void put(std::string_view key, const Value& value) {
    if (!value.words.empty()) {
      return put_list(value.words);
    }
    const auto text = text_for_nodes(key, value);
    const auto written = yaml_string(text);
    const auto read = read_yaml(written);
    if (read && read->text == text) {
      text_ += written;
    } else {
      problems_.add(value.mark,
                    in_quotes(key) + " is " + in_quotes(text) + ", which no job file can hold",
                    "name a path in UTF-8");
    }
  }

  void put_list(const std::vector<std::string>& words) {
    text_ += "[";
    for (const auto& word : words) {
      text_ += yaml_string(word) + ", ";
    }
    text_ += "]";
  }

  ProblemList& problems_;
  std::string text_;
  int line_ = 1;
};

}  // namespace

std::string write_snapshot(const Document& document, ProblemList& problems) {
  struct Group {
    std::string_view title;
    const Section* table;
    const std::vector<Section>* list;  // null: `table`
    int line;
  };

  std::vector<Group> groups{
      {"global-settings", &document.settings, nullptr, document.settings.mark.line}};
  if (document.tiers) {
    groups.push_back({"tiers", &*document.tiers, nullptr, document.tiers->mark.line});
  }
  const auto is_of_site = [](const Section& section) {
    return !section.mark.origin.empty();
  };
  for (const auto& [title, list] :
       {std::pair{"backends", &document.backends}, std::pair{"resources", &document.resources},
        std::pair{"outputs", &document.outputs}}) {
    if (!list->empty() && !is_of_site(list->front())) {
      groups.push_back({title, nullptr, list, list->front().mark.line});
    }
  }
  std::ranges::stable_sort(groups, {}, &Group::line);
  Writer writer(problems);
  for (const auto& [title, table, list, line] : groups) {
    if (list != nullptr) {
      writer.list(title, *list);
      continue;
    }
    writer.begin(title, line);
    writer.section(*table);
  }
  return writer.take();
}

}  // namespace efs::config
