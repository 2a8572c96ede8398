#pragma once
// Which of many names a directory of the PFS has, where most are expected not to be there.

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace efs::stage {

/// A list of a directory tells of all its names what else each would be a request of its own for.
/// Not thread-safe.
class ExistingNames {
 public:
  /// Below the directory `top`.
  explicit ExistingNames(std::string top) : top_(std::move(top)) {}

  /// `path` (relative to the top) will be asked for. To be said of all before the first is.
  void expect(std::string_view path);

  /// False: its directory is not there, or had no such name when it was first asked for. True: it
  /// may be there, lstat tells; so where the directory cannot be listed, or has far more names than
  /// are expected.
  bool may_be_there(std::string_view path);

 private:
  using Names = std::unordered_set<std::string>;
  std::optional<Names> list(std::string_view directory, std::size_t expected) const;

  struct Directory {
    std::size_t expected = 0;
    bool looked = false;
    std::optional<Names> names{};  // none: not known
  };

  std::string top_;
  std::unordered_map<std::string, Directory> directories_;
};

}  // namespace efs::stage
