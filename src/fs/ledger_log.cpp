// SPDX-License-Identifier: BSD-3-Clause
// The events of the ledger in the journal, and what becomes of those that it does not take.
#include "fs/ledger_log.hpp"

#include <new>
#include <span>
#include <utility>

#include "base/log.hpp"
#include "fs/filesystem.hpp"
#include "fs/placed_file.hpp"

namespace efs::fs {
namespace {

Record record_of(const ledger::Event& event) {
  return std::visit([](const auto& one) -> Record { return one; }, event);
}

std::int64_t size_of(const Record& record) {
  std::vector<std::byte> bytes;
  encode(record, bytes);
  return static_cast<std::int64_t>(store::Journal::record_size(bytes.size()));
}

bool is_full(const Status& done) {
  return !done && (done.error().code == ENOSPC || done.error().code == EDQUOT);
}

}  // namespace

void LedgerLog::reserve_room() {
  const WriteLock lock(filesystem_.mutex_);
  if (!filesystem_.journal_ || filesystem_.broken_) {
    return;
  }
  filesystem_.event_room_.reserve(*filesystem_.journal_, filesystem_.reserve_for_removals(),
                                  EventRoom::wanted_for(filesystem_.backend_.space().capacity));
}

void LedgerLog::read(const std::function<void(const ledger::Ledger&)>& look) const {
  const ReadLock lock(filesystem_.mutex_);
  look(filesystem_.names_.ledger());
}

Status LedgerLog::append(
    const std::function<std::vector<ledger::Event>(const ledger::Ledger&)>& make,
    std::optional<Nanoseconds> since) {
  const WriteLock lock(filesystem_.mutex_);
  Status all;
  for (const auto& event : make(filesystem_.names_.ledger())) {
    const Status one = filesystem_.commit_event(event);
    all = all ? one : all;
  }
  if (!all && since) {
    filesystem_.record_missed_events(*since);
  }
  return all;
}

Status LedgerLog::sync() {
  {
    const WriteLock lock(filesystem_.mutex_);
    filesystem_.record_missing_events();
  }
  return filesystem_.sync_journal();
}

/// On a full store it uses the room that was reserved for events.
Status Filesystem::commit_event(const ledger::Event& event) {
  const Record record = record_of(event);
  Status done = commit(0, record);
  if (const auto size = is_full(done) ? size_of(record) : 0;
      size > 0 && event_room_.has(static_cast<std::uint64_t>(size))) {
    done = commit(0, record, -size);
    if (done) {
      event_room_.use(static_cast<std::uint64_t>(size));
    }
  }
  if (done) {
    return done;
  }
  // This process goes on, and knows what it did.
  try {
    (void)names_.apply(record);
  } catch (const std::bad_alloc&) {
    (void)names_.apply(ledger::Missed{});
  }
  return done;
}

void Filesystem::record_missed_events(Nanoseconds since) {
  if (missed_events_.is_recorded(since)) {
    return;
  }
  if (snapshots_.is_refusing() && shortened_for_room()) {
    return;  // the snapshot has the event
  }
  const ledger::Missed missed{missed_events_.add(since)};
  // This process misses nothing, so it does not apply the record. The journal has space for it as
  // for a removal.
  scratch_.clear();
  encode(missed, scratch_);
  const auto size = static_cast<std::int64_t>(store::Journal::record_size(scratch_.size()));
  const Status done = journal_ && !broken_ ? append(0, -size) : fail(EROFS);
  if (is_full(done)) {
    return;
  }
  missed_events_.set_recorded();
  if (done) {
    return;
  }
  if (done.error().code == EIO) {
    record_failed_append(done.error());
  } else {
    record_failed_sync();  // see doubt_events()
  }
}

void Filesystem::record_missing_events() {
  if (!missed_events_.any() || !journal_ || broken_ || !compact()) {
    return;
  }
  snapshots_.made(journal_->size());
}

/// Other records fail until this room is there again: set_reserve() need not find it now.
Status Filesystem::commit_at_any_room(const Record& record) {
  Status done = commit(0, record);
  if (!is_full(done)) {
    return done;
  }
  const std::uint64_t size = store::Journal::record_size(scratch_.size());  // of this record
  done = commit(0, record, -static_cast<std::int64_t>(size));
  if (done) {
    (void)journal_->set_reserve(journal_->reserve() + size);
  }
  return done;
}

/// After a failed sync or append of an earlier process, its later exports have no record. Power
/// loss on a page cache took the events behind the last sync: those of files that are newer than
/// the newest event that is left.
Status Filesystem::doubt_events() {
  if (recovery_.sync_failed) {
    EFS_TRY(names_.apply(ledger::Missed{}));
  }
  const auto newest = names_.ledger().newest_export();
  if (!options_.after_power_loss || backend_.durability() != Durability::page || !newest) {
    return {};
  }
  const ledger::Missed lost{*newest};
  return journal_ ? commit_at_any_room(lost) : names_.apply(lost);
}

/// They are events of a salvage, or of an efs whose journal had none, and older than all that this
/// life of the store will do. A process that dies before the file is removed leaves a journal with
/// some of them; the next one appends all of them again. A takeover finds none: the start that it
/// follows has moved them.
Status Filesystem::convert_placed() {
  std::vector<ledger::Event> events;
  EFS_TRY(PlacedFile::events(*medium_, [&](const ledger::Event& one) { events.push_back(one); }));
  if (events.empty()) {
    return {};
  }
  {
    const WriteLock lock(mutex_);
    if (const Status done = commit_placed(events); !done) {
      return with_context(done.error(), "the exports in meta/placed cannot be put in the journal");
    }
  }
  EFS_TRY(sync_journal());
  EFS_TRY(medium_->remove(placed_name));
  EFS_TRY(medium_->sync_names());
  log::info("event=exports_converted events={}", events.size());
  return {};
}

Status Filesystem::commit_placed(std::span<const ledger::Event> events) {
  for (const auto& event : events) {
    EFS_TRY(commit_at_any_room(record_of(event)));
  }
  rebuild_reserve();
  return {};
}

}  // namespace efs::fs
