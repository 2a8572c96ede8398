// SPDX-License-Identifier: BSD-3-Clause
#include "record/selection.hpp"

#include <algorithm>
#include <map>
#include <set>
#include <string_view>
#include <utility>

namespace efs::record {
namespace {

constexpr std::size_t least_for_pattern = 3;
constexpr std::string_view python_cache = "__pycache__";

std::string name_of(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

// Returns ".nc" of "a/b.nc"; "" if the name has no extension, or a period in front, which * does
// not match.
std::string extension_of(const std::string& path) {
  const std::string name = name_of(path);
  const auto period = name.rfind('.');
  return period == name.npos || name.starts_with('.') ? "" : name.substr(period);
}

std::string join(const std::string& directory, const std::string& name) {
  return directory.empty() ? name : directory + "/" + name;
}

// Returns whether a sorted set has a path below the directory.
template <typename Container>
bool has_below(const Container& paths, const std::string& directory) {
  const auto found = paths.lower_bound(directory + "/");
  return found != paths.end() && found->starts_with(directory + "/");
}

template <typename Container>
bool has_above(const Container& paths, const std::string& path) {
  for (std::string above = path; !above.empty(); above = parent_of(above)) {
    if (paths.contains(above)) {
      return true;
    }
  }
  return false;
}

// Returns the length of a UTF-8 character with this first byte; 0: no character has it.
std::size_t length_by(unsigned char first) {
  if (first < 0x80) {
    return 1;
  }
  if (first < 0xC2 || first > 0xF4) {
    return 0;
  }
  return first < 0xE0 ? 2 : first < 0xF0 ? 3 : 4;
}

// Returns the length of the UTF-8 character in front; 0: its first byte is not UTF-8.
std::size_t length_of_character(std::string_view text) {
  const std::size_t length = length_by(static_cast<unsigned char>(text.front()));
  const bool is_whole = length > 0 && length <= text.size() &&
                        std::ranges::all_of(text.substr(1, length - 1), [](char c) {
                          return (static_cast<unsigned char>(c) >> 6) == 2;
                        });
  return is_whole ? length : 0;
}

bool is_literal(std::string_view path) {
  while (!path.empty()) {
    const std::size_t length = length_of_character(path);
    if (length == 0 || std::string_view("*?[").contains(path.front())) {
      return false;
    }
    path.remove_prefix(length);
  }
  return true;
}

std::string as_pattern(std::string_view path) {
  std::string pattern;
  while (!path.empty()) {
    const std::size_t length = length_of_character(path);
    const char c = path.front();
    if (length == 0) {
      pattern += '?';
    } else if (c == '*' || c == '?' || c == '[') {
      pattern += std::string{'[', c, ']'};
    } else {
      pattern += c == '\\' ? std::string("\\\\") : std::string(path.substr(0, length));
    }
    path.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return pattern;
}

std::string pattern_of(const std::string& directory, const std::string& extension) {
  return join(as_pattern(directory), "*" + as_pattern(extension));
}

// Files and bytes that the program did not use; an upper bound ends the count.
struct Unused {
  std::uint64_t files = 0, bytes = 0;
};

class Selector {
 public:
  Selector(const Summary& summary, std::string root, const Tree& tree)
      : summary_(summary), root_(std::move(root)), tree_(tree) {
    for (const auto& input : summary.inputs) {
      if (!input.is_gone) {
        inputs_.emplace(input.path, &input);
        paths_.insert(input.path);
      }
    }
    for (const auto* products : {&summary.results, &summary.temporaries}) {
      for (const auto& product : *products) {
        products_.insert(product.path);
      }
    }
    products_.insert(summary.made_directories.begin(), summary.made_directories.end());
  }

  std::vector<Resource> choose() {
    choose_directories();
    choose_patterns();
    for (const auto& [path, input] : inputs_) {
      if (!chosen_.contains(path) && !has_above(whole_, path)) {
        resources_.push_back({.path = as_job_path(path),
                              .files = 1,
                              .bytes = input->bytes,
                              .note = input->is_changed ? "the program changed it" : "",
                              .follow = input->leads_out});
      }
    }
    choose_written_directories();
    std::ranges::stable_sort(resources_, {}, &Resource::path);
    add_gone();
    return std::move(resources_);
  }

 private:
  void choose_directories() {
    std::set<std::string> candidates;
    for (const auto& path : paths_) {
      for (auto above = parent_of(path); !above.empty(); above = parent_of(above)) {
        candidates.insert(above);
      }
    }
    for (const auto& directory : candidates) {
      if (!has_above(whole_, directory) && !has_below(products_, directory)) {
        try_whole(directory);
      }
    }
  }

  void try_whole(const std::string& directory) {
    std::uint64_t files = 0, bytes = 0;
    for (auto it = inputs_.lower_bound(directory + "/");
         it != inputs_.end() && is_below(it->first, directory); ++it) {
      if (it->second->leads_out) {
        return;
      }
      ++files;
      bytes += it->second->bytes;
    }
    Unused unused;
    if (files > 1 && count_unused(directory, {.files = files - 1, .bytes = bytes}, unused)) {
      whole_.insert(directory);
      resources_.push_back({.path = as_job_path(directory),
                            .files = files + unused.files,
                            .bytes = bytes + unused.bytes,
                            .note = unused.files == 0 ? "" : unused_text(unused.files)});
    }
  }

  static std::string unused_text(std::uint64_t files) {
    return std::to_string(files) + " of them not read";
  }

  // Returns false as soon as more than `most` is unused.
  bool count_unused(const std::string& directory, const Unused& most, Unused& unused) const {
    for (const auto& name : tree_.names(join(root_, directory))) {
      const std::string path = join(directory, name);
      const auto node = tree_.look(join(root_, path));
      if (node && node->type == Node::Type::directory) {
        if (!count_unused(path, most, unused)) {
          return false;
        }
      } else if (node && !paths_.contains(path) && !products_.contains(path)) {
        ++unused.files;
        unused.bytes += node->bytes;
      }
      if (unused.files > most.files || unused.bytes > most.bytes) {
        return false;
      }
    }
    return true;
  }

  void choose_patterns() {
    std::map<std::pair<std::string, std::string>, std::vector<const Input*>> groups;
    for (const auto& [path, input] : inputs_) {
      const std::string extension = extension_of(path);
      if (!extension.empty() && !input->leads_out && !has_above(whole_, path)) {
        groups[{parent_of(path), extension}].push_back(input);
      }
    }
    for (const auto& [key, members] : groups) {
      const auto& [directory, extension] = key;
      if (members.size() < least_for_pattern || !are_all(directory, extension)) {
        continue;
      }
      Resource resource{.path = pattern_of(directory, extension), .files = members.size()};
      for (const auto* input : members) {
        resource.bytes += input->bytes;
        chosen_.insert(input->path);
      }
      resources_.push_back(std::move(resource));
    }
  }

  // Returns whether each name with the extension in the directory is an input and no product.
  bool are_all(const std::string& directory, const std::string& extension) const {
    return std::ranges::all_of(tree_.names(join(root_, directory)), [&](const auto& name) {
      const std::string path = join(directory, name);
      return extension_of(name) != extension ||
             (paths_.contains(path) && !products_.contains(path));
    });
  }

  // A directory with an input exists on the mount. Another one needs a resource.
  void choose_written_directories() {
    for (const auto& directory : summary_.written_directories) {
      if (has_below(paths_, directory) || has_above(whole_, directory)) {
        continue;
      }
      Unused present;
      if (count_unused(directory, {.files = 100, .bytes = 64U << 20}, present)) {
        choose_whole_written(directory);
      } else {
        choose_smallest_in(directory, present);
      }
    }
  }

  // The results of the recorded run are in the directory now.
  void choose_whole_written(const std::string& directory) {
    whole_.insert(directory);
    Resource resource{.path = as_job_path(directory),
                      .note = "the program writes there, so it must exist"};
    count_all(directory, resource);
    resources_.push_back(std::move(resource));
  }

  void count_all(const std::string& directory, Resource& resource) const {
    for (const auto& name : tree_.names(join(root_, directory))) {
      const std::string path = join(directory, name);
      const auto node = tree_.look(join(root_, path));
      if (node && node->type == Node::Type::directory) {
        count_all(path, resource);
      } else if (node) {
        ++resource.files;
        resource.bytes += node->bytes;
      }
    }
  }

  // A directory with much that the program did not use: one file in it makes it exist.
  void choose_smallest_in(const std::string& directory, const Unused& present) {
    constexpr std::size_t most_looks = 1000;
    std::string smallest;
    std::uint64_t bytes = 0;
    std::size_t looks = 0;
    for (const auto& name : tree_.names(join(root_, directory))) {
      if (++looks > most_looks) {
        break;
      }
      const std::string path = join(directory, name);
      const auto node = tree_.look(join(root_, path));
      const bool is_candidate = node && node->type == Node::Type::file && !products_.contains(path);
      if (is_candidate && (smallest.empty() || node->bytes < bytes)) {
        smallest = path;
        bytes = node->bytes;
      }
    }
    if (smallest.empty()) {
      resources_.push_back(
          {.path = as_job_path(directory),
           .files = present.files,
           .note =
               "or more; the program writes there: import it, or make the directory on the mount",
           .is_gone = true});
    } else {
      resources_.push_back({.path = as_job_path(smallest),
                            .files = 1,
                            .bytes = bytes,
                            .note = "the program writes to its directory, which must exist"});
    }
  }

  void add_gone() {
    for (const auto& input : summary_.inputs) {
      if (input.is_gone) {
        resources_.push_back({.path = as_job_path(input.path),
                              .files = input.files,
                              .bytes = input.bytes,
                              .note = "the program removed or renamed it",
                              .is_gone = true});
      }
    }
  }

  const Summary& summary_;
  const std::string root_;
  const Tree& tree_;
  std::map<std::string, const Input*> inputs_;
  std::set<std::string> paths_, products_;
  std::set<std::string> whole_;   // directories that are resources
  std::set<std::string> chosen_;  // inputs of a pattern
  std::vector<Resource> resources_;
};

bool is_python_cache(const std::string& path) {
  return ("/" + path).contains("/" + std::string(python_cache) + "/");
}

class RuleChooser {
 public:
  explicit RuleChooser(const Summary& summary)
      : made_(summary.made_directories.begin(), summary.made_directories.end()),
        written_(summary.written_directories.begin(), summary.written_directories.end()) {
    for (const auto& input : summary.inputs) {
      paths_.insert(input.path);
    }
    for (const auto& result : summary.results) {
      if (!is_python_cache(result.path)) {
        ++of_extension_[{parent_of(result.path), extension_of(result.path)}];
      }
    }
  }

  void add(const Product& result) {
    const std::string path =
        is_python_cache(result.path) ? "**/" + std::string(python_cache) + "/**" : path_for(result);
    Rule& rule = rules_[path];
    rule.path = path;
    ++rule.files;
    rule.bytes += result.bytes;
    rule.is_temporary = is_python_cache(result.path);
    // efs exports only inputs that have changed
    rule.inputs = !rule.is_temporary;
  }

  std::vector<Rule> take() {
    std::vector<Rule> rules;
    for (auto& [path, rule] : rules_) {
      rules.push_back(std::move(rule));
    }
    std::ranges::stable_partition(rules, &Rule::is_temporary);
    return rules;
  }

 private:
  // The highest directory whose files are all results, a pattern, or the result itself.
  std::string path_for(const Product& result) const {
    std::string directory;
    for (auto above = parent_of(result.path); !above.empty(); above = parent_of(above)) {
      if (made_.contains(above) || (written_.contains(above) && !has_below(paths_, above))) {
        directory = above;
      }
    }
    if (!directory.empty()) {
      return as_job_path(directory);
    }
    const std::string parent = parent_of(result.path), extension = extension_of(result.path);
    const bool is_group = !extension.empty() &&
                          of_extension_.at({parent, extension}) >= least_for_pattern &&
                          std::ranges::none_of(paths_, [&](const auto& input) {
                            return parent_of(input) == parent && extension_of(input) == extension;
                          });
    return is_group ? pattern_of(parent, extension) : as_job_path(result.path);
  }

  std::set<std::string> paths_;  // of inputs
  const std::set<std::string> made_, written_;
  std::map<std::pair<std::string, std::string>, std::size_t> of_extension_;
  std::map<std::string, Rule> rules_;
};

}  // namespace

std::vector<Resource> choose_resources(const Summary& summary, const std::string& root,
                                       const Tree& tree) {
  return Selector(summary, root, tree).choose();
}

std::vector<Rule> choose_rules(const Summary& summary) {
  RuleChooser chooser(summary);
  for (const auto& result : summary.results) {
    chooser.add(result);
  }
  return chooser.take();
}

std::string as_job_path(const std::string& path) {
  return is_literal(path) ? path : as_pattern(path);
}

}  // namespace efs::record
