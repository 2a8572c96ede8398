// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Several names of one file.

#include <algorithm>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace efs::ledger {

/// A list of paths without duplicates. Most files have one.
class Names {
 public:
  Names() = default;

  /// `text`: as text() returns it, or one path.
  explicit Names(std::string text) : text_(std::move(text)) {}

  /// The paths, separated by NUL, as the journal has them.
  const std::string& text() const { return text_; }

  bool empty() const { return text_.empty(); }

  bool contains(std::string_view path) const;

  /// True if the list has this path and never had another.
  bool is_only(std::string_view path) const { return text_ == path; }

  /// True if the list has or had several paths. A change of one of these names changes the ctime of
  /// the file on the PFS.
  bool had_several() const { return text_.contains('\0'); }

  void add(std::string_view path);
  void remove(std::string_view path);

  /// Calls `visit` with each path, as a view of text().
  template <typename Visit>
  void for_each(const Visit& visit) const {
    for (std::string_view left = text_; !left.empty();) {
      const auto end = std::min(left.find('\0'), left.size());
      if (end > 0) {
        visit(left.substr(0, end));
      }
      left.remove_prefix(std::min(end + 1, left.size()));
    }
  }

  std::vector<std::string> list() const;

  bool operator==(const Names&) const = default;

 private:
  std::string text_;
};

}  // namespace efs::ledger
