// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// A file system of a test: names with their nodes.

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "record/events.hpp"
#include "record/tree.hpp"

namespace efs::record {

class FakeTree final : public Tree {
 public:
  /// Adds a file, and the directories above it.
  void file(const std::string& path, std::uint64_t bytes = 1) {
    directory(parent_of(path));
    nodes_[path] = {.type = Node::Type::file, .bytes = bytes};
  }

  void link(const std::string& path, const std::string& target) {
    directory(parent_of(path));
    nodes_[path] = {.type = Node::Type::link, .bytes = 0, .target = target};
  }

  void fifo(const std::string& path) { nodes_[path] = {.type = Node::Type::other}; }

  void directory(const std::string& path) {
    for (std::string above = path; !above.empty(); above = parent_of(above)) {
      nodes_[above] = {.type = Node::Type::directory};
    }
  }

  std::optional<Node> look(const std::string& path) const override {
    const auto found = nodes_.find(path);
    return found == nodes_.end() ? std::nullopt : std::optional(found->second);
  }

  std::vector<std::string> names(const std::string& directory) const override {
    std::vector<std::string> names;
    for (const auto& [path, node] : nodes_) {
      if (parent_of(path) == directory) {
        names.push_back(path.substr(directory.size() + 1));
      }
    }
    return names;
  }

 private:
  std::map<std::string, Node> nodes_;
};

inline Event event(efs_event_kind kind, std::string path, std::string second = {},
                   std::uint64_t size = 0) {
  return {
      .kind = kind, .order = 0, .path = std::move(path), .second = std::move(second), .size = size};
}

}  // namespace efs::record
