// SPDX-License-Identifier: BSD-3-Clause
// The fetch of contents that are not here.
#include "fs/filesystem.hpp"
#include "fs/kernel_view.hpp"
#include "fs/staging_place.hpp"

namespace efs::fs {
namespace {

std::unexpected<Error> lost_its_name() {
  return fail(ESTALE, "the file was removed before its content was fetched");
}

}  // namespace

bool Staging::is_remote(std::uint64_t ino) const {
  const ReadLock lock(filesystem_.mutex_);
  const Inode* inode = filesystem_.names_.find(ino);
  return inode != nullptr && inode->nlink > 0 && inode->is_remote();
}

// An earlier worker may have left a part of the content.
Result<std::optional<Staging::Fetch>> Staging::begin_fetch(std::uint64_t ino) {
  // The journal may have the end of an earlier fetch, of which this process does not know.
  if (filesystem_.failed()) {
    return fail(EROFS, "the file system is read-only: its journal has failed");
  }
  Fetch fetch;
  {
    const ReadLock lock(filesystem_.mutex_);
    const Inode* inode = filesystem_.names_.find(ino);
    if (inode == nullptr || inode->nlink == 0) {
      return lost_its_name();
    }
    if (!inode->is_remote()) {
      return std::nullopt;
    }
    fetch.remote = *inode->extra->remote;
    fetch.atime = inode->atime;
    fetch.mtime = inode->mtime;
  }
  auto file = open_any_container(ino);
  if (!file) {
    return std::unexpected(file.error());
  }
  fetch.file = std::move(*file);
  const MutexLock emptying(filesystem_.emptying_);
  if (filesystem_.is_full_remote(ino)) {  // R3, as free_evicted()
    EFS_TRY(make_eviction_durable());
  }
  fetch.arrived = std::make_shared<Arrived>(filesystem_);
  EFS_TRY(fetch.file.container->truncate(0));
  filesystem_.note_emptied(ino);
  return fetch;
}

// R1: the content is durable before the record. Times are set before the sync, because those of a
// settled file identify it.
Status Staging::end_fetch(const Fetch& fetch) {
  Container& container = *fetch.file.container;
  const std::uint64_t ino = fetch.file.ino;
  EFS_TRY(container.set_times(fetch.atime, fetch.mtime));
  if (!filesystem_.needs_no_sync() && filesystem_.options_.rules.sync_before_fetched) {
    EFS_TRY(container.sync(true));
    EFS_TRY(filesystem_.backend_.sync_name(ino));
  }
  const auto now = container.attributes();
  EFS_TRY(now);
  WriteLock lock(filesystem_.mutex_);
  Inode* inode = filesystem_.names_.find(ino);
  if (inode == nullptr || inode->nlink == 0 || !inode->is_remote()) {
    return lost_its_name();
  }
  inode->was_used.store(true, std::memory_order_relaxed);  // by the open that waits for it
  // The fetch is no change that a program may see.
  inode->extra->kept_time =
      InodeExtra::KeptTime{.shown = inode->ctime, .ctime = now->st_ctim, .mtime = now->st_mtim};
  const Status done = filesystem_.commit(0, Fetched{.ino = ino});
  if (done) {
    fetch.arrived->forget();  // with the lock: the reserved room has never been less
  }
  return done;
}

Staging::Arrived::Arrived(const Filesystem& filesystem) : all_(filesystem.arrived_) {}

void Staging::Arrived::add(std::uint64_t bytes) {
  bytes_ += bytes;
  *all_ += bytes;
}

void Staging::Arrived::forget() {
  *all_ -= bytes_.exchange(0);
}

Status Staging::accept_version(Fetch& fetch, const Origin& version, std::uint64_t room) {
  fetch.arrived->forget();
  EFS_TRY(filesystem_.leaves_room(room, fetch.remote.room));
  NewVersion record{.ino = fetch.file.ino, .version = version, .room = room};
  {
    WriteLock lock(filesystem_.mutex_);
    const Inode* inode = filesystem_.names_.find(record.ino);
    if (inode == nullptr || inode->nlink == 0 || !inode->is_remote()) {
      return lost_its_name();
    }
    record.time = filesystem_.clock_.now();
    EFS_TRY(filesystem_.commit(0, record));
    fetch.remote.version = version;
    fetch.remote.room = room;
    fetch.mtime = inode->mtime;
  }
  if (KernelView* kernel = filesystem_.kernel_) {
    kernel->attributes_changed(record.ino);
  }
  return {};
}

void Staging::note_fetch_failure(std::uint64_t ino, std::string why) {
  const WriteLock lock(filesystem_.mutex_);
  if (Inode* inode = filesystem_.names_.find(ino); inode != nullptr && inode->is_remote()) {
    inode->extra->remote->failure = std::move(why);
  }
}

std::vector<Staging::RemoteFile> Staging::remote_files(bool background_only) const {
  const ReadLock lock(filesystem_.mutex_);
  std::vector<RemoteFile> found;
  if (filesystem_.names_.remote_files() == 0) {
    return found;
  }
  filesystem_.names_.for_each([&](const Inode& inode) {
    if (inode.is_remote() && inode.nlink > 0 &&
        (inode.extra->remote->background || !background_only)) {
      found.push_back({.ino = inode.ino, .priority = inode.extra->remote->priority});
    }
  });
  return found;
}

std::uint64_t Staging::directory_of(std::uint64_t ino) const {
  const ReadLock lock(filesystem_.mutex_);
  const Inode* inode = filesystem_.names_.find(ino);
  const auto& imported = filesystem_.names_.files().of(ino).imported;
  if (inode == nullptr || inode->nlink != 1 || !imported) {
    return 0;
  }
  const auto place = locate(imported->names.text());
  const auto* entry = place ? place->parent->directory->find(place->name) : nullptr;
  return entry != nullptr && entry->ino == ino ? place->parent->ino : 0;
}

std::vector<Staging::SiblingFile> Staging::files_in(std::uint64_t directory) const {
  const ReadLock lock(filesystem_.mutex_);
  std::vector<SiblingFile> names, files;
  const Inode* inode = filesystem_.names_.find(directory);
  if (inode == nullptr || !inode->is_directory()) {
    return files;
  }
  names.reserve(inode->directory->size());
  inode->directory->for_each_before(
      Directory::most_cookie, [&names](const std::string& name, const Directory::Entry& entry) {
        names.push_back({.name = name, .ino = entry.ino});
        return true;
      });
  files.reserve(names.size());
  for (auto& name : names) {
    const Inode* file = filesystem_.names_.find(name.ino);
    if (file != nullptr && file->is_regular()) {
      name.size = file->is_remote() ? file->extra->remote->version.size : 0;
      files.push_back(std::move(name));
    }
  }
  return files;
}

// A remote file has one name, that of its import.
std::string Staging::path_of(std::uint64_t ino) const {
  const ReadLock lock(filesystem_.mutex_);
  const ledger::FileEntry& entry = filesystem_.names_.files().of(ino);
  return entry.imported   ? entry.imported->names.text()
         : entry.exported ? entry.exported->names.text()
                          : std::string();
}

Staging::RemoteTotals Staging::remote_totals() const {
  const ReadLock lock(filesystem_.mutex_);
  return {.files = filesystem_.names_.remote_files(), .bytes = filesystem_.names_.remote_bytes()};
}

}  // namespace efs::fs
