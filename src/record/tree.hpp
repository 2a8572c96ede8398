// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// The file system as it is when the recorded program has ended.

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace efs::record {

struct Node {
  enum class Type : std::uint8_t { file, directory, link, other };
  Type type = Type::file;
  std::uint64_t bytes = 0;
  std::string target;  // of a link
};

class Tree {
 public:
  Tree() = default;
  Tree(const Tree&) = delete;
  Tree& operator=(const Tree&) = delete;
  virtual ~Tree() = default;

  /// Returns the file of this absolute path, without following a link at its end; nullopt: there is
  /// none, or it cannot be inspected.
  [[nodiscard]] virtual std::optional<Node> look(const std::string& path) const = 0;
  /// Returns the names in a directory, sorted, without . and ..; empty if it cannot be read.
  [[nodiscard]] virtual std::vector<std::string> names(const std::string& directory) const = 0;
};

/// The file system of this machine. Remembers each answer of look(): one thread may use it.
class RealTree final : public Tree {
 public:
  RealTree();
  ~RealTree() override;
  [[nodiscard]] std::optional<Node> look(const std::string& path) const override;
  [[nodiscard]] std::vector<std::string> names(const std::string& directory) const override;

 private:
  struct Known;
  std::unique_ptr<Known> known_;
};

/// A path without links.
struct Resolved {
  std::string path;
  std::vector<std::string> links;  // the links that led to it
};

/// Resolves `.`, `..` and links in an absolute path, except a link at its end if `follow` is false.
/// Components behind a missing one are resolved as text.
Resolved resolve(const std::string& path, bool follow, const Tree& tree);

/// Returns whether `path` is `directory` or below it.
bool is_below(const std::string& path, const std::string& directory);
/// Returns the directory of an absolute or relative path; "" if the path has only one component.
std::string parent_of(const std::string& path);

}  // namespace efs::record
