// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Finds which of many names exist in directories of the PFS, if most are expected to be missing.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace efs::stage {

/// One listing of a directory answers for all its names; otherwise each name would need a request.
/// Not thread-safe.
class ExistingNames {
 public:
  /// Below the directory `top`.
  explicit ExistingNames(std::string top) : top_(std::move(top)) {}

  /// Announces that may_be_there() will be called for `path` (relative to the top). Announce all
  /// paths before the first such call.
  void expect(std::string_view path);

  /// False: the directory does not exist, or did not have the name when it was listed. True: the
  /// name may exist, and the caller must use lstat. The answer is also true if the directory cannot
  /// be listed or has far more names than expected.
  bool may_be_there(std::string_view path);

 private:
  using Names = std::unordered_set<std::string>;
  std::optional<Names> list(std::string_view directory, std::size_t expected) const;

  struct Directory {
    std::size_t expected = 0;
    bool looked = false;
    std::optional<Names> names{};  // nullopt: not known
  };

  std::string top_;
  std::unordered_map<std::string, Directory> directories_;
};

}  // namespace efs::stage
