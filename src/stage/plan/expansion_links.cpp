// SPDX-License-Identifier: BSD-3-Clause
// Symbolic links that are followed.
#include "stage/plan/expansion.hpp"

#include <algorithm>

#include "stage/plan/follow.hpp"

namespace efs::stage {

bool Expansion::add_target(const Found& link, bool named) {
  const std::string& path = link.path;
  const auto target = follows_to_.empty() ? follow(pfs_, root_, path, link)
                                          : follow(pfs_, follows_to_.back().directory,
                                                   path_in_target(path).substr(1), link);
  if (!target) {
    problem(absolute(path), target.error().what);
    return false;
  }
  if (const auto own = own_.find(path, target->attributes); own && own->refused) {
    return named ? (problem(absolute(path), "leads to " + own->reason), false)
                 : skip(path, own->reason);
  }
  named_ = named;
  if (S_ISREG(target->attributes.st_mode)) {
    follows_to_.push_back({.link = path, .target = target->path});
    insert(path, EntryType::file, target->attributes);
    follows_to_.pop_back();
    return true;
  }
  const Identity identity = identity_of(target->attributes);
  if (std::ranges::find(follows_to_, identity, &Followed::identity) != follows_to_.end() ||
      follows_to_.size() >= most_followed) {
    problem(absolute(path),
            "leads to " + target->path +
                ", which leads back to this link: remove one of the links, or 'follow'");
    return false;
  }
  follows_to_.push_back(
      {.link = path, .target = target->path, .identity = identity, .directory = target->directory});
  insert(path, EntryType::directory, target->attributes);
  Survey survey(pfs_, target->directory);
  const bool all = !complete_.insert({placed(path), path}).second || add_below(survey, "", path);
  follows_to_.pop_back();
  return all;
}

std::string Expansion::path_in_target(const std::string& path) const {
  return path.substr(follows_to_.back().link.size());
}

}  // namespace efs::stage
