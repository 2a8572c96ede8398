// SPDX-License-Identifier: BSD-3-Clause
// Names that vanish while the inputs are listed.
#include "stage/plan/expansion.hpp"

#include "stage/plan/follow.hpp"

namespace efs::stage {

bool Expansion::is_vanishing(const Error& error) const {
  return !named_ && is_gone(error);
}

bool Expansion::vanished(const std::string& path) {
  if (!skips_vanished_) {
    return problem(absolute(path),
                   std::string("vanished while the inputs were listed; ") + vanished_hint),
           false;
  }
  complete_.erase({placed(path), path});  // a later resource may list it again
  const auto [entry, is_known] = find(placed(path));
  const auto next = is_known ? std::next(entry) : entry;
  const bool is_empty = next == entries_.end() || !next->first.starts_with(placed(path) + "/");
  if (is_known && is_empty && entry->second.from() == path) {
    if (newest_ == entry) {
      newest_ = entries_.end();
    }
    entries_.erase(entry);
  }
  return skip(path, "vanished while the inputs were listed", true);
}

}  // namespace efs::stage
