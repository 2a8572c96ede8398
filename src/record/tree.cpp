// SPDX-License-Identifier: BSD-3-Clause
#include "record/tree.hpp"

#include <dirent.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <unordered_map>

namespace efs::record {
namespace {

constexpr std::size_t most_links = 40;

std::string target_of(const std::string& link) {
  std::array<char, PATH_MAX> text{};
  const ssize_t length = ::readlink(link.c_str(), text.data(), text.size());
  return length > 0 ? std::string(text.data(), static_cast<std::size_t>(length)) : "";
}

std::optional<Node> node_of(const std::string& path) {
  struct stat st{};
  if (::lstat(path.c_str(), &st) != 0) {
    return std::nullopt;
  }
  if (S_ISLNK(st.st_mode)) {
    return Node{.type = Node::Type::link, .bytes = 0, .target = target_of(path)};
  }
  if (S_ISREG(st.st_mode)) {
    return Node{.type = Node::Type::file, .bytes = static_cast<std::uint64_t>(st.st_size)};
  }
  return Node{.type = S_ISDIR(st.st_mode) ? Node::Type::directory : Node::Type::other};
}

struct CloseDirectory {
  void operator()(DIR* stream) const { ::closedir(stream); }
};

// Puts the components of `path` on the stack, the first one on top.
void push(const std::string& path, std::vector<std::string>& stack) {
  for (std::size_t end = path.size(); end > 0;) {
    const auto slash = path.rfind('/', end - 1);
    const std::size_t begin = slash == path.npos ? 0 : slash + 1;
    if (begin < end) {
      stack.push_back(path.substr(begin, end - begin));
    }
    end = slash == path.npos ? 0 : slash;
  }
}

// Applies `.` or `..` to the path. Returns false for another name.
bool take_dots(const std::string& name, std::string& path) {
  if (name == "..") {
    path = parent_of(path);
  }
  return name == "." || name == "..";
}

std::optional<std::string> link_target(const std::string& path, const Tree& tree) {
  const auto node = tree.look(path);
  return node && node->type == Node::Type::link ? std::optional(node->target) : std::nullopt;
}

}  // namespace

struct RealTree::Known {
  std::unordered_map<std::string, std::optional<Node>> nodes;
};

RealTree::RealTree() : known_(std::make_unique<Known>()) {}

RealTree::~RealTree() = default;

std::optional<Node> RealTree::look(const std::string& path) const {
  const auto [entry, is_new] = known_->nodes.try_emplace(path);
  if (is_new) {
    entry->second = node_of(path);
  }
  return entry->second;
}

std::vector<std::string> RealTree::names(const std::string& directory) const {
  std::vector<std::string> names;
  const std::unique_ptr<DIR, CloseDirectory> stream(::opendir(directory.c_str()));
  while (const dirent* entry = stream != nullptr ? ::readdir(stream.get()) : nullptr) {
    const std::string name = entry->d_name;
    if (name != "." && name != "..") {
      names.push_back(name);
    }
  }
  std::ranges::sort(names);
  return names;
}

Resolved resolve(const std::string& path, bool follow, const Tree& tree) {
  Resolved resolved;
  std::vector<std::string> stack;
  push(path, stack);
  while (!stack.empty()) {
    const std::string name = std::move(stack.back());
    stack.pop_back();
    if (take_dots(name, resolved.path)) {
      continue;
    }
    const std::string next = resolved.path + "/" + name;
    const bool is_followed = (follow || !stack.empty()) && resolved.links.size() < most_links;
    const auto target = is_followed ? link_target(next, tree) : std::nullopt;
    if (!target) {
      resolved.path = next;
      continue;
    }
    resolved.links.push_back(next);
    resolved.path = target->starts_with('/') ? "" : resolved.path;
    push(*target, stack);
  }
  resolved.path = resolved.path.empty() ? "/" : resolved.path;
  return resolved;
}

bool is_below(const std::string& path, const std::string& directory) {
  return path == directory || directory == "/" ||
         (path.starts_with(directory) && path[directory.size()] == '/');
}

std::string parent_of(const std::string& path) {
  const auto slash = path.rfind('/');
  return slash == path.npos ? "" : path.substr(0, slash);
}

}  // namespace efs::record
