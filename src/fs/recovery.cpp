// SPDX-License-Identifier: BSD-3-Clause
// Recovers a file system from its store: replays the journal, then reconciles namespace and
// containers.
#include <algorithm>

#include "base/log.hpp"
#include "base/shortage.hpp"
#include "base/slow_work.hpp"
#include "fs/filesystem.hpp"
#include "fs/ledger_records.hpp"
#include "fs/moved.hpp"
#include "fs/removal_reserve.hpp"

namespace efs::fs {
namespace {

constexpr const char* failure_name = "sync-failed";  // in the directory of the journal

std::uint64_t removal_size(const std::string& name) {
  return store::Journal::record_size(name.size() + 32);
}

// The space that the removals of all names need.
std::uint64_t reserve_for(const Namespace& names) {
  std::uint64_t reserve = 0;
  names.for_each_name(
      [&](const Inode&, const std::string& name, const Inode&) { reserve += removal_size(name); });
  return reserve;
}

// Bytes of a journal that begins with a snapshot of these names, with the space for their removal.
std::uint64_t snapshot_size(const Namespace& names) {
  std::uint64_t records = 0;
  names.snapshot([&](const Record& record) {
    std::vector<std::byte> payload;
    encode(record, payload);
    records += store::Journal::record_size(payload.size());
  });
  return store::Journal::file_size(records, reserve_for(names));
}

// A start cannot write the journal anew.
std::unexpected<Error> not_written_anew(const Error& error, std::uint32_t version,
                                        const Namespace& names) {
  if (!is_shortage(error.code)) {
    return with_context(error, "the journal cannot be written anew");
  }
  const auto room = [&names] {
    return std::to_string(snapshot_size(names) >> 20U) + " MiB";
  };
  std::string needs;
  switch (error.code) {
    case ENOSPC: needs = room() + ": free space or raise the capacity"; break;
    case EDQUOT:
      needs = room() + ", and the quota is used up: free space or raise the quota";
      break;
    case EMFILE:
      needs = "an open file, and this process may open no more: raise RLIMIT_NOFILE";
      break;
    case ENFILE: needs = "an open file, and the machine has no more: raise fs.file-max"; break;
    default: needs = "memory: free memory";
  }
  const std::string why = version == store::journal_version
                              ? "a sync of the journal has failed, so it"
                              : "the journal has format " + std::to_string(version) + " and";
  return fail(error.code, why + " must be written anew, which needs " + needs +
                              " and start again, or export with efs salvage");
}

}  // namespace

// A start after the death of all processes and a takeover differ only in the state of the kernel:
// its references, its open files without a name and its unanswered requests exist only in a
// takeover.
Status Filesystem::recover() {
  recovery_.found = true;
  {
    WriteLock lock(mutex_);
    EFS_TRY(replay());
    EFS_TRY(place_moved(names_, backend_));
    note_remote();
    look_for_failed_sync();
    auto emptied = EmptiedFiles::read(*medium_);
    // A salvage exports the rest, and a takeover serves programs.
    if (!emptied && !options_.takeover && !options_.read_only) {
      return fail(emptied.error().code,
                  "the list of the files whose content power loss took cannot be read: " +
                      describe(emptied.error()));
    }
    emptied_ = emptied ? std::move(*emptied) : EmptiedFiles();
    std::vector<std::uint64_t> containers;
    EFS_TRY(list_containers(containers));
    EFS_TRY(look_for_later(containers));
    if (journal_) {
      EFS_TRY(secure_journal());
    }
    if (journal_) {
      durable_ = journal_->sequence();
      rebuild_reserve();
    }
    settle_nameless(containers);
    EFS_TRY(doubt_events());
    EFS_TRY(finish_emptied());
    EFS_TRY(match_containers(containers));
    settle_rooms();
    recovery_.emptied_before = std::ranges::any_of(emptied_.inodes(), [this](std::uint64_t ino) {
      const auto attributes = backend_.attributes(ino);
      return attributes && emptied_.contains(ino, *attributes);
    });
    // Programs wait during a takeover, so the snapshot is made later.
    snapshots_.begin(options_.takeover && journal_ ? journal_->size() : 0);
  }
  if (broken_ && !options_.takeover) {
    return fail(EIO, "the journal cannot be written to");
  }
  return options_.read_only || broken_ ? Status{} : sync_journal();
}

void Filesystem::look_for_failed_sync() {
  const auto noted = medium_->open(failure_name, true);
  recovery_.sync_failed = noted || noted.error().code != ENOENT;
}

// A start fails until all containers can be listed. A takeover continues, because programs use the
// mount. A salvage continues, to export the rest.
Status Filesystem::list_containers(std::vector<std::uint64_t>& containers) {
  const Status listed = backend_.for_each([&](std::uint64_t id) { containers.push_back(id); });
  if (!listed && !options_.takeover && !options_.read_only) {
    return listed;
  }
  if (!listed) {
    recovery_.unlisted = describe(listed.error());
  }
  std::sort(containers.begin(), containers.end());
  return {};
}

Status Filesystem::replay() {
  const auto carry_out = [this](const store::Record& stored) EFS_REQUIRES(mutex_) -> Status {
    return replay_one(stored);
  };
  const auto note = [this](store::ReplayEnd end) {
    end.skipped = recovery_.journal.skipped;  // replay_one() has counted them
    recovery_.journal = end;
  };
  if (options_.read_only || is_out_of_reach()) {
    auto end = store::Journal::scan(*medium_, journal_name, carry_out,
                                    {.after_power_loss = options_.after_power_loss,
                                     .instance = options_.instance,
                                     .complete_to = options_.journal_to});
    if (!end) {
      return std::unexpected(end.error());
    }
    note(*end);
    return {};
  }
  auto journal = store::Journal::open(medium_, journal_name, carry_out,
                                      {.after_power_loss = options_.after_power_loss,
                                       .verify = options_.rules.stop_at_damage,
                                       .instance = options_.instance,
                                       .complete_to = options_.journal_to});
  if (!journal) {
    if (journal.error().code == EIO) {
      record_failed_sync();  // the error may come from the sync of the cleared journal tail
    }
    return std::unexpected(journal.error());
  }
  journal_ = std::move(*journal);
  note(journal_->replayed());
  if (recovery_.journal.skipped != 0) {
    log::warn("event=records_skipped records={} note=\"of a newer efs\"",
              recovery_.journal.skipped);
  }
  return {};
}

// True if the medium's file system has failed and is read-only. Programs can still read, and a
// stage-out exports the remaining files.
bool Filesystem::is_out_of_reach() {
  if (!options_.takeover) {
    return false;
  }
  const auto file = medium_->open(journal_name, false);
  if (file || file.error().code != EROFS) {
    return false;
  }
  log::error("event=journal_failed reason=\"{}\" action=\"read-only from now on\"",
             describe(file.error()));
  broken_ = true;
  return true;
}

// Makes the replayed records durable before anything is freed. On a page-cache file system the
// records may be in the page cache only. On persistent memory the dead worker may have been storing
// the last record, and power loss that takes it also takes the records after it. After a failed
// sync of this or an earlier process the kernel may mark lost pages clean, and the next sync would
// succeed without them. Then the whole journal is written again, to another file. The same makes a
// journal of the present format from one of an older efs, before anything is appended.
Status Filesystem::secure_journal() {
  const std::uint32_t version = recovery_.journal.version;
  if (!recovery_.sync_failed && version == store::journal_version) {
    const Status synced =
        backend_.durability() != Durability::volatile_memory ? journal_->sync() : Status{};
    if (!synced) {
      record_failed_sync();
    }
    return synced;
  }
  const Status written = compact();
  if (written && version != store::journal_version) {
    log::info("event=journal_converted from={} to={}", version, store::journal_version);
  }
  if (written) {
    return {};
  }
  log::error("event=journal_failed reason=\"{}\" action=\"{}\"", describe(written.error()),
             options_.takeover ? "read-only from now on" : "not opened");
  if (!options_.takeover) {
    return not_written_anew(written.error(), version, names_);
  }
  // Programs can still read, and a stage-out exports the remaining files.
  broken_ = true;
  journal_.reset();
  return {};
}

// The mark must survive only the process: after power loss the journal is read from the medium
// alone.
void Filesystem::record_failed_sync() {
  if (const auto noted = medium_->create(failure_name); !noted && noted.error().code != EEXIST) {
    log::error(
        "event=journal_failed reason=\"{}\" action=\"a recovery does not see the failed sync\"",
        describe(noted.error()));
  }
}

Status Filesystem::replay_one(const store::Record& stored) {
  const auto read = decode(stored.payload, stored.version);
  if (!read) {
    return std::unexpected(read.error());
  }
  if (!*read) {
    ++recovery_.journal.skipped;
    return {};
  }
  const Record& record = **read;
  if (std::holds_alternative<NewConnection>(record)) {
    completed_requests_.clear();
  }
  completed_requests_.note(stored.request, inode_of(record));
  return names_.apply(record);
}

std::uint64_t Filesystem::reserve_for_removals() const {
  return reserve_for(names_);
}

void Filesystem::rebuild_reserve() {
  if (const Status kept = journal_->set_reserve(reserve_for_removals() + event_room_.bytes());
      !kept) {
    log::warn("event=reserve_not_rebuilt reason=\"{}\" note=\"removals may need space\"",
              describe(kept.error()));
  }
}

void Filesystem::settle_rooms() {
  if (options_.takeover) {
    return room_.inherit();
  }
  if (!options_.read_only) {
    room_.give_back_left([this](std::uint64_t ino) EFS_REQUIRES_SHARED(mutex_) {
      const Inode* inode = names_.find(ino);
      return inode != nullptr && inode->is_regular();
    });
  }
}

// True if a takeover keeps this file without a name.
bool Filesystem::may_be_in_use(const Inode& nameless, bool has_container) const {
  return options_.takeover &&
         (!nameless.is_regular() || has_container || !recovery_.unlisted.empty());
}

// Handles files without a name. In a takeover the kernel may have them open. A freed file has no
// record, so replay finds it again, possibly without a container. After the death of all processes
// no program has one open (R3, R4).
void Filesystem::settle_nameless(std::vector<std::uint64_t>& containers) {
  if (options_.takeover) {
    names_.inherit_references();
    inherit_opens();
  } else {
    completed_requests_.clear();
  }
  for (const auto ino : names_.orphans()) {
    const auto container = std::lower_bound(containers.begin(), containers.end(), ino);
    const bool has_container = container != containers.end() && *container == ino;
    Inode& inode = *names_.find(ino);
    if (may_be_in_use(inode, has_container)) {
      if (has_container && inode.is_regular()) {
        unnamed_.insert(ino);
      }
      continue;
    }
    inode.lookups = 0;
    const Reaped reaped = reap(ino);
    ++recovery_.nameless;
    if (!reaped.gone || !has_container) {
      continue;
    }
    containers.erase(container);
    if (!reaped.waits && !options_.read_only) {
      backend_.remove(ino);
    }
  }
}

// An entry without a file: the kernel has forgotten the file, and the request that opened it was
// not repeated, because its program was killed.
void Filesystem::inherit_opens() {
  opens_.restore();
  opens_.for_each([this](std::uint64_t handle, const OpenFile& file) {
    mutex_.assert_held_shared();
    Inode* inode = names_.find(file.ino);
    if (inode != nullptr && inode->is_regular()) {
      inode->count_open(file.flags);
    } else {
      opens_.close(handle);
    }
  });
}

// True if the file has the names of its import and no others.
bool Filesystem::has_its_names_only(const Inode& wanted) const {
  const ledger::Names& imported = names_.files().of(wanted.ino).imported->names;
  bool only = true;
  names_.for_each_name([&](const Inode& parent, const std::string& name, const Inode& inode)
                           EFS_REQUIRES_SHARED(mutex_) {
                             if (&inode == &wanted) {
                               only = only && imported.contains(names_.path_of(parent, name));
                             }
                           });
  return only;
}

/// The finding of a recovery about a regular file and its container.
enum class Filesystem::Finding : std::uint8_t {
  good,
  unsettled,  // clean, and its content is not known to be durable
  doubtful,   // a stage-in imports it again: its content is gone, or may differ from the PFS
  missing,    // its content is gone, and the PFS does not have it
};

Filesystem::Finding Filesystem::finding_without_container(const Inode& inode) const {
  if (options_.takeover) {
    return Finding::missing;
  }
  // A stage-in imports an input again, but not an exported file or one with another name. Without
  // power loss, a process or an administrator has removed its container.
  const ledger::Files& files = names_.files();
  const bool comes_again =
      files.has_content(ledger_node(inode)) &&
      (options_.after_power_loss || (!files.of(inode.ino).exported && has_its_names_only(inode)));
  return comes_again ? Finding::doubtful : Finding::missing;
}

Filesystem::Finding Filesystem::finding_of(const Inode& inode,
                                           const std::vector<std::uint64_t>& there) const {
  const bool is_listed = std::binary_search(there.begin(), there.end(), inode.ino);
  const bool is_there =
      is_listed || (!recovery_.unlisted.empty() && backend_.attributes(inode.ino));
  if (!is_there) {
    return finding_without_container(inode);
  }
  if (!names_.files().has_content(ledger_node(inode)) || inode.settled ||
      backend_.durability() == Durability::volatile_memory) {
    return Finding::good;
  }
  // A clean file must equal the version on the PFS. After power loss only settled files are known
  // to.
  if (options_.after_power_loss) {
    return Finding::doubtful;
  }
  // After a failed sync no later sync can prove that they are durable.
  return recovery_.sync_failed ? Finding::good : Finding::unsettled;
}

// Matches regular files and containers (R4: the namespace decides which containers are in use).
// This holds in a takeover too: a container without a record had no reply, so no program has it
// open, and the thread that filled it died with the earlier worker.
Status Filesystem::match_containers(std::vector<std::uint64_t>& there) {
  const std::vector<std::uint64_t> unknown = unknown_among(there);
  if (options_.after_power_loss) {
    std::erase_if(there, [this](std::uint64_t id) {
      return backend_.ownership(id) == Ownership::unfinished;
    });
  }
  std::vector<std::uint64_t> missing, doubtful;
  names_.for_each([&](Inode& inode) EFS_REQUIRES(mutex_) {
    // without a name: the next start frees it if memory was missing
    if (!inode.is_regular() || (inode.nlink == 0 && inode.lookups == 0)) {
      return;
    }
    switch (finding_of(inode, there)) {
      case Finding::good: return;
      case Finding::unsettled: return unsettled_.push_back(inode.ino);
      case Finding::doubtful: return doubtful.push_back(inode.ino);
      case Finding::missing: return missing.push_back(inode.ino);
    }
  });
  EFS_TRY(fill_in(missing));
  recovery_.dropped = names_of(doubtful);
  EFS_TRY(drop_names(doubtful));
  recovery_.unknown_containers = unknown.size();
  free_unknown(unknown);
  return {};
}

std::vector<std::uint64_t> Filesystem::unknown_among(
    std::span<const std::uint64_t> containers) const {
  std::vector<std::uint64_t> unknown;
  for (const auto id : containers) {
    if (const Inode* inode = names_.find(id); inode == nullptr || !inode->is_regular()) {
      unknown.push_back(id);
    }
  }
  return unknown;
}

void Filesystem::free_unknown(std::span<const std::uint64_t> unknown) {
  if (!journal_ || !options_.rules.free_unknown || unknown.empty()) {
    return;
  }
  // Power loss may undo these removals, so a record marks the numbers as used. If the journal is
  // full, that holds only for the life of this process.
  const UsedInodes used{.next = unknown.back() + 1};
  if (used.next > names_.next_unused() && !commit(0, used)) {
    (void)names_.apply(used);
  }
  for (const auto id : unknown) {
    backend_.remove(id);
  }
}

// R4: a record assigns a number before the container is made. So without power loss, a container
// with an unassigned number shows that records are missing, and the containers may be the only
// remainder of their files.
Status Filesystem::look_for_later(const std::vector<std::uint64_t>& containers) {
  if (options_.after_power_loss || containers.empty() || containers.back() < names_.next_unused()) {
    return {};
  }
  recovery_.not_the_last = true;
  if (!journal_) {
    return {};
  }
  return fail(EUCLEAN, "the store has container " + std::to_string(containers.back()) +
                           ", but the journal ends at number " +
                           std::to_string(names_.next_unused() - 1) +
                           ": the journal is older than its store, or cut short. Nothing was "
                           "removed. Restore the newest journal");
}

// Files whose containers power loss took become empty: they were never synced. Without power loss
// the containers were removed otherwise, and an empty file could replace a result. So the names
// then stay without a container, every read fails, and a stage-out lists each of them. Opening an
// offline store read-only drops the names, unless some containers could not be listed.
Status Filesystem::fill_in(const std::vector<std::uint64_t>& missing) {
  if (missing.empty()) {
    return {};
  }
  const bool may_be_there = options_.takeover || !recovery_.unlisted.empty();
  if (may_be_there || (journal_ && !options_.after_power_loss)) {
    recovery_.lost = names_of(missing);
    return {};
  }
  recovery_.emptied = names_of(missing);
  if (!journal_) {
    return drop_names(missing);
  }
  return make_empty(missing);
}

// A stage-out, by this process or a later one, names them as failed: nothing tells a result from a
// file that the job made empty. Their mtime is the mark, in whole seconds for any file system.
Status Filesystem::make_empty(std::span<const std::uint64_t> missing) {
  FileTime mark = clock_.now();
  mark.nanoseconds = 0;
  const auto exists = [this](std::uint64_t ino) EFS_REQUIRES(mutex_) {
    return names_.find(ino) != nullptr;
  };
  if (const Status listed = emptied_.add(*medium_, missing, mark, exists); !listed) {
    return fail(listed.error().code,
                "the list of the files whose content power loss took cannot be written: " +
                    describe(listed.error()));
  }
  for (const auto ino : missing) {
    log::warn("event=container_missing ino={} action=\"made empty\"", ino);
    if (const Status made = make_empty(ino, mark); !made) {
      return fail(made.error().code,
                  "container " + std::to_string(ino) + ": " + describe(made.error()));
    }
  }
  EFS_TRY(backend_.sync_all());
  return emptied_.finish(*medium_);
}

// An earlier recovery died while it made these files empty. Without the mark such a file would look
// like an empty result.
Status Filesystem::finish_emptied() {
  const auto inos = emptied_.unfinished();
  if (inos.empty() || !journal_) {
    return {};
  }
  for (const auto ino : inos) {
    const auto attributes = backend_.attributes(ino);
    if (attributes && attributes->st_size == 0) {
      EFS_TRY(backend_.set_times(ino, std::nullopt, emptied_.unfinished_mark()));
    }
  }
  EFS_TRY(backend_.sync_all());
  return emptied_.finish(*medium_);
}

// Where it is already: made anew in another backend, the next power loss could leave both.
Status Filesystem::make_empty(std::uint64_t ino, FileTime mark) {
  if (backend_.ownership(ino) == Ownership::unfinished) {
    EFS_TRY(backend_.label(ino));
  } else if (const auto made = backend_.create(ino); !made) {
    return std::unexpected(made.error());
  }
  return backend_.set_times(ino, std::nullopt, mark);
}

std::vector<std::string> Filesystem::names_of(std::vector<std::uint64_t> inodes) const {
  std::vector<std::string> names;
  if (inodes.empty()) {
    return names;
  }
  std::sort(inodes.begin(), inodes.end());
  names_.for_each_name([&](const Inode& parent, const std::string& name, const Inode& inode)
                           EFS_REQUIRES_SHARED(mutex_) {
                             if (std::binary_search(inodes.begin(), inodes.end(), inode.ino)) {
                               names.push_back(names_.path_of(parent, name));
                             }
                           });
  std::ranges::sort(names);
  return names;
}

Status Filesystem::commit_if_writable(const Record& record, std::int64_t reserve) {
  return journal_ ? commit(0, record, reserve) : names_.apply(record);
}

std::vector<Unlink> Filesystem::removals_of(std::span<const std::uint64_t> sorted) const {
  std::vector<Unlink> records;
  names_.for_each_name([&](const Inode& parent, const std::string& name, const Inode& inode) {
    if (!std::binary_search(sorted.begin(), sorted.end(), inode.ino)) {
      return;
    }
    records.push_back({.parent = parent.ino, .time = parent.mtime, .name = name});
  });
  return records;
}

Status Filesystem::drop_names(const std::vector<std::uint64_t>& inodes) {
  if (inodes.empty()) {
    return {};
  }
  std::vector<std::uint64_t> sorted = inodes;
  std::sort(sorted.begin(), sorted.end());
  const std::vector<Unlink> records = removals_of(sorted);
  // Records first that the file was lost, so that the removal does not count as the job's.
  for (const auto ino : sorted) {
    SetStaging staging = names_.staging_of(*names_.find(ino));
    if (staging.staged == 0) {
      continue;
    }
    staging.parts = ledger::FileEntry::leaves;
    EFS_TRY(commit_if_writable(staging, 0));
  }
  for (const auto& record : records) {
    EFS_TRY(commit_if_writable(record, -static_cast<std::int64_t>(removal_size(record.name))));
  }
  for (const auto ino : sorted) {
    if (const Reaped reaped = reap(ino);
        reaped.container != 0 && !reaped.waits && !options_.read_only) {
      backend_.remove(reaped.container);
    }
  }
  return {};
}

Status Filesystem::sync_journal() {
  if (backend_.durability() != Durability::page) {
    return {};
  }
  slow_work_begins();
  const auto point_now = [this] {
    ReadLock lock(mutex_);
    return journal_ ? journal_->sync_point() : store::Journal::SyncPoint{};
  };
  const std::uint64_t wanted = point_now().sequence;
  MutexLock lock(sync_mutex_);
  if (broken_) {
    return fail(EIO);
  }
  if (durable_ < wanted) {
    // Read it again: this sync also covers records that were appended while this thread waited.
    const auto point = point_now();
    if (const Status done = point.file->sync(); !done) {
      // After a failed fsync the kernel may mark lost pages clean: a later success would prove
      // nothing.
      broken_ = true;
      log::error("event=journal_failed reason=\"{}\" action=\"read-only from now on\"",
                 describe(done.error()));
      record_failed_sync();
      return done;
    }
    durable_ = std::max(durable_.load(), point.sequence);
  }
  free_released();
  return {};
}

void Filesystem::free_released() {
  const Removing removing(removals_);
  std::vector<std::uint64_t> inodes;
  {
    WriteLock lock(mutex_);
    const auto waits = std::find_if(released_.begin(), released_.end(),
                                    [&](const Released& r) { return r.sequence > durable_; });
    for (auto it = released_.begin(); it != waits; ++it) {
      inodes.push_back(it->ino);
    }
    released_.erase(released_.begin(), waits);
  }
  if (inodes.empty()) {
    return;
  }
  for (const auto ino : inodes) {
    backend_.remove(ino);
  }
  removals_.note();
}

void Filesystem::tend() {
  if (backend_.durability() == Durability::volatile_memory) {
    return;
  }
  bool due = ++tended_ % 5 == 0;
  if (!due) {
    ReadLock lock(mutex_);
    due = !released_.empty();
  }
  if (due) {
    (void)sync_journal();
  }
  if (const Status settled = settle(); !settled) {
    log::warn("event=not_settled reason=\"{}\"", describe(settled.error()));
  }
}

}  // namespace efs::fs
