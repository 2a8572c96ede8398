// SPDX-License-Identifier: BSD-3-Clause
// What was found on the PFS, and all below a directory.
#include "stage/plan/expansion.hpp"

#include "stage/pfs/paths.hpp"
#include "stage/plan/follow.hpp"

namespace efs::stage {

std::optional<OwnFile> Expansion::own_file(const Found& found) const {
  if (found.problem == Found::Problem::listing) {
    return std::nullopt;  // an earlier Found of the same directory was checked
  }
  if (found.problem == Found::Problem::attributes) {
    return own_.by_name(found.path, 0);
  }
  return own_.find(found.path, found.attributes);
}

bool Expansion::add_found(const Found& found, bool named, bool whole) {
  const std::string& path = found.path;
  named_ = named;
  if (const auto own = own_file(found)) {
    if (named && own->refused) {
      problem(absolute(path), "is " + own->reason + ", not an input: remove it from the resources");
      return false;
    }
    if (!named) {
      return find(placed(path)).second || skip(path, own->reason);
    }
  }
  if (found.problem != Found::Problem::none) {
    return add_unseen(found);
  }
  const auto [known, is_known] = find(placed(path));
  if (is_known &&
      (known->second.type != EntryType::directory || !S_ISDIR(found.attributes.st_mode))) {
    return add_again(known->second, path);
  }
  return add_seen(found, whole);
}

bool Expansion::add_again(PlanEntry& known, const std::string& path) {
  if (known.from() != path) {
    problem(absolute(path),
            "would be at " + known.path + ", and so would " + absolute(known.from()));
    return false;
  }
  ask_again(known);
  return true;
}

bool Expansion::add_unseen(const Found& found) {
  const std::string& path = found.path;
  const bool is_other_kind = found.problem == Found::Problem::target && found.error.code == EINVAL;
  if (!named_ && (is_other_kind || is_gone(found.error))) {
    return vanished(path);
  }
  switch (found.problem) {
    case Found::Problem::none: return true;
    case Found::Problem::attributes:
      problem(absolute(path), missing(found.error, path), {},
              found.error.code == ENOENT ? path : "");
      return false;
    case Found::Problem::unreadable:
      problem(absolute(path), "is not readable: " + describe(found.error), placed(path));
      return false;
    case Found::Problem::target:
      problem(absolute(path), "cannot be read: " + describe(found.error));
      return false;
    case Found::Problem::listing:
      problem(absolute(path), "directory cannot be read: " + describe(found.error), placed(path));
      return false;
  }
  return false;
}

bool Expansion::add_seen(const Found& found, bool whole) {
  const std::string& path = found.path;
  switch (found.attributes.st_mode & S_IFMT) {
    case S_IFDIR:
      insert(path, EntryType::directory, found.attributes);
      return !whole || add_children(path);
    case S_IFREG: insert(path, EntryType::file, found.attributes); return true;
    case S_IFLNK:
      if (follows_) {
        return add_target(found, named_);
      }
      insert(path, EntryType::symlink, found.attributes).target = found.target;
      return true;
    default: break;
  }
  if (named_) {
    problem(absolute(path),
            "is a socket, FIFO or device: only files, directories and symbolic links can be "
            "staged");
    return false;
  }
  return skip(path, S_ISFIFO(found.attributes.st_mode)   ? "FIFO"
                    : S_ISSOCK(found.attributes.st_mode) ? "socket"
                                                         : "device");
}

bool Expansion::is_followed_link(const Found& found) const {
  return follows_ && found.problem == Found::Problem::none && S_ISLNK(found.attributes.st_mode);
}

bool Expansion::enters(const Found& found) {
  if (found.problem != Found::Problem::none || !S_ISDIR(found.attributes.st_mode) ||
      skipped_.contains(found.path)) {
    return false;
  }
  complete_.insert({placed(found.path), found.path});
  return true;
}

bool Expansion::add_below(Survey& survey, const std::string& path, const std::string& prefix) {
  bool all = true;
  std::vector<Found> links;
  survey.below(path, [&](Found&& found) {
    const bool is_named = found.problem == Found::Problem::listing && found.path == path;
    if (!prefix.empty()) {
      found.path = found.path.empty() ? prefix : prefix + "/" + found.path;
    }
    if (is_followed_link(found)) {
      links.push_back(std::move(found));
      return false;
    }
    all = add_found(found, is_named, false) && all;
    return enters(found);
  });
  for (const auto& link : links) {
    all = add_found(link, false, false) && all;
  }
  return all;
}

bool Expansion::add_children(const std::string& path) {
  // an overlapping resource has already added the children
  if (!complete_.insert({placed(path), path}).second) {
    ask_again(placed(path));
    return true;
  }
  return add_below(survey_, path, "");
}

}  // namespace efs::stage
