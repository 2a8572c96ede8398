// SPDX-License-Identifier: BSD-3-Clause
#include "record/summary.hpp"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <set>
#include <string_view>

namespace efs::record {
namespace {

struct Touch {
  bool is_needed = false;   // used before the program made a file of the name
  bool is_made = false;     // the program made or emptied a file of the name
  bool is_changed = false;  // the program could write to the file that existed before
  bool leads_out = false;
  std::uint64_t removed_bytes = 0;
};

bool is_of_system(const std::string& path) {
  static constexpr std::array<std::string_view, 11> directories{
      "/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/proc", "/sys", "/dev", "/run", "/var"};
  return std::ranges::any_of(
      directories, [&](std::string_view one) { return is_below(path, std::string(one)); });
}

// Applies the events in their order to the names that they touch.
class Replay {
 public:
  Replay(const std::string& root, const Tree& tree) : root_(root), tree_(tree) {}

  void apply(const Event& event) {
    const bool follows = event.kind == EFS_EVENT_READ || event.kind == EFS_EVENT_UPDATE ||
                         event.kind == EFS_EVENT_OVERWRITE;
    const Resolved name = resolve(event.path, follows, tree_);
    use_links(name);
    switch (event.kind) {
      case EFS_EVENT_READ: use(name.path); break;
      case EFS_EVENT_UPDATE:
        use(name.path);
        files_[name.path].is_changed = true;
        break;
      case EFS_EVENT_OVERWRITE:
      case EFS_EVENT_CREATE: files_[name.path].is_made = true; break;
      case EFS_EVENT_REMOVE:
        use(name.path);
        files_[name.path].removed_bytes = event.size;
        break;
      case EFS_EVENT_RENAME: rename(name.path, resolve(event.second, false, tree_).path); break;
      case EFS_EVENT_MAKE_DIRECTORY: directories_.insert(name.path); break;
    }
  }

  Summary summary() {
    add_unseen_files();
    for (const auto& [path, touch] : files_) {
      add(path, touch);
    }
    for (const auto& path : directories_) {
      const auto node = tree_.look(path);
      if (is_inside(path) && node && node->type == Node::Type::directory) {
        summary_.made_directories.push_back(relative(path));
      }
      add_written_directory(path);
    }
    summary_.written_directories.assign(written_.begin(), written_.end());
    return std::move(summary_);
  }

 private:
  bool is_inside(const std::string& path) const { return path != root_ && is_below(path, root_); }

  std::string relative(const std::string& path) const { return path.substr(root_.size() + 1); }

  bool is_made(const std::string& path) const {
    const auto found = files_.find(path);
    if (found != files_.end() && found->second.is_made) {
      return true;
    }
    for (std::string above = path; !above.empty(); above = parent_of(above)) {
      if (directories_.contains(above)) {
        return true;
      }
    }
    return false;
  }

  void use(const std::string& path) {
    if (!is_made(path)) {
      files_[path].is_needed = true;
    }
  }

  void use_links(const Resolved& name) {
    for (const auto& link : name.links) {
      if (is_inside(link)) {
        use(link);
        files_[link].leads_out = !is_below(name.path, root_);
      }
    }
  }

  void rename(const std::string& from, const std::string& to) {
    use(from);
    moved_.insert_or_assign(from, to);
    const auto node = tree_.look(to);
    const bool is_directory =
        directories_.contains(from) || (node && node->type == Node::Type::directory);
    if (is_directory) {
      directories_.insert(to);
    } else {
      files_[to].is_made = true;
    }
    std::set<std::string> names;
    for (auto it = files_.lower_bound(from + "/"); it != files_.end(); ++it) {
      if (!is_below(it->first, from)) {
        break;
      }
      names.insert(to + it->first.substr(from.size()));
    }
    for (const auto& name : names) {
      files_[name].is_made = true;
    }
  }

  // A program that was not observed may have filled a directory of the program.
  void add_unseen_files() {
    const std::set<std::string> directories = directories_;
    for (const auto& directory : directories) {
      if (is_inside(directory)) {
        add_files_of(directory);
      }
    }
  }

