// SPDX-License-Identifier: BSD-3-Clause
#include "image/check_tree.hpp"

#include <set>

namespace efs::image {
namespace {

class Walk {
 public:
  explicit Walk(const fs::Namespace& names) : names_(names) {}

  Tree run() {
    std::vector<std::pair<const fs::Inode*, std::string>> todo{{&names_.root(), ""}};
    while (!todo.empty()) {
      const auto [directory, path] = std::move(todo.back());
      todo.pop_back();
      directory->directory->for_each_after(
          0, [&](const std::string& name, const fs::Directory::Entry& entry) {
            const std::string below = path.empty() ? name : path + "/" + name;
            if (const auto* inode = meet(*directory, below, entry.ino)) {
              todo.emplace_back(inode, below);
            }
            return true;
          });
    }
    names_.for_each([&](const fs::Inode& inode) { count(inode); });
    return std::move(tree_);
  }

 private:
  void find(std::string object, std::string text) {
    tree_.damage.emplace_back(std::move(object), std::move(text));
  }

  // Returns the directory of this name if it was not visited before.
  const fs::Inode* meet(const fs::Inode& parent, const std::string& path, std::uint64_t ino) {
    const fs::Inode* inode = names_.find(ino);
    if (inode == nullptr) {
      find(path, "leads to inode " + std::to_string(ino) + ", which does not exist");
      return nullptr;
    }
    ++links_[ino];
    tree_.paths.try_emplace(ino, path);
    const bool first = reached_.insert(ino).second;
    if (!inode->is_directory()) {
      return nullptr;
    }
    ++subdirectories_[parent.ino];
    if (first) {
      return inode;
    }
    find(path, "a directory with two names");
    return nullptr;
  }

  void count(const fs::Inode& inode) {
    const auto path = tree_.paths.find(inode.ino);
    const std::string object =
        path != tree_.paths.end() ? path->second : "inode " + std::to_string(inode.ino);
    if (!reached_.contains(inode.ino)) {
      if (inode.nlink != 0) {
        find(object, "cannot be reached from the root");
      }
      return;  // otherwise open without a name
    }
    const auto expected = inode.is_directory() ? 2 + subdirectories_[inode.ino] : links_[inode.ino];
    if (inode.nlink != expected) {
      find(object, "has " + std::to_string(inode.nlink) + " links by the records and " +
                       std::to_string(expected) + " by the names");
    }
    ++(inode.is_directory() ? tree_.directories : inode.is_regular() ? tree_.files : tree_.others);
  }

  const fs::Namespace& names_;
  Tree tree_;
  std::map<std::uint64_t, std::uint64_t> links_, subdirectories_;
  std::set<std::uint64_t> reached_{fs::root_ino};
};

}  // namespace

Tree check_tree(const fs::Namespace& names) {
  return Walk(names).run();
}

}  // namespace efs::image
