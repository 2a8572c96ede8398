#pragma once
// Names that a PFS may not tell apart: upper and lower case are one on SMB, on vfat, in a directory
// with casefold.

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "base/mutex.hpp"
#include "fs/staging.hpp"
#include "stage/pfs/pfs_io.hpp"

namespace efs::stage {

/// The same for two paths that differ in upper and lower case only (by the simple mappings of
/// Unicode), and by chance for others. Pure.
std::uint64_t case_folded(std::string_view path);

/// Moves each item that such a PFS may take for an earlier one of the list, or for one of `all`
/// that is brought out already, to the end of the list; the order stays otherwise. For each of
/// those which one that is, in their order.
std::vector<const fs::WalkItem*> move_twins_back(std::vector<const fs::WalkItem*>& items,
                                                 std::span<const fs::WalkItem> all);

/// How the names of directories of the PFS are spelled. Thread-safe.
class SpelledNames {
 public:
  explicit SpelledNames(PfsIo& pfs) : pfs_(pfs) {}

  /// Something in the open directory `directory`, whose path is `path`, answers to `name`. Is that
  /// something of which the name differs in upper and lower case? (Other ways of writing a name,
  /// such as that of composed letters, are taken for it; and so is all where nobody may list the
  /// directory.) Lists a directory once, and anew where a name is missing.
  bool is_anothers(const std::string& path, int directory, const std::string& name);

 private:
  struct Names {
    std::unordered_set<std::string> exact;
    std::unordered_set<std::uint64_t> folded;
  };

  PfsIo& pfs_;
  Mutex mutex_;                                                           // rank 90 (leaf)
  std::unordered_map<std::string, Names> listed_ EFS_GUARDED_BY(mutex_);  // by path
  std::size_t names_ EFS_GUARDED_BY(mutex_) = 0;                          // in all of them
};

}  // namespace efs::stage