  void add_files_of(const std::string& directory) {
    const auto node = tree_.look(directory);
    if (!node || node->type != Node::Type::directory) {
      return;
    }
    for (const auto& name : tree_.names(directory)) {
      const std::string path = directory + "/" + name;
      const auto below = tree_.look(path);
      if (below && below->type == Node::Type::directory) {
        directories_.insert(path);
        add_files_of(path);
      } else if (below) {
        files_[path].is_made = true;
      }
    }
  }

  void add(const std::string& path, const Touch& touch) {
    if (!is_inside(path)) {
      add_outside(path, touch);
      return;
    }
    const auto node = tree_.look(path);
    if (node && (node->type == Node::Type::directory || node->type == Node::Type::other)) {
      return;
    }
    if (touch.is_needed) {
      add_input(path, touch, node);
    }
    if (touch.is_made || touch.is_changed) {
      add_product(path, touch, node);
    }
  }

  // The name that something got which the program has renamed, perhaps several times.
  std::string last_name(std::string path) const {
    std::set<std::string> seen;
    for (auto found = moved_.find(path); found != moved_.end() && seen.insert(path).second;
         found = moved_.find(path)) {
      path = found->second;
    }
    return path;
  }

  void measure(const std::string& path, Input& input) const {
    const auto node = tree_.look(path);
    if (node && node->type == Node::Type::directory) {
      for (const auto& name : tree_.names(path)) {
        measure(path + "/" + name, input);
      }
    } else if (node) {
      ++input.files;
      input.bytes += node->bytes;
    }
  }

  // Returns the files and bytes of an input that has another name now.
  Input measured(const std::string& path) const {
    Input input{.path = "", .files = 0};
    measure(last_name(path), input);
    return input;
  }

  void add_input(const std::string& path, const Touch& touch, const std::optional<Node>& node) {
    const bool is_moved = !node && moved_.contains(path);
    const Input moved = is_moved ? measured(path) : Input{};
    summary_.inputs.push_back({.path = relative(path),
                               .files = moved.files,
                               .bytes = node       ? node->bytes
                                        : is_moved ? moved.bytes
                                                   : touch.removed_bytes,
                               .is_changed = node && (touch.is_made || touch.is_changed),
                               .is_gone = !node,
                               .leads_out = touch.leads_out});
  }

  void add_product(const std::string& path, const Touch& touch, const std::optional<Node>& node) {
    if (node) {
      summary_.results.push_back(
          {.path = relative(path), .bytes = node->bytes, .is_input = touch.is_needed});
    } else if (touch.is_made) {
      summary_.temporaries.push_back({.path = relative(path), .bytes = touch.removed_bytes});
    }
    add_written_directory(path);
  }

  void add_outside(const std::string& path, const Touch& touch) {
    const auto node = tree_.look(path);
    if (is_of_system(path) || !node || node->type == Node::Type::directory) {
      return;
    }
    if (touch.is_made || touch.is_changed) {
      summary_.outside_written.push_back(path);
    } else if (touch.is_needed) {
      summary_.outside_read.push_back(path);
    }
  }

  // The directory that must exist before the program makes `path`.
  void add_written_directory(const std::string& path) {
    std::string above = parent_of(path);
    while (directories_.contains(above)) {
      above = parent_of(above);
    }
    if (is_inside(above)) {
      written_.insert(relative(above));
    }
  }

  const std::string& root_;
  const Tree& tree_;
  std::map<std::string, Touch> files_;        // by absolute paths
  std::map<std::string, std::string> moved_;  // new names by former ones
  std::set<std::string> directories_;         // that the program made
  std::set<std::string> written_;
  Summary summary_;
};

}  // namespace

Summary summarize(const std::vector<Event>& events, const std::string& root, const Tree& tree) {
  Replay replay(root, tree);
  for (const auto& event : events) {
    replay.apply(event);
  }
  return replay.summary();
}

}  // namespace efs::record
