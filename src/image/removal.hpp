// SPDX-License-Identifier: BSD-3-Clause
#pragma once
// Removal of a store. The containers are removed one by one. If the process dies meanwhile, a later
// process must not take the rest for a store that has lost content. So the journal is renamed
// first, which marks the removal.

#include <string>

#include "base/result.hpp"
#include "image/image.hpp"

namespace efs::image {

/// Marks the journal in the directory `metadata` as removed, durably. Does nothing without a
/// journal.
Status begin_removal(int metadata);

/// Returns whether a removal began and has not ended. False if a journal exists: a user has
/// restored one.
bool is_being_removed(int metadata);

/// Finds the store at `path` for removal. Also finds a store whose removal began, and one that is
/// still or already empty: image::find_store() does not find these. ENOENT if there is none.
Result<Directories> find_removable(const std::string& path);

/// Counts the containers with content in the store at `path` (as find_store()) and its other
/// backends, if the journal is missing and no removal took it. efs cannot tell what they contain.
std::uint64_t contents_without_journal(const std::string& path);

/// Returns whether the directory `root` of a store, or of one of its backends, has containers with
/// content.
bool holds_contents(int root);

/// Removes the content of the directory `root` of a store, or of one of its backends, after
/// begin_removal(). Removes the mark of the removal and the record of the owner last. Keeps the
/// directory itself. `path` is for messages.
Status remove_content(int root, const std::string& path);

/// Removes the rest of a remove_content() that died before its last step, at most a lock, and the
/// directory at `path`, whose descriptor is `root`. Returns false, and changes nothing, if the
/// directory has more content.
Result<bool> remove_remnant(int root, const std::string& path);

/// Removes the containers in the directory `data` of a store whose removal began, for an instance
/// that starts there anew.
Status finish_removal(int root, const std::string& path);

/// Removes the mark of the removal in this metadata directory, once the other backends are empty
/// too. `path` is for messages.
Status forget_removal(int metadata, const std::string& path);

}  // namespace efs::image
