// SPDX-License-Identifier: BSD-3-Clause
// Staging while programs run: makes, replaces and removes names, and proves that files have no
// writers.
#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fs/ledger_records.hpp"
#include "fs/mapped_file.hpp"
#include "fs/removal_reserve.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {
Status may_replace(const Inode& there, bool dirty, Over over, const std::string& path) {
  if (there.is_directory()) {
    return fail(EISDIR, path + ": is a directory in the buffer");
  }
  if (over == Over::nothing) {
    return fail(EEXIST, path + ": is in the buffer already");
  }
  if (over == Over::anything) {
    return {};
  }
  if (there.write_opens > 0) {
    return fail(EBUSY, path + ": a program has it open for writing");
  }
  if (dirty) {
    return fail(EBUSY, path + ": was changed in the buffer");
  }
  return {};
}

std::optional<std::string> Staging::path_below(std::uint64_t directory,
                                               const std::string& name) const {
  ReadLock lock(filesystem_.mutex_);
  const Inode* inode = filesystem_.names_.find(directory);
  return inode != nullptr && inode->is_directory()
             ? std::optional(filesystem_.names_.path_of(*inode, name))
             : std::nullopt;
}

Result<WalkItem> Staging::find(const std::string& path) {
  ReadLock lock(filesystem_.mutex_);
  auto step = start_of_walk(path);
  if (!step) {
    return std::unexpected(step.error());
  }
  return item_of(*step);
}

bool Staging::lost_its_content(const WalkItem& item) const {
  return S_ISREG(item.attributes.st_mode) &&
         filesystem_.emptied_.contains(item.ino, item.attributes);
}

// Completes a node without a name and gives it the name.
Status Staging::complete_and_name(const MakeNode& node,
                                  const std::map<std::string, std::string>& bulky,
                                  const std::string& parts, const Replace& replace,
                                  std::int64_t reserve) try {
  filesystem_.mutex_.assert_held();
  for (const auto& [key, value] : bulky) {
    EFS_TRY(filesystem_.commit(
        0, SetXattr{.ino = node.ino, .time = node.ctime, .name = key, .value = value}));
  }
  if (!parts.empty()) {
    SetStaging staging = filesystem_.names_.staging_of(*filesystem_.names_.find(node.ino));
    staging.parts = parts;
    staging.keep = static_cast<std::uint8_t>(Keep::temporary);
    EFS_TRY(filesystem_.commit(0, staging));
  }
  return filesystem_.commit(0, replace, reserve);
} catch (const std::bad_alloc&) {
  return fail(ENOMEM);
}

Result<std::uint64_t> Staging::replaceable(const Place& place, const std::string& path,
                                           Over over) const {
  filesystem_.mutex_.assert_held_shared();
  const auto there = filesystem_.names_.child(*place.parent, place.name);
  if (!there) {
    return 0;
  }
  EFS_TRY(may_replace(**there, entry_of(**there, path).dirty, over, path));
  return (*there)->ino;
}

/// The effects of publish_over().
struct Staging::Published {
  std::uint64_t parent = 0;
  std::string name;
  std::uint64_t gone = 0;  // the replaced inode, if it was freed
  Filesystem::Reaped reaped;
};

Status Staging::publish_in_steps(MakeNode& node, const std::map<std::string, std::string>& bulky,
                                 const std::string& parts, std::uint64_t old,
                                 Published& published) {
  filesystem_.mutex_.assert_held();
  // Without a name first: a recovery between these records frees the inode, which no program has
  // seen.
  node.name.clear();
  EFS_TRY(filesystem_.commit(0, node));
  const Replace replace{.ino = node.ino,
                        .parent = published.parent,
                        .time = filesystem_.clock_.now(),
                        .name = published.name};
  const Status done = complete_and_name(node, bulky, parts, replace,
                                        old != 0 ? 0 : removal_reserve(published.name));
  if (!done) {
    (void)filesystem_.reap(node.ino);  // the caller removes its container
    return done;
  }
  filesystem_.record_unsettled(node.ino);
  if (old != 0) {
    published.reaped = filesystem_.withdraw(old);
  }
  if (published.reaped.gone) {
    published.gone = old;
  }
  return {};
}

