// SPDX-License-Identifier: BSD-3-Clause
// Resources: what each of them names, with the directories above it.
#include "stage/plan/expansion.hpp"

#include <algorithm>

#include "base/text.hpp"
#include "config/paths.hpp"
#include "stage/pfs/paths.hpp"
#include "stage/plan/follow.hpp"

namespace efs::stage {
namespace {

bool is_directory_in_its_place(const PlanEntry& entry) {
  return entry.type == EntryType::directory && !entry.source && entry.outside.empty();
}

bool is_file_with_source(const PlanEntry& entry) {
  return entry.type != EntryType::directory && entry.source;
}

}  // namespace

void Expansion::problem(const std::string& path, std::string reason, std::string unreadable,
                        std::string not_there) {
  const bool listed = !place_.empty();
  plan_.problems.push_back({.path = listed ? place_ : path,
                            .reason = listed ? path + " " + reason : std::move(reason),
                            .line = line_,
                            .unreadable = std::move(unreadable),
                            .not_there = std::move(not_there)});
}

std::string Expansion::absolute(const std::string& relative) const {
  return stage::absolute(config_.root_dir, relative);
}

std::string Expansion::placed(const std::string& path) const {
  if (as_ == nullptr) {
    return path;
  }
  const std::string whole = absolute(path);
  const auto below = config::part_below(whole, as_->path);
  return below.empty() ? as_->as : as_->as + "/" + std::string(below);
}

std::string Expansion::missing(const Error& error, const std::string& path) {
  return error.code == ENOENT ? "does not exist" + odd_note(path, "the name")
                              : "cannot be read: " + describe(error);
}

bool Expansion::skip(const std::string& path, std::string reason, bool vanished) {
  if (skipped_.insert(path).second) {
    plan_.skipped.push_back({.path = path, .reason = std::move(reason), .vanished = vanished});
  }
  return true;
}

void Expansion::add(const config::Resource& resource) {
  line_ = resource.line;
  priority_ = resource.priority;
  reusable_ = resource.reusable;
  stage_ = resource.stage;
  evictable_ = resource.evict == config::Evict::when_full;
  accepts_change_ = resource.changed == config::Changed::accept;
  skips_vanished_ = resource.vanished == config::Vanished::skip;
  follows_ = resource.follow;
  const auto prefix = config_.root_dir == "/" ? std::string("/") : config_.root_dir + "/";
  as_ = resource.as.empty() ? nullptr : &resource;
  if (resource.open) {
    add_open(resource, prefix);
  } else if (resource.is_list) {
    add_list(resource.path);
  } else if (resource.path == config_.root_dir) {
    add_root();
  } else if (!resource.path.starts_with(prefix)) {
    problem(resource.path, "is not below root-dir " + config_.root_dir);
  } else if (resource.is_glob) {
    add_glob(resource.path.substr(prefix.size()));
  } else {
    add_path(resource.path.substr(prefix.size()));
  }
  line_ = 0;
  as_ = nullptr;
}

void Expansion::add_root() {
  named_ = true;
  if (as_ != nullptr) {
    // add_places() has recorded its problem
    const auto attributes = add_places() ? pfs_.fstat(root_) : std::unexpected(Error{EINVAL, ""});
    if (!attributes) {
      return;
    }
    insert("", EntryType::directory, *attributes);
  }
  add_children("");
}

void Expansion::add_open(const config::Resource& resource, const std::string& prefix) {
  const bool below_root = !resource.is_list && resource.path.starts_with(prefix);
  const std::string path = below_root ? resource.path.substr(prefix.size()) : resource.path,
                    known = known_part(path, true);
  const auto directory = below_root ? pfs_.open_beneath(root_, known, passage_flags)
                                    : pfs_.open(no_directory, known, passage_flags);
  if (!directory) {
    return problem(below_root ? absolute(known) : known, missing(directory.error(), known));
  }
  skip(path, for_the_nodes);
}

bool Expansion::add_path(const std::string& path) {
  if (!add_parents(path)) {
    return false;
  }
  return add_found(survey_.look({path}).front(), true);
}

std::size_t Expansion::behind_known_parent(const std::string& path) const {
  if (as_ != nullptr) {
    return 0;
  }
  for (auto slash = path.rfind('/'); slash != std::string::npos && slash > 0;
       slash = path.rfind('/', slash - 1)) {
    const auto known = entries_.find(path.substr(0, slash));
    if (known != entries_.end() && is_directory_in_its_place(known->second)) {
      return slash + 1;
    }
  }
  return 0;
}

std::optional<struct stat> Expansion::look_at_parent(const std::string& parent,
                                                     const std::string& path) {
  const auto directory = pfs_.open_beneath(root_, parent_of(parent), passage_flags);
  if (!directory && is_vanishing(directory.error())) {
    vanished(parent_of(parent));
    return std::nullopt;
  }
  if (!directory) {
    problem(absolute(parent_of(parent)), "cannot be read: " + describe(directory.error()));
    return std::nullopt;
  }
  const auto attributes = pfs_.lstat(*directory, leaf_of(parent));
  if (!attributes && is_vanishing(attributes.error())) {
    vanished(parent);
    return std::nullopt;
  }
  if (!attributes) {
    problem(absolute(path), missing(attributes.error(), path));
    return std::nullopt;
  }
  if (S_ISLNK(attributes->st_mode)) {
    problem(absolute(path),
            "leads through the symbolic link " + absolute(parent) + ": name the real path");
    return std::nullopt;
  }
  if (!S_ISDIR(attributes->st_mode)) {
    problem(absolute(path), absolute(parent) + " is not a directory");
    return std::nullopt;
  }
  return *attributes;
}

bool Expansion::add_parents(const std::string& path, bool named) {
  named_ = named;
  for (auto slash = path.find('/', behind_known_parent(path)); slash != std::string::npos;
       slash = path.find('/', slash + 1)) {
    const std::string parent = path.substr(0, slash);
    const auto known = as_ == nullptr ? entries_.find(parent) : entries_.end();
    if (known != entries_.end() && is_directory_in_its_place(known->second)) {
      continue;
    }
    if (known != entries_.end() && is_file_with_source(known->second)) {
      problem(absolute(path), absolute(known->second.from()) + " is at " + parent);
      return false;
    }
    const auto attributes = look_at_parent(parent, path);
    if (!attributes) {
      return false;
    }
    above_inputs_.try_emplace(identity_of(*attributes), parent);
    if (as_ == nullptr) {
      insert(parent, EntryType::directory, *attributes);
    }
  }
  return as_ == nullptr || add_places();
}

bool Expansion::add_places() {
  named_ = true;
  for (auto slash = as_->as.find('/'); slash != std::string::npos;
       slash = as_->as.find('/', slash + 1)) {
    const std::string above = as_->as.substr(0, slash);
    if (const auto known = entries_.find(above); known != entries_.end()) {
      if (known->second.type == EntryType::directory) {
        continue;
      }
      problem(as_->path, "cannot be at " + as_->as + ": " + absolute(known->second.from()) +
                             " is at " + above);
      return false;
    }
    const auto directory = pfs_.open_beneath(root_, above, passage_flags);
    const auto attributes = pfs_.fstat(directory ? *directory : root_);
    if (!attributes) {
      problem(config_.root_dir, "cannot be read: " + describe(attributes.error()));
      return false;
    }
    insert_at(above, directory ? std::nullopt : std::optional<std::string>(""),
              EntryType::directory, *attributes);
  }
  return true;
}

}  // namespace efs::stage
