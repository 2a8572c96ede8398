// SPDX-License-Identifier: BSD-3-Clause
// Random operations on the file system and on a small model of it: both must give the same answers.
// From time to time the file system is closed and reopened from its journal.
#include <linux/fs.h>

#include <catch2/catch_test_macros.hpp>
#include <catch2/generators/catch_generators.hpp>
#include <filesystem>
#include <map>
#include <memory>

#include "crash/flush_proof.hpp"
#include "fs/filesystem.hpp"
#include "support/store_kinds.hpp"
#include "support/temp.hpp"

using namespace efs;
using fs::Filesystem;

namespace {

// The model: names refer to nodes, and hard links share nodes. Slow, and obviously right.
struct Node {
  bool directory = false;
  std::string content;
  mode_t mode = 0644;
  std::map<std::string, std::shared_ptr<Node>> children;
};

using NodePtr = std::shared_ptr<Node>;

class Pair {
 public:
  /// `parent`: of the store's directory.
  explicit Pair(const test::StoreKind& kind, const std::string& parent = "/dev/shm")
      : kind_(kind), directory_(parent) {
    root_->directory = true;
  }

  const std::string& directory() const { return directory_.path(); }

  Durability durability() const { return backend_->durability(); }

  void reopen() {
    filesystem_.reset();
    backend_.reset();
    backend_ = kind_.open(directory_.path());
    const std::string meta = directory_.path() + "/meta";
    ::mkdir(meta.c_str(), 0700);
    metadata_.reset(::open(meta.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    auto opened = Filesystem::open(*backend_, {.metadata_directory = metadata_.get()});
    REQUIRE(opened);
    filesystem_ = std::move(*opened);
  }

  void step(std::mt19937_64& random) {
    const std::string a = pick(random), b = pick(random);
    switch (random() % 9) {
      case 0: return same("create", create(a, false), model_create(a, false));
      case 1: return same("mkdir", create(a, true), model_create(a, true));
      case 2:
        return same(
            "unlink",
            with_parent(a, [&](auto p, const auto& n) { return filesystem_->unlink({}, p, n); }),
            model_remove(a, false));
      case 3:
        return same(
            "rmdir",
            with_parent(a, [&](auto p, const auto& n) { return filesystem_->rmdir({}, p, n); }),
            model_remove(a, true));
      case 4: return same("rename", rename(a, b, 0), model_rename(a, b, 0));
      case 5:
        return same("exchange", rename(a, b, RENAME_EXCHANGE), model_rename(a, b, RENAME_EXCHANGE));
      case 6: return same("link", link(a, b), model_link(a, b));
      case 7: return same("write", write(a, random), 0);
      default: return same("truncate", truncate(a, random() % 5000), 0);
    }
  }

  void compare() { compare_directory(fs::root_ino, *root_, ""); }

  /// Syncs a file. The proof then has what the model has.
  void sync(std::mt19937_64& random, test::FlushProof& proof) {
    const std::string path = pick(random);
    const auto node = find(path);
    if (!node || node->directory) {
      return;
    }
    const auto ino = resolve(path);
    REQUIRE(ino);
    proof.operation("fsync " + path);
    REQUIRE(filesystem_->fsync(*ino, random() % 2 == 0));
    proof.promised(*ino, node->content);
  }

 private:
  static constexpr const char* names[] = {"a", "b", "c"};

  static std::string pick(std::mt19937_64& random) {
    std::string path = names[random() % 3];
    for (auto depth = random() % 3; depth > 0; --depth) {
      path += std::string("/") + names[random() % 3];
    }
    return path;
  }

  static void same(const char* what, int real, int model) {
    INFO(what << ": file system " << real << ", model " << model);
    REQUIRE(real == model);
  }

  static int code(const Status& status) { return status ? 0 : status.error().code; }

  // --- the real one, by paths
  Result<std::uint64_t> resolve(const std::string& path) {
    std::uint64_t at = fs::root_ino;
    for (std::size_t begin = 0; begin <= path.size() && !path.empty();) {
      const auto slash = std::min(path.find('/', begin), path.size());
      auto entry = filesystem_->lookup(at, path.substr(begin, slash - begin));
      if (!entry) {
        return std::unexpected(entry.error());
      }
      filesystem_->forget(entry->ino, 1);
      at = entry->ino;
      begin = slash + 1;
    }
    return at;
  }

  template <typename F>
  int with_parent(const std::string& path, F operation) {
    const auto slash = path.rfind('/');
    const auto parent = resolve(slash == std::string::npos ? "" : path.substr(0, slash));
    if (!parent) {
      return parent.error().code;
    }
    // Like the kernel, resolves each path to its directory before the operation.
    if (const auto listed = filesystem_->readdir(*parent, 0, 1); !listed) {
      return listed.error().code;
    }
    return code(operation(*parent, slash == std::string::npos ? path : path.substr(slash + 1)));
  }

  int create(const std::string& path, bool directory) {
    return with_parent(path, [&](auto parent, const auto& name) -> Status {
      auto made =
          filesystem_->make_node({}, parent, name, directory ? S_IFDIR | 0755 : S_IFREG | 0644, 0);
      if (!made) {
        return std::unexpected(made.error());
      }
      filesystem_->forget(made->ino, 1);
      return {};
    });
  }

  int rename(const std::string& from, const std::string& to, unsigned flags) {
    return with_parent(from, [&](auto parent, const auto& name) -> Status {
      const int result = with_parent(to, [&](auto new_parent, const auto& new_name) {
        return filesystem_->rename({}, {parent, name}, {new_parent, new_name}, flags);
      });
      return result == 0 ? Status{} : fail(result);
    });
  }

  int link(const std::string& from, const std::string& to) {
    const auto ino = resolve(from);
    if (!ino) {
      return ino.error().code;
    }
    return with_parent(to, [&](auto parent, const auto& name) -> Status {
      auto linked = filesystem_->link({}, *ino, parent, name);
      if (!linked) {
        return std::unexpected(linked.error());
      }
      filesystem_->forget(linked->ino, 1);
      return {};
    });
  }

  int write(const std::string& path, std::mt19937_64& random) {
    const auto node = find(path);
    const auto ino = resolve(path);
    if (!node || node->directory) {
      REQUIRE((!ino || !filesystem_->open({}, *ino, O_RDWR)));
      return 0;
    }
    REQUIRE(ino);
    REQUIRE(filesystem_->open({}, *ino, O_RDWR));
    const std::string data(random() % 300 + 1, static_cast<char>('a' + random() % 26));
    const auto offset = random() % 4000;
    REQUIRE(filesystem_->write({}, *ino, std::as_bytes(std::span(data)), offset) == data.size());
    if (node->content.size() < offset + data.size()) {
      node->content.resize(offset + data.size());
    }
    node->content.replace(offset, data.size(), data);
    return 0;
  }

  int truncate(const std::string& path, std::uint64_t size) {
    const auto node = find(path);
    const auto ino = resolve(path);
    if (!node || node->directory) {
      REQUIRE((!ino || !filesystem_->setattr({}, *ino, {.size = size})));
      return 0;
    }
    REQUIRE(ino);
    REQUIRE(filesystem_->setattr({}, *ino, {.size = size}));
    node->content.resize(size);
    return 0;
  }

  // --- the model
  NodePtr find(const std::string& path, int* why = nullptr) {
    NodePtr at = root_;
    for (std::size_t begin = 0; begin <= path.size() && !path.empty();) {
      const auto slash = std::min(path.find('/', begin), path.size());
      if (!at->directory) {
        return why != nullptr ? *why = ENOTDIR : 0, nullptr;
      }
      const auto child = at->children.find(path.substr(begin, slash - begin));
      if (child == at->children.end()) {
        return why != nullptr ? *why = ENOENT : 0, nullptr;
      }
      at = child->second;
      begin = slash + 1;
    }
    return at;
  }

  struct Place {
    NodePtr parent;
    std::string name;
  };

  Result<Place> place(const std::string& path) {
    const auto slash = path.rfind('/');
    int why = 0;
    auto parent = find(slash == std::string::npos ? "" : path.substr(0, slash), &why);
    if (!parent) {
      return fail(why);
    }
    if (!parent->directory) {
      return fail(ENOTDIR);
    }
    return Place{parent, slash == std::string::npos ? path : path.substr(slash + 1)};
  }

  int model_create(const std::string& path, bool directory) {
    auto at = place(path);
    if (!at) {
      return at.error().code;
    }
    if (at->parent->children.contains(at->name)) {
      return EEXIST;
    }
    at->parent->children[at->name] =
        std::make_shared<Node>(Node{.directory = directory, .content = {}, .children = {}});
    return 0;
  }

  int model_remove(const std::string& path, bool directory) {
    auto at = place(path);
    if (!at) {
      return at.error().code;
    }
    const auto child = at->parent->children.find(at->name);
    if (child == at->parent->children.end()) {
      return ENOENT;
    }
    if (directory && !child->second->directory) {
      return ENOTDIR;
    }
    if (!directory && child->second->directory) {
      return EISDIR;
    }
    if (directory && !child->second->children.empty()) {
      return ENOTEMPTY;
    }
    at->parent->children.erase(child);
    return 0;
  }

  static bool within(const NodePtr& node, const NodePtr& ancestor) {
    if (node == ancestor) {
      return true;
    }
    for (const auto& [name, child] : ancestor->children) {
      if (within(node, child)) {
        return true;
      }
    }
    return false;
  }

  int model_rename(const std::string& from, const std::string& to, unsigned flags) {
    auto a = place(from);
    if (!a) {
      return a.error().code;
    }
    auto b = place(to);
    if (!b) {
      return b.error().code;
    }
    if (!a->parent->children.contains(a->name)) {
      return ENOENT;
    }
    const NodePtr source = a->parent->children[a->name];
    const NodePtr target =
        b->parent->children.contains(b->name) ? b->parent->children[b->name] : nullptr;
    if (flags == RENAME_EXCHANGE && !target) {
      return ENOENT;
    }
    if (source->directory && within(b->parent, source)) {
      return EINVAL;
    }
    if (flags == RENAME_EXCHANGE && target->directory && within(a->parent, target)) {
      return EINVAL;
    }
    if (target == source) {
      return 0;
    }
    if (flags == RENAME_EXCHANGE) {
      a->parent->children[a->name] = target;
      b->parent->children[b->name] = source;
      return 0;
    }
    if (target && source->directory && !target->directory) {
      return ENOTDIR;
    }
    if (target && !source->directory && target->directory) {
      return EISDIR;
    }
    if (target && target->directory && !target->children.empty()) {
      return ENOTEMPTY;
    }
    a->parent->children.erase(a->name);
    b->parent->children[b->name] = source;
    return 0;
  }

  int model_link(const std::string& from, const std::string& to) {
    int why = 0;
    const NodePtr source = find(from, &why);
    if (!source) {
      return why;
    }
    auto at = place(to);
    if (!at) {
      return at.error().code;
    }
    if (source->directory) {
      return EPERM;
    }
    if (at->parent->children.contains(at->name)) {
      return EEXIST;
    }
    at->parent->children[at->name] = source;
    return 0;
  }

  void compare_directory(std::uint64_t ino, const Node& model, const std::string& path) {
    INFO("directory /" << path);
    const auto items = filesystem_->readdir(ino, 0, 1000);
    REQUIRE(items);
    std::size_t directories = 0;
    REQUIRE(items->size() == model.children.size() + 2);
    for (const auto& item : *items) {
      if (item.name == "." || item.name == "..") {
        continue;
      }
      INFO("name " << item.name);
      REQUIRE(model.children.contains(item.name));
      const Node& child = *model.children.at(item.name);
      const auto entry = filesystem_->getattr(item.ino);
      REQUIRE(entry);
      REQUIRE(S_ISDIR(entry->attributes.st_mode) == child.directory);
      if (child.directory) {
        ++directories;
        compare_directory(item.ino, child, path + "/" + item.name);
        continue;
      }
      REQUIRE(static_cast<std::size_t>(entry->attributes.st_size) == child.content.size());
      REQUIRE(entry->attributes.st_nlink == static_cast<nlink_t>(model_links(*root_, child)));
      std::string content(child.content.size(), '?');
      REQUIRE(filesystem_->read(item.ino, std::as_writable_bytes(std::span(content)), 0) ==
              content.size());
      REQUIRE(content == child.content);
    }
    REQUIRE(filesystem_->getattr(ino)->attributes.st_nlink == 2 + directories);
  }

  static long model_links(const Node& at, const Node& wanted) {
    long count = 0;
    for (const auto& [name, child] : at.children) {
      count += child.get() == &wanted ? 1 : child->directory ? model_links(*child, wanted) : 0;
    }
    return count;
  }

  const test::StoreKind kind_;
  test::TempDirectory directory_;
  UniqueFd metadata_;
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Filesystem> filesystem_;
  NodePtr root_ = std::make_shared<Node>();
};

}  // namespace

TEST_CASE("random operations do what the model does, also after recovery from the journal") {
  const auto kind = GENERATE(test::in_files, test::in_slab);
  const auto seed = test::seed();
  INFO("EFS_TEST_SEED=" << seed << ", containers: " << kind.name);
  std::mt19937_64 random(seed);
  Pair pair(kind);
  pair.reopen();
  for (int i = 0; i < 6000; ++i) {
    pair.step(random);
    if (i % 100 == 0) {
      pair.compare();
    }
    if (i % 1000 == 999) {
      pair.reopen();
      pair.compare();
    }
  }
}

TEST_CASE(
    "random operations of the model on persistent memory: each byte that a record makes "
    "reachable was flushed and drained before",
    "[flush]") {
  const auto seed = test::seed();
  INFO("EFS_TEST_SEED=" << seed);
  std::mt19937_64 random(seed);
  const test::PersistentMemory memory(true);
  Pair pair(test::in_files, "/tmp");
  test::FlushProof proof(std::filesystem::canonical(pair.directory()));
  pair.reopen();
  if (pair.durability() != Durability::cache_line) {
    SKIP(pair.directory()
         << " is no place for this test: power loss takes all data of its file system");
  }
  constexpr int steps = 3000, life = 500;
  for (int i = 0; i < steps; ++i) {
    proof.operation("step " + std::to_string(i));
    pair.step(random);
    proof.answered();
    if (i % 4 == 0) {
      pair.sync(random, proof);
    }
    if (i % 20 == 0) {
      proof.compare(false);
    }
    if (i % life == life - 1) {
      proof.operation("recovery after step " + std::to_string(i));
      pair.reopen();
      proof.answered();
      proof.compare(true);
    }
    REQUIRE(proof.violations() == "");
  }
  CHECK(proof.counts().container_stores > 10);
  CHECK(proof.counts().promises > 10);
}