Status Staging::publish_over(const StagedFile& file, Over over, const std::string& parts) {
  const auto& [ino, path, attributes, origin, xattrs, remote] = file;
  EFS_TRY(filesystem_.backend_.set_times(ino, attributes.atime, attributes.mtime));
  Published published;
  {
    WriteLock lock(filesystem_.mutex_);
    auto place = locate(path);
    if (!place) {
      return std::unexpected(place.error());
    }
    const auto old = replaceable(*place, path, over);
    EFS_TRY(old);
    if (place->parent->nlink == 0) {
      return fail(ENOENT);
    }
    MakeNode node = staged_node(*place, ino, S_IFREG, attributes, filesystem_.clock_.now());
    node.staged = 1;
    node.origin = origin;
    node.origin_path = path;
    node.xattrs = xattrs;
    published.parent = place->parent->ino;
    published.name = place->name;
    const auto bulky = take_bulky_xattrs(node);
    if (*old == 0 && parts.empty() && bulky.empty()) {
      EFS_TRY(filesystem_.commit(0, node, removal_reserve(published.name)));
      filesystem_.record_unsettled(ino);
    } else {
      EFS_TRY(publish_in_steps(node, bulky, parts, *old, published));
    }
  }
  filesystem_.remove_container(published.reaped);
  if (KernelView* kernel = filesystem_.kernel_) {
    if (published.gone != 0) {
      kernel->let_go(published.gone);
    }
    kernel->name_changed(published.parent, published.name);
  }
  return {};
}

Result<std::uint64_t> Staging::add_directory(const std::string& path,
                                             const StagedAttributes& attributes,
                                             const std::map<std::string, std::string>& xattrs) {
  std::uint64_t parent = 0, ino = 0;
  std::string name;
  {
    WriteLock lock(filesystem_.mutex_);
    auto place = locate(path);
    if (!place) {
      return std::unexpected(place.error());
    }
    if (const auto there = filesystem_.names_.child(*place->parent, place->name)) {
      if ((*there)->is_directory()) {
        return 0;
      }
      return fail(ENOTDIR, path + ": is in the buffer and is not a directory");
    }
    EFS_TRY(filesystem_.check_new_name(*place->parent, place->name));
    MakeNode node = staged_node(*place, filesystem_.names_.next_ino(), S_IFDIR, attributes,
                                filesystem_.clock_.now());
    node.staged = 1;
    node.origin_path = path;
    node.xattrs = xattrs;
    parent = node.parent;
    ino = node.ino;
    name = node.name;
    const auto bulky = take_bulky_xattrs(node);
    EFS_TRY(filesystem_.commit(0, node, removal_reserve(name)));
    for (const auto& [key, value] : bulky) {
      EFS_TRY(filesystem_.commit(
          0, SetXattr{.ino = node.ino, .time = node.ctime, .name = key, .value = value}));
    }
  }
  if (KernelView* kernel = filesystem_.kernel_) {
    kernel->name_changed(parent, name);
    kernel->attributes_changed(parent);
  }
  return ino;
}

Status Staging::settle_directory(const std::string& path, const StagedAttributes& attributes) {
  std::uint64_t ino = 0;
  {
    WriteLock lock(filesystem_.mutex_);
    auto place = locate(path);
    if (!place) {
      return std::unexpected(place.error());
    }
    const auto there = filesystem_.names_.child(*place->parent, place->name);
    if (!there || !(*there)->is_directory() || (*there)->dirty) {
      return {};
    }
    const Inode& dir = **there;
    ino = dir.ino;
    SetAttributes record = attributes_of(dir);
    record.atime = attributes.atime;
    record.mtime = attributes.mtime;
    record.ctime = filesystem_.clock_.now();
    EFS_TRY(filesystem_.commit(0, record));
  }
  if (KernelView* kernel = filesystem_.kernel_) {
    kernel->attributes_changed(ino);
  }
  return {};
}

Result<std::uint64_t> Staging::add_symlink(const std::string& path, const std::string& target,
                                           const StagedAttributes& attributes) {
  const auto made = new_symlink(path, target, attributes);
  if (!made) {
    return std::unexpected(made.error());
  }
  if (KernelView* kernel = filesystem_.kernel_) {
    kernel->name_changed(made->parent, made->name);
  }
  return made->ino;
}

bool Staging::is_counted_quiet(std::uint64_t ino) const {
  return filesystem_.is_counted_quiet(ino);
}

Result<Writers> Staging::writers(std::uint64_t ino) {
  Writers writers;
  bool counted = false;
  {
    ReadLock lock(filesystem_.mutex_);
    const auto found = filesystem_.regular(ino);
    if (!found) {
      return std::unexpected(found.error());
    }
    const Inode& inode = **found;
    // Read first: a later open for writing changes this number.
    writers.edits = inode.edits;
    writers.open = inode.write_opens;
    counted = filesystem_.is_counted(inode);
  }
  if (writers.open > 0) {
    return writers;
  }
  if (counted) {
    writers.possible = false;
    return writers;
  }
  let_go(ino);
  writers.possible = filesystem_.backend_.may_be_written(ino);
  return writers;
}

