#pragma once
// The end of a store. Its containers go one by one, and whoever dies meanwhile must not leave what
// the next one takes for a store that has lost their contents. So the journal goes first, and says
// so.

#include <string>

#include "base/result.hpp"
#include "image/image.hpp"

namespace efs::image {

/// Takes the journal in the directory `metadata` out of use, durably. Nothing where there is none.
Status begin_removal(int metadata);

/// A removal began, and has not ended. Not where there is a journal: somebody has put one back.
bool is_being_removed(int metadata);

/// The store at `path`, also one whose removal began, or that holds nothing yet, or any more:
/// image::find_store() finds none there. ENOENT.
Result<Directories> find_removable(const std::string& path);

/// Containers with content in the store to which `path` leads (as find_store()) and in its other
/// backends, where its journal is not there and no removal took it: what they are nothing can tell.
std::uint64_t contents_without_journal(const std::string& path);

/// Are containers with content in the directory `root` of a store, or of one of its backends?
bool holds_contents(int root);

/// Removes all that is in the directory `root` of a store, or of one of its backends, after
/// begin_removal(); what tells that it is being removed, and whose it is, goes last. The directory
/// itself stays. `path` is for messages.
Status remove_content(int root, const std::string& path);

/// Takes away what remove_content() leaves of the directory at `path`, whose descriptor is `root`,
/// where it dies before its last step: a lock at most. False where more is there; then nothing is
/// changed.
Result<bool> remove_remnant(int root, const std::string& path);

/// The containers in the directory `data` of a store that is being removed, for one that begins
/// there anew.
Status finish_removal(int root, const std::string& path);

/// What tells that the store of this metadata directory is being removed, when nothing of it is
/// left in other backends either. `path` is for messages.
Status forget_removal(int metadata, const std::string& path);

}  // namespace efs::image
