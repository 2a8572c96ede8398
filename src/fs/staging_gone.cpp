// SPDX-License-Identifier: BSD-3-Clause
// Imported names that the job removed or renamed.
#include <algorithm>
#include <iterator>
#include <ranges>
#include <unordered_map>
#include <unordered_set>

#include "fs/filesystem.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {
namespace {

bool is_file_or_symlink(mode_t mode) {
  return S_ISREG(mode) || S_ISLNK(mode);
}

}  // namespace

bool Staging::is_missing(const std::string& path) const {
  filesystem_.mutex_.assert_held_shared();
  const auto place = locate(path);
  return !place || !filesystem_.names_.child(*place->parent, place->name);
}

WalkItem Staging::gone_item(const std::string& path, const GoneInput& input) const {
  filesystem_.mutex_.assert_held_shared();
  WalkItem item{.path = path};
  item.attributes.st_mode = input.type;
  item.origin = input.origin;
  item.saved = input.saved;
  item.linked = input.linked;
  item.target = input.target;
  // The class of an existing directory applies to removed names below it.
  const Inode* directory = &filesystem_.names_.root();
  const bool any = filesystem_.names_.has_kept_directories();
  for (std::size_t at = 0; any && directory != nullptr && directory->is_directory();) {
    if (directory->extra && directory->extra->keep != Keep::by_rule) {
      item.keep = directory->extra->keep, item.keep_path = path.substr(0, at == 0 ? 0 : at - 1);
    }
    const auto slash = path.find('/', at);
    if (slash == std::string::npos) {
      break;
    }
    const auto next = filesystem_.names_.child(*directory, path.substr(at, slash - at));
    directory = next ? *next : nullptr;
    at = slash + 1;
  }
  if (input.keep != Keep::by_rule) {
    item.keep = input.keep, item.keep_path = path;
  }
  return item;
}

std::vector<WalkItem> Staging::gone(bool unloaded) {
  ReadLock lock(filesystem_.mutex_);
  std::map<std::string, WalkItem> items;
  for (const auto& [path, input] : filesystem_.names_.gone()) {
    if ((!input.unloaded || (input.saved && unloaded)) && is_missing(path)) {
      items.emplace(path, gone_item(path, input));
    }
  }
  filesystem_.names_.for_each([&](const Inode& inode) {
    if (!inode.is_whole_import() || inode.nlink == 0) {
      return;
    }
    for (const auto& path : split_names(inode.extra->origin_path)) {
      if (is_missing(path)) {
        items.emplace(path, gone_item(path, gone_input_of(inode, path))).first->second.ino =
            inode.ino;
      }
    }
  });
  std::vector<WalkItem> result;
  result.reserve(items.size());
  std::ranges::move(std::views::values(items), std::back_inserter(result));
  return result;
}

void Staging::find_replaced(std::vector<WalkItem>& items) const {
  filesystem_.mutex_.assert_held_shared();
  const ItemsByPath own = find_replaced_gone(items);
  if (!own.empty()) {
    find_replaced_elsewhere(own);
  }
}

Staging::ItemsByPath Staging::find_replaced_gone(std::vector<WalkItem>& items) const {
  filesystem_.mutex_.assert_held_shared();
  ItemsByPath own;
  for (auto& item : items) {
    if (!is_file_or_symlink(item.attributes.st_mode)) {
      continue;
    }
    const auto gone = filesystem_.names_.gone().find(item.path);
    const bool is_input = gone != filesystem_.names_.gone().end() && !gone->second.was_never_sent();
    if (!is_input && !item.origin) {
      own.emplace(item.path, &item);
    }
    if (is_input && is_file_or_symlink(gone->second.type)) {
      item.replaced = std::make_shared<GoneInput>(gone->second);
    }
  }
  return own;
}

void Staging::find_replaced_elsewhere(const ItemsByPath& own) const {
  filesystem_.mutex_.assert_held_shared();
  filesystem_.names_.for_each([&](const Inode& inode) {
    if (!is_file_or_symlink(inode.mode) || !inode.extra || !inode.extra->origin ||
        inode.nlink == 0) {
      return;
    }
    for (const auto& path : split_names(inode.extra->origin_path)) {
      if (const auto item = own.find(path); item != own.end() && item->second->ino != inode.ino) {
        item->second->replaced = std::make_shared<GoneInput>(gone_input_of(inode, path));
      }
    }
  });
}

Status Staging::remember_further_names(const Inode& inode, const std::string& path) {
  filesystem_.mutex_.assert_held();
  if (!inode.is_whole_import()) {
    return {};
  }
  for (const auto& name : split_names(inode.extra->origin_path)) {
    if (name != path && !filesystem_.names_.gone().contains(name)) {
      EFS_TRY(filesystem_.commit(0, gone_record_of(name, gone_input_of(inode, name))));
    }
  }
  return {};
}

Status Staging::forget_name(const std::string& path) {
  filesystem_.mutex_.assert_held();
  return filesystem_.names_.gone().contains(path) ? filesystem_.commit(0, Gone{.path = path})
                                                  : Status();
}

// An input that this file replaced was also not removed by the job.
Status Staging::record_unloaded(const Inode& inode, const std::string& path) {
  filesystem_.mutex_.assert_held();
  const auto before = filesystem_.names_.gone().find(path);
  const InodeExtra& extra = *inode.extra;
  const bool is_known =
      before != filesystem_.names_.gone().end() && !before->second.was_never_sent();
  GoneInput input = is_known ? before->second : gone_input_of(inode, path);
  if (!is_known && !is_one_of(extra.origin_path, path)) {
    input.origin = {};
  }
  if (extra.saved && is_one_of(extra.saved_path, path)) {
    input.saved = extra.saved;
  }
  input.unloaded = true;
  return filesystem_.commit(0, gone_record_of(path, input));
}

Status Staging::forget_copies(const std::vector<std::string>& paths) {
  WriteLock lock(filesystem_.mutex_);
  for (const auto& path : paths) {
    const auto found = filesystem_.names_.gone().find(path);
    if (found == filesystem_.names_.gone().end() || !found->second.saved) {
      continue;
    }
    GoneInput input = found->second;
    input.saved.reset();
    EFS_TRY(filesystem_.commit(0, gone_record_of(path, input)));
  }
  return {};
}

Status Staging::forget_gone(const std::vector<std::string>& paths) {
  const std::unordered_set<std::string_view> wanted(paths.begin(), paths.end());
  WriteLock lock(filesystem_.mutex_);
  for (const auto& path : paths) {
    EFS_TRY(forget_name(path));
  }
  std::vector<SetStaging> changed;
  filesystem_.names_.for_each([&](const Inode& inode) {
    if (!inode.extra || !inode.extra->origin) {
      return;
    }
    SetStaging staging = staging_of(inode);
    for (const auto& path : split_names(inode.extra->origin_path)) {
      if (wanted.contains(path)) {
        staging.origin_path = without_name(staging.origin_path, path);
      }
    }
    if (staging.origin_path == inode.extra->origin_path) {
      return;
    }
    staging.staged = !staging.origin_path.empty();
    changed.push_back(std::move(staging));
  });
  for (const auto& staging : changed) {
    EFS_TRY(filesystem_.commit(0, staging));
  }
  return {};
}

}  // namespace efs::fs
