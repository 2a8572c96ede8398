#include "fs/filesystem.hpp"

#include <algorithm>

#include "base/log.hpp"
#include "fs/mapped_file.hpp"

namespace efs::fs {
namespace {

constexpr const char* journal_name = "journal";
constexpr std::size_t longest_name = 255;
constexpr std::size_t most_files = 256;  // each may hold a container, that is a descriptor

}  // namespace

Filesystem::Filesystem(Backend& backend, const Options& options)
    : backend_(backend), options_(options), medium_(options.medium ? options.medium : store::directory_medium(options.metadata_directory)), names_(options.root_mode, options.uid, options.gid, file_time_now()) {}

Filesystem::~Filesystem() = default;

Result<std::unique_ptr<Filesystem>> Filesystem::open(Backend& backend, const Options& options) {
  std::unique_ptr<Filesystem> fs(new Filesystem(backend, options));
  if (!options.read_only) {
    WriteLock lock(fs->mutex_);
    auto fresh = store::Journal::create(fs->medium_, journal_name);
    if (!fresh && fresh.error().code != EEXIST) return std::unexpected(fresh.error());
    if (fresh) {
      fs->journal_ = std::move(*fresh);
      Inode& root = fs->names_.root();
      EFS_TRY(fs->commit(0, SetAttributes{root_ino, root.mode, root.uid, root.gid, root.atime, root.mtime, root.ctime, 0}));
      fs->compact_at_ = options.smallest_compaction;
      return fs;
    }
  }
  EFS_TRY(fs->recover());
  return fs;
}

Status Filesystem::commit(std::uint64_t request, const Record& record, std::int64_t reserve) {
  if (!journal_ || broken_) return fail(EROFS);
  scratch_.clear();
  encode(record, scratch_);
  EFS_TRY(journal_->append(request, scratch_, reserve));
  const Status applied = names_.apply(record);
  if (!applied) log::error("event=apply_failed reason=\"{}\"", describe(applied.error()));
  compact_if_due();
  return applied;
}

void Filesystem::compact_if_due() {
  if (compact_at_ == 0 || journal_->size() < compact_at_) return;
  bool switched = false;
  const std::uint64_t sequence = journal_->sequence();
  const Status done = journal_->replace([this](store::Journal& next) -> Status {
    Status status;
    names_.snapshot([&](const Record& record) {
      if (!status) return;
      std::vector<std::byte> bytes;
      encode(record, bytes);
      const auto* node = std::get_if<MakeNode>(&record);
      const auto* link = std::get_if<Link>(&record);
      const std::size_t name = node != nullptr ? node->name.size() : link != nullptr ? link->name.size() : 0;
      status = next.append(0, bytes, name == 0 ? 0 : static_cast<std::int64_t>(store::Journal::record_size(name + 32)));
    });
    return status;
  }, &switched);
  if (done) durable_ = std::max(durable_.load(), sequence);
  else if (switched) broken_ = true;  // power loss could bring the old journal back, without what follows
  // Without room for a snapshot the old journal goes on; ask again when it has grown by a half.
  if (!done) log::warn("event=snapshot_failed reason=\"{}\"", describe(done.error()));
  compact_at_ = std::max(options_.smallest_compaction, done ? 2 * journal_->size() : journal_->size() * 3 / 2);
}

Result<Inode*> Filesystem::inode(std::uint64_t ino) const {
  Inode* found = names_.find(ino);
  if (found == nullptr) return fail(ENOENT);
  return found;
}

Result<Inode*> Filesystem::directory(std::uint64_t ino) const {
  Inode* found = names_.find(ino);
  if (found == nullptr) return fail(ENOENT);
  if (!found->is_directory()) return fail(ENOTDIR);
  return found;
}

Result<Inode*> Filesystem::regular(std::uint64_t ino) const {
  Inode* found = names_.find(ino);
  if (found == nullptr) return fail(ENOENT);
  if (found->is_directory()) return fail(EISDIR);
  if (!found->is_regular()) return fail(EINVAL);
  return found;
}

Status Filesystem::check_new_name(const Inode& parent, const std::string& name) const {
  if (name.size() > longest_name) return fail(ENAMETOOLONG);
  if (parent.nlink == 0) return fail(ENOENT);  // a removed directory that somebody still stands in
  return parent.directory->find(name) == nullptr ? Status{} : fail(EEXIST);
}

Result<struct stat> Filesystem::stat_of(const Inode& inode) const {
  struct stat st {};
  st.st_ino = inode.ino;
  st.st_mode = inode.mode;
  st.st_nlink = inode.nlink;
  st.st_uid = inode.uid;
  st.st_gid = inode.gid;
  st.st_rdev = inode.rdev;
  st.st_blksize = 4096;
  st.st_atim = to_timespec(inode.atime);
  st.st_mtim = to_timespec(inode.mtime);
  st.st_ctim = to_timespec(inode.ctime);
  if (inode.is_directory()) {
    st.st_size = static_cast<off_t>(inode.directory->size() * 20 + 40);
  } else if (S_ISLNK(inode.mode)) {
    st.st_size = static_cast<off_t>(inode.extra->target.size());
  } else if (inode.is_regular()) {
    auto container = backend_.attributes(inode.ino);
    if (!container) return std::unexpected(container.error());
    st.st_size = container->st_size;
    st.st_blocks = container->st_blocks;
    st.st_atim = container->st_atim;
    st.st_mtim = container->st_mtim;
    st.st_ctim = to_timespec(std::max(to_ns(container->st_ctim), inode.ctime));
  }
  return st;
}

Result<Entry> Filesystem::entry_of(const Inode& inode) const {
  auto attributes = stat_of(inode);
  if (!attributes) return std::unexpected(attributes.error());
  return Entry{inode.ino, *attributes, inode.opened_read_write};
}

// R1: content that is not known to be on the medium must be there before a record takes away that the file is clean, for
// a clean file would be staged in again after power loss. Only files that were staged in moments ago are not settled.
Status Filesystem::settle_one(const Inode& inode) {
  if (inode.dirty || inode.settled || !inode.is_regular() || backend_.durability() == Durability::volatile_memory) return {};
  auto container = backend_.open(inode.ino);
  if (!container) return std::unexpected(container.error());
  EFS_TRY((*container)->sync(false));
  return backend_.sync_name(inode.ino);
}

Status Filesystem::mark_dirty(std::uint64_t request, Inode& inode) {
  if (inode.dirty) return {};
  EFS_TRY(settle_one(inode));
  return commit(request, SetAttributes{inode.ino, inode.mode, inode.uid, inode.gid, inode.atime, inode.mtime, inode.ctime, 1});
}

Status Filesystem::clear_privilege(std::uint64_t request, Inode& inode, bool stranger) {
  if (!inode.is_regular()) return {};
  if (inode.extra && inode.extra->xattrs.contains("security.capability"))
    EFS_TRY(commit(request, RemoveXattr{.ino = inode.ino, .time = file_time_now(), .name = "security.capability"}));
  mode_t mode = inode.mode & ~static_cast<mode_t>(S_ISUID);
  if ((mode & S_IXGRP) != 0 || stranger) mode &= ~static_cast<mode_t>(S_ISGID);
  if (mode == inode.mode) return {};
  return commit(request, SetAttributes{inode.ino, mode, inode.uid, inode.gid, inode.atime, inode.mtime, file_time_now(), 1});
}

bool Filesystem::reap(std::uint64_t ino) {
  const Inode* inode = names_.find(ino);
  if (inode == nullptr || inode->nlink > 0 || inode->lookups > 0 || ino == root_ino) return false;
  const bool container = inode->is_regular();
  names_.destroy(ino);
  if (container) {
    MutexLock lock(files_mutex_);
    files_.erase(ino);
  }
  if (!container) return true;
  // R3: on a page-cache file system the record that took the last name may be lost with the power, and must then find
  // its container.
  if (journal_ && backend_.durability() == Durability::page && options_.rules.free_after_durable) released_.push_back({journal_->sequence(), ino});
  else if (journal_) backend_.remove(ino);
  return true;
}

Result<std::shared_ptr<MappedFile>> Filesystem::file(std::uint64_t ino) {
  {
    MutexLock lock(files_mutex_);
    if (const auto it = files_.find(ino); it != files_.end()) return it->second;
  }
  auto container = backend_.open(ino);
  if (!container) return std::unexpected(container.error());
  MutexLock lock(files_mutex_);
  // Bounded as the descriptors are: what is dropped here lives on with its users and is made again when needed.
  if (files_.size() >= most_files) std::erase_if(files_, [](const auto& entry) { return entry.second.use_count() == 1; });
  return files_.try_emplace(ino, std::make_shared<MappedFile>(*container)).first->second;
}

}  // namespace efs::fs