void Staging::write_back(std::uint64_t ino) {
  if (KernelView* kernel = filesystem_.kernel_) {
    kernel->write_back(ino);
  }
}

// Containers that this process keeps open would count as writers.
void Staging::let_go(std::uint64_t ino) {
  MutexLock lock(filesystem_.files_mutex_);
  if (const auto it = filesystem_.files_.find(ino);
      it != filesystem_.files_.end() && it->second.use_count() == 1) {
    filesystem_.files_.erase(it);
  }
}

bool Staging::is_written(std::uint64_t ino) {
  let_go(ino);
  return filesystem_.backend_.is_written(ino);
}

Result<std::uint64_t> Staging::edits(std::uint64_t ino) {
  ReadLock lock(filesystem_.mutex_);
  const auto found = filesystem_.inode(ino);
  if (!found) {
    return std::unexpected(found.error());
  }
  return (*found)->edits.load();
}

std::size_t Staging::count() {
  ReadLock lock(filesystem_.mutex_);
  return filesystem_.names_.size();
}

Result<struct stat> Staging::attributes(std::uint64_t ino) {
  ReadLock lock(filesystem_.mutex_);
  const auto found = filesystem_.inode(ino);
  if (!found) {
    return std::unexpected(found.error());
  }
  return filesystem_.stat_of(**found);
}

Result<bool> Staging::set_saved(std::uint64_t ino, const std::string& path, std::uint64_t edits,
                                const SavedCopy& copy) {
  WriteLock lock(filesystem_.mutex_);
  const auto there = inode_at(path);
  if (!there || (*there)->ino != ino || (*there)->edits != edits || (*there)->write_opens > 0) {
    return false;
  }
  EFS_TRY(record_export(**there, path, copy));
  return true;
}

Status Staging::mark_saved(const std::string& path, const Origin& copy, bool in_place,
                           const GoneInput* replaced) {
  WriteLock lock(filesystem_.mutex_);
  const auto there = inode_at(path);
  EFS_TRY(there);
  return record_export(**there, path, {copy, in_place, replaced});
}

Status Staging::record_copy(const std::string& path, const Origin& copy, bool,
                            const GoneInput* replaced) {
  WriteLock lock(filesystem_.mutex_);
  const auto there = inode_at(path);
  EFS_TRY(there);
  const ledger::Node node = ledger_node(**there);
  return commit_change(*there, filesystem_.names_.files().copied(
                                   &node, path, {copy, false, replaced}, leads_to(node.id)));
}

Status Staging::record_named(std::uint64_t ino, const std::string& path, const Origin& copy,
                             bool in_place, const GoneInput* replaced) {
  WriteLock lock(filesystem_.mutex_);
  const Inode* inode = filesystem_.names_.find(ino);
  const auto node = inode != nullptr ? std::optional(ledger_node(*inode)) : std::nullopt;
  return commit_change(
      inode, filesystem_.names_.files().copied(node ? &*node : nullptr, path,
                                               {copy, in_place, replaced}, leads_to(ino)));
}

Status Staging::mark_changed(std::uint64_t ino, const std::string& path) {
  WriteLock lock(filesystem_.mutex_);
  const Inode* inode = leads_to(path, ino) ? filesystem_.names_.find(ino) : nullptr;
  if (inode == nullptr) {
    return fail(ENOENT, "it was removed or renamed meanwhile");
  }
  if (inode->dirty) {
    return {};
  }
  SetStaging staging = filesystem_.names_.staging_of(*inode);
  staging.dirty = 1;
  return filesystem_.commit(0, staging);
}

bool Staging::leads_to(const std::string& path, std::uint64_t ino) const {
  filesystem_.mutex_.assert_held_shared();
  const auto there = inode_at(path);
  return there && (*there)->ino == ino;
}

Status Staging::record_export(const Inode& inode, const std::string& path, const SavedCopy& copy) {
  filesystem_.mutex_.assert_held();
  EFS_TRY(commit_change(&inode, filesystem_.names_.files().exported(ledger_node(inode), path, copy,
                                                                    leads_to(inode.ino))));
  if (inode.is_regular() && !inode.settled) {
    filesystem_.record_unsettled(inode.ino);
  }
  return {};
}

Status Staging::remove_clean(const std::string& path) {
  return remove_name(path, [&](const Inode& inode) { return may_go(inode, path, 0); });
}

Status Staging::take_back(const std::string& path, std::uint64_t ino) {
  return remove_name(path, [&](const Inode& inode) { return may_go(inode, path, ino); });
}

