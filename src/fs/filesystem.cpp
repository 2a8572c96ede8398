// SPDX-License-Identifier: BSD-3-Clause
#include "fs/filesystem.hpp"

#include <algorithm>
#include <cstring>
#include <new>
#include <utility>

#include "base/log.hpp"
#include "base/slow_work.hpp"
#include "fs/mapped_file.hpp"
#include "fs/removal_reserve.hpp"

namespace efs::fs {
namespace {

constexpr std::size_t longest_name = 255;
constexpr std::size_t most_files = 256;  // each may keep a container open, that is a descriptor

// The inode whose attributes a record changes; 0 for other records.
struct ChangedInode {
  std::uint64_t operator()(const SetAttributes& r) const { return r.ino; }

  std::uint64_t operator()(const SetXattr& r) const { return r.ino; }

  std::uint64_t operator()(const RemoveXattr& r) const { return r.ino; }

  std::uint64_t operator()(const SetContent& r) const { return r.ino; }

  std::uint64_t operator()(const LostWrites& r) const { return r.ino; }

  std::uint64_t operator()(const Fetched& r) const { return r.ino; }

  std::uint64_t operator()(const Evicted& r) const { return r.ino; }

  std::uint64_t operator()(const auto&) const { return 0; }
};

// The file whose clean state or copy on the PFS the record ends; 0: none.
std::uint64_t no_longer_on_pfs(const Record& record) {
  if (const auto* change = std::get_if<SetAttributes>(&record)) {
    return change->dirty != 0 ? change->ino : 0;
  }
  if (const auto* staging = std::get_if<SetStaging>(&record)) {
    const bool loses_copy = staging->staged == 0 && staging->saved == 0;
    return staging->dirty != 0 || loses_copy ? staging->ino : 0;
  }
  return 0;
}

// As describe(), without allocation.
const char* reason_of(const Error& error) {
  return error.what.empty() ? std::strerror(error.code) : error.what.c_str();
}

}  // namespace

Filesystem::Filesystem(Backend& backend, const Options& options,
                       std::unique_ptr<OpenTable> own_opens)
    : backend_(backend),
      options_(options),
      medium_(options.medium ? options.medium
                             : store::directory_medium(options.metadata_directory)),
      own_opens_(std::move(own_opens)),
      opens_(own_opens_ ? *own_opens_ : *options.opens),
      names_(options.root_mode, options.uid, options.gid, clock_.now()),
      snapshots_(options.smallest_compaction),
      space_(backend),
      zeros_(*this, backend, space_, removals_),
      room_(*this, backend, options.read_only ? nullptr : medium_) {}

Filesystem::~Filesystem() {
  remove_put_off();
  for (const auto& unused : pool_.close()) {
    backend_.remove(unused.ino);
  }
}

Result<std::unique_ptr<Filesystem>> Filesystem::open(Backend& backend, const Options& options) {
  std::unique_ptr<OpenTable> own_opens;
  if (options.opens == nullptr) {
    auto made =
        OpenTable::make(options.read_only ? OpenTable::fewest_slots : OpenTable::usual_slots);
    if (!made) {
      return std::unexpected(made.error());
    }
    own_opens = std::move(*made);
  }
  std::unique_ptr<Filesystem> fs(new Filesystem(backend, options, std::move(own_opens)));
  // Here, not where the table is made: the supervisor has no log yet.
  if (const std::size_t slots = fs->opens_.slots();
      !options.read_only && slots < OpenTable::usual_slots) {
    log::warn("event=opens_limited files={} reason=\"no memory for a larger table\"", slots);
  }
  if (!options.takeover) {
    fs->opens_.clear();
  }
  if (!options.read_only) {
    WriteLock lock(fs->mutex_);
    auto fresh = store::Journal::create(fs->medium_, journal_name, options.instance);
    if (!fresh && fresh.error().code != EEXIST) {
      return std::unexpected(fresh.error());
    }
    if (fresh) {
      fs->journal_ = std::move(*fresh);
      Inode& root = fs->names_.root();
      EFS_TRY(fs->commit(0, attributes_of(root)));
      fs->snapshots_.begin();
      fs->first_own_ = fs->names_.next_unused();
      return fs;
    }
  }
  EFS_TRY(fs->recover());
  if (!options.read_only && !options.takeover) {
    EFS_TRY(fs->convert_placed());
  }
  WriteLock lock(fs->mutex_);
  fs->first_own_ = fs->names_.next_unused();
  return fs;
}

Status Filesystem::new_connection() {
  WriteLock lock(mutex_);
  completed_requests_.clear();
  // A start on a full store: lost writes may have taken the room that events leave to it.
  return commit_at_any_room(NewConnection{});
}

Status Filesystem::commit(std::uint64_t request, const Record& record, std::int64_t reserve) {
  if (!journal_ || broken_) {
    return fail(EROFS);
  }
  EFS_TRY(refuse_remote(record));
  EFS_TRY(settle_before(record));
  try {
    EFS_TRY(prepare_append(record));
    EFS_TRY(append_with_room(request, reserve));
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
  completed_requests_.note(request, inode_of(record));
  const Status applied = apply_appended(record);
  note_remote();
  ChangeWatch* const watch = watch_;
  if (Inode* changed = names_.find(std::visit(ChangedInode{}, record))) {
    ++changed->edits;
    if (watch != nullptr) {
      watch->changed(changed->ino);
    }
  }
  if (watch != nullptr) {
    tell_of_names(*watch, names_, record);
  }
  if (!applied) {
    log::error("event=apply_failed reason=\"{}\"", reason_of(applied.error()));
  }
  compact_if_due();
  return applied;
}

// Reserves the memory of apply() before the append: its tables have room, and the rest needs much
// less than the spare memory. The spare memory does not help if a lowered limit is already
// exceeded, so this checks for memory too.
Status Filesystem::prepare_append(const Record& record) {
  names_.make_room(record);
  scratch_.clear();
  encode(record, scratch_);
  if (!spare_memory_.fill() || !can_allocate(8192 + 4 * scratch_.size())) {
    return fail(ENOMEM);
  }
  return {};
}

Status Filesystem::append_with_room(std::uint64_t request, std::int64_t reserve) {
  // After a record was rejected for missing room: shortens the journal before it takes the room
  // that a snapshot needs.
  if (snapshots_.is_refusing()) {
    (void)shortened_for_room();
  }
  if (broken_) {
    return fail(EROFS);
  }
  Status appended = append(request, reserve);
  if (!appended && appended.error().code == ENOSPC && !snapshots_.is_refusing() &&
      shortened_for_room()) {
    appended = append(request, reserve);
  }
  if (!appended && appended.error().code == EIO) {
    record_failed_append(appended.error());
  }
  return appended;
}

// Appends the record in scratch_.
Status Filesystem::append(std::uint64_t request, std::int64_t reserve) {
  return journal_->append(
      request, scratch_, reserve,
      backend_.durability() == Durability::volatile_memory ? 0 : durable_up_to());
}

// Without a page cache each record is as durable as the store right after the append.
std::uint64_t Filesystem::durable_up_to() const {
  if (!journal_ || broken_) {
    return 0;
  }
  return backend_.durability() == Durability::page ? durable_.load() : journal_->sequence();
}

std::uint64_t Filesystem::durable_records() const {
  ReadLock lock(mutex_);
  return durable_up_to();
}

// A shortage of space, memory or descriptors is temporary. A medium with write errors may have lost
// earlier records, so the file system becomes read-only, as after a failed sync.
void Filesystem::record_failed_append(const Error& error) {
  broken_ = true;
  log::error("event=journal_failed reason=\"{}\" action=\"read-only from now on\"",
             reason_of(error));
  record_failed_sync();
}

// The record is in the journal, so it must take effect, if necessary with the spare memory. If that
// fails, the file system becomes read-only. The spare memory is freed in pieces, because other
// threads may take freed memory first.
Status Filesystem::apply_appended(const Record& record) {
  do {
    try {
      return names_.apply(record);
    } catch (const std::bad_alloc&) {
    }
  } while (spare_memory_.give());
  broken_ = true;
  return fail(ENOMEM,
              "no memory for a change that is in the journal already: read-only from now on");
}

void Filesystem::compact_if_due() {
  if (!snapshots_.is_due(journal_->size())) {
    return;
  }
  if (saves_much()) {
    (void)compact_now();  // logged
  } else {
    snapshots_.put_off(journal_->size());
  }
}

bool Filesystem::compact_now() {
  const Status done = compact();
  const bool is_new = snapshots_.tried(done.has_value(), journal_->size());
  if (is_new && !done) {
    log::warn("event=snapshot_failed reason=\"{}\"", reason_of(done.error()));
  } else if (is_new) {
    log::info("event=snapshot_again");
  }
  return done.has_value();
}

// A journal without a snapshot can fill the store: earlier snapshots failed for missing descriptors
// or room that is available by now.
bool Filesystem::shortened_for_room() {
  if (!snapshots_.may_shorten(journal_->size()) || !saves_much() ||
      !snapshots_.refuse(names_.size()) || !compact_now()) {
    return false;
  }
  snapshots_.end_refusals();
  return true;
}

// A snapshot has about one record for each inode, and blocks all requests while it is written. For
// a small journal that takes almost no time.
bool Filesystem::saves_much() const {
  constexpr std::uint64_t small = 4U << 20U;
  const std::size_t lines = names_.size() + names_.ledger().size();
  return journal_->size() < small || journal_->records() > lines + lines / 2;
}

void Filesystem::compact_inherited() {
  WriteLock lock(mutex_);
  // no snapshot since the recovery
  const bool as_it_was =
      journal_ && snapshots_.has_begun() && journal_->size() >= recovery_.journal.tail;
  if (!as_it_was || broken_) {
    return;
  }
  const std::uint64_t records = journal_->sequence() - recovery_.journal.first_sequence + 1;
  if (records <= 2 * (names_.size() + CompletedRequests::capacity)) {
    return;
  }
  snapshots_.hasten(journal_->size());
  compact_if_due();
}

Status Filesystem::compact() try {
  bool switched = false;
  const Status done = journal_->replace(
      [this](store::Journal& next) EFS_REQUIRES(mutex_) -> Status {
        Status status;
        auto reserve = static_cast<std::int64_t>(event_room_.bytes());
        names_.snapshot([&](const Record& record) {
          if (!status) {
            return;
          }
          std::vector<std::byte> bytes;
          encode(record, bytes);
          const MakeNode* node = node_of(record);
          const auto* link = std::get_if<Link>(&record);
          const std::size_t name = node != nullptr   ? node->name.size()
                                   : link != nullptr ? link->name.size()
                                                     : 0;
          if (name != 0) {
            reserve += static_cast<std::int64_t>(store::Journal::record_size(name + 32));
          }
          status = next.append(0, bytes, std::exchange(reserve, 0));
        });
        completed_requests_.for_each([&](std::uint64_t request, std::uint64_t ino) {
          if (!status) {
            return;
          }
          std::vector<std::byte> bytes;
          encode(Answered{ino}, bytes);
          status = next.append(request, bytes, 0);
        });
        return status;
      },
      &switched);
  if (done) {
    durable_ = std::max(durable_.load(), journal_->sequence());
    still_marked_.clear();
    missed_events_.clear();  // the snapshot has all events that the former journal did not take
    if (event_room_.is_short()) {
      event_room_.restore(*journal_, reserve_for_removals());
    }
  } else if (switched) {  // power loss could restore the old journal without the following records
    broken_ = true;
    record_failed_sync();
  }
  return done;
} catch (const std::bad_alloc&) {  // before the switch: the switch and the rest do not allocate

  return fail(ENOMEM);
}

Result<Inode*> Filesystem::inode(std::uint64_t ino) const {
  Inode* found = names_.find(ino);
  if (found == nullptr) {
    return fail(ENOENT);
  }
  return found;
}

Result<Inode*> Filesystem::directory(std::uint64_t ino) const {
  Inode* found = names_.find(ino);
  if (found == nullptr) {
    return fail(ENOENT);
  }
  if (!found->is_directory()) {
    return fail(ENOTDIR);
  }
  return found;
}

Result<Inode*> Filesystem::regular(std::uint64_t ino) const {
  Inode* found = names_.find(ino);
  if (found == nullptr) {
    return fail(ENOENT);
  }
  if (found->is_directory()) {
    return fail(EISDIR);
  }
  if (!found->is_regular()) {
    return fail(EINVAL);
  }
  if (found->freed) {
    return fail(ESTALE);
  }
  if (found->is_remote()) {
    return not_here();
  }
  return found;
}

Status Filesystem::check_new_name(const Inode& parent, const std::string& name) const {
  if (name.size() > longest_name) {
    return fail(ENAMETOOLONG);
  }
  if (name == door_name) {
    return fail(EPERM, "the name " + name + " is the mount's own");
  }
  if (parent.nlink == 0) {
    return fail(ENOENT);  // a removed directory that is still a program's working directory
  }
  return parent.directory->find(name) == nullptr ? Status{} : fail(EEXIST);
}

// Programs that buffer in blocks of st_blksize (stdio) make few system calls, and few requests
// where there is no passthrough.
constexpr blksize_t preferred_io = 65536;

// Without the values that the container of a regular file has.
struct stat Filesystem::recorded_stat(const Inode& inode) {
  struct stat st{};
  st.st_ino = inode.ino;
  st.st_mode = inode.mode;
  st.st_nlink = inode.nlink;
  st.st_uid = inode.uid;
  st.st_gid = inode.gid;
  st.st_rdev = inode.rdev;
  st.st_blksize = inode.is_regular() ? preferred_io : 4096;
  st.st_atim = to_timespec(inode.atime);
  st.st_mtim = to_timespec(inode.mtime);
  st.st_ctim = to_timespec(inode.ctime);
  if (inode.is_directory()) {
    st.st_size = static_cast<off_t>(inode.directory->size() * 20 + 40);
  } else if (S_ISLNK(inode.mode)) {
    st.st_size = static_cast<off_t>(inode.extra->target.size());
  }
  return st;
}

FileTime shown_ctime(const Inode& inode, const struct stat& container) {
  const bool is_kept = inode.extra && inode.extra->kept_time &&
                       inode.extra->kept_time->ctime == FileTime(container.st_ctim) &&
                       inode.extra->kept_time->mtime == FileTime(container.st_mtim);
  return is_kept ? inode.extra->kept_time->shown : FileTime(container.st_ctim);
}

Result<struct stat> Filesystem::container_stat_of(const Inode& inode,
                                                  const ContainerPool::Ready* just_taken) const {
  if (inode.freed) {
    return *inode.freed;
  }
  if (inode.is_remote()) {
    return remote_stat_of(inode);
  }
  if (just_taken == nullptr || !just_taken->container) {
    return backend_.attributes(inode.ino);
  }
  return just_taken->unused ? *just_taken->unused : just_taken->container->attributes();
}

Result<struct stat> Filesystem::stat_of(const Inode& inode,
                                        const ContainerPool::Ready* just_taken) const {
  struct stat st = recorded_stat(inode);
  if (!inode.is_regular()) {
    return st;
  }
  if (const Content* content = inode.freed ? nullptr : inode.content()) {
    st.st_size = static_cast<off_t>(content->size);
    st.st_blocks = static_cast<blkcnt_t>(content->physical / 512 + (content->physical % 512 != 0));
    return st;
  }
  const auto container = container_stat_of(inode, just_taken);
  if (!container) {
    return std::unexpected(container.error());
  }
  st.st_size = container->st_size;
  st.st_blocks = container->st_blocks;
  if (!is_in_record(container->st_atim, inode.btime)) {
    st.st_atim = container->st_atim;
  }
  if (!is_in_record(container->st_mtim, inode.btime)) {
    st.st_mtim = container->st_mtim;
  }
  st.st_ctim = to_timespec(std::max(shown_ctime(inode, *container), inode.ctime));
  return st;
}

Result<std::shared_ptr<Container>> Filesystem::container(std::uint64_t ino) const {
  EFS_TRY(check_here(ino));
  auto opened = backend_.open(ino);
  EFS_TRY(check_here(ino));  // an eviction may have come before the open, and cannot come after it
  if (opened || opened.error().code != ENOENT) {
    return opened;
  }
  return fail(EIO, "container " + std::to_string(ino) + " is gone from the store");
}

Result<Entry> Filesystem::entry_of(const Inode& inode,
                                   const ContainerPool::Ready* just_taken) const {
  auto attributes = stat_of(inode, just_taken);
  // A program can remove and replace a file whose container is missing or invalid; only access to
  // its content fails. The kernel must not cache these attributes, because an administrator may
  // restore the container.
  if (!attributes && (attributes.error().code == ENOENT || attributes.error().code == EUCLEAN)) {
    return Entry{.ino = inode.ino,
                 .attributes = recorded_stat(inode),
                 .birth = inode.btime,
                 .may_change_unseen = true,
                 .may_change_now = true};
  }
  if (!attributes) {
    return std::unexpected(attributes.error());
  }
  return Entry{.ino = inode.ino,
               .attributes = *attributes,
               .birth = inode.btime,
               .may_change_unseen = inode.opened_read_write,
               // a fetch may bring another version (Remote::accepts)
               .may_change_now = inode.read_write_opens > 0 ||
                                 (inode.is_remote() && inode.extra->remote->accepts),
               .written_now = inode.write_opens > 0};
}

Result<Entry> Filesystem::referenced(std::uint64_t ino) {
  Inode* found = names_.find(ino);
  if (found == nullptr) {
    return fail(ENOENT);
  }
  auto entry = entry_of(*found);
  if (entry) {
    ++found->lookups;  // after an error the kernel drops no reference
  }
  return entry;
}

// R1: content must be durable before a record that ends the clean state of the file or drops its
// copy: only a clean file is imported again after power loss. Only recently imported or exported
// files are not settled.
Status Filesystem::settle_before(const Record& record) {
  const std::uint64_t ino = no_longer_on_pfs(record);
  const Inode* inode = ino != 0 ? names_.find(ino) : nullptr;
  if (inode == nullptr || !unsettled(*inode) || !options_.rules.sync_before_dirty) {
    return {};
  }
  slow_work_begins();
  auto container = backend_.open(inode->ino);
  // no container: power loss cannot take anything
  if (!container && container.error().code == ENOENT) {
    return {};
  }
  if (!container) {
    return std::unexpected(container.error());
  }
  EFS_TRY((*container)->sync(false));
  return backend_.sync_name(inode->ino);
}

void Filesystem::record_unsettled(std::uint64_t ino) {
  if (backend_.durability() == Durability::volatile_memory) {
    return;
  }
  try {
    unsettled_.push_back(ino);
  } catch (const std::bad_alloc&) {
  }  // imported again after power loss
}

void Filesystem::watch(ChangeWatch* watch) {
  const WriteLock lock(mutex_);
  watch_ = watch;
}

Status Filesystem::mark_dirty(std::uint64_t request, Inode& inode) {
  ++inode.edits;
  if (inode.dirty) {
    return {};
  }
  SetAttributes record = attributes_of(inode);
  record.dirty = 1;
  return commit(request, record);
}

// The seal is a mark on the container, so recovery and takeover need no record. Any imported file
// may be sealed, even after its import record was dropped with its names.
Status Filesystem::part_with_sharers(std::uint64_t ino) {
  std::string staged_as;
  {
    ReadLock lock(mutex_);
    const Inode* inode = names_.find(ino);
    if (inode == nullptr || !inode->is_regular() || inode->unshared) {
      return {};
    }
    if (const auto& imported = names_.files().of(ino).imported) {
      staged_as = imported->names.text();
    }
  }
  auto container = this->container(ino);
  if (!container) {
    return std::unexpected(container.error());
  }
  EFS_TRY(unseal_container(ino, **container, staged_as));
  ReadLock lock(mutex_);
  if (Inode* inode = names_.find(ino)) {
    inode->unshared = true;
  }
  return {};
}

Status Filesystem::unseal_container(std::uint64_t ino, Container& container,
                                    const std::string& staged_as) {
  auto now = container.attributes();
  if (!now || !is_sealed(*now)) {
    return now ? Status{} : std::unexpected(now.error());
  }
  slow_work_begins();
  MutexLock turn(parting_);
  // Another open of the same file may have unsealed it meanwhile, and a program may already write
  // to it; do not unseal it again.
  now = container.attributes();
  if (!now || !is_sealed(*now)) {
    return now ? Status{} : std::unexpected(now.error());
  }
  if (Sharer* sharer = sharer_) {
    sharer->part(container, staged_as);
  }
  // first the label: a container without label and seal belongs to no store
  EFS_TRY(backend_.label(ino));
  return unseal(container);
}

bool is_privilege(std::string_view xattr) {
  return xattr == "security.capability";
}

bool Filesystem::carries_privilege(std::uint64_t ino) const {
  ReadLock lock(mutex_);
  const Inode* inode = names_.find(ino);
  return inode == nullptr || inode->carries_privilege();
}

mode_t mode_without_privilege(const Caller& caller, const Inode& inode) {
  mode_t mode = inode.mode & ~static_cast<mode_t>(S_ISUID);
  if ((mode & S_ISGID) != 0 && ((mode & S_IXGRP) != 0 || !caller.belongs_to(inode.gid))) {
    mode &= ~static_cast<mode_t>(S_ISGID);
  }
  return mode;
}

Status Filesystem::clear_privilege(const Caller& caller, Inode& inode) {
  if (inode.is_directory()) {
    return {};
  }
  if (inode.xattr("security.capability") != nullptr) {
    EFS_TRY(commit(
        0, RemoveXattr{.ino = inode.ino, .time = clock_.now(), .name = "security.capability"}));
  }
  const mode_t mode = mode_without_privilege(caller, inode);
  if (mode == inode.mode) {
    return {};
  }
  SetAttributes record = attributes_of(inode);
  record.mode = mode;
  record.ctime = clock_.now();
  record.dirty = 1;
  return commit(caller.request, record);
}

Result<std::shared_ptr<MappedFile>> Filesystem::file(std::uint64_t ino) {
  {
    MutexLock lock(files_mutex_);
    if (const auto it = files_.find(ino); it != files_.end()) {
      return it->second;
    }
  }
  auto container = this->container(ino);
  if (!container) {
    return std::unexpected(container.error());
  }
  MutexLock lock(files_mutex_);
  // Limited like descriptors. A dropped object lives on with its users and is made again when
  // needed.
  if (files_.size() >= most_files) {
    std::erase_if(files_, [](const auto& entry) { return entry.second.use_count() == 1; });
  }
  const unsigned place = backend_.place_of(ino);
  const std::uint64_t segment_size =
      place < options_.segment_sizes.size() ? options_.segment_sizes[place] : options_.segment_size;
  return files_.try_emplace(ino, std::make_shared<MappedFile>(*container, segment_size))
      .first->second;
}

}  // namespace efs::fs
