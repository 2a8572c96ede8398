// SPDX-License-Identifier: BSD-3-Clause
// Imported names that the job removed or renamed.
#include <algorithm>
#include <iterator>
#include <ranges>
#include <unordered_map>

#include "fs/filesystem.hpp"
#include "fs/ledger_records.hpp"
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
  item.pfs = {.origin = input.origin, .linked = input.linked, .saved = input.saved};
  item.target = input.target;
  // The class of an existing directory applies to removed names below it.
  const Inode* directory = &filesystem_.names_.root();
  const bool any = filesystem_.names_.has_kept_directories();
  for (std::size_t at = 0; any && directory != nullptr && directory->is_directory();) {
    if (directory->keep() != Keep::by_rule) {
      item.keep = directory->keep(), item.keep_path = path.substr(0, at == 0 ? 0 : at - 1);
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
  const ledger::Files& files = filesystem_.names_.files();
  files.for_each([&](std::uint64_t ino, const ledger::FileEntry& entry) {
    filesystem_.mutex_.assert_held_shared();
    const Inode* inode = entry.is_whole_import() ? filesystem_.names_.find(ino) : nullptr;
    if (inode == nullptr || inode->nlink == 0) {
      return;
    }
    for (const auto& path : entry.imported->names.list()) {
      if (is_missing(path)) {
        const auto input = files.gone_input(ledger_node(*inode), path);
        items.emplace(path, gone_item(path, input)).first->second.ino = ino;
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
    if (!is_input && !item.pfs.origin) {
      own.emplace(item.path, &item);
    }
    if (is_input && is_file_or_symlink(gone->second.type)) {
      item.pfs.replaced = std::make_shared<GoneInput>(gone->second);
    }
  }
  return own;
}

void Staging::find_replaced_elsewhere(const ItemsByPath& own) const {
  filesystem_.mutex_.assert_held_shared();
  const ledger::Files& files = filesystem_.names_.files();
  files.for_each([&](std::uint64_t ino, const ledger::FileEntry& entry) {
    filesystem_.mutex_.assert_held_shared();
    const Inode* inode = entry.imported ? filesystem_.names_.find(ino) : nullptr;
    if (inode == nullptr || !is_file_or_symlink(inode->mode) || inode->nlink == 0) {
      return;
    }
    entry.imported->names.for_each([&](std::string_view path) {
      if (const auto item = own.find(path); item != own.end() && item->second->ino != ino) {
        item->second->pfs.replaced =
            std::make_shared<GoneInput>(files.gone_input(ledger_node(*inode), path));
      }
    });
  });
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
  WriteLock lock(filesystem_.mutex_);
  for (const auto& path : paths) {
    if (filesystem_.names_.gone().contains(path)) {
      EFS_TRY(filesystem_.commit(0, Gone{.path = path}));
    }
  }
  for (const auto& [ino, entry] : filesystem_.names_.files().forgotten(paths)) {
    EFS_TRY(filesystem_.commit(0, staging_of(*filesystem_.names_.find(ino), entry)));
  }
  return {};
}

}  // namespace efs::fs