// The descriptors of this process and an idle registration of the kernel would prevent the proof.
// If they come back before the lock is held, the file stays.
void Staging::close_unused(std::uint64_t ino) {
  if (KernelView* kernel = filesystem_.kernel_) {
    kernel->let_go(ino);
  }
  let_go(ino);
}

Status Staging::drop_unused(const std::string& path, std::uint64_t ino, const Origin& copy) {
  close_unused(ino);
  return remove_name(path, [&](const Inode& inode) { return may_drop(inode, path, ino, copy); });
}

Status Staging::check_unused(const std::string& path, std::uint64_t ino, const Origin& copy) {
  close_unused(ino);
  const WriteLock lock(filesystem_.mutex_);
  const auto place = locate(path);
  if (!place) {
    return std::unexpected(place.error());
  }
  const auto there = filesystem_.names_.child(*place->parent, place->name);
  return there ? may_drop(**there, path, ino, copy) : std::unexpected(there.error());
}

// A program's open needs the namespace lock to be counted, so none comes after the proof. A mapping
// by passthrough outlives its open, and is an open file in the kernel: the lease fails.
Status Staging::may_drop(const Inode& inode, const std::string& path, std::uint64_t ino,
                         const Origin& copy) {
  filesystem_.mutex_.assert_held();
  if (inode.ino != ino) {
    return fail(ESTALE, "another file has this name by now");
  }
  if (!inode.is_regular() || inode.nlink != 1) {
    return fail(EMLINK, "it has further names, or is not a regular file");
  }
  const ledger::NameEntry entry = entry_of(inode, path);
  if (!entry.is_exported()) {
    return fail(EBUSY, "it has changed since its export");
  }
  if (!is_same_file(*entry.saved, copy)) {
    return fail(ESTALE, "it was exported again meanwhile");
  }
  if (inode.is_open() || filesystem_.backend_.may_be_open(ino)) {
    return fail(EBUSY, "a program may have it open or mapped");
  }
  return {};
}

Status Staging::may_go(const Inode& inode, const std::string& path, std::uint64_t ino) const {
  filesystem_.mutex_.assert_held_shared();
  if (ino == 0 && !inode.is_regular()) {
    return fail(EINVAL, path + ": is not a regular file");
  }
  if (ino != 0 && inode.ino != ino) {
    return fail(ESTALE, path + ": was replaced meanwhile");
  }
  if (inode.is_directory() && !inode.directory->empty()) {
    return fail(ENOTEMPTY, path + ": is not empty");
  }
  const ledger::NameEntry entry = entry_of(inode, path);
  if (entry.dirty || !entry.on_pfs() || inode.write_opens > 0) {
    return fail(EBUSY, path + ": the buffer may have the only copy");
  }
  return {};
}

// `may` is called under the namespace lock.
Status Staging::remove_name(const std::string& path,
                            const std::function<Status(const Inode&)>& may) {
  std::uint64_t parent = 0, ino = 0;
  std::string name;
  bool last = false;
  Filesystem::Reaped reaped;
  {
    WriteLock lock(filesystem_.mutex_);
    const auto place = locate(path);
    if (!place) {
      return std::unexpected(place.error());
    }
    const auto there = filesystem_.names_.child(*place->parent, place->name);
    if (!there) {
      return fail(there.error().code, path + ": not in the buffer");
    }
    EFS_TRY(may(**there));
    parent = place->parent->ino;
    name = place->name;
    ino = (*there)->ino;
    last = (*there)->nlink == 1 || (*there)->is_directory();
    // First, and permanently: the PFS has the file and keeps it. If the process dies in between,
    // the file without an origin counts as changed.
    EFS_TRY(commit_change(*there,
                          filesystem_.names_.files().unloaded(ledger_node(**there), path, last)));
    EFS_TRY(filesystem_.commit(
        0, Unlink{.parent = parent, .time = filesystem_.clock_.now(), .name = name},
        -removal_reserve(name)));
    reaped = filesystem_.withdraw(ino);
  }
  filesystem_.remove_container(reaped);
  const bool gone = reaped.gone;
  if (KernelView* kernel = filesystem_.kernel_) {
    if (gone) {
      kernel->let_go(ino);
    }
    kernel->name_removed(parent, name, ino, last);
  }
  return {};
}

Status Staging::set_keep(const std::string& path, Keep keep) {
  WriteLock lock(filesystem_.mutex_);
  auto step = start_of_walk(path);
  if (!step) {
    return std::unexpected(step.error());
  }
  SetStaging staging = filesystem_.names_.staging_of(*step->inode);
  staging.keep = static_cast<std::uint8_t>(keep);
  return filesystem_.commit(0, staging);
}

}  // namespace efs::fs
